//! Entities over cgroup trees made for them.

use super::forgetting::{CROWDED, FORGOTTEN_AFTER_WINDOWS};
use super::*;
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;

fn entities(folder: &Path) -> Entities {
    let mounts = Mounts { unified: Some(folder.to_owned()), ..Mounts::default() };
    Entities::new(mounts, folder)
}

/// After its first window.
fn begun(folder: &Path) -> (Entities, u64) {
    let (mut entities, window) = (entities(folder), 100);
    entities.refresh(window, None);
    (entities, window)
}

fn cgroup(folder: &Path, path: &str) -> CgroupId {
    std::fs::create_dir_all(folder.join(path)).unwrap();
    CgroupId(std::fs::metadata(folder.join(path)).unwrap().ino())
}

fn listener(owner: CgroupId) -> ListenerKey {
    ListenerKey { netns: 1, address: Ipv6Addr::UNSPECIFIED, port: 80, owner, pid: 0 }
}

#[test]
fn a_cgroup_made_later_is_found_by_the_next_walk() {
    let folder = tempfile::tempdir().unwrap();
    let first = cgroup(folder.path(), "a.service");
    let mut entities = entities(folder.path());
    assert!(entities.refresh(100, None), "quotas are read with the first window");
    assert_eq!(entities.workload(first), 1);
    let later = cgroup(folder.path(), "b.service");
    assert_eq!(entities.workload(later), 0);
    entities.refresh(101, None);
    assert_eq!(entities.workload(later), 2);
    assert_eq!(entities.workload(first), 1, "ids stay");
    let names: Vec<String> = entities
        .take_changed()
        .into_iter()
        .filter_map(|c| match c {
            Named::Workload(w) => Some(w.names.name),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["a.service", "b.service"]);
    assert_eq!(entities.take_changed(), []);
}

#[test]
fn walks_that_are_asked_for_rest_as_long_as_they_are_dear_and_no_value_is_lost_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (mut entities, _) = begun(folder.path());
    // As if the last walk had taken 40 ms.
    entities.walk_pace.took(100 * WINDOW_NS, 40_000_000, WALK_RESTS);
    let later = cgroup(folder.path(), "b.service");
    for window in [101, 102, 139] {
        assert_eq!(entities.workload(later), 0);
        let other = entities.row(later);
        assert!(other != 0 && other == entities.workload(CgroupId::default()), "its values have a row");
        entities.refresh(window, None);
    }
    entities.refresh(140, None);
    let id = entities.workload(later);
    assert!(id != 0 && id != entities.other && id == entities.row(later));
    assert_eq!(entities.row(CgroupId(u64::MAX)), entities.other, "asked for with this");
    // The clock is set back by some seconds: the tree is walked all the same.
    entities.walk_pace.took(140 * WINDOW_NS, 20 * WINDOW_NS, WALK_RESTS);
    entities.refresh(50, None);
    assert_eq!(entities.row(CgroupId(u64::MAX)), 0, "it was not found");
}

#[test]
fn a_listener_keeps_its_id_when_its_owner_becomes_known() {
    let folder = tempfile::tempdir().unwrap();
    let owner = cgroup(folder.path(), "web");
    let mut entities = entities(folder.path());
    let id = entities.listener(listener(CgroupId(0)));
    assert_eq!(entities.listener(listener(owner)), id);
    assert_eq!(entities.listener(listener(CgroupId(0))), id);
    let changed = entities.take_changed();
    let owners: Vec<u32> = changed
        .iter()
        .filter_map(|c| match c {
            Named::Listener(l) => Some(l.workload),
            _ => None,
        })
        .collect();
    assert_eq!(owners, [0, 1], "told twice, with and without owner");
}

