//! An incident as the programs tell it, as far as it is scored, and in one line for people. `lab-score.json` holds it in this shape: fields
//! may be added, never renamed or removed. Knows nothing of what is right about one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an incident says, as far as it is scored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// Its confidence, 0 to 1.
    pub confidence: f64,
    /// First sign, Unix ns.
    pub start_unix_ns: u64,
    /// End of what belongs to it, Unix ns.
    pub end_unix_ns: u64,
    /// Host of the root.
    pub host: String,
    /// Workload of the root.
    pub workload: String,
    /// Resource of the root.
    pub resource: String,
    /// Onset of the root, Unix ns.
    pub root_start_unix_ns: u64,
    /// End of the root, Unix ns.
    pub root_end_unix_ns: u64,
    /// First culprit's `comm`.
    pub culprit: Option<String>,
    /// Hosts whose listeners dropped, in its order.
    pub drop_hosts: Vec<String>,
    /// Packets dropped, all listeners.
    pub dropped: u64,
    /// Connections behind them.
    pub connections: u64,
    /// When the first drop was, Unix ns.
    pub first_drop_unix_ns: Option<u64>,
    /// Requests that it says became very long: all of them where they are counted, else those that were sent again.
    pub vlrt: u64,
    /// Whether it says that retries keep it alive.
    #[serde(default)]
    pub sustained: bool,
    /// Its sentence.
    pub title: String,
    /// Host, workload and resource of the further causes that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<[String; 3]>,
    /// Of each tier on the way to the root, where its slowest request was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

/// Where the slowest request of a tier was, by what an incident says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// One of its calls, at whatever depth, was to the root.
    ToRoot,
    /// Its calls were to others alone, or it made none that took long.
    Elsewhere,
    /// Most of the time nobody had read it, or its connection was not there.
    Unread,
    /// Whose its thread's calls were is not known.
    Unknown,
}

/// Those of the tiers that waited for the root: neither of that itself, nor of what sent on what it had stored.
fn ways(incident: &Value) -> Vec<Way> {
    let root = &incident["root"];
    let is_root = |of: &Value| of["host"] == root["host"] && of["workload"] == root["workload"];
    // What comes down from a root does not wait for it.
    let is_above = incident["kind"] != "downstream_ctqo";
    let hops = incident["hops"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|hop| is_above && !is_root(hop) && hop["role"] != "batch");
    let way = |slowest: &Value| {
        let [took, inside] = ["took_ms", "inside_ms"].map(|key| slowest[key].as_u64().unwrap_or(0));
        let legs = || slowest["calls"].as_array().into_iter().flatten();
        if legs().any(is_root) {
            Way::ToRoot
        } else if 2 * inside < took {
            Way::Unread
        } else if slowest["calls_known"] == false
            || legs().any(|leg| leg["calls_unknown"] == true)
            || slowest["calls_left_out"].as_u64() > Some(0)
        {
            Way::Unknown
        } else {
            Way::Elsewhere
        }
    };
    hops.filter_map(|hop| hop["slowest"].as_array()?.first().map(way)).collect()
}

/// All very long requests of an incident.
fn very_long(vlrt: &Value) -> u64 {
    let kinds = vlrt["by_kind"].as_object();
    let all = kinds.map(|kinds| kinds.values().filter_map(Value::as_u64).sum());
    all.or_else(|| vlrt["expected"].as_u64()).unwrap_or(0)
}

impl Reported {
    /// From the JSON of `tailwater incidents --json`, the API, a webhook or a replay. Unknown fields do not matter; of a missing one
    /// the value is empty, and the verdict will say so.
    #[must_use]
    pub fn of(incident: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let root = &incident["root"];
        let drops: Vec<&Value> = incident["drops"].as_array().into_iter().flatten().collect();
        let sum = |key: &str| drops.iter().map(|drop| number(&drop[key])).sum();
        Self {
            id: text(&incident["id"]),
            kind: text(&incident["kind"]),
            severity: text(&incident["severity"]),
            confidence: incident["confidence"].as_f64().unwrap_or(0.0),
            start_unix_ns: number(&incident["start_unix_ns"]),
            end_unix_ns: number(&incident["end_unix_ns"]),
            host: text(&root["host"]),
            workload: text(&root["workload"]),
            resource: text(&root["resource"]),
            root_start_unix_ns: number(&root["start_unix_ns"]),
            root_end_unix_ns: number(&root["end_unix_ns"]),
            culprit: root["culprits"][0]["comm"].as_str().map(str::to_owned),
            drop_hosts: drops.iter().map(|drop| text(&drop["host"])).collect(),
            dropped: sum("count"),
            connections: sum("connections"),
            first_drop_unix_ns: drops.iter().map(|drop| number(&drop["first_unix_ns"])).min(),
            vlrt: very_long(&incident["vlrt"]),
            sustained: incident["sustained"]["by"] == "retries",
            title: text(&incident["title"]),
            also: incident["also"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|also| ["host", "workload", "resource"].map(|key| text(&also["root"][key])))
                .collect(),
            ways: ways(incident),
        }
    }

    /// The same with each further cause that it names in place of its root; none of them wakes anybody once more.
    #[must_use]
    pub fn further(&self) -> Vec<Self> {
        let with = |[host, workload, resource]: &[String; 3]| Self {
            host: host.clone(),
            workload: workload.clone(),
            resource: resource.clone(),
            also: Vec::new(),
            ..self.clone()
        };
        self.also.iter().map(with).collect()
    }

    /// Whether it would wake somebody.
    #[must_use]
    pub fn is_alarming(&self) -> bool {
        self.severity == "critical" || self.severity == "warning"
    }
}

/// An incident in one line.
#[must_use]
pub fn brief(said: &Reported) -> String {
    let root = root(&said.workload, &said.host, &said.resource, said.culprit.as_deref());
    format!("{} {} ({root}, confidence {:.2}): {}", said.severity, said.kind, said.confidence, said.title)
}

/// A root in the words of an incident.
pub(crate) fn root(workload: &str, host: &str, resource: &str, culprit: Option<&str>) -> String {
    let culprit = culprit.map(|comm| format!(" by {comm}")).unwrap_or_default();
    format!("{workload} on {host}, {resource}{culprit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn where_the_slowest_request_of_each_tier_was_is_told_of_all_but_the_root() {
        let hop = |host: &str, slowest: Value| json!({"host": host, "workload": "w", "slowest": slowest});
        let slow = |inside: u64, known: bool, calls: &[&str]| {
            let calls: Vec<Value> = calls.iter().map(|host| json!({"host": host, "workload": "w"})).collect();
            json!([{"took_ms": 900, "inside_ms": inside, "calls_known": known, "calls": calls}])
        };
        let incident = json!({
            "root": {"host": "d", "workload": "w"},
            "hops": [
                hop("a", slow(890, true, &["b", "d"])), hop("b", slow(890, true, &["c"])), hop("c", slow(300, true, &[])),
                hop("e", slow(890, false, &[])), hop("f", json!([])), hop("d", slow(890, true, &[])),
            ],
        });
        assert_eq!(Reported::of(&incident).ways, [Way::ToRoot, Way::Elsewhere, Way::Unread, Way::Unknown]);
    }
}
