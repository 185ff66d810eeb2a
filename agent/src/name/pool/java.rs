//! Tomcat: `maxThreads` of the Connector at the listener's port, or of its Executor, in `server.xml` below `catalina.base`. A Tomcat inside
//! a program (Spring Boot): `server.tomcat.threads.max`, where the command line or the environment has it; what stands in the program's own
//! archive is not read.

use super::process::Process;
use super::{COMMAND_LINE, ENVIRONMENT, Pool};
use roxmltree::{Document, Node, ParsingOptions};

/// The names that versions of Spring Boot gave it.
const EMBEDDED: [&str; 2] = ["server.tomcat.threads.max", "server.tomcat.max-threads"];
/// `${…}` in one value.
const SUBSTITUTIONS_MAX: usize = 8;

pub(super) fn pool(process: &Process, port: u16) -> Option<Pool> {
    let Some(base) = property(process, "catalina.base") else { return embedded(process) };
    let place = format!("{base}/conf/server.xml");
    let text = process.file(&place)?;
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options).ok()?;
    let named = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    let value = |node: Node, key: &str| substituted(process, node.attribute(key)?);
    let connector =
        named("Connector").find(|node| value(*node, "port").and_then(|p| p.parse().ok()) == Some(port))?;
    let (owner, key) = match value(connector, "executor") {
        Some(name) => {
            let executor = named("Executor").find(|node| value(*node, "name").as_deref() == Some(&name))?;
            (executor, "maxThreads of the Executor")
        }
        None => (connector, "maxThreads"),
    };
    Pool::new(value(owner, "maxThreads")?.trim().parse().ok()?, key, &place)
}

fn embedded(process: &Process) -> Option<Pool> {
    EMBEDDED.iter().find_map(|name| {
        let variable = name.replace('.', "_").replace('-', "").to_ascii_uppercase();
        let on_line =
            process.option(&[name]).or_else(|| property(process, name)).map(|size| (size, COMMAND_LINE));
        let (size, place) =
            on_line.or_else(|| process.variable(&variable).map(|size| (size, ENVIRONMENT)))?;
        Pool::new(size.trim().parse().ok()?, name, place)
    })
}

/// A system property of the command line.
fn property<'a>(process: &'a Process, name: &str) -> Option<&'a str> {
    let mut own = process
        .arguments()
        .iter()
        .filter_map(|a| a.strip_prefix("-D")?.strip_prefix(name)?.strip_prefix('='));
    own.next_back()
}

/// `${name}` and `${name:-otherwise}` by the properties of the command line, as Tomcat's digester has it; `None`: one is not set there.
fn substituted(process: &Process, value: &str) -> Option<String> {
    let mut text = value.to_owned();
    for _ in 0..SUBSTITUTIONS_MAX {
        let Some((before, after)) = text.split_once("${") else { return Some(text) };
        let (name, after) = after.split_once('}')?;
        let (name, otherwise) =
            name.split_once(":-").map_or((name, None), |(name, other)| (name, Some(other)));
        let set = property(process, name).or(otherwise)?;
        text = format!("{before}{set}{after}");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::Host;
    use super::*;

    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<Server port="8005" shutdown="SHUTDOWN"><Service name="Catalina">
  <!-- <Connector port="8080" maxThreads="1"/> -->
  <Executor name="pool" namePrefix="x" maxThreads="${threads:-40}"/>
  <Connector port="8080" protocol="HTTP/1.1" maxThreads="${threads}" acceptCount="128"/>
  <Connector port="8081" executor="pool" maxThreads="7"/>
  <Connector port="8082"/>
</Service></Server>"#;

    fn tomcat(more: &[&str]) -> Host {
        let line = [
            &["/usr/lib/jvm/bin/java", "-Dcatalina.base=/srv/tomcat"],
            more,
            &["org.apache.catalina.startup.Bootstrap", "start"],
        ];
        Host::new(9, "java", &line.concat()).file("/srv/tomcat/conf/server.xml", XML)
    }

    #[test]
    fn threads_are_those_of_the_connector_at_the_port_or_of_its_executor() {
        let read = |host: &Host, port| host.told(|process| pool(process, port));
        let host = tomcat(&["-Dthreads=150"]);
        let place = "in /srv/tomcat/conf/server.xml";
        assert_eq!(read(&host, 8080), Some((150, format!("maxThreads {place}"))));
        assert_eq!(read(&host, 8081), Some((150, format!("maxThreads of the Executor {place}"))));
        assert_eq!(read(&host, 8082), None, "a default is no setting");
        assert_eq!(read(&host, 9000), None, "no connector");
        assert_eq!(read(&tomcat(&[]), 8080), None, "a property that is set elsewhere");
        assert_eq!(read(&tomcat(&[]), 8081).unwrap().0, 40);
        assert_eq!(read(&tomcat(&[]).file("/srv/tomcat/conf/server.xml", "<Server"), 8080), None);
    }

    #[test]
    fn a_tomcat_inside_a_program_is_read_where_its_line_or_environment_says_so() {
        let read = |host: Host| host.told(|process| pool(process, 8080));
        let line = |more: &[&str]| Host::new(9, "java", &[&["java", "-jar", "shop.jar"], more].concat());
        assert_eq!(
            read(line(&["--server.tomcat.threads.max=60"])),
            Some((60, "server.tomcat.threads.max in its command line".to_owned()))
        );
        assert_eq!(
            read(line(&[]).environment(&["SERVER_TOMCAT_THREADS_MAX=61"])),
            Some((61, "server.tomcat.threads.max in its environment".to_owned()))
        );
        assert_eq!(read(line(&[])), None);
    }
}
