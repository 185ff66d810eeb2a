//! Slots: the dense index that kernel records have for a cgroup. Owns handing slots out and taking them back; knows no signal.
//! The kernel's half is `ebpf/bpf/include/cgroup.h`.

use crate::attach::loader::{LoadError, LoadedObject};
use crate::attach::mapping::Mapping;
use crate::name::cgroup::Mounts;
use crate::window::CgroupId;
use aya::maps::{HashMap, MapData, Queue};
use procfs::CGroupControllers;
use std::sync::atomic::Ordering;
use tailwater_ebpf::record::WINDOWS;
use tailwater_ebpf::sched::SlotState;

/// What found no free slot is counted together under this id; real cgroups never have it.
pub const OTHER: CgroupId = CgroupId(0);

const WORDS: usize = size_of::<SlotState>() / 8;

/// The slots of one object.
pub struct Slots {
    states: Mapping,
    by_id: HashMap<MapData, u64, u32>,
    free: Queue<MapData, u32>,
    entities: u32,
    released: u64,
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("entities", &self.entities).finish_non_exhaustive()
    }
}

/// Sizes the maps of `cgroup.h` in a plan for `entities` slots, the shared slot 0 included.
pub fn plan<'a>(
    plan: crate::attach::loader::ObjectPlan<'a>,
    entities: u32,
    hierarchy: u32,
) -> crate::attach::loader::ObjectPlan<'a> {
    plan.max_entries("slots", entities)
        .max_entries("free_slots", entities)
        .max_entries("slot_states", entities)
        .global("cfg_entities", entities)
        .global("cfg_cgroup_hierarchy", hierarchy)
}

impl Slots {
    /// Takes the maps of `cgroup.h` and fills the queue of free slots. Call before attaching.
    pub fn open(object: &mut LoadedObject, entities: u32) -> Result<Self, LoadError> {
        let states = object.mapping_for_writing("slot_states", entities as usize * size_of::<SlotState>())?;
        let by_id = HashMap::try_from(object.take_map("slots")?).map_err(|e| object.map_error("slots", e))?;
        let mut free: Queue<MapData, u32> =
            Queue::try_from(object.take_map("free_slots")?).map_err(|e| object.map_error("free_slots", e))?;
        for slot in 1..entities {
            free.push(slot, 0).map_err(|e| object.map_error("free_slots", e))?;
        }
        Ok(Self { states, by_id, free, entities, released: 0 })
    }

    /// All slots, slot 0 included.
    pub fn entities(&self) -> u32 {
        self.entities
    }

    /// Whose slot it is; `None`: free. Slot 0 is [`OTHER`].
    pub fn owner(&self, slot: u32) -> Option<CgroupId> {
        if slot == 0 {
            return Some(OTHER);
        }
        if slot >= self.entities {
            return None;
        }
        let id = self.states.word(slot as usize * WORDS).load(Ordering::Acquire);
        (id != 0).then_some(CgroupId(id))
    }

    /// Lookups that found no free slot, of a task once, and were counted under [`OTHER`].
    pub fn overflows(&self) -> u32 {
        (self.states.word(1).load(Ordering::Relaxed) >> 32) as u32
    }

    /// Slots given back so far.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Gives back the slots of removed cgroups whose last record, as `newest` tells, is 64 windows old at `window`.
    pub fn release_removed(&mut self, window: u64, mut newest: impl FnMut(u32) -> u64) {
        for slot in 1..self.entities {
            let Some(CgroupId(id)) = self.owner(slot) else { continue };
            let removed = self.states.word(slot as usize * WORDS + 1).load(Ordering::Acquire) as u32;
            if removed == 0 || newest(slot) + WINDOWS >= window {
                continue;
            }
            self.release(slot, id);
        }
    }

    fn release(&mut self, slot: u32, id: u64) {
        // The kernel finds no slot for the id from here on; then the slot is nobody's; then it may be taken again. An error
        // leaves the slot in use: it is tried again later.
        if self.by_id.remove(&id).is_err() {
            return;
        }
        self.states.store(slot as usize * WORDS, 0);
        self.states.store(slot as usize * WORDS + 1, 0);
        if self.free.push(slot, 0).is_ok() {
            self.released += 1;
            // The lower half of the word is what tasks without a slot look at before they ask again; the upper one is the kernel's.
            self.states.word(1).fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The hierarchy whose cgroups are the workloads: 0 where a cgroup2 is mounted, else that of the v1 cpu controller.
pub fn cgroup_hierarchy() -> u32 {
    match (Mounts::read(), procfs::cgroups()) {
        (Ok(mounts), Ok(controllers)) => hierarchy_of(&mounts, &controllers),
        _ => 0,
    }
}

fn hierarchy_of(mounts: &Mounts, controllers: &CGroupControllers) -> u32 {
    match mounts.unified {
        Some(_) => 0,
        None => controllers.0.iter().find(|c| c.name == "cpu").map_or(0, |c| c.hierarchy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead;

    const CPU: &str = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
    const UNIFIED: &str = "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const CGROUPS: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\ncpu\t7\t1\t1\n";

    fn hierarchy(mountinfo: &str, cgroups: &str) -> u32 {
        let controllers = CGroupControllers::from_buf_read(cgroups.as_bytes()).unwrap();
        hierarchy_of(&Mounts::parse(mountinfo), &controllers)
    }

    #[test]
    fn a_mounted_cgroup2_is_the_identity() {
        assert_eq!(hierarchy(&format!("{CPU}{UNIFIED}"), CGROUPS), 0);
    }

    #[test]
    fn without_it_the_cpu_controllers_hierarchy_is() {
        assert_eq!(hierarchy(CPU, CGROUPS), 7);
        assert_eq!(hierarchy("", ""), 0);
    }
}
