//! Who calls whom, ready to look up: names of tiers, how many servers a tier has, which tiers are at the front and which are below another.
//! Owns the look-up of the topology; knows no window and no learner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tailwater_model::TopologyView;

/// Host and workload.
pub(super) type Server = (String, String);

/// The topology by server.
#[derive(Debug, Default)]
pub(super) struct Who {
    view: TopologyView,
    tiers: BTreeMap<Server, String>,
    /// Servers by tier and port.
    servers: BTreeMap<(String, u16), BTreeSet<Server>>,
    /// What a server calls: the address as it dials it, and who answers there, if that is known.
    calls: BTreeMap<Server, BTreeMap<String, Option<Server>>>,
    /// Who calls a server, at which address as they dial it.
    callers: BTreeMap<Server, BTreeSet<(Server, String)>>,
    /// Servers that listen and that no observed tier that listens itself calls.
    front: BTreeSet<Server>,
}

impl Who {
    /// Takes over the topology as it is now.
    pub(super) fn update(&mut self, view: &TopologyView) {
        if *view == self.view {
            return;
        }
        *self = Self { view: view.clone(), ..Self::default() };
        for node in &view.nodes {
            let server = (node.host.clone(), node.workload.clone());
            for port in node.listeners.iter().filter_map(|l| l.rsplit_once(':')?.1.parse().ok()) {
                self.servers.entry((node.tier.clone(), port)).or_default().insert(server.clone());
            }
            if !node.listeners.is_empty() {
                self.front.insert(server.clone());
            }
            self.tiers.insert(server, node.tier.clone());
        }
        let listens = self.front.clone();
        let mut ends: BTreeMap<_, usize> = BTreeMap::new();
        for edge in &view.edges {
            *ends.entry((&edge.from_host, &edge.from_workload, &edge.remote)).or_default() += 1;
        }
        for edge in &view.edges {
            let from = (edge.from_host.clone(), edge.from_workload.clone());
            let to = edge.to_host.clone().zip(edge.to_workload.clone()).filter(|to| *to != from);
            if let Some(to) = to.as_ref().filter(|_| listens.contains(&from)) {
                self.front.remove(to);
            }
            // Where one address leads to several servers it is not told which of the calls are whose.
            let is_one = ends.get(&(&edge.from_host, &edge.from_workload, &edge.remote)) == Some(&1);
            let to = to.filter(|_| is_one);
            if let Some(to) = &to {
                self.callers.entry(to.clone()).or_default().insert((from.clone(), edge.remote.clone()));
            }
            self.calls.entry(from).or_default().insert(edge.remote.clone(), to);
        }
    }

    /// The tier's name; of one that is not known yet, its workload's.
    pub(super) fn tier<'a>(&'a self, server: &'a Server) -> &'a str {
        self.tiers.get(server).filter(|tier| !tier.is_empty()).unwrap_or(&server.1)
    }

    /// Servers of this one's tier that listen on the same port, itself among them.
    pub(super) fn alike(&self, server: &Server, port: u16) -> BTreeSet<Server> {
        let known = self.tiers.get(server).and_then(|tier| self.servers.get(&(tier.clone(), port)));
        known.filter(|all| all.contains(server)).cloned().unwrap_or_else(|| BTreeSet::from([server.clone()]))
    }

    /// Who answers what a server dials; `None`: not observed.
    pub(super) fn callee(&self, server: &Server, remote: &str) -> Option<&Server> {
        self.calls.get(server)?.get(remote)?.as_ref()
    }

    /// Whom a server calls, as far as they are observed, each with the address that it dials.
    pub(super) fn callees(&self, server: &Server) -> impl Iterator<Item = (&String, &Server)> {
        self.calls.get(server).into_iter().flatten().filter_map(|(remote, to)| Some((remote, to.as_ref()?)))
    }

    /// Who calls a server, with the address that they dial.
    pub(super) fn callers(&self, server: &Server) -> impl Iterator<Item = &(Server, String)> {
        self.callers.get(server).into_iter().flatten()
    }

    /// Whether it is at the front itself.
    pub(super) fn is_front(&self, server: &Server) -> bool {
        self.front.contains(server)
    }

    /// The servers at the front from which requests reach this one; it may be one itself.
    pub(super) fn fronts(&self, server: &Server) -> BTreeSet<Server> {
        let mut seen = BTreeSet::from([server]);
        let mut next = VecDeque::from([server]);
        while let Some(at) = next.pop_front() {
            for (caller, _) in self.callers(at) {
                if seen.insert(caller) {
                    next.push_back(caller);
                }
            }
        }
        seen.into_iter().filter(|at| self.front.contains(*at)).cloned().collect()
    }

