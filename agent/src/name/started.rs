//! What a process was started with: its program's file, its arguments and its folder, as one number that is the same for the same ones. A server that is
//! started anew with others was deployed, and not only started again. Owns what that is of; what it is of is not told, but for the number.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::SystemTime;

/// Of a process, from `proc` of the file system at `root`; 0: it is gone, or may not be looked at.
///
/// Of the program's file its path, its size and when it was written: neither its inode nor its device, as a container that is started from the same image has
/// others. A script, an archive or a module that another one took the place of under the same name is not seen.
pub fn started_with(root: &Path, pid: u32) -> u64 {
    let folder = root.join("proc").join(pid.to_string());
    let seen = || {
        let program = std::fs::metadata(folder.join("exe")).ok()?;
        let written = program.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let (at, cwd) =
            (std::fs::read_link(folder.join("exe")).ok()?, std::fs::read_link(folder.join("cwd")).ok()?);
        let arguments = arguments(&std::fs::read(folder.join("cmdline")).ok()?);
        Some((whole(&at), program.len(), written, arguments, cwd))
    };
    let Some(seen) = (if pid == 0 { None } else { seen() }) else { return 0 };
    let mut hasher = DefaultHasher::new();
    seen.hash(&mut hasher);
    // 0 is not known.
    hasher.finish().max(1)
}

/// None of a program that writes what it does in their place, as nginx, PostgreSQL and Redis do: that differs from process to process.
fn arguments(command: &[u8]) -> Vec<u8> {
    let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_title = first.contains(&b' ') || first.contains(&b':');
    if is_title { Vec::new() } else { command.to_vec() }
}

/// Without what the kernel adds to the name of a file that was removed, as an upgrade does while the server still runs (`d_path`).
fn whole(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_with_the_same_arguments_in_the_same_folder_has_the_same_number() {
        let folder = tempfile::tempdir().unwrap();
        let (root, program, other) =
            (folder.path(), folder.path().join("server"), folder.path().join("other"));
        std::fs::write(&program, "1").unwrap();
        std::fs::write(&other, "another").unwrap();
        let start = |pid: u32, exe: &Path, arguments: &str, cwd: &Path| {
            let proc = root.join("proc").join(pid.to_string());
            std::fs::create_dir_all(&proc).unwrap();
            std::os::unix::fs::symlink(exe, proc.join("exe")).unwrap();
            std::os::unix::fs::symlink(cwd, proc.join("cwd")).unwrap();
            std::fs::write(proc.join("cmdline"), arguments).unwrap();
            started_with(root, pid)
        };
        let first = start(7, &program, "server\0-p\x0080\0", root);
        assert!(first != 0);
        assert_eq!(start(8, &program, "server\0-p\x0080\0", root), first);
        assert_ne!(start(9, &other, "server\0-p\x0080\0", root), first);
        assert_ne!(start(10, &program, "server\0-p\x0081\0", root), first);
        assert_ne!(start(11, &program, "server\0-p\x0080\0", Path::new("/")), first);
        let titles =
            ["nginx: master process /usr/sbin/nginx\0", "nginx: worker process\0", "redis-server *:6379\0"];
        let titled = [12, 13, 14].map(|pid| start(pid, &program, titles[pid as usize - 12], root));
        assert!(titled.iter().all(|of| *of == titled[0] && *of != first));
        std::fs::write(&program, "22").unwrap();
        assert_ne!(started_with(root, 7), first, "another build");
        assert_eq!((started_with(root, 0), started_with(root, 99)), (0, 0));
        assert_eq!(whole(Path::new("/usr/bin/server (deleted)")), "/usr/bin/server");
        assert_ne!(started_with(Path::new("/"), std::process::id()), 0);
    }
}
