//! MariaDB and MySQL: `max_connections` of the command line, else of the option files, the last one counts.

use super::process::Process;
use super::{COMMAND_LINE, Pool};

/// Files that are read if none is named, in their order.
const USUAL: [&str; 3] = ["/etc/my.cnf", "/etc/mysql/my.cnf", "/usr/local/etc/my.cnf"];
/// Groups that the server reads; of those with a version at their end, too (`mysqld-10.11`).
const GROUPS: [&str; 4] = ["mysqld", "mariadbd", "server", "mariadb"];
const KEY: &str = "max_connections";

pub(super) fn pool(process: &Process) -> Option<Pool> {
    let option = process.option(&["max_connections"]).or_else(|| process.option(&["max-connections"]));
    if let Some(size) = option {
        return Pool::new(size.parse().ok()?, KEY, COMMAND_LINE);
    }
    let mut files: Vec<String> = match process.option(&["defaults-file"]) {
        Some(file) => vec![file.to_owned()],
        None => USUAL.iter().map(|file| (*file).to_owned()).collect(),
    };
    files.extend(process.option(&["defaults-extra-file"]).map(str::to_owned));
    let mut found = None;
    process.read_all(files, |path, text| {
        let (mut is_ours, mut included) = (false, Vec::new());
        for line in text.lines().map(str::trim) {
            if let Some(group) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                is_ours = GROUPS.iter().any(|name| {
                    group
                        .strip_prefix(name)
                        .is_some_and(|version| version.is_empty() || version.starts_with('-'))
                });
            } else if let Some(folder) = line.strip_prefix("!includedir") {
                included.extend(process.files(&format!("{}/*.cnf", folder.trim())));
            } else if let Some(file) = line.strip_prefix("!include") {
                included.push(file.trim().to_owned());
            } else if is_ours
                && let Some((key, value)) = line.split_once('=')
                && key.trim().replace('-', "_") == KEY
            {
                let value = value.split('#').next().unwrap_or_default().trim();
                found = value.parse().ok().map(|size| (size, path.to_owned()));
            }
        }
        included
    });
    let (size, file) = found?;
    Pool::new(size, KEY, &file)
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    fn mariadb(more: &[&str]) -> Host {
        Host::new(2, "mariadbd", &[&["/usr/sbin/mariadbd"], more].concat())
            .file(
                "/etc/mysql/my.cnf",
                "[client-server]\nmax_connections = 1\n!includedir /etc/mysql/conf.d/\n!includedir /etc/mysql/mariadb.conf.d/\n",
            )
            .file("/etc/mysql/conf.d/99-other.cnf", "[mysqld]\nmax_connections = 7\n")
            .file(
                "/etc/mysql/mariadb.conf.d/50-server.cnf",
                "[mysqld]\n#max_connections = 100\nmax-connections = 120 # all\n",
            )
            .file(
                "/etc/mysql/mariadb.conf.d/60-more.cnf",
                "[mariadb-10.11]\nmax_connections=130\n[mysqldump]\nmax_connections=9\n",
            )
    }

    #[test]
    fn the_command_line_counts_before_files_and_the_last_file_before_the_others() {
        let read = |host: Host| host.told(pool);
        assert_eq!(
            read(mariadb(&["--max-connections=90"])),
            Some((90, "max_connections in its command line".to_owned()))
        );
        assert_eq!(
            read(mariadb(&[])),
            Some((130, "max_connections in /etc/mysql/mariadb.conf.d/60-more.cnf".to_owned()))
        );
        let own =
            mariadb(&["--defaults-file=/srv/db.cnf"]).file("/srv/db.cnf", "[server]\nmax_connections=500\n");
        assert_eq!(read(own), Some((500, "max_connections in /srv/db.cnf".to_owned())));
        assert_eq!(read(mariadb(&["--defaults-file=/srv/none.cnf"])), None);
    }
}
