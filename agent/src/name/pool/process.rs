//! A server's command line, environment and files. Owns the bounds on what is read, and that a path is looked up as the server itself does,
//! below its own root: no symbolic link of a container leads to a file of the host.

use crate::name::naming;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// A configuration file is read up to this.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A command line or an environment likewise: the kernel allows 2 MB and a little.
const ARGUMENTS_BYTES_MAX: u64 = 128 << 10;
/// Links that are followed for one path, as `ELOOP` counts them (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// Files that are read of one configuration.
const INCLUDED_MAX: usize = 256;
/// Files that one pattern may name.
const FILES_MAX: usize = 512;

/// A process, as it was when it was read.
#[derive(Debug)]
pub(super) struct Process {
    /// Its folder in `proc`.
    folder: PathBuf,
    comm: String,
    arguments: Vec<String>,
    environment: Vec<String>,
}

impl Process {
    /// `None`: it is gone, or not ours to look at.
    pub(super) fn read(root: &Path, pid: u32) -> Option<Self> {
        let folder = root.join("proc").join(pid.to_string());
        let comm = fs::read_to_string(folder.join("comm")).ok()?.trim_end().to_owned();
        let words = |name: &str| -> Option<Vec<String>> {
            let bytes = read_up_to(&folder.join(name), ARGUMENTS_BYTES_MAX)?;
            Some(naming::words(&bytes))
        };
        let (arguments, environment) = (words("cmdline")?, words("environ").unwrap_or_default());
        Some(Self { folder, comm, arguments, environment })
    }

    pub(super) fn comm(&self) -> &str {
        &self.comm
    }

    pub(super) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Whether its command is this program, with whatever path.
    pub(super) fn runs(&self, program: &str) -> bool {
        self.arguments.first().is_some_and(|first| first.rsplit('/').next() == Some(program))
    }

    /// The value of an environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|set| set.strip_prefix(name)?.strip_prefix('='))
    }

    /// The value of the last option with one of these names: `--name value`, `--name=value`, and `-n value` or `-nvalue` for a name of
    /// one letter.
    pub(super) fn option(&self, names: &[&str]) -> Option<&str> {
        let rest = self.arguments.get(1..).unwrap_or_default();
        option(rest.iter().map(String::as_str), names)
    }

    /// A text file, as this process sees it. `None`: it is not there, no file, not readable, or larger than a megabyte.
    pub(super) fn file(&self, path: &str) -> Option<String> {
        let file = self.resolved(path)?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let bytes = read_up_to(&file, FILE_BYTES_MAX)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads files, and after each those that `look`, which gets its path and its text, says that it includes.
    pub(super) fn read_all(
        &self,
        first: impl IntoIterator<Item = String>,
        mut look: impl FnMut(&str, &str) -> Vec<String>,
    ) {
        let mut waiting: Vec<String> = first.into_iter().collect();
        waiting.reverse();
        for _ in 0..INCLUDED_MAX {
            let Some(path) = waiting.pop() else { return };
            let included = self.file(&path).map(|text| look(&path, &text));
            waiting.extend(included.into_iter().flatten().rev());
        }
    }

    /// Paths that a pattern with `*` and `?` in its last parts names, sorted; one without is itself, if it is there.
    pub(super) fn files(&self, pattern: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for before in &found {
                if part.contains(['*', '?']) {
                    let entries =
                        self.resolved(&format!("{before}/")).and_then(|folder| fs::read_dir(folder).ok());
                    let names = entries
                        .into_iter()
                        .flatten()
                        .flatten()
                        .map(|e| e.file_name().to_string_lossy().into_owned());
                    let mut names: Vec<String> = names
                        .filter(|name| !name.starts_with('.') && fits(name.as_bytes(), part.as_bytes()))
                        .collect();
                    names.sort_unstable();
                    next.extend(names.into_iter().take(FILES_MAX).map(|name| format!("{before}/{name}")));
                } else {
                    next.push(format!("{before}/{part}"));
                }
            }
            next.truncate(FILES_MAX);
            found = next;
        }
        found.retain(|path| self.resolved(path).is_some_and(|at| at.exists()));
        found
    }

    /// Files of a folder, sorted.
    pub(super) fn folder(&self, path: &str) -> Vec<String> {
        self.files(&format!("{path}/*"))
    }

    /// Where a path of the process is in our file system.
    fn resolved(&self, path: &str) -> Option<PathBuf> {
        let own = self.folder.join("root");
        let mut todo: Vec<PathBuf> = Vec::new();
        if !path.starts_with('/') {
            // `cwd` is a link in terms of the process's own root, as far as it is below it.
            todo.push(fs::read_link(self.folder.join("cwd")).ok()?);
        }
        todo.insert(0, PathBuf::from(path));
        let mut at = PathBuf::new();
        let mut links = 0;
        while let Some(path) = todo.pop() {
            let mut parts = path.components();
            while let Some(part) = parts.next() {
                match part {
                    Component::RootDir | Component::Prefix(_) => at = PathBuf::new(),
                    Component::CurDir => {}
                    Component::ParentDir => {
                        at.pop();
                    }
                    Component::Normal(name) => {
                        at.push(name);
                        let Ok(to) = fs::read_link(own.join(&at)) else { continue };
                        links += 1;
                        if links > LINKS_MAX {
                            return None;
                        }
                        at.pop();
                        todo.push(parts.as_path().to_owned());
                        todo.push(to);
                        break;
                    }
                }
            }
        }
        Some(own.join(at))
    }
}

