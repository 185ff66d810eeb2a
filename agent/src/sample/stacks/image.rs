//! The code that a process has mapped: by which addresses become functions, and registers with the top of a stack become callers. Owns `/proc/PID/maps`
//! and which files are kept; knows no sample.

use super::executable::Executable;
use super::names::{self, Names};
use super::samples::Place;
use crate::sample::tasks;
use framehop::{CacheNative, UnwindRegsNative, Unwinder, UnwinderNative};
use procfs::FromBufRead;
use procfs::process::{MMPermissions, MMapPath, MemoryMaps};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Callers that are followed.
const CALLS_MAX: usize = 48;
/// Files with code of one process.
const FILES_MAX: usize = 256;
/// What is kept of files from one look to the next, bytes, and how many of them …
const KEPT_BYTES: usize = 24 << 20;
const KEPT_MAX: usize = 1_024;
/// … and what may be within a look.
const LOOK_BYTES: usize = 96 << 20;
/// A larger file of a runtime's functions is not read, bytes.
const PERF_MAP_MAX: u64 = 32 << 20;
/// Of a process's mappings so many bytes are read.
const MAPS_MAX: u64 = 16 << 20;
/// Return addresses of 64-bit ARM may be signed in what is above these bits (Linux gives user space 48 of them, or 52, and signs above).
#[cfg(target_arch = "aarch64")]
const ADDRESS_MAX: u64 = (1 << 48) - 1;

/// Device, inode, bytes, and when it was changed last, in s and ns.
type Version = (u64, u64, u64, i64, i64);

/// Files that were read.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By which file it was, and as of when: a number is used again for another one.
    read: HashMap<Version, Option<Arc<Executable>>>,
    bytes: usize,
    /// The kernel's own code in every process, once it was asked for.
    vdso: Option<Option<Arc<Executable>>>,
}

impl Files {
    /// The file that a process has mapped under this path, if it still is there.
    fn of(&mut self, root: &Path, path: &Path, inode: u64) -> Option<Arc<Executable>> {
        let within = path.strip_prefix("/").ok()?;
        // Whoever put something else there meanwhile, or a link that leads somewhere else from here, must not have it opened.
        let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
        let found = open(&root.join(within), libc::O_PATH | libc::O_NOFOLLOW).ok()?;
        let about = found.metadata().ok()?;
        if !about.is_file() || about.ino() != inode {
            return None;
        }
        let version = (about.dev(), about.ino(), about.len(), about.ctime(), about.ctime_nsec());
        if let Some(known) = self.read.get(&version) {
            return known.clone();
        }
        if self.bytes > LOOK_BYTES {
            return None;
        }
        let found =
            open(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())), libc::O_NONBLOCK).ok()?;
        let read = Executable::read(found).map(Arc::new);
        self.bytes += read.as_ref().map_or(0, |file| file.bytes());
        self.read.insert(version, read.clone());
        read
    }

    /// What the kernel maps into each process, read of this one: all have the same, but for those of 32 bits (vdso(7)).
    fn vdso(&mut self) -> Option<Arc<Executable>> {
        self.vdso.get_or_insert_with(|| Executable::of_bytes(&own_vdso()?).map(Arc::new)).clone()
    }

    /// Keeps no more than it may.
    pub(super) fn shrink(&mut self) {
        if self.bytes > KEPT_BYTES || self.read.len() > KEPT_MAX {
            (self.read, self.bytes) = (HashMap::new(), 0);
        }
    }
}

/// All that a process has mapped, or as much as is read of it.
fn maps(path: &Path) -> Option<MemoryMaps> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAPS_MAX).read_to_end(&mut bytes).ok()?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    MemoryMaps::from_buf_read(bytes.get(..whole)?).ok()
}

