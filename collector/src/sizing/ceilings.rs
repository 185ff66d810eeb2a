//! What bites before a pool is as large as it should be: open files of its process, memory of its cgroup, and how many connections the servers that it
//! calls take in all. Owns that arithmetic and its words; knows no curve. What is not known bounds nothing here.

use super::learned::Learned;
use super::learners::{Key, Learners};
use super::servers::{self, How, Setting, setting_of};
use super::who::{Server, Who};
use std::collections::BTreeSet;
use tailwater_model::advice::Ceiling;
use tailwater_model::window::PoolSize;
use tailwater_sizing::evidence::Decision;

/// Files that a server has open beside those of its requests: libraries, logs, what listens and polls.
const FILES_BESIDE: u64 = 256;

/// The ceilings of a listener's pool, the lowest first. `idle`: workers that are advised for connections without a request, which call nobody.
pub(super) fn ceilings(
    key: &Key,
    learned: &Learned,
    setting: Option<Setting>,
    idle: u32,
    learners: &Learners,
    who: &Who,
) -> Vec<Ceiling> {
    let server = key.server();
    let calls = who.callees(&server).next().is_some();
    let own = learned.limit();
    let mut all: Vec<Ceiling> = own.and_then(|own| open_files(own, calls, idle)).into_iter().collect();
    all.extend(own.zip(setting).and_then(|(own, setting)| memory(own, setting)));
    // Of a database its callers' pools are the limit, and each has ceilings of its own.
    if setting.is_none_or(|setting| matches!(setting.how, How::Is | How::IsOfConnections | How::Make)) {
        all.extend(connections(&server, learners, who).into_iter().map(|of| Ceiling {
            most: of.most.saturating_add(idle),
            sentence: of.sentence + &and_idle(u64::from(idle)),
            ..of
        }));
    }
    all.sort_by_key(|of| of.most);
    all
}

/// What may be decided below the lowest ceiling.
pub(super) fn capped(decision: Decision, now: Option<u32>, ceilings: &[Ceiling]) -> Decision {
    match (decision, ceilings.first()) {
        (Decision::Raise(size), Some(lowest)) if lowest.most < size => {
            if now.is_some_and(|now| lowest.most <= now) {
                Decision::Keep
            } else {
                Decision::Raise(lowest.most)
            }
        }
        _ => decision,
    }
}

/// Of a server whose requests are all in one process: one file for each, and another for its call below.
fn open_files(own: &PoolSize, calls: bool, idle: u32) -> Option<Ceiling> {
    let limit = own.open_files.filter(|_| own.processes == Some(1))?;
    let each = 1 + u64::from(calls);
    let (left, idle) = (limit.saturating_sub(FILES_BESIDE), u64::from(idle));
    // One for each that is idle, as far as there are so many; the others have one for their call as well.
    let idle = idle.min(left);
    let requests = (left - idle) / each;
    let most = at_a_time(requests + idle);
    let sentence = format!(
        "{limit} open files of its process let in {requests} at a time ({each} for each, {FILES_BESIDE} beside){}",
        and_idle(idle)
    );
    Some(Ceiling { what: "open_files".into(), most, limit, sentence })
}

/// Connections without a request, which hold a worker and call nobody.
fn and_idle(idle: u64) -> String {
    if idle > 0 { format!(", and {idle} connections without one") } else { String::new() }
}

/// Of a server with a process for each request: as many as its cgroup has memory for.
fn memory(own: &PoolSize, setting: Setting) -> Option<Ceiling> {
    let (limit, used, processes) = (own.memory_limit_bytes?, own.memory_used_bytes?, own.processes?);
    let workers = processes.saturating_sub(1);
    // One is the master. Which of gunicorn's requests share a process is known only where none does.
    let is_each_its_own = match setting {
        servers::PHP => workers > 0,
        servers::GUNICORN => workers == own.size,
        _ => false,
    };
    if !is_each_its_own {
        return None;
    }
    let each = (used / u64::from(processes)).max(1);
    let most = at_a_time((limit / each).saturating_sub(1));
    let sentence = format!(
        "{} of memory hold {most} at a time ({} for each of its {processes} processes now)",
        mebibytes(limit),
        mebibytes(each)
    );
    Some(Ceiling { what: "memory".into(), most, limit, sentence })
}

/// Of a server whose callees take so many connections in all, if each request has one of its own.
fn connections(server: &Server, learners: &Learners, who: &Who) -> Vec<Ceiling> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (remote, callee) in who.callees(server) {
        let Some(port) = remote.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()) else {
            continue;
        };
        if !seen.insert((callee, port)) {
            continue;
        }
        let of_callee = learners.iter().find(|(key, _)| key.server() == *callee && key.port == port);
        let Some((key, learned)) = of_callee else { continue };
        let is_of_callers =
            setting_of(learned.comm(), &key.workload).is_some_and(|setting| setting.how == How::OfCallers);
        let Some(limit) = learned.limit().filter(|_| is_of_callers) else { continue };
        let callers: BTreeSet<&Server> = who.callers(callee).map(|(caller, _)| caller).collect();
        let (alike, others): (Vec<&Server>, Vec<&Server>) =
            callers.into_iter().partition(|caller| who.tier(caller) == who.tier(server));
        // What others take is what they are set up for; of whom that is not known is told to come on top.
        let sizes = others.iter().map(|other| set_up_for(other, learners));
        let (known, unknown): (Vec<_>, Vec<_>) = sizes.partition(Option::is_some);
        let taken: u32 = known.into_iter().flatten().fold(0, u32::saturating_add);
        let servers = u32::try_from(alike.len()).unwrap_or(u32::MAX).max(1);
        let most = limit.size.saturating_sub(taken) / servers;
        let name = format!("{}@{}:{port}", who.tier(callee), callee.0);
        let mut sentence =
            format!("{} connections of {name} let in {most} from each of {servers} servers", limit.size);
        if servers == 1 {
            sentence = format!("{} connections of {name} let in {most}", limit.size);
        }
        if taken > 0 {
            sentence.push_str(&format!(" beside {taken} of others"));
        }
        if !unknown.is_empty() {
            sentence.push_str(&format!(" and those of {} others that are not known", unknown.len()));
        }
        sentence.push_str(", if each request has one of its own");
        found.push(Ceiling { what: "connections".into(), most, limit: limit.size.into(), sentence });
    }
    found
}