    /// This server and all that are observed below it, at any depth; `None`: more than `most`.
    pub(super) fn below(&self, server: &Server, most: usize) -> Option<BTreeSet<Server>> {
        let mut seen = BTreeSet::from([server.clone()]);
        let mut next = VecDeque::from([server]);
        while let Some(at) = next.pop_front() {
            for (_, below) in self.callees(at) {
                if seen.insert(below.clone()) {
                    next.push_back(below);
                }
            }
            if seen.len() > most {
                return None;
            }
        }
        Some(seen)
    }

    /// Whether one of `others` is this server or below it, at any depth.
    pub(super) fn reaches(&self, server: &Server, others: &[Server]) -> bool {
        let mut seen = BTreeSet::from([server]);
        let mut next = VecDeque::from([server]);
        while let Some(at) = next.pop_front() {
            if others.contains(at) {
                return true;
            }
            for below in self.calls.get(at).into_iter().flat_map(BTreeMap::values).flatten() {
                if seen.insert(below) {
                    next.push_back(below);
                }
            }
        }
        false
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tailwater_model::topology::{EdgeView, NodeView};

    pub(in super::super) fn server(host: &str, workload: &str) -> Server {
        (host.to_owned(), workload.to_owned())
    }

    /// web → two of app → db, and a client that only calls.
    pub(in super::super) fn three_tiers() -> TopologyView {
        let node = |host: &str, workload: &str, tier: &str, listener: &str| NodeView {
            host: host.into(),
            workload: workload.into(),
            tier: tier.into(),
            listeners: [listener].into_iter().filter(|l| !l.is_empty()).map(str::to_owned).collect(),
            workers_limit: None,
        };
        let edge = |from: Server, remote: &str, to: Option<Server>| EdgeView {
            from_host: from.0,
            from_workload: from.1,
            remote: remote.into(),
            to_host: to.clone().map(|to| to.0),
            to_workload: to.map(|to| to.1),
        };
        let app = |host: &str| server(host, "tomcat10.service");
        TopologyView {
            nodes: vec![
                node("web", "apache2.service", "apache2", "0.0.0.0:80"),
                node("app-1", "tomcat10.service", "tomcat10", "[::]:8080"),
                node("app-2", "tomcat10.service", "tomcat10", "[::]:8080"),
                node("db", "mariadb.service", "mariadb", "0.0.0.0:3306"),
                node("client", "load.scope", "load", ""),
            ],
            edges: vec![
                edge(server("client", "load.scope"), "10.0.0.1:80", Some(server("web", "apache2.service"))),
                edge(server("web", "apache2.service"), "10.0.0.2:8080", Some(app("app-1"))),
                edge(server("web", "apache2.service"), "10.0.0.3:8080", Some(app("app-2"))),
                edge(app("app-1"), "10.0.0.9:3306", Some(server("db", "mariadb.service"))),
                edge(app("app-2"), "10.0.0.9:3306", Some(server("db", "mariadb.service"))),
                edge(app("app-2"), "10.9.9.9:443", None),
            ],
        }
    }

    /// Two servers, of which one calls the other.
    pub(in super::super) fn calls(from: (&str, &str), to: (&str, &str)) -> Who {
        let edge = EdgeView {
            from_host: from.0.into(),
            from_workload: from.1.into(),
            remote: "127.0.0.1:80".into(),
            to_host: Some(to.0.into()),
            to_workload: Some(to.1.into()),
        };
        let mut who = Who::default();
        who.update(&TopologyView { nodes: Vec::new(), edges: vec![edge] });
        who
    }

    #[test]
    fn servers_of_a_tier_are_alike_and_the_front_is_what_nobody_that_serves_calls() {
        let mut who = Who::default();
        who.update(&three_tiers());
        let (web, app, db) = (
            server("web", "apache2.service"),
            server("app-1", "tomcat10.service"),
            server("db", "mariadb.service"),
        );
        assert_eq!(
            (who.alike(&app, 8080).len(), who.alike(&app, 9).len(), who.alike(&db, 3306).len()),
            (2, 1, 1)
        );
        assert_eq!(who.tier(&app), "tomcat10");
        assert_eq!(who.tier(&server("x", "new.service")), "new.service");
        assert_eq!(who.fronts(&db), BTreeSet::from([web.clone()]), "not the client, which serves nobody");
        assert_eq!(who.callee(&app, "10.0.0.9:3306"), Some(&db));
        assert_eq!(who.callee(&server("app-2", "tomcat10.service"), "10.9.9.9:443"), None);
        assert_eq!(who.callers(&db).count(), 2);
        assert!(
            who.reaches(&web, std::slice::from_ref(&db)) && who.reaches(&web, std::slice::from_ref(&web))
        );
        assert!(!who.reaches(&db, &[web]));
    }
}
