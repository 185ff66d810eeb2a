//! PostgreSQL: `max_connections` of the command line, of `postgresql.auto.conf` (`ALTER SYSTEM`), or of `postgresql.conf` and what it includes.

use super::process::{Process, option};
use super::{COMMAND_LINE, Pool};

const KEY: &str = "max_connections";

pub(super) fn pool(process: &Process) -> Option<Pool> {
    if let Some(size) = set(process, KEY).or_else(|| process.option(&["N"])) {
        return Pool::new(size.parse().ok()?, KEY, COMMAND_LINE);
    }
    let data = process
        .option(&["D"])
        .or_else(|| set(process, "data_directory"))
        .or_else(|| process.variable("PGDATA"));
    let main = match set(process, "config_file") {
        Some(file) => file.to_owned(),
        None => format!("{}/postgresql.conf", data?),
    };
    let mut found = in_files(process, main.clone());
    // The data may be elsewhere than the configuration says on its line (Debian).
    let data = data.map(str::to_owned).or_else(|| value(&process.file(&main)?, "data_directory"));
    if let Some(data) = data {
        found = in_files(process, format!("{data}/postgresql.auto.conf")).or(found);
    }
    let (size, file) = found?;
    Pool::new(size, KEY, &file)
}

/// `-c name=value` and `--name=value`.
fn set<'a>(process: &'a Process, name: &str) -> Option<&'a str> {
    let arguments = process.arguments();
    let assigned = arguments.iter().zip(arguments.iter().skip(1)).filter(|(dash, _)| *dash == "-c");
    let assigned = assigned.filter_map(|(_, set)| set.strip_prefix(name)?.strip_prefix('=')).next_back();
    assigned
        .or_else(|| option(arguments.iter().skip(1).map(String::as_str), &[name, &name.replace('_', "-")]))
}

fn in_files(process: &Process, main: String) -> Option<(u64, String)> {
    let mut found = None;
    process.read_all([main], |path, text| {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let below = |to: &str| if to.starts_with('/') { to.to_owned() } else { format!("{folder}/{to}") };
        if let Some(size) = value(text, KEY).and_then(|size| size.parse().ok()) {
            found = Some((size, path.to_owned()));
        }
        // They count after what stands in this file, as far as they come after it; nearly always they stand at its end.
        let included = ["include", "include_if_exists"].into_iter().filter_map(|key| value(text, key));
        let of_folder = value(text, "include_dir").map(|to| process.files(&format!("{}/*.conf", below(&to))));
        included.map(|file| below(&file)).chain(of_folder.into_iter().flatten()).collect()
    });
    found
}

/// The last value of a key: `key = value` or `key 'value'`.
fn value(text: &str, key: &str) -> Option<String> {
    let of_line = |line: &str| {
        let line = line.split('#').next()?.trim();
        let rest = line.strip_prefix(key)?;
        let value =
            rest.strip_prefix([' ', '\t', '=']).map(|rest| rest.trim_start_matches([' ', '\t', '=']))?;
        Some(value.trim().trim_matches('\'').to_owned())
    };
    text.lines().filter_map(of_line).next_back().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    fn debian(more: &[&str]) -> Host {
        let line = ["/usr/lib/postgresql/15/bin/postgres", "-D", "/var/lib/postgresql/15/main", "-c"];
        let file = ["config_file=/etc/postgresql/15/main/postgresql.conf"];
        Host::new(6, "postgres", &[&line[..], &file, more].concat()).file(
            "/etc/postgresql/15/main/postgresql.conf",
            "max_connections = 100\t# (change requires restart)\ninclude_dir = 'conf.d'\n",
        )
    }

    #[test]
    fn the_line_counts_first_then_what_was_altered_then_the_files() {
        let read = |host: Host| host.told(pool);
        assert_eq!(
            read(debian(&[])),
            Some((100, "max_connections in /etc/postgresql/15/main/postgresql.conf".to_owned()))
        );
        let more = || debian(&[]).file("/etc/postgresql/15/main/conf.d/a.conf", "max_connections 60\n");
        assert_eq!(
            read(more()),
            Some((60, "max_connections in /etc/postgresql/15/main/conf.d/a.conf".to_owned()))
        );
        let altered =
            more().file("/var/lib/postgresql/15/main/postgresql.auto.conf", "max_connections = '70'\n");
        assert_eq!(
            read(altered),
            Some((70, "max_connections in /var/lib/postgresql/15/main/postgresql.auto.conf".to_owned()))
        );
        assert_eq!(
            read(debian(&["-c", "max_connections=80"])),
            Some((80, "max_connections in its command line".to_owned()))
        );
        assert_eq!(read(debian(&["-N", "81"])).unwrap().0, 81);
        assert_eq!(read(Host::new(6, "postgres", &["postgres"])), None);
        let docker = Host::new(6, "postgres", &["postgres"])
            .environment(&["PGDATA=/data"])
            .file("/data/postgresql.conf", "max_connections=50\n");
        assert_eq!(read(docker).unwrap().0, 50);
    }
}