/// Requests that a server has at a time, by its own configuration, on all of its ports.
fn set_up_for(server: &Server, learners: &Learners) -> Option<u32> {
    let own = learners.iter().filter(|(key, _)| key.server() == *server);
    own.map(|(_, learned)| learned.limit().map(|limit| limit.size))
        .reduce(|a, b| Some(a?.saturating_add(b?)))?
}

fn at_a_time(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn mebibytes(bytes: u64) -> String {
    if bytes >= 1 << 30 {
        format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::super::learners::tests::second;
    use super::super::who::tests::{server, three_tiers};
    use super::*;

    fn pool(size: u32) -> PoolSize {
        PoolSize { size, set_by: "x".into(), ..PoolSize::default() }
    }

    /// Two of Tomcat, and a database that they share.
    fn tiers(tomcat: &PoolSize, connections: u32) -> (Learners, Who) {
        let (mut learners, mut who) = (Learners::default(), Who::default());
        who.update(&three_tiers());
        for host in ["app-1", "app-2"] {
            let mut of = second(&server(host, "tomcat10.service"), 8080, 100, 5);
            of.owned.pool = Some(tomcat.clone());
            learners.learn(&of);
        }
        let mut of = second(&server("db", "mariadb.service"), 3306, 100, 5);
        of.owned.comm = "mariadbd".into();
        of.owned.pool = Some(pool(connections));
        learners.learn(&of);
        (learners, who)
    }

    fn of_tomcat(tomcat: &PoolSize, connections: u32) -> Vec<Ceiling> {
        let (learners, who) = tiers(tomcat, connections);
        let (key, learned) = learners.iter().find(|(key, _)| key.host == "app-2").unwrap();
        ceilings(key, learned, setting_of("java", "tomcat10.service"), 0, &learners, &who)
    }

    #[test]
    fn a_database_lets_in_what_its_callers_share() {
        let told = of_tomcat(&pool(30), 100);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].what.as_str(), told[0].most, told[0].limit), ("connections", 50, 100));
        assert_eq!(
            told[0].sentence,
            "100 connections of mariadb@db:3306 let in 50 from each of 2 servers, if each request has one of its own"
        );
        let cap = |size, now| capped(Decision::Raise(size), now, &told);
        assert_eq!(cap(80, Some(30)), Decision::Raise(50));
        assert_eq!(cap(40, Some(30)), Decision::Raise(40));
        assert_eq!(cap(80, Some(60)), Decision::Keep, "it is beyond already");
        assert_eq!(cap(80, None), Decision::Raise(50));
        assert_eq!(capped(Decision::Lower(20), Some(60), &told), Decision::Lower(20));
        assert_eq!(capped(Decision::Raise(80), Some(30), &[]), Decision::Raise(80));
    }

    #[test]
    fn open_files_bound_a_server_of_one_process() {
        let one = PoolSize { open_files: Some(1024), processes: Some(1), ..pool(200) };
        let told = of_tomcat(&one, 10_000);
        assert_eq!((told[0].what.as_str(), told[0].most), ("open_files", 384));
        assert!(
            told[0].sentence.starts_with("1024 open files of its process let in 384 at a time (2 for each")
        );
        assert_eq!(told[1].most, 5000, "the lowest comes first");
        let several = PoolSize { processes: Some(5), ..one };
        assert_eq!(of_tomcat(&several, 10_000).len(), 1, "each process has files of its own");
        // 100 idle ones have one file each, and what is left of them is two for each of the others.
        let open = PoolSize { open_files: Some(1024), processes: Some(1), ..pool(200) };
        let told = open_files(&open, true, 100).unwrap();
        assert_eq!(told.most, 100 + 334);
        assert!(
            told.sentence
                .contains("let in 334 at a time (2 for each, 256 beside), and 100 connections without one"),
            "{}",
            told.sentence
        );
        assert_eq!(open_files(&open, true, 9_999).unwrap().most, 768);
        let few = PoolSize { open_files: Some(100), processes: Some(1), ..pool(200) };
        assert_eq!(of_tomcat(&few, 10_000)[0].most, 0);
    }

    #[test]
    fn memory_bounds_a_server_with_a_process_for_each_request() {
        let (limit, used) = (Some(512 << 20), Some(100 << 20));
        let own =
            PoolSize { memory_limit_bytes: limit, memory_used_bytes: used, processes: Some(5), ..pool(4) };
        let told = memory(&own, servers::GUNICORN).unwrap();
        assert_eq!((told.most, told.limit), (24, 512 << 20));
        assert_eq!(
            told.sentence,
            "512 MiB of memory hold 24 at a time (20 MiB for each of its 5 processes now)"
        );
        assert_eq!(memory(&PoolSize { size: 32, ..own.clone() }, servers::GUNICORN), None, "threads share");
        assert!(memory(&PoolSize { size: 32, ..own.clone() }, servers::PHP).is_some(), "idle ones are ended");
        assert_eq!(memory(&own, servers::TOMCAT), None);
        assert_eq!(memory(&PoolSize { memory_limit_bytes: None, ..own }, servers::PHP), None);
    }
}
