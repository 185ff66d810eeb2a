//! What limits the requests at a time in servers that people run, in each server's own words. Owns how a server is recognised, by its command
//! and its workload's name; knows no size. A default is never told as a limit.

/// Where a server's requests at a time are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    /// The key, with its place.
    pub(super) key: &'static str,
    /// How it belongs to the size: `{}` in a sentence that ends with it.
    pub(super) how: How,
}

/// What a size means for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The key is the size.
    Is,
    /// It is, and a worker may be a connection's for as long as that is open: what the server's files say decides, and where they do not, it is taken to be.
    IsOfConnections,
    /// Several keys make the size, as a product or a sum.
    Make,
    /// The server takes what comes: the pools of its callers limit it, and the key must not be below their sum.
    OfCallers,
    /// An event loop, which has no workers: what it forwards is limited per server behind it.
    PerBackend,
}

const fn setting(key: &'static str, how: How) -> Setting {
    Setting { key, how }
}

pub(super) const TOMCAT: Setting = setting("maxThreads of the Connector in server.xml", How::Is);
const APACHE: Setting = setting("MaxRequestWorkers", How::IsOfConnections);
pub(super) const GUNICORN: Setting = setting("gunicorn's workers × threads", How::Make);
pub(super) const PHP: Setting = setting("pm.max_children of the pool", How::Is);
const MARIADB: Setting = setting("max_connections", How::OfCallers);
const POSTGRES: Setting = setting("max_connections, or pgbouncer's default_pool_size", How::OfCallers);
const REDIS: Setting = setting("maxclients", How::OfCallers);
const HAPROXY: Setting = setting("maxconn of each server line", How::PerBackend);
const NGINX: Setting = setting("max_conns of each upstream server", How::PerBackend);

/// By what a command or a workload's name begins with; the first that fits.
const BY_COMMAND: [(&str, Setting); 12] = [
    ("apache2", APACHE),
    ("httpd", APACHE),
    ("gunicorn", GUNICORN),
    ("php-fpm", PHP),
    ("mariadbd", MARIADB),
    ("mysqld", MARIADB),
    ("postgres", POSTGRES),
    ("redis-server", REDIS),
    ("haproxy", HAPROXY),
    ("nginx", NGINX),
    ("tomcat", TOMCAT),
    ("catalina", TOMCAT),
];

/// What limits a server of this command and workload; `None`: it is not recognised. `java` alone says nothing: its workload's name must.
pub(super) fn setting_of(comm: &str, workload: &str) -> Option<Setting> {
    let unit = workload.rsplit('/').next().unwrap_or_default();
    let named = |name: &str| BY_COMMAND.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, is)| *is);
    named(comm).or_else(|| named(unit)).or_else(|| {
        // Containers and units have prefixes of their own: `shop-tomcat-1`, `lab-tomcat.service`.
        let part = |begin: &str| unit.split(['-', '_', '.', '@']).any(|part| part.starts_with(begin));
        BY_COMMAND.iter().find(|(begin, _)| part(begin)).map(|(_, is)| *is)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_recognised_by_their_command_or_their_name() {
        for (comm, workload, expect) in [
            ("apache2", "apache2.service", Some(APACHE)),
            ("java", "tomcat10.service", Some(TOMCAT)),
            ("java", "lab/shop-tomcat-2", Some(TOMCAT)),
            ("java", "orders.service", None),
            ("php-fpm8.2", "php8.2-fpm.service", Some(PHP)),
            ("mariadbd", "mariadb.service", Some(MARIADB)),
            ("postgres", "postgresql@15-main.service", Some(POSTGRES)),
            ("gunicorn", "bulletin.service", Some(GUNICORN)),
            ("haproxy", "haproxy.service", Some(HAPROXY)),
            ("nginx", "nginx.service", Some(NGINX)),
            ("", "", None),
        ] {
            assert_eq!(setting_of(comm, workload), expect, "{comm} {workload}");
        }
    }
}
