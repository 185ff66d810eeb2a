//! Apache httpd: `MaxRequestWorkers` of the module that serves (mpm_common), in the file that it was started with and those that this one
//! includes. Owns as much of the configuration's language as decides which directive holds: `Include`, `IfModule`, `IfDefine`, `Define`.

use super::Pool;
use super::process::Process;
use std::collections::{BTreeMap, BTreeSet};

/// Where builds look for their configuration, with the root that relative paths are of: Debian, Fedora and its kin, httpd's own.
const USUAL: [(&str, &str); 4] = [
    ("/etc/apache2", "apache2.conf"),
    ("/etc/httpd", "conf/httpd.conf"),
    ("/usr/local/apache2", "conf/httpd.conf"),
    ("/etc/apache2", "httpd.conf"),
];
/// Files that include one another, one inside the other.
const DEEP_MAX: usize = 16;
/// Files in all.
const FILES_MAX: usize = 1024;

/// One directive, with the modules that must be loaded, or must not, for it to hold.
#[derive(Debug)]
struct Directive {
    name: String,
    value: String,
    file: String,
    if_modules: Vec<(bool, String)>,
}

#[derive(Debug, Default)]
struct Reader {
    root: String,
    defines: BTreeMap<String, String>,
    directives: Vec<Directive>,
    files: usize,
}

pub(super) fn pool(process: &Process) -> Option<Pool> {
    let mut reader =
        Reader { root: process.option(&["d"]).unwrap_or_default().to_owned(), ..Reader::default() };
    // `-DNAME` and `-D NAME`.
    let after = process.arguments().iter().skip(1).map(String::as_str).chain([""]);
    for (argument, next) in process.arguments().iter().zip(after) {
        if let Some(name) = argument.strip_prefix("-D") {
            let name = if name.is_empty() { next } else { name };
            reader.defines.insert(name.to_owned(), String::new());
        }
    }
    let file = match process.option(&["f"]) {
        Some(file) => file.to_owned(),
        None => {
            let usual =
                USUAL.iter().find(|(root, file)| process.file(&format!("{root}/{file}")).is_some())?;
            if reader.root.is_empty() {
                usual.0.clone_into(&mut reader.root);
            }
            usual.1.to_owned()
        }
    };
    let file = reader.path(&file);
    reader.file(process, &file, &mut Vec::new(), 0);
    reader.pool()
}

