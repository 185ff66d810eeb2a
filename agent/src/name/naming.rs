//! What a person calls a cgroup: systemd unit, container or command; and what a program. Owns the naming rules, pure, and the few look-ups in the
//! container engines' own files; knows no ids and no windows.

use std::path::Path;

/// The names behind a cgroup path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// What to call it.
    pub name: String,
    /// systemd unit; empty if none.
    pub unit: String,
    /// Container id; empty if none.
    pub container: String,
}

/// Characters of a container id that stand for it when its engine tells no name.
const SHORT_ID: usize = 12;

/// Prefixes of `PREFIX-<id>.scope` that container engines make.
const SCOPE_PREFIXES: [&str; 5] = ["docker", "cri-containerd", "crio", "libpod", "containerd"];

/// Names a cgroup from its path. `comm` is the command that all its processes run, used when the path says nothing; empty if
/// they differ.
pub fn names(path: &str, comm: &str) -> Names {
    let elements: Vec<&str> = path.split('/').filter(|e| !e.is_empty()).collect();
    let unit = elements
        .iter()
        .rev()
        .find(|e| e.ends_with(".service"))
        .or_else(|| elements.last().filter(|e| e.ends_with(".scope") || e.ends_with(".slice")))
        .map(|e| unescaped(e))
        .unwrap_or_default();
    if let Some(container) = elements.iter().rev().find_map(|e| container_id(e)) {
        return Names {
            name: container[..SHORT_ID].to_owned(),
            unit: String::new(),
            container: container.to_owned(),
        };
    }
    let name = if !unit.is_empty() {
        unit.clone()
    } else if let Some(last) = elements.last() {
        (*last).to_owned()
    } else if !comm.is_empty() {
        comm.to_owned()
    } else {
        "/".to_owned()
    };
    Names { name, unit, container: String::new() }
}

/// `docker-<64 hex>.scope`, `<64 hex>` and their kin.
fn container_id(element: &str) -> Option<&str> {
    let bare = element.strip_suffix(".scope").unwrap_or(element);
    let id = SCOPE_PREFIXES.iter().find_map(|p| bare.strip_prefix(p)?.strip_prefix('-')).unwrap_or(bare);
    (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
}

/// Whether these names will stay: not a container's id in place of its name, and not a command that is about to become another, as
/// `runc:[2:INIT]`, or `(httpd)` of systemd before it executes a unit. Whoever is gone says nothing more.
pub fn is_settled(names: &Names, comm: &str) -> bool {
    let waits_for_engine = !names.container.is_empty() && names.container.starts_with(&names.name);
    let starts = comm.starts_with("runc:[") || comm.starts_with('(');
    !waits_for_engine && !starts
}

/// Whether a cgroup holds whatever somebody started there: the root, a session's scope, a slice. Its name says nothing of a server.
pub fn collects(path: &str) -> bool {
    path.split('/').rfind(|e| !e.is_empty()).is_none_or(|last| {
        container_id(last).is_none() && (last.ends_with(".scope") || last.ends_with(".slice"))
    })
}

/// Characters that the kernel keeps of a command's name.
const COMM_MAX: usize = 15;

/// The words of a command line or an environment, as the kernel shows them: a zero byte after each.
pub fn words(bytes: &[u8]) -> Vec<String> {
    let words = bytes.split(|b| *b == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// What a person calls a program: its command, or the script, module or archive that an interpreter runs.
pub fn program(comm: &str, arguments: &[String]) -> String {
    // "gunicorn: worke": what follows the colon is a role that the process gave itself.
    let comm = comm.split(':').next().unwrap_or(comm).trim();
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let command = arguments.first().map(|a| file(a)).unwrap_or_default();
    let rest = arguments.get(1..).unwrap_or_default();
    let runs = |name: &str| {
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.iter().find(|(interpreter, ..)| *interpreter == bare)
    };
    // Some interpreters name their main thread.
    let interpreter = runs(comm).or_else(|| if comm == "MainThread" { runs(&command) } else { None });
    if let Some(name) = interpreter.and_then(|interpreter| script(rest, interpreter)) {
        return file(&name);
    }
    let cut = comm.len() == COMM_MAX && command.starts_with(comm);
    if cut || comm.is_empty() { command } else { comm.to_owned() }
}

/// An interpreter: options whose value is what it runs, options with another value, and options whose value is the program's text.
type Interpreter = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const INTERPRETERS: [Interpreter; 9] = [
    ("python", &["-m"], &["-W", "-X"], &["-c"]),
    (
        "java",
        &["-jar", "-m", "--module"],
        &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"],
        &[],
    ),
    ("node", &[], &["-r", "--require", "--import"], &["-e", "-p", "--eval", "--print"]),
    ("ruby", &[], &["-r", "-I"], &["-e"]),
    ("perl", &[], &[], &["-e", "-E"]),
    ("php", &["-f"], &["-c", "-d", "-S", "-t"], &["-r"]),
    ("dotnet", &["exec"], &[], &[]),
    ("bash", &[], &["-o"], &["-c"]),
    ("sh", &[], &["-o"], &["-c"]),
];

/// What an interpreter was told to run; `None`: text from its command line, or nothing.
fn script(arguments: &[String], (_, named, valued, text): &Interpreter) -> Option<String> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let is = |options: &[&str]| options.contains(&argument.as_str());
        if is(named) {
            return rest.next().cloned();
        } else if is(text) {
            return None;
        } else if is(valued) {
            rest.next();
        } else if !argument.starts_with('-') {
            return Some(argument.clone());
        }
    }
    None
}

/// systemd writes a `-` inside a name as `\x2d`.
fn unescaped(unit: &str) -> String {
    let mut out = String::with_capacity(unit.len());
    let mut rest = unit;
    while let Some(at) = rest.find("\\x") {
        let code =
            rest.get(at + 2..at + 4).and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii);
        let Some(code) = code else {
            break;
        };
        out.push_str(&rest[..at]);
        out.push(char::from(code));
        rest = &rest[at + 4..];
    }
    out.push_str(rest);
    out
}

