//! How many requests at a time a server is set up for, by its own configuration: what its command line says, and the files that it names, as
//! the server itself would see them. Owns which server is read how; `pool/process` reads, `pool/bounds` says what bounds a server beside, the other files know one server each and touch
//! no disk. A default is never told as a setting: whoever did not set the size has none that was read.
//!
//! It is what is configured, not what is in force: a file that was changed after the server read it is told as it is now.

mod apache;
mod bounds;
mod gunicorn;
mod java;
mod mysql;
mod php;
mod postgres;
mod process;

use crate::name::naming;
pub use bounds::Bounds;
use process::Process;
use std::path::Path;
use std::sync::Arc;

/// A size that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Requests at a time; of a database, connections.
    pub size: u32,
    /// The key, and the file or command line that sets it: `MaxRequestWorkers in /etc/apache2/apache2.conf`.
    pub set_by: String,
    /// What else bounds it.
    pub bounds: Bounds,
    /// Whether a worker is a connection's for as long as that is open, and not only while it has a request; `None`: not known.
    pub held_by_connection: Option<bool>,
}

impl Pool {
    /// `None`: zero is no size, and what is larger than a number of threads can be was not understood.
    fn new(size: u64, key: &str, place: &str) -> Option<Self> {
        let size = u32::try_from(size).ok().filter(|size| (1..=SIZE_MAX).contains(size))?;
        let set_by = format!("{key} in {place}");
        Some(Self { size, set_by, bounds: Bounds::default(), held_by_connection: None })
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Listen {
    /// At a port.
    Port(u16),
    /// At a Unix socket, by what that is bound to.
    Path(Arc<str>),
}

impl Listen {
    /// By its path, if it has one.
    #[must_use]
    pub fn at(port: u16, path: Option<&Arc<str>>) -> Self {
        path.map_or(Self::Port(port), |path| Self::Path(Arc::clone(path)))
    }

    /// No server listens at port 0.
    fn port(&self) -> u16 {
        match self {
            Self::Port(port) => *port,
            Self::Path(_) => 0,
        }
    }
}

/// More threads than this no kernel has (`PID_MAX_LIMIT`).
const SIZE_MAX: u32 = 4 << 20;
/// What stands in place of a file for an option or a variable.
const COMMAND_LINE: &str = "its command line";
const ENVIRONMENT: &str = "its environment";

/// The size that the server of this process is set up for, as far as it concerns the listener at `at`. `root`: the file system whose
/// `proc` is read. `None`: not a server that is known, not readable, or not set.
#[must_use]
pub fn of(root: &Path, pid: u32, at: &Listen) -> Option<Pool> {
    let process = Process::read(root, pid)?;
    let program = naming::program(process.comm(), process.arguments());
    let is = |names: &[&str]| names.iter().any(|name| program.starts_with(name));
    let pool = if is(&["apache2", "httpd"]) {
        apache::pool(&process)
    } else if is(&["gunicorn"]) {
        gunicorn::pool(&process)
    } else if is(&["php-fpm"]) {
        php::pool(&process, at)
    } else if is(&["mariadbd", "mysqld"]) {
        mysql::pool(&process)
    } else if is(&["postgres"]) {
        postgres::pool(&process)
    } else if process.runs("java") {
        java::pool(&process, at.port())
    } else {
        None
    };
    pool.map(|pool| Pool { bounds: Bounds::read(root, pid), ..pool })
}

#[cfg(test)]
mod tests {
    use super::*;
    use process::tests::Host;

    #[test]
    fn a_server_is_read_by_its_own_rules_and_others_are_not() {
        let host = Host::new(7, "mariadbd", &["/usr/sbin/mariadbd", "--max-connections=90"]);
        let at = Listen::Port(3306);
        let limits = "Max open files            1024                 4096                 files\n";
        std::fs::write(host.root().join("proc/7/limits"), limits).unwrap();
        let bounds = Bounds { open_files: Some(1024), ..Bounds::default() };
        let set_by = "max_connections in its command line".to_owned();
        assert_eq!(
            of(host.root(), 7, &at),
            Some(Pool { size: 90, set_by, bounds, held_by_connection: None })
        );
        assert_eq!(of(host.root(), 8, &at), None, "gone");
        let other = Host::new(7, "vim", &["vim", "--max-connections=90"]);
        assert_eq!(of(other.root(), 7, &at), None);
        for absurd in ["0", "-5", "4294967295", "99999999999999999999", "many"] {
            let option = format!("--max-connections={absurd}");
            let host = Host::new(7, "mariadbd", &["/usr/sbin/mariadbd", &option]);
            assert_eq!(of(host.root(), 7, &at), None, "{absurd}");
        }
    }
}
