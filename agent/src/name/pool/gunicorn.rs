//! gunicorn: workers × threads, of its command line, `GUNICORN_CMD_ARGS`, `WEB_CONCURRENCY` or the plain assignments of its configuration
//! file, in gunicorn's own order. Workers that take any number of requests at a time (gevent, eventlet, tornado, uvicorn) have no such size.

use super::process::{Process, option};
use super::{COMMAND_LINE, ENVIRONMENT, Pool};

/// Workers that have as many requests as they have threads.
const ONE_EACH: [&str; 2] = ["sync", "gthread"];
/// The file that is read if none is named.
const USUAL: &str = "gunicorn.conf.py";

/// What a setting is called on the command line and in the file.
struct Setting {
    options: &'static [&'static str],
    key: &'static str,
}

const WORKERS: Setting = Setting { options: &["w", "workers"], key: "workers" };
const THREADS: Setting = Setting { options: &["threads"], key: "threads" };
const CLASS: Setting = Setting { options: &["k", "worker-class"], key: "worker_class" };

pub(super) fn pool(process: &Process) -> Option<Pool> {
    let more: Vec<&str> =
        process.variable("GUNICORN_CMD_ARGS").unwrap_or_default().split_whitespace().collect();
    let of_line = |names: &[&str]| {
        let line = process.option(names).map(|value| (value.to_owned(), COMMAND_LINE.to_owned()));
        line.or_else(|| {
            option(more.iter().copied(), names).map(|value| (value.to_owned(), ENVIRONMENT.to_owned()))
        })
    };
    let named = of_line(&["c", "config"]).map(|(path, _)| path);
    let path = named.clone().unwrap_or_else(|| USUAL.to_owned());
    let path = path.strip_prefix("file:").unwrap_or(&path).to_owned();
    let file = process.file(&path);
    if named.is_some() && file.is_none() {
        return None;
    }
    // What the file computes is not known here: then it is not said.
    let read = |setting: &Setting| -> Result<Option<(String, String)>, ()> {
        if let Some(set) = of_line(setting.options) {
            return Ok(Some(set));
        }
        match file.as_deref().and_then(|text| assigned(text, setting.key)) {
            Some(value) => literal(value).map(|value| Some((value, path.clone()))).ok_or(()),
            None => Ok(None),
        }
    };
    let class = read(&CLASS).ok()?;
    if class.is_some_and(|(class, _)| !ONE_EACH.contains(&class.as_str())) {
        return None;
    }
    let concurrency = || process.variable("WEB_CONCURRENCY").map(|n| (n.to_owned(), ENVIRONMENT.to_owned()));
    let (workers, place) = read(&WORKERS).ok()?.or_else(concurrency)?;
    let workers: u64 = workers.parse().ok()?;
    match read(&THREADS).ok()? {
        // Not set: gunicorn then starts processes of one thread.
        None => Pool::new(workers, "workers", &place),
        Some((threads, _)) => {
            Pool::new(workers.saturating_mul(threads.parse().ok()?), "workers × threads", &place)
        }
    }
}

/// The right side of the last assignment to a name that begins a line.
fn assigned<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?;
        (!value.starts_with('=')).then(|| value.split('#').next().unwrap_or(value).trim())
    };
    text.lines().filter_map(of_line).next_back()
}

/// A number or a string as it stands; `None`: an expression.
fn literal(value: &str) -> Option<String> {
    let bare = value.trim_matches(|c| c == '"' || c == '\'');
    bare.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    fn host(more: &[&str]) -> Host {
        Host::new(3, "gunicorn", &[&["/usr/bin/python3", "/usr/bin/gunicorn", "bulletin:app"], more].concat())
    }

    #[test]
    fn workers_times_threads_wherever_they_are_set() {
        let read = |host: Host| host.told(pool);
        let line = |key: &str| format!("{key} in its command line");
        assert_eq!(read(host(&["-w", "4", "--threads=8"])), Some((32, line("workers × threads"))));
        assert_eq!(read(host(&["--workers", "4"])), Some((4, line("workers"))));
        assert_eq!(
            read(host(&[]).environment(&["WEB_CONCURRENCY=3"])),
            Some((3, "workers in its environment".to_owned()))
        );
        assert_eq!(
            read(host(&["-w4"]).environment(&["GUNICORN_CMD_ARGS=--threads 5 -w 9"])),
            Some((20, line("workers × threads")))
        );
        let text = "bind = 'x'\nworkers = 2  # few\nthreads=4\nworker_class = \"gthread\"\n";
        assert_eq!(
            read(host(&["-c", "/etc/g.py"]).file("/etc/g.py", text)),
            Some((8, "workers × threads in /etc/g.py".to_owned()))
        );
        assert_eq!(
            read(host(&[]).file("/srv/gunicorn.conf.py", text)),
            Some((8, "workers × threads in gunicorn.conf.py".to_owned())),
            "from where it runs"
        );
    }

    #[test]
    fn what_is_computed_or_has_no_size_is_not_told() {
        let read = |host: Host| host.told(pool);
        let computed = "workers = multiprocessing.cpu_count() * 2 + 1\n";
        assert_eq!(read(host(&["-c", "/etc/g.py"]).file("/etc/g.py", computed)), None);
        assert_eq!(read(host(&["-c", "/etc/none.py", "-w", "4"])), None);
        assert_eq!(read(host(&["-w", "4", "-k", "gevent"])), None);
        assert_eq!(read(host(&["-w", "4", "-k", "uvicorn.workers.UvicornWorker"])), None);
        assert_eq!(read(host(&[])), None, "a default is no setting");
    }
}
