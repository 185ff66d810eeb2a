//! What is read of files: the two configurations, tokens, the kernel's types, mounts, and what servers are set up for.

use crate::fences;
use crate::scratch::{folder, written};
use std::path::PathBuf;
use tailwater::access::file::TokenFile;
use tailwater_agent::attach::btf_names::BtfNames;
use tailwater_agent::name::cgroup::Mounts;
use tailwater_agent::name::pool::{self, Listen};
use tailwater_agent::sample::stacks;

/// The agent's file, with all its rules.
pub(crate) fn agent_configuration(bytes: &[u8]) {
    let path = written("agent.toml", bytes);
    if let Err(wrong) = tailwater_agent::config::load(Some(&path), Default::default()) {
        assert!(!wrong.to_string().is_empty(), "whoever wrote it is told why");
    }
}

/// The collector's file, with all its rules.
pub(crate) fn collector_configuration(bytes: &[u8]) {
    let path = written("collector.toml", bytes);
    match tailwater::run::config::Config::load(Some(&path), &[]) {
        Ok(config) => drop(config.pipeline()),
        Err(wrong) => assert!(!wrong.to_string().is_empty(), "whoever wrote it is told why"),
    }
}

/// The file of tokens.
pub(crate) fn tokens(bytes: &[u8]) {
    let file = TokenFile::at(written("tokens.toml", bytes));
    if let Ok(Some(entries)) = file.load() {
        entries.iter().for_each(|entry| _ = entry.expired(u64::MAX));
    }
}

/// The kernel's types.
pub(crate) fn btf(bytes: &[u8]) {
    drop(BtfNames::parse(bytes, |name| name.len() < 64));
}

/// `/proc/self/mountinfo`.
pub(crate) fn mounts(bytes: &[u8]) {
    Mounts::parse(&String::from_utf8_lossy(bytes)).layout();
}

/// The longest name of a function that is told, bytes.
const NAME_MAX: usize = 200;
/// Words of a stack.
const STACK_WORDS: usize = 16;

/// A file with code: after the words of a stack that ends in it.
pub(crate) fn executables(bytes: &[u8]) {
    fences::hold();
    let (stack, file) = bytes.split_at(bytes.len().min(STACK_WORDS * 8));
    let words: Vec<u64> =
        stack.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let address = words.first().copied().unwrap_or_default();
    let mut names = stacks::walk(file, &words);
    names.extend(stacks::compiled(file, address));
    let is_fit = |name: &String| name.len() <= NAME_MAX + 20 && !name.chars().any(char::is_control);
    assert!(names.iter().all(is_fit), "{names:?}");
}

/// What stands between the files of one server.
const BETWEEN: u8 = 0xff;
/// Each server with the files that it is read from, where it looks for them by itself.
const SERVERS: [(&str, [&str; 2]); 6] = [
    ("apache2", ["etc/apache2/apache2.conf", "etc/apache2/mods-enabled/mpm.load"]),
    ("gunicorn", ["srv/gunicorn.conf.py", "etc/g.py"]),
    ("php-fpm", ["etc/php/8.2/fpm/php-fpm.conf", "etc/php/8.2/fpm/pool.d/www.conf"]),
    ("mariadbd", ["etc/mysql/my.cnf", "etc/mysql/conf.d/more.cnf"]),
    ("postgres", ["data/postgresql.conf", "data/postgresql.auto.conf"]),
    ("java", ["srv/tomcat/conf/server.xml", "srv/tomcat/conf/catalina.properties"]),
];

/// What a server is set up for: a byte says which, then its command line, its environment, its limits and two files of its configuration.
pub(crate) fn pools(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let (name, files) = SERVERS[usize::from(*which) % SERVERS.len()];
    let root = folder().join(name);
    let process = root.join("proc/7");
    let mut parts = rest.split(|byte| *byte == BETWEEN);
    let mut write = |path: PathBuf| {
        let above = path.parent().expect("it stands in a folder");
        std::fs::create_dir_all(above).expect("a folder for what is tried");
        std::fs::write(path, parts.next().unwrap_or_default()).expect("its folder was made");
    };
    for own in ["cmdline", "environ", "limits"] {
        write(process.join(own));
    }
    for file in files {
        write(process.join("root").join(file));
    }
    std::fs::write(process.join("comm"), name).expect("its folder was made");
    let cwd = process.join("cwd");
    if cwd.symlink_metadata().is_err() {
        std::os::unix::fs::symlink("/srv", cwd).expect("its folder was made");
    }
    for at in [Listen::Port(80), Listen::Path("/run/server.sock".into())] {
        if let Some(pool) = pool::of(&root, 7, &at) {
            assert!(pool.size > 0, "none is not a size");
        }
    }
}