fn own_vdso() -> Option<Vec<u8>> {
    let maps = maps(Path::new("/proc/self/maps"))?;
    let (start, end) = maps.0.iter().find(|map| map.pathname == MMapPath::Vdso)?.address;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// What may be an address of code, in order: where threads were, and all that lies on their stacks. Of a file that none of it is in nothing is read.
pub(super) fn addresses<'a>(places: impl IntoIterator<Item = &'a Place>, calls: &[u64]) -> Vec<u64> {
    let mut all = calls.to_vec();
    for place in places {
        all.extend([place.pc, place.lr]);
        all.extend_from_slice(&place.stack);
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// A process's code.
pub(super) struct Image {
    mapped: Vec<Mapped>,
    /// Functions that were compiled while it ran.
    compiled: Names,
    unwinder: UnwinderNative<Arc<[u8]>, framehop::MayAllocateDuringUnwind>,
    cache: Box<CacheNative<framehop::MayAllocateDuringUnwind>>,
}

struct Mapped {
    at: Range<u64>,
    /// Of code that is in a file: by how much it is higher than there, the file, and its name.
    file: Option<(u64, Option<Arc<Executable>>, String)>,
}

impl Image {
    /// As far as it holds one of these `addresses`. `None`: it has ended, or its mappings may not be read.
    pub(super) fn of(proc: &Path, pid: u32, files: &mut Files, addresses: &[u64]) -> Option<Self> {
        let folder = proc.join(pid.to_string());
        let maps = maps(&folder.join("maps"))?;
        let root = folder.join("root");
        let mut unwinder = UnwinderNative::new();
        let (mut mapped, mut with_files) = (Vec::new(), 0);
        for map in maps.0.into_iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE)) {
            let at = map.address.0..map.address.1;
            let first = addresses.partition_point(|address| *address < at.start);
            let is_used = addresses.get(first).is_some_and(|address| at.contains(address));
            let (executable, name) = match map.pathname {
                MMapPath::Path(path) => {
                    let room = is_used && with_files < FILES_MAX;
                    with_files += usize::from(is_used);
                    let file = room.then(|| files.of(&root, &path, map.inode)).flatten();
                    (file, path.file_name().unwrap_or_default().to_string_lossy().into_owned())
                }
                MMapPath::Vdso => (files.vdso(), "[vdso]".to_owned()),
                MMapPath::Vsyscall => (None, "[vsyscall]".to_owned()),
                _ => {
                    mapped.push(Mapped { at, file: None });
                    continue;
                }
            };
            let bias = executable.as_ref().and_then(|file| file.bias(at.start, map.offset));
            let executable = executable.filter(|_| bias.is_some());
            let bias = bias.unwrap_or_else(|| at.start.wrapping_sub(map.offset));
            if let Some(file) = &executable {
                unwinder.add_module(file.module(at.clone(), bias));
            }
            mapped.push(Mapped { at, file: Some((bias, executable, name)) });
        }
        // One that has ended and is not yet gone has none.
        if mapped.is_empty() {
            return None;
        }
        mapped.sort_by_key(|of: &Mapped| of.at.start);
        let is_compiled = mapped.iter().any(|of| of.file.is_none());
        let compiled = if is_compiled { compiled(proc, &root, pid) } else { Names::default() };
        Some(Self { mapped, compiled, unwinder, cache: Box::new(CacheNative::new()) })
    }

    /// That of one file, mapped at 0.
    pub(super) fn of_one(file: &[u8]) -> Option<Self> {
        let file = Arc::new(Executable::of_bytes(file)?);
        let at = 0..u64::from(u32::MAX);
        let mut unwinder = UnwinderNative::new();
        unwinder.add_module(file.module(at.clone(), 0));
        let mapped = vec![Mapped { at, file: Some((0, Some(file), "file".to_owned())) }];
        let (compiled, cache) = (Names::default(), Box::new(CacheNative::new()));
        Some(Self { mapped, compiled, unwinder, cache })
    }

    fn at(&self, address: u64) -> Option<&Mapped> {
        let after = self.mapped.partition_point(|of| of.at.start <= address);
        self.mapped.get(after.checked_sub(1)?).filter(|of| of.at.contains(&address))
    }

    /// Where a thread was and who called it, innermost first, and whether that is all of them.
    pub(super) fn callers(&mut self, place: &Place) -> (Vec<u64>, bool) {
        let mut stack = |address: u64| {
            let at = address.checked_sub(place.sp).filter(|offset| offset.is_multiple_of(8)).ok_or(())?;
            place.stack.get(usize::try_from(at / 8).map_err(drop)?).copied().ok_or(())
        };
        let mut frames = self.unwinder.iter_frames(place.pc, registers(place), &mut self.cache, &mut stack);
        let mut found = Vec::new();
        let is_whole = loop {
            match frames.next() {
                // A call returns behind itself, and that may be another function already.
                Ok(Some(frame)) if found.len() < CALLS_MAX => found.push(frame.address_for_lookup()),
                Ok(Some(_)) | Err(_) => break false,
                Ok(None) => break true,
            }
        };
        let real = found.iter().take_while(|address| self.at(**address).is_some()).count();
        // Without tables an end is a guess, as where a register is 0 that holds something else.
        let has_tables =
            |address: &u64| matches!(self.at(*address).map(|of| &of.file), Some(Some((_, Some(_), _))));
        let begins = |address: &u64| self.name(*address) == "_start";
        let is_end = |last: &u64| is_whole && has_tables(last) || begins(last);
        let is_whole = real == found.len() && real > 1 && found.last().is_some_and(is_end);
        found.truncate(real);
        (found, is_whole)
    }

    /// As functions; where a thread was is told, also where that is no code that is known.
    pub(super) fn named(&self, calls: &[u64], is_whole: bool) -> (Vec<String>, bool) {
        let named: Vec<String> = calls.iter().map(|address| self.name(*address)).collect();
        if named.is_empty() { (vec!["?".to_owned()], false) } else { (named, is_whole) }
    }

    /// Those of a list of callers by frame pointers that are code, up to the first that is not.
    pub(super) fn real(&self, calls: &[u64]) -> Vec<u64> {
        // The first is where it was itself.
        let lookup = calls.iter().enumerate().map(|(n, call)| call.saturating_sub(u64::from(n > 0)));
        lookup.take_while(|address| self.at(*address).is_some()).collect()
    }

    /// The function at an address.
    pub(super) fn name(&self, address: u64) -> String {
        match self.at(address).map(|of| &of.file) {
            Some(Some((bias, file, name))) => {
                let own = address.wrapping_sub(*bias);
                let function = file.as_ref().map_or(Err(own), |file| file.function(own));
                function.unwrap_or_else(|start| names::offset_in(name, start))
            }
            Some(None) => self.compiled.at(address).unwrap_or_else(|| "compiled code".to_owned()),
            None => "?".to_owned(),
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(place: &Place) -> UnwindRegsNative {
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address(ADDRESS_MAX);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, place.lr, place.sp, place.fp)
}

#[cfg(not(target_arch = "aarch64"))]
fn registers(place: &Place) -> UnwindRegsNative {
    UnwindRegsNative::new(place.pc, place.sp, place.fp)
}

/// What a runtime tells of the code that it compiled: in a file that is called by the process's id in its own namespace.
fn compiled(proc: &Path, root: &Path, pid: u32) -> Names {
    let own = tasks::own_id(proc, pid, pid).unwrap_or(pid);
    let path = root.join(format!("tmp/perf-{own}.map"));
    let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    let Ok(file) = open else { return Names::default() };
    if !file.metadata().is_ok_and(|about| about.is_file() && about.len() <= PERF_MAP_MAX) {
        return Names::default();
    }
    let mut bytes = Vec::new();
    match file.take(PERF_MAP_MAX).read_to_end(&mut bytes) {
        Ok(_) => names::perf_map(&String::from_utf8_lossy(&bytes)),
        Err(_) => Names::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where a frame is taken for another one's, or an address for that of another file.
    #[test]
    fn this_test_finds_itself_among_its_functions() {
        let mut files = Files::default();
        let own = this_test_finds_itself_among_its_functions as fn() as usize as u64;
        let libc = libc::getpid as *const () as usize as u64;
        let image =
            Image::of(Path::new("/proc"), std::process::id(), &mut files, &[own.min(libc), own.max(libc)]);
        let image = image.unwrap();
        let name = image.name(own);
        assert!(name.ends_with("this_test_finds_itself_among_its_functions"), "{name}");
        assert_eq!(image.name(8), "?");
        let libc = image.name(libc);
        assert!(libc.contains("getpid"), "{libc}");
        assert_eq!(image.real(&[own, 8, own]), [own]);
    }

    #[test]
    fn a_process_that_is_gone_has_no_code() {
        assert!(Image::of(Path::new("/proc"), 0, &mut Files::default(), &[]).is_none());
    }
}