impl Reader {
    fn path(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.root) }
    }

    /// Reads a file and what it includes; `open` are the conditions around it.
    fn file(&mut self, process: &Process, file: &str, open: &mut Vec<(bool, String)>, deep: usize) {
        self.files += 1;
        if deep > DEEP_MAX || self.files > FILES_MAX {
            return;
        }
        let Some(text) = process.file(file) else { return };
        // Sections in which nothing of interest may stand, or whose `IfDefine` is not defined.
        let mut closed: Vec<String> = Vec::new();
        let outside = open.len();
        for line in joined(&text) {
            let line = self.substituted(process, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(section) = line.strip_prefix("</") {
                let name = section.trim_end_matches('>').trim().to_ascii_lowercase();
                if closed.last() == Some(&name) {
                    closed.pop();
                } else if name == "ifmodule" && closed.is_empty() && open.len() > outside {
                    open.pop();
                }
                continue;
            }
            if let Some(section) = line.strip_prefix('<') {
                let section = section.trim_end_matches('>');
                let (name, argument) = section.split_once(char::is_whitespace).unwrap_or((section, ""));
                let (name, argument) = (name.to_ascii_lowercase(), argument.trim());
                let negated = argument.starts_with('!');
                let bare = unquoted(argument.trim_start_matches('!'));
                match name.as_str() {
                    "ifmodule" if closed.is_empty() => open.push((!negated, bare.to_owned())),
                    // Nothing to remember for its end.
                    "ifdefine" if closed.is_empty() && self.defines.contains_key(bare) != negated => {}
                    _ => closed.push(name),
                }
                continue;
            }
            if closed.is_empty() {
                self.directive(process, &line, file, open, deep);
            }
        }
        open.truncate(outside);
    }

    fn directive(
        &mut self,
        process: &Process,
        line: &str,
        file: &str,
        open: &mut Vec<(bool, String)>,
        deep: usize,
    ) {
        let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "include" | "includeoptional" => {
                let path = self.path(unquoted(value));
                for found in process.files(&path) {
                    // A folder stands for all files in it.
                    let inside = process.folder(&found);
                    let files = if inside.is_empty() { vec![found] } else { inside };
                    files.iter().for_each(|file| self.file(process, file, open, deep + 1));
                }
            }
            "serverroot" => unquoted(value).clone_into(&mut self.root),
            "define" => {
                let (name, value) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
                self.defines.insert(name.to_owned(), unquoted(value.trim()).to_owned());
            }
            name
            @ ("loadmodule" | "maxrequestworkers" | "maxclients" | "serverlimit" | "threadsperchild") => {
                self.directives.push(Directive {
                    name: name.to_owned(),
                    value: unquoted(value).to_owned(),
                    file: file.to_owned(),
                    if_modules: open.clone(),
                });
            }
            _ => {}
        }
    }

    /// `${NAME}` by `Define`, else by the environment.
    fn substituted(&self, process: &Process, line: &str) -> String {
        let (mut out, mut rest) = (String::new(), line);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                rest = after;
                break;
            };
            let value = self.defines.get(name).map(String::as_str).or_else(|| process.variable(name));
            out.push_str(value.unwrap_or_default());
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn pool(&self) -> Option<Pool> {
        let mut loaded = BTreeSet::new();
        for of in self.directives.iter().filter(|of| of.name == "loadmodule") {
            if holds(&of.if_modules, &loaded) {
                let module = of.value.split_whitespace().next().unwrap_or_default();
                loaded.insert(module.to_owned());
            }
        }
        // The last one holds. `MaxClients` is its name before 2.4.
        let last = |names: &[&str]| {
            let mut own = self.directives.iter().filter(|of| names.contains(&of.name.as_str()));
            own.rfind(|of| holds(&of.if_modules, &loaded))
        };
        let number = |of: &Directive| of.value.parse::<u64>().ok();
        let threads = last(&["threadsperchild"]).and_then(number).filter(|n| *n > 0);
        let servers = last(&["serverlimit"]).and_then(number);
        let workers = last(&["maxrequestworkers", "maxclients"])?;
        let (mut size, mut key) = (number(workers)?, "MaxRequestWorkers");
        // A prefork server has one thread in each; the others start whole processes, and no more than ServerLimit.
        if !loaded.contains("mpm_prefork_module") {
            if let Some(threads) = threads {
                size = size / threads * threads;
                if let Some(most) =
                    servers.map(|servers| servers.saturating_mul(threads)).filter(|most| *most < size)
                {
                    (size, key) = (most, "ServerLimit × ThreadsPerChild");
                }
            }
        } else if let Some(most) = servers.filter(|most| *most < size) {
            (size, key) = (most, "ServerLimit");
        }
        // Workers of mpm_event hand a connection that has no request to the listener's thread; those of the others wait for its next one. Which
        // module it is where one was compiled in, its files do not say.
        let mpm = |name: &str| loaded.contains(&format!("mpm_{name}_module"));
        let held_by_connection = match (mpm("event"), mpm("worker") || mpm("prefork")) {
            (_, true) => Some(true),
            (true, false) => Some(false),
            (false, false) => None,
        };
        Some(Pool { held_by_connection, ..Pool::new(size, key, &workers.file)? })
    }
}

/// Whether all conditions hold. A module is called by its identifier or by its source file: `mpm_event_module`, `event.c`, `mpm_event.c`.
fn holds(conditions: &[(bool, String)], loaded: &BTreeSet<String>) -> bool {
    conditions.iter().all(|(wanted, name)| {
        let bare = name.trim_end_matches(".c").trim_start_matches("mod_");
        let has = loaded.contains(name)
            || loaded.contains(&format!("{bare}_module"))
            || loaded.contains(&format!("mpm_{bare}_module"));
        has == *wanted
    })
}

/// Lines, with those that end in a backslash as one.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(part),
            None => lines.push(part.to_owned()),
        }
        goes_on = more;
    }
    lines
}

