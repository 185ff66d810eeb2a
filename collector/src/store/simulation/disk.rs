//! A disk that is played over real files: it may be full, refuse to sync a folder, stop in the middle, and it remembers what of all that was
//! done to it a power cut leaves. Owns that model, which is the one of a journalling file system: names change in one order, of which a
//! prefix stays, no shorter than up to the last change of a folder that was synced since; of a file that was not synced a prefix of its bytes
//! stays. A file system that reorders changes of names, and one that lies about what it synced, are not played.

use crate::lock::lock;
use crate::store::disk::{Disk, Output};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// What was written into a file, and how much of it was synced.
#[derive(Debug, Default)]
struct Bytes {
    all: Vec<u8>,
    synced: usize,
}

/// Folders, and files by their number, by path below the root.
type Names = BTreeMap<PathBuf, Option<usize>>;

#[derive(Debug)]
enum Change {
    Folder(PathBuf),
    File(PathBuf, usize),
    Renamed(PathBuf, PathBuf),
    /// One file, or a folder that is empty.
    Gone(PathBuf),
}

impl Change {
    fn is_in(&self, folder: &Path) -> bool {
        let is_in = |path: &PathBuf| path.parent() == Some(folder);
        match self {
            Self::Folder(path) | Self::File(path, _) | Self::Gone(path) => is_in(path),
            Self::Renamed(from, to) => is_in(from) || is_in(to),
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Self::Folder(path) => {
                names.insert(path.clone(), None);
            }
            Self::File(path, number) => {
                names.insert(path.clone(), Some(*number));
            }
            Self::Gone(path) => {
                names.remove(path);
            }
            Self::Renamed(from, to) => {
                let moved: Vec<PathBuf> =
                    names.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in moved {
                    let what = names.remove(&path).flatten();
                    let below = path.strip_prefix(from).unwrap();
                    let now = if below.as_os_str().is_empty() { to.clone() } else { to.join(below) };
                    names.insert(now, what);
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// What was there before `changes`.
    names: Names,
    files: Vec<Bytes>,
    changes: Vec<Change>,
    /// So many of the changes stay whatever happens.
    durable: usize,
    /// Bytes that it still takes.
    room: u64,
    /// Things that are still done before the process is killed.
    before_the_end: Option<u64>,
    /// So many folders are still synced before one is not.
    refuses_sync: Option<u64>,
}

/// See above.
#[derive(Debug)]
pub(super) struct PlayedDisk {
    root: PathBuf,
    state: Arc<Mutex<State>>,
}

/// A file that is written: the real one, and what is known of it.
struct PlayedFile {
    file: File,
    number: usize,
    state: Arc<Mutex<State>>,
}

/// One more thing is done, unless the process is dead.
fn act(state: &Mutex<State>) -> io::Result<MutexGuard<'_, State>> {
    let mut state = lock(state);
    match &mut state.before_the_end {
        Some(0) => return Err(io::Error::other("killed")),
        Some(left) => *left -= 1,
        None => {}
    }
    Ok(state)
}

impl PlayedDisk {
    /// Over an empty folder.
    pub(super) fn new(root: &Path) -> Self {
        let state = State { room: u64::MAX, ..State::default() };
        Self { root: root.to_owned(), state: Arc::new(Mutex::new(state)) }
    }

    fn below(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap().to_owned()
    }

    /// It takes so many bytes more.
    pub(super) fn set_room(&self, bytes: u64) {
        lock(&self.state).room = bytes;
    }

    /// The sync of a folder fails, once, after so many that do not: a segment's own folder is synced before the one that has its name.
    pub(super) fn refuse_sync(&self, after: u64) {
        lock(&self.state).refuses_sync = Some(after);
    }

    /// From now on it takes everything.
    pub(super) fn heal(&self) {
        let mut state = lock(&self.state);
        (state.room, state.refuses_sync, state.before_the_end) = (u64::MAX, None, None);
    }

    /// The process is killed when it has done so many things more; `None`: it is not.
    pub(super) fn end_after(&self, things: Option<u64>) {
        lock(&self.state).before_the_end = things;
    }

    /// Whether the process that used it is dead.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).before_the_end == Some(0)
    }

    /// Makes in `root`, an empty folder, what a process that is killed now leaves, or a power cut, by these dice. This one is then empty.
    pub(super) fn after(&self, root: &Path, power_cut: Option<&mut fastrand::Rng>) -> Self {
        let mut state = std::mem::take(&mut *lock(&self.state));
        if let Some(dice) = power_cut {
            let stay = dice.usize(state.durable..=state.changes.len());
            for change in &state.changes[..stay] {
                change.apply(&mut state.names);
            }
            state.changes.clear();
            state.durable = 0;
            for bytes in &mut state.files {
                bytes.synced = dice.usize(bytes.synced..=bytes.all.len());
                bytes.all.truncate(bytes.synced);
            }
        }
        let mut names = state.names.clone();
        state.changes.iter().for_each(|change| change.apply(&mut names));
        for (path, what) in &names {
            let path = root.join(path);
            match what {
                None => fs::create_dir_all(path).unwrap(),
                Some(number) => fs::write(path, &state.files[*number].all).unwrap(),
            }
        }
        state.before_the_end = None;
        state.refuses_sync = None;
        Self { root: root.to_owned(), state: Arc::new(Mutex::new(state)) }
    }

    /// A medium that lost the end of a file, whatever was synced: from `bytes` on.
    pub(super) fn rots(&self, path: &Path, bytes: usize) {
        let mut state = lock(&self.state);
        let mut names = state.names.clone();
        state.changes.iter().for_each(|change| change.apply(&mut names));
        let number = names[&self.below(path)].unwrap();
        let file = &mut state.files[number];
        file.all.truncate(bytes);
        file.synced = file.synced.min(bytes);
        fs::write(path, &file.all).unwrap();
    }

    /// A segment was set aside, which is done past this disk: for good.
    pub(super) fn forget(&self, folder: &Path) {
        let below = self.below(folder);
        let mut state = lock(&self.state);
        let aside = Path::new("aside").join(below.file_name().unwrap());
        state.changes.push(Change::Renamed(below, aside));
        state.durable = state.changes.len();
    }
}

impl Write for PlayedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = act(&self.state)?;
        let taken = bytes.len().min(usize::try_from(state.room).unwrap_or(usize::MAX));
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.write_all(&bytes[..taken])?;
        state.room -= taken as u64;
        state.files[self.number].all.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for PlayedFile {
    fn sync(&mut self) -> io::Result<u64> {
        let mut state = act(&self.state)?;
        let file = &mut state.files[self.number];
        file.synced = file.all.len();
        Ok(file.synced as u64)
    }
}

impl Disk for PlayedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut state = act(&self.state)?;
        let file = File::create(path)?;
        let number = state.files.len();
        state.files.push(Bytes::default());
        state.changes.push(Change::File(self.below(path), number));
        Ok(Box::new(PlayedFile { file, number, state: Arc::clone(&self.state) }))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = act(&self.state)?;
        fs::create_dir(path)?;
        state.changes.push(Change::Folder(self.below(path)));
        Ok(())
    }

    fn create_folders(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() { Ok(()) } else { self.create_folder(path) }
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = act(&self.state)?;
        let before = state.refuses_sync;
        state.refuses_sync = before.and_then(|before| before.checked_sub(1));
        if before == Some(0) {
            return Err(io::Error::other("the folder was not synced"));
        }
        let below = self.below(path);
        if let Some(last) = state.changes.iter().rposition(|change| change.is_in(&below)) {
            state.durable = state.durable.max(last + 1);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = act(&self.state)?;
        fs::rename(from, to)?;
        state.changes.push(Change::Renamed(self.below(from), self.below(to)));
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut files: Vec<PathBuf> =
            fs::read_dir(path)?.map(|item| item.map(|item| item.path())).collect::<io::Result<_>>()?;
        files.sort();
        for file in files {
            let mut state = act(&self.state)?;
            let bytes = fs::metadata(&file)?.len();
            fs::remove_file(&file)?;
            state.room = state.room.saturating_add(bytes);
            state.changes.push(Change::Gone(self.below(&file)));
        }
        let mut state = act(&self.state)?;
        fs::remove_dir(path)?;
        state.changes.push(Change::Gone(self.below(path)));
        Ok(())
    }
}