#[test]
fn a_container_that_was_met_before_its_name_gets_it_and_keeps_its_id() {
    const ID: &str = "4bca1a6ad5e9ff4ba5a8cf6bb62e6eb9b0f0e3d24ff1a0b6a3c5d7e9f1234567";
    let folder = tempfile::tempdir().unwrap();
    let pod = cgroup(folder.path(), &format!("kubepods/{ID}"));
    std::fs::write(
        folder.path().join(format!("kubepods/{ID}/cgroup.procs")),
        format!("{}\n", std::process::id()),
    )
    .unwrap();
    let mut entities = entities(folder.path());
    entities.refresh(100, None);
    let id = entities.workload(pod);
    let name = |entities: &Entities| entities.workload_of(pod).unwrap().names.name.clone();
    assert_eq!(name(&entities), ID[..12]);
    entities.take_changed();
    entities.aside.settle();
    entities.refresh(100 + QUOTA_PERIOD_WINDOWS, None);
    assert_eq!(entities.take_changed(), [], "no name yet, and nothing to tell");
    entities.aside.settle();
    let logs = folder.path().join("var/log/containers");
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join(format!("shop-1_default_web-{ID}.log")), "").unwrap();
    entities.refresh(100 + 2 * QUOTA_PERIOD_WINDOWS, None);
    entities.aside.settle();
    entities.refresh(100 + 3 * QUOTA_PERIOD_WINDOWS, None);
    assert_eq!(name(&entities), "default/shop-1/web");
    assert_eq!((entities.take_changed().len(), entities.workload(pod)), (1, id));
    assert!(entities.unsettled.is_empty(), "it is not asked for ever");
}

/// The engine's file is a pipe that nobody writes to, as a disk that does not answer.
#[test]
fn a_disk_that_stalls_holds_up_no_window() {
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let folder = tempfile::tempdir().unwrap();
    let container = cgroup(folder.path(), &format!("docker/{ID}"));
    std::fs::write(
        folder.path().join(format!("docker/{ID}/cgroup.procs")),
        format!("{}\n", std::process::id()),
    )
    .unwrap();
    let state = folder.path().join("var/lib/docker/containers").join(ID);
    std::fs::create_dir_all(&state).unwrap();
    let file = std::ffi::CString::new(state.join("config.v2.json").to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a zero and lives through the call.
    assert_eq!(unsafe { libc::mkfifo(file.as_ptr(), 0o600) }, 0);
    let (mut entities, mut window) = begun(folder.path());
    entities.workload(container);
    for _ in 0..3 {
        wait(&mut entities, &mut window, QUOTA_PERIOD_WINDOWS);
    }
    let name = |entities: &Entities| entities.workload_of(container).unwrap().names.name.clone();
    assert_eq!(name(&entities), ID[..12], "it has its id for a name meanwhile");
    std::fs::write(state.join("config.v2.json"), r#"{"Name":"/front"}"#).unwrap();
    entities.aside.settle();
    wait(&mut entities, &mut window, QUOTA_PERIOD_WINDOWS);
    assert_eq!(name(&entities), "front");
}

/// So many windows later.
fn wait(entities: &mut Entities, window: &mut u64, windows: u64) {
    *window += windows;
    entities.refresh(*window, None);
}

#[test]
fn a_hundred_thousand_restarted_services_leave_room_for_the_next() {
    const AT_A_TIME: u64 = 125;
    let folder = tempfile::tempdir().unwrap();
    let keeper = cgroup(folder.path(), "keeper.service");
    let (mut entities, mut window) = begun(folder.path());
    let kept = entities.workload(keeper);
    let kept_listener = entities.listener(listener(keeper));
    let (mut last, mut told) = (0, 0);
    // A service lives for a minute, and is another cgroup with another port after it. Inodes come from a counter, as cgroups' do.
    for round in 0..100_000 / AT_A_TIME {
        let now: Vec<CgroupId> =
            (0..AT_A_TIME).map(|n| CgroupId(1_000_000 + round * AT_A_TIME + n)).collect();
        for (n, id) in now.iter().enumerate() {
            entities.tree.pretend(*id, &format!("/job-{n}.service"));
        }
        for (n, id) in now.iter().enumerate() {
            let workload = entities.workload(*id);
            assert!(workload > last, "ids are never used again");
            let socket = ListenerKey { port: 1 + n as u16, netns: 2 + round as u32, ..listener(*id) };
            assert_ne!(entities.listener(socket), 0, "round {round}");
            last = workload;
        }
        assert_eq!(entities.workload(keeper), kept);
        wait(&mut entities, &mut window, 1200);
        told += entities.take_changed().iter().filter(|n| matches!(n, Named::Gone(..))).count();
    }
    assert_eq!(entities.refused(), 0);
    assert!(told > 190_000, "{told} of 200,000 are told as gone");
    assert!(entities.seen.len() < 3_000 && entities.by_id.len() < 1_500, "{}", entities.seen.len());
    assert_eq!(entities.listener(listener(keeper)), kept_listener, "idle for days, and still there");
}

#[test]
fn what_belongs_to_something_keeps_it_and_a_server_that_shares_goes_with_its_cgroup() {
    let folder = tempfile::tempdir().unwrap();
    let owner = cgroup(folder.path(), "web");
    let (mut entities, mut window) = begun(folder.path());
    let (workload, socket) = (entities.workload(owner), entities.listener(listener(owner)));
    std::fs::remove_dir(folder.path().join("web")).unwrap();
    wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS - 10);
    assert_eq!(entities.listener(listener(owner)), socket, "it has a value again");
    entities.take_changed();
    wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS - 10);
    assert_eq!(entities.take_changed(), [], "the workload had none for long, but its listener had");
    wait(&mut entities, &mut window, WALK_PERIOD_WINDOWS);
    assert_eq!(
        entities.take_changed(),
        [Named::Gone(Kind::Listener, socket), Named::Gone(Kind::Workload, workload)]
    );
    let again = cgroup(folder.path(), "web");
    wait(&mut entities, &mut window, WALK_PERIOD_WINDOWS);
    assert_eq!((entities.workload(again), entities.listener(listener(again))), (workload + 1, socket + 1));
}