fn unquoted(value: &str) -> &str {
    let bare = value.trim();
    bare.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    const MAIN: &str = "ServerRoot \"/etc/apache2\"\nDefine WORKERS 300\n# MaxRequestWorkers 1\nIncludeOptional mods-enabled/*.load\n\
                        IncludeOptional mods-enabled/*.conf\n<Directory />\n  MaxRequestWorkers 7\n</Directory>\n";
    const EVENT: &str = "<IfModule mpm_event_module>\n  ThreadsPerChild 25\n  MaxRequestWorkers ${WORKERS}\n</IfModule>\n\
                         <IfModule mpm_prefork_module>\n  MaxRequestWorkers 9\n</IfModule>\n";

    fn read(host: &Host) -> Option<(u32, String)> {
        host.told(pool)
    }

    fn debian(main: &str, event: &str) -> Host {
        Host::new(5, "apache2", &["/usr/sbin/apache2", "-k", "start"])
            .file("/etc/apache2/apache2.conf", main)
            .file(
                "/etc/apache2/mods-available/mpm_event.load",
                "LoadModule mpm_event_module /usr/lib/mod_mpm_event.so\n",
            )
            .file("/etc/apache2/mods-available/mpm_event.conf", event)
            .link("/etc/apache2/mods-enabled/mpm_event.load", "../mods-available/mpm_event.load")
            .link("/etc/apache2/mods-enabled/mpm_event.conf", "../mods-available/mpm_event.conf")
    }

    #[test]
    fn the_module_that_serves_decides_which_directive_holds() {
        let place = "MaxRequestWorkers in /etc/apache2/mods-enabled/mpm_event.conf".to_owned();
        assert_eq!(read(&debian(MAIN, EVENT)), Some((300, place.clone())));
        let odd = EVENT.replace("${WORKERS}", "310");
        assert_eq!(read(&debian(MAIN, &odd)), Some((300, place)), "whole processes");
        let few = format!("{EVENT}ServerLimit 4\n");
        assert_eq!(
            read(&debian(MAIN, &few)),
            Some((
                100,
                "ServerLimit × ThreadsPerChild in /etc/apache2/mods-enabled/mpm_event.conf".to_owned()
            ))
        );
        let later = format!("{MAIN}MaxRequestWorkers \\\n  50\n");
        assert_eq!(
            read(&debian(&later, EVENT)),
            Some((50, "MaxRequestWorkers in /etc/apache2/apache2.conf".to_owned()))
        );
    }

    #[test]
    fn a_worker_is_a_connections_unless_the_module_of_events_serves() {
        let held = |module: &str| {
            let (main, own) =
                (MAIN.replace("IncludeOptional mods-enabled/*.load\n", module), "MaxRequestWorkers 40\n");
            debian(&main, own).told_whole(pool).unwrap().held_by_connection
        };
        let load = |name: &str| format!("LoadModule mpm_{name}_module x.so\n");
        assert_eq!(held(&load("event")), Some(false));
        assert_eq!(held(&load("worker")), Some(true));
        assert_eq!(held(&load("prefork")), Some(true));
        assert_eq!(held(""), None, "one that was compiled in");
    }

    #[test]
    fn what_nobody_set_is_not_told() {
        assert_eq!(read(&debian(MAIN, "")), None, "a default is no setting");
        assert_eq!(read(&debian(MAIN, "MaxRequestWorkers ${NOWHERE}\n")), None);
        assert_eq!(read(&Host::new(5, "apache2", &["/usr/sbin/apache2"])), None);
        let prefork = EVENT.replace("event", "worker");
        assert_eq!(read(&debian(MAIN, &prefork)), None, "of modules that are not loaded");
    }

    #[test]
    fn another_file_and_what_is_defined_on_the_command_line() {
        let text = "LoadModule mpm_prefork_module x.so\n<IfDefine BIG>\nMaxClients 40\n</IfDefine>\n<IfDefine !BIG>\nMaxClients 4\n\
                    </IfDefine>\nServerLimit ${LIMIT}\n<IfModule prefork.c>\nInclude more.conf\n</IfModule>\n";
        let host = |arguments: &[&str]| {
            Host::new(5, "httpd", arguments)
                .file("/opt/web/my.conf", text)
                .file("/opt/web/more.conf", "ThreadsPerChild 64\n")
                .environment(&["LIMIT=64"])
        };
        let place = "MaxRequestWorkers in /opt/web/my.conf".to_owned();
        assert_eq!(
            read(&host(&["httpd", "-d", "/opt/web", "-f", "my.conf", "-DBIG"])),
            Some((40, place.clone()))
        );
        assert_eq!(read(&host(&["httpd", "-d", "/opt/web", "-f", "/opt/web/my.conf"])), Some((4, place)));
    }

    #[test]
    fn files_that_include_themselves_end() {
        let round =
            "Include /etc/apache2/apache2.conf\nInclude /etc/apache2/apache2.conf\nMaxRequestWorkers 8\n";
        assert!(read(&debian(round, EVENT)).is_some());
    }
}