/// See [`Process::option`].
pub(super) fn option<'a>(arguments: impl Iterator<Item = &'a str>, names: &[&str]) -> Option<&'a str> {
    let mut arguments = arguments.peekable();
    let mut found = None;
    while let Some(argument) = arguments.next() {
        for name in names {
            let value = if name.len() == 1 {
                let Some(value) = argument.strip_prefix('-').and_then(|rest| rest.strip_prefix(name)) else {
                    continue;
                };
                value.strip_prefix('=').unwrap_or(value)
            } else {
                match argument.strip_prefix("--").and_then(|rest| rest.strip_prefix(name)) {
                    Some("") => "",
                    Some(rest) => match rest.strip_prefix('=') {
                        Some(value) => value,
                        None => continue,
                    },
                    None => continue,
                }
            };
            found = if value.is_empty() { arguments.peek().copied() } else { Some(value) };
        }
    }
    found
}

/// Whether a name fits a pattern of `*`, `?` and plain characters.
fn fits(name: &[u8], pattern: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            fits(name, rest) || name.split_first().is_some_and(|(_, name)| fits(name, pattern))
        }
        (Some((b'?', rest)), Some((_, name))) => fits(name, rest),
        (Some((p, rest)), Some((n, name))) => p == n && fits(name, rest),
        _ => false,
    }
}

/// `None`: not readable, or more than `max` bytes.
fn read_up_to(path: &Path, max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= max).then_some(bytes)
}

#[cfg(test)]
pub(in super::super) mod tests {
    use super::super::Pool;
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine with one process, whose root is a folder of its own.
    pub(in super::super) struct Host {
        root: tempfile::TempDir,
        pid: u32,
    }

    impl Host {
        pub(in super::super) fn new(pid: u32, comm: &str, arguments: &[&str]) -> Self {
            let host = Self { root: tempfile::tempdir().unwrap(), pid };
            let folder = host.folder();
            fs::create_dir_all(folder.join("root/srv")).unwrap();
            fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(folder.join("cmdline"), arguments.join("\0")).unwrap();
            symlink("/srv", folder.join("cwd")).unwrap();
            host
        }

        fn folder(&self) -> PathBuf {
            self.root.path().join("proc").join(self.pid.to_string())
        }

        pub(in super::super) fn root(&self) -> &Path {
            self.root.path()
        }

        pub(in super::super) fn environment(self, variables: &[&str]) -> Self {
            fs::write(self.folder().join("environ"), variables.join("\0")).unwrap();
            self
        }

        pub(in super::super) fn file(self, path: &str, text: &str) -> Self {
            let file = self.folder().join("root").join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            self
        }

        pub(in super::super) fn link(self, at: &str, to: &str) -> Self {
            let file = self.folder().join("root").join(at.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            symlink(to, file).unwrap();
            self
        }

        pub(in super::super) fn process(&self) -> Process {
            Process::read(self.root(), self.pid).unwrap()
        }

        /// Size and place that a reader of one server says of it.
        pub(in super::super) fn told(
            &self,
            read: impl Fn(&Process) -> Option<Pool>,
        ) -> Option<(u32, String)> {
            self.told_whole(read).map(|pool| (pool.size, pool.set_by))
        }

        /// All that it says.
        pub(in super::super) fn told_whole(&self, read: impl Fn(&Process) -> Option<Pool>) -> Option<Pool> {
            read(&self.process())
        }
    }

    #[test]
    fn options_are_read_in_all_their_spellings_and_the_last_one_counts() {
        let host =
            Host::new(1, "x", &["x", "-w", "3", "--threads=4", "-w5", "--name", "y", "--workers-more", "9"]);
        let process = host.process();
        assert_eq!(process.option(&["w", "workers"]), Some("5"));
        assert_eq!(process.option(&["threads"]), Some("4"));
        assert_eq!(process.option(&["name"]), Some("y"));
        assert_eq!(process.option(&["workers"]), None, "another option that begins so");
        assert!(process.runs("x") && !process.runs("y"));
    }

    #[test]
    fn paths_are_those_of_the_process_and_no_link_leads_out_of_its_root() {
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), "the host's").unwrap();
        let out = outside.path().to_str().unwrap();
        let host = Host::new(1, "x", &["x"])
            .file("/etc/real/a.conf", "a")
            .file("/srv/own.conf", "own")
            .link("/etc/x", "/etc/real")
            .link("/etc/real/b.conf", "../x/a.conf")
            .link("/etc/out.conf", out)
            .link("/etc/up.conf", &format!("../../../../../../../../../..{out}"))
            .link("/etc/round", "round");
        let process = host.process();
        assert_eq!(process.file("/etc/x/a.conf").as_deref(), Some("a"));
        assert_eq!(process.file("/etc/x/b.conf").as_deref(), Some("a"));
        assert_eq!(process.file("own.conf").as_deref(), Some("own"), "from where it runs");
        for none in ["/etc/out.conf", "/etc/up.conf", "/etc/round", "/etc/real", "/none"] {
            assert_eq!(process.file(none), None, "{none}");
        }
        assert_eq!(
            process.files("/etc/*/?.conf"),
            ["/etc/real/a.conf", "/etc/real/b.conf", "/etc/x/a.conf", "/etc/x/b.conf"]
        );
        assert_eq!(process.files("/etc/none/*.conf"), Vec::<String>::new());
    }

    #[test]
    fn patterns_fit_as_a_shell_says() {
        for (name, pattern, fit) in [
            ("a.conf", "*.conf", true),
            ("a.conf", "*", true),
            ("a.con", "*.conf", false),
            ("ab", "a?", true),
            ("a", "a?", false),
        ] {
            assert_eq!(fits(name.as_bytes(), pattern.as_bytes()), fit, "{name} {pattern}");
        }
    }
}