#[test]
fn a_crowd_of_idle_listeners_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let owner = cgroup(folder.path(), "runner");
    let (mut entities, mut window) = begun(folder.path());
    for port in 1..=u16::try_from(CROWDED).unwrap() + 1 {
        entities.listener(ListenerKey { port, ..listener(owner) });
    }
    entities.take_changed();
    wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS / 2);
    entities.listener(ListenerKey { port: 1, ..listener(owner) });
    wait(&mut entities, &mut window, FORGOTTEN_AFTER_WINDOWS / 2 + 1);
    assert_eq!(entities.take_changed().len(), CROWDED, "all but the one that was in use");
    assert_eq!(entities.listeners.len(), 1);
}

#[test]
fn what_has_no_room_is_one_workload_with_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut entities = entities(folder.path());
    entities.refresh(100, None);
    for n in 0..ENTITIES_MAX as u64 {
        entities.tree.pretend(CgroupId(1_000_000 + n), &format!("/job-{n}.service"));
        assert_ne!(entities.workload(CgroupId(1_000_000 + n)), 0);
    }
    entities.take_changed();
    let more = CgroupId(3_000_000);
    entities.tree.pretend(more, "/late.service");
    let other = entities.workload(more);
    assert_ne!(other, 0);
    assert_eq!(entities.workload(CgroupId::default()), other, "what the kernel's tables had no room for");
    assert_eq!((entities.refused(), entities.workload(CgroupId(4_000_000))), (1, 0), "not walked to yet");
    let named = entities.take_changed();
    let [Named::Workload(w)] = &named[..] else { panic!("{named:?}") };
    assert_eq!((w.id, w.names.name.as_str()), (other, "~other"));
    let edge = EdgeKey {
        netns: 1,
        workload: CgroupId::default(),
        remote_address: Ipv6Addr::LOCALHOST,
        remote_port: 80,
    };
    let id = entities.edge(edge);
    let named = entities.take_changed();
    assert!(matches!(&named[..], [Named::Edge(e)] if e.id == id && e.workload == 0), "{named:?}");
}

#[test]
fn entities_are_bounded_and_the_rest_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut entities = entities(folder.path());
    for i in 0..ENTITIES_MAX + 3 {
        entities.device(&format!("d{i}"));
    }
    assert_eq!(entities.refused(), 3);
    assert_eq!(entities.device("d0"), 1);
}
