//! php-fpm: `pm.max_children` of the pool that listens there, at a port or at a Unix socket, in the file that its master names in its title and those that this one
//! includes.

use super::process::Process;
use super::{Listen, Pool};
use std::collections::BTreeMap;

/// What is known of a pool.
#[derive(Debug, Default)]
struct Section {
    listen: Option<String>,
    children: Option<(u64, String)>,
}

pub(super) fn pool(process: &Process, at: &Listen) -> Option<Pool> {
    // "php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)", or an option where the title was not changed yet.
    let title = process.arguments().join(" ");
    let in_title = title.split_once("master process (").and_then(|(_, rest)| rest.split_once(')'));
    let main = in_title.map(|(path, _)| path).or_else(|| process.option(&["y", "fpm-config"]))?.trim();
    let (mut sections, mut current) = (BTreeMap::<String, Section>::new(), String::new());
    process.read_all([main.to_owned()], |path, text| {
        let mut included = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with([';', '#'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut current);
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.split(';').next().unwrap_or_default().trim().trim_matches('"');
            match key.trim() {
                "include" => included.extend(process.files(value)),
                "listen" => sections.entry(current.clone()).or_default().listen = Some(value.to_owned()),
                "pm.max_children" => {
                    sections.entry(current.clone()).or_default().children =
                        value.parse().ok().map(|n| (n, path.to_owned()));
                }
                _ => {}
            }
        }
        included
    });
    let here = |(name, section): &(String, Section)| {
        section.listen.as_deref().is_some_and(|listen| match at {
            Listen::Port(port) => listen.rsplit(':').next() == Some(&port.to_string()),
            Listen::Path(path) => listen.replace("$pool", name) == **path,
        })
    };
    let (_, own) = sections.into_iter().find(here)?;
    let (size, file) = own.children?;
    // A child reads its next request from the connection that it has, if whoever called keeps it (FastCGI's FCGI_KEEP_CONN).
    Some(Pool { held_by_connection: Some(true), ..Pool::new(size, "pm.max_children", &file)? })
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    #[test]
    fn children_are_those_of_the_pool_at_the_port() {
        let host = Host::new(4, "php-fpm8.2", &["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)"])
            .file(
                "/etc/php/8.2/fpm/php-fpm.conf",
                "[global]\npid = /run/x\ninclude=/etc/php/8.2/fpm/pool.d/*.conf\n",
            )
            .file(
                "/etc/php/8.2/fpm/pool.d/shop.conf",
                "[shop]\n; listen = 1\nlisten = 127.0.0.1:9000\npm = static\npm.max_children = 12 ; few\n",
            )
            .file(
                "/etc/php/8.2/fpm/pool.d/www.conf",
                "[www]\nlisten = /run/php/www.sock\npm.max_children = 5\n[more]\nlisten = 9001\n[of-pool]\nlisten = /run/php/$pool.sock\npm.max_children = 3\n",
            );
        let at = |listen: Listen| host.told(|process| pool(process, &listen));
        let read = |port| at(Listen::Port(port));
        assert_eq!(read(9000), Some((12, "pm.max_children in /etc/php/8.2/fpm/pool.d/shop.conf".to_owned())));
        let whole = host.told_whole(|process| pool(process, &Listen::Port(9000)));
        assert_eq!(whole.unwrap().held_by_connection, Some(true));
        assert_eq!(read(9001), None, "not set");
        assert_eq!(read(80), None, "no pool");
        let www = at(Listen::Path("/run/php/www.sock".into()));
        assert_eq!(www, Some((5, "pm.max_children in /etc/php/8.2/fpm/pool.d/www.conf".to_owned())));
        assert_eq!(at(Listen::Path("/run/php/of-pool.sock".into())).map(|(size, _)| size), Some(3));
        assert_eq!(at(Listen::Path("/run/php/other.sock".into())), None);
    }
}