/// The name that an engine gave to a container: of Docker from its state directory, of Kubernetes from the names of its log
/// files (`pod_namespace_container-id.log`).
pub fn container_name(id: &str, root: &Path) -> Option<String> {
    docker_name(id, root).or_else(|| kubernetes_name(id, root))
}

fn docker_name(id: &str, root: &Path) -> Option<String> {
    let file = root.join("var/lib/docker/containers").join(id).join("config.v2.json");
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let name = state.get("Name")?.as_str()?.trim_start_matches('/');
    (!name.is_empty()).then(|| name.to_owned())
}

fn kubernetes_name(id: &str, root: &Path) -> Option<String> {
    let suffix = format!("-{id}.log");
    let file = std::fs::read_dir(root.join("var/log/containers"))
        .ok()?
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .find(|name| name.ends_with(&suffix))?;
    let mut parts = file[..file.len() - suffix.len()].splitn(3, '_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{namespace}/{pod}/{container}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bca1a6ad5e9ff4ba5a8cf6bb62e6eb9b0f0e3d24ff1a0b6a3c5d7e9f1234567";

    #[test]
    fn names_of_what_just_begins_do_not_stay() {
        let web = Names { name: "web".to_owned(), ..Names::default() };
        for (comm, settled) in [("nginx", true), ("", true), ("runc:[2:INIT]", false), ("(httpd)", false)] {
            assert_eq!(is_settled(&web, comm), settled, "{comm}");
        }
        let container =
            |name: &str| Names { name: name.to_owned(), container: ID.to_owned(), ..Names::default() };
        assert!(!is_settled(&container(&ID[..12]), "java"));
        assert!(is_settled(&container("default/shop-1/web"), "java"));
    }

    #[test]
    fn names_by_path() {
        let check = |path: &str, expect: (&str, &str, bool)| {
            let n = names(path, "nginx");
            assert_eq!((n.name.as_str(), n.unit.as_str(), n.container == ID), expect, "{path}");
        };
        let service = "apache2.service";
        check("/system.slice/apache2.service", (service, service, false));
        check("/system.slice/apache2.service/worker", (service, service, false));
        check(
            "/system.slice/mysql\\x2dreplica.service",
            ("mysql-replica.service", "mysql-replica.service", false),
        );
        check("/user.slice/user-0.slice/session-3.scope", ("session-3.scope", "session-3.scope", false));
        check("/lab/web", ("web", "", false));
        check("/", ("nginx", "", false));
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/kubepods/burstable/pod1f2c/{ID}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2c.slice/cri-containerd-{ID}.scope"
            ),
        ] {
            check(&path, ("4bca1a6ad5e9", "", true));
        }
        assert_eq!(names("/", "").name, "/");
        assert_eq!(unescaped("a\\x2"), "a\\x2");
        assert_eq!(unescaped("a\\xff"), "a\\xff");
    }

    #[test]
    fn programs_by_what_they_run() {
        let check = |comm: &str, command: &str, expect: &str| {
            let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(program(comm, &arguments), expect, "{command}");
        };
        check("python3", "python3 -m http.server 8099 --bind 127.0.0.1", "http.server");
        check("python3.11", "/usr/bin/python3.11 -u -W ignore /srv/shop/app.py --port 1", "app.py");
        check("python3", "python3 -c print()", "python3");
        check("python3", "python3", "python3");
        check("gunicorn", "/usr/bin/python3 /usr/bin/gunicorn app", "gunicorn");
        check("gunicorn: worke", "gunicorn: worker [app]", "gunicorn");
        check("java", "java -Xmx1g -cp a.jar:b.jar -Dx=y org.example.Shop serve", "org.example.Shop");
        check("java", "/opt/jdk/bin/java -jar /srv/shop-1.2.jar", "shop-1.2.jar");
        check("node", "node --require ./trace.js /srv/server.js", "server.js");
        check("MainThread", "node /srv/server.js", "server.js");
        check("bash", "bash -c something", "bash");
        check("mariadbd", "/usr/sbin/mariadbd --user=mysql", "mariadbd");
        check("a-rather-long-c", "/usr/bin/a-rather-long-command x", "a-rather-long-command");
        check("nginx", "nginx: master process nginx", "nginx");
    }

    #[test]
    fn cgroups_that_hold_whatever_was_started() {
        let check = |path: &str, expect: bool| assert_eq!(collects(path), expect, "{path}");
        check("/", true);
        check("/user.slice/user-0.slice/session-3.scope", true);
        check("/user.slice", true);
        check("/init.scope", true);
        check("/system.slice/apache2.service", false);
        check(&format!("/system.slice/docker-{ID}.scope"), false);
        check("/lab/web", false);
    }

    #[test]
    fn container_names_from_the_engines_files() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(container_name(ID, root.path()), None);
        let logs = root.path().join("var/log/containers");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join(format!("web-0_shop_front-{ID}.log")), "").unwrap();
        assert_eq!(container_name(ID, root.path()).as_deref(), Some("shop/web-0/front"));
        let docker = root.path().join("var/lib/docker/containers").join(ID);
        std::fs::create_dir_all(&docker).unwrap();
        std::fs::write(docker.join("config.v2.json"), r#"{"Name":"/front"}"#).unwrap();
        assert_eq!(container_name(ID, root.path()).as_deref(), Some("front"));
    }
}
