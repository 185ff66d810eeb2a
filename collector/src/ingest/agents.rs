//! What the collector asks of agents: `[[agents]]`. Owns which table is for a host, what the tables may hold, and how that is said to an agent.
//! Knows no stream. What the operator of a machine left out in the agent's own file stays left out there, whatever is asked from here.

use crate::authority::invitations::{check_hosts, fits};
use crate::fault::Fault;
use crate::ingest::convert::signal_name;
use serde::{Deserialize, Serialize};
use tailwater_proto::columnar::WINDOWS_MAX;
use tailwater_proto::v1::{Configuration, Signal};

/// Tables: each new stream goes through them.
const TABLES_MAX: usize = 256;
/// Patterns of one table.
const HOSTS_MAX: usize = 256;

/// How the agents of some hosts are to measure. What a table does not say is as the agent's own file has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    /// Hosts, or patterns with one `*`, as those of enrolment.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// A number of the operator's, which the agent tells in its log.
    #[serde(default)]
    pub version: u64,
    /// Windows of 50 ms in one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_per_batch: Option<u32>,
    /// Signals not to measure, by the names that the agent's file has.
    #[serde(default)]
    pub disabled_signals: Vec<String>,
}

/// The signal of this name: `run_queue`.
fn signal(name: &str) -> Option<Signal> {
    signals().find(|signal| signal_name(*signal as i32) == name)
}

/// Every signal.
fn signals() -> impl Iterator<Item = Signal> {
    (Signal::Unspecified as i32 + 1..).map_while(|number| Signal::try_from(number).ok())
}

/// The first rule that is broken.
pub fn check(all: &[Agents]) -> Result<(), Fault> {
    for (index, of) in all.iter().enumerate() {
        let at = |key, what: String, remedy: String| Err(Fault { table: "agents", index, key, what, remedy });
        if index >= TABLES_MAX {
            let what = format!("there may be {TABLES_MAX} of these tables");
            return at("", what, "let one table name several hosts".to_owned());
        }
        if of.hosts.is_empty() || of.hosts.len() > HOSTS_MAX {
            let what = format!("there must be 1 to {HOSTS_MAX}, and there are {}", of.hosts.len());
            return at("hosts", what, "name hosts or patterns, as in hosts = [\"web-*\"]".to_owned());
        }
        if let Some(why) = of.hosts.iter().find_map(|pattern| check_hosts(pattern).err()) {
            return at("hosts", why, "name hosts or patterns, as in hosts = [\"web-*\"]".to_owned());
        }
        if of.windows_per_batch.is_some_and(|windows| !(1..=WINDOWS_MAX).contains(&windows)) {
            let remedy = "leave it out for what the agent's own file says";
            return at("windows_per_batch", format!("must be 1 to {WINDOWS_MAX}"), remedy.to_owned());
        }
        for (n, name) in of.disabled_signals.iter().enumerate() {
            if signal(name).is_none() {
                let known: Vec<String> = signals().map(|signal| signal_name(signal as i32)).collect();
                let what = format!("there is no signal {name:?}");
                return at("disabled_signals", what, format!("use of {}", known.join(", ")));
            }
            if of.disabled_signals.iter().take(n).any(|before| before == name) {
                return at("disabled_signals", format!("{name:?} is there twice"), "name it once".to_owned());
            }
        }
    }
    Ok(())
}

/// What is said to the agent of `host`: what the first table says that is for it. `None`: nothing, as none is.
#[must_use]
pub fn configuration(all: &[Agents], host: &str) -> Option<Configuration> {
    let of = all.iter().find(|of| of.hosts.iter().any(|pattern| fits(pattern, host)))?;
    Some(Configuration {
        version: of.version,
        // 0 on the wire: as the agent's own file has it.
        windows_per_batch: of.windows_per_batch.unwrap_or_default(),
        disabled: of.disabled_signals.iter().filter_map(|name| signal(name)).map(|s| s as i32).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[&str], version: u64) -> Agents {
        Agents { hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), version, ..Agents::default() }
    }

    /// Fails if a later table wins, if a host that no table names is told anything, or if what a table leaves out is said.
    #[test]
    fn the_first_table_that_is_for_a_host_is_said_to_it_and_nothing_to_a_host_of_none() {
        let mut one = of(&["db-1", "web-1*"], 1);
        one.windows_per_batch = Some(4);
        one.disabled_signals = vec!["run_queue".to_owned(), "throttling".to_owned()];
        let all = [one, of(&["web-*"], 2)];
        assert_eq!(check(&all), Ok(()));
        let disabled = vec![Signal::RunQueue as i32, Signal::Throttling as i32];
        let first = Configuration { version: 1, windows_per_batch: 4, disabled };
        for host in ["db-1", "DB-1", "web-10"] {
            assert_eq!(configuration(&all, host).as_ref(), Some(&first), "{host}");
        }
        let second = Configuration { version: 2, windows_per_batch: 0, disabled: Vec::new() };
        assert_eq!(configuration(&all, "web-2"), Some(second));
        for host in ["db-10", "cache-1", "", "my-web-1"] {
            assert_eq!(configuration(&all, host), None, "{host}");
        }
        assert_eq!(configuration(&[], "web-1"), None);
        assert!(configuration(&[of(&["*"], 3)], "cache-1").is_some());
    }

    /// Fails if a bound is taken away, or if an error names another key than the one that is wrong.
    #[test]
    fn a_table_that_says_what_cannot_be_is_named_with_its_key() {
        let named = |table: Agents| check(&[of(&["*"], 0), table]).map_err(|fault| (fault.index, fault.key));
        let measured = |windows: Option<u32>, signals: &[&str]| Agents {
            windows_per_batch: windows,
            disabled_signals: signals.iter().map(|s| (*s).to_owned()).collect(),
            ..of(&["*"], 0)
        };
        assert_eq!(named(measured(Some(WINDOWS_MAX), &["cpu", "calls"])), Ok(()));
        assert_eq!(named(of(&[], 0)), Err((1, "hosts")));
        let long = "w".repeat(254);
        for wrong in ["", "a*b*", "web 1", "web/1", long.as_str()] {
            assert_eq!(named(of(&["web-1", wrong], 0)), Err((1, "hosts")), "{wrong}");
        }
        assert_eq!(named(of(&["web-1"; HOSTS_MAX], 0)), Ok(()));
        assert_eq!(named(of(&["web-1"; HOSTS_MAX + 1], 0)), Err((1, "hosts")));
        for windows in [0, WINDOWS_MAX + 1, u32::MAX] {
            assert_eq!(named(measured(Some(windows), &[])), Err((1, "windows_per_batch")), "{windows}");
        }
        for wrong in [&["cpus"][..], &["unspecified"], &["CPU"], &[""], &["cpu", "calls", "cpu"]] {
            assert_eq!(named(measured(None, wrong)), Err((1, "disabled_signals")), "{wrong:?}");
        }
        let many = vec![of(&["*"], 0); TABLES_MAX + 1];
        assert_eq!(check(&many[1..]), Ok(()));
        assert_eq!(check(&many).map_err(|fault| fault.index), Err(TABLES_MAX));
        let fault = check(&[measured(None, &["cpus"])]).unwrap_err();
        assert_eq!(fault.what, "there is no signal \"cpus\"");
        assert_eq!(
            fault.remedy,
            "use of cpu, run_queue, block_io, memory, accept_queue, requests, calls, retransmits, throttling"
        );
    }
}
