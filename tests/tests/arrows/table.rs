//! Which room may use which: one table for each crate, and one for the page. A room is what stands side by side at the top of a
//! crate's `src`: a folder, or a file. Programs of their own are the rooms `main` (from `main.rs`) and `bin` (from `src/bin`).

/// A crate's rooms, from below: what stands further down in a table may use what stands above it, never the other way.
#[derive(Debug)]
pub(crate) struct Table {
    /// The package, or the folder of the page.
    pub(crate) of: &'static str,
    /// What every room may use. Of the leaves themselves each may use those before it.
    pub(crate) leaves: &'static [&'static str],
    /// Each other room with those that it may use beside the leaves.
    pub(crate) rooms: &'static [(&'static str, &'static [&'static str])],
}

/// Every room above: for wiring.
pub(crate) const ALL: &[&str] = &["all above"];

/// The table of each crate.
pub(crate) const TABLES: &[Table] = &[
    Table {
        of: "tailwater-ebpf",
        // What all records have in common.
        leaves: &["record"],
        rooms: &[("sched", &[]), ("block", &[]), ("memory", &[]), ("net", &[]), ("stacks", &[])],
    },
    // The schema's generated code is no file of ours.
    Table {
        of: "tailwater-proto",
        leaves: &[],
        rooms: &[("columnar", &[]), ("encoded", &[]), ("trace", &[])],
    },
    Table {
        of: "tailwater-agent",
        // Plain data, the kinds of signals, time, what a machine got when it joined, configuration, a fence around others' code.
        leaves: &["window", "signal", "clock", "identity", "config", "fence"],
        rooms: &[
            // Who a window is about: cgroups, processes and sockets. Knows no program.
            ("name", &[]),
            // Programs and their memory; they are told by name what is in scope.
            ("attach", &["name"]),
            // Drains what is attached.
            ("sample", &["name", "attach"]),
            // Sends windows with their names, wherever they come from.
            ("stream", &["name"]),
            // Joins a collector, and renews what it got.
            ("enrol", &["stream"]),
            // Wiring.
            ("run", &["name", "attach", "sample", "stream", "enrol"]),
            ("main", ALL),
        ],
    },
    // Plain data; each file may use those before it.
    Table {
        of: "tailwater-model",
        leaves: &[
            "address",
            "place",
            "civil",
            "rows",
            "responses",
            "window",
            "names",
            "congestion",
            "topology",
            "incident",
            "advice",
            "prevention",
            "traces",
        ],
        rooms: &[],
    },
    Table {
        of: "tailwater-analysis",
        // Thresholds.
        leaves: &["config"],
        rooms: &[
            // All hosts' windows of one index, and the last of them.
            ("frame", &[]),
            // Which tiers there are, and who calls whom.
            ("topology", &["frame"]),
            // A tier's values over a span.
            ("series", &["frame", "topology"]),
            // What is usual of a tier.
            ("baseline", &["frame", "topology", "series"]),
            // What was short or stood still: one rule per file.
            ("episode", &["frame", "topology", "series", "baseline"]),
            // From a queue that overflowed to the root.
            ("path", &["frame", "topology", "series", "baseline", "episode"]),
            // What belongs to one incident while it is open.
            ("case", &["frame", "topology", "series", "baseline", "episode", "path"]),
            // What is told of a case, and in which words.
            ("report", &["topology", "series", "baseline", "episode", "path", "case"]),
            // Wiring.
            ("pipeline", ALL),
        ],
    },
    Table {
        of: "tailwater-sizing",
        // Arithmetic, and what may be said of a number.
        leaves: &["numeric", "evidence"],
        rooms: &[
            // What was learnt of one server.
            ("curve", &[]),
            // A server that was never full. Knows no curve.
            ("mva", &[]),
            // The best number in flight of one server.
            ("concurrency", &["curve", "mva"]),
            // One server's curve, second by second.
            ("learn", &["curve", "mva", "concurrency"]),
            // Every pool of a chain. Knows no curve: minJobs comes in as throughput and response time.
            ("allocation", &[]),
            // Neighbours under one scheduler.
            ("stealing", &[]),
            // What a tier still bears. Knows no curve.
            ("headroom", &[]),
            // Before a change of a server's set-up against after it. Knows no curve.
            ("compare", &[]),
            // An overflow once more with other sizes. Knows no curve: service times come in as plain numbers.
            ("prevent", &[]),
        ],
    },
    Table {
        of: "tailwater",
        // Time, what is counted, how things are said and written down, what is plain data of two rooms.
        leaves: &[
            "clock", "lock", "aside", "counters", "text", "failure", "log", "columns", "fault", "moments",
            "raw", "verdict", "pem", "kept", "sla",
        ],
        rooms: &[
            // What is in memory: recent windows, series, folds, inventory, timeline.
            ("live", &[]),
            // What is on disk has the columns and names of what was live.
            ("store", &["live"]),
            // Who may do what over HTTP. Knows no route.
            ("access", &[]),
            // HTTP out: the client, secrets, pauses.
            ("send", &[]),
            // Certificates of agents, and who may have one, which a cluster's API server may know. Knows no stream.
            ("authority", &["access", "send"]),
            // gRPC in: hands windows over, and asks nobody but whose a certificate is.
            ("ingest", &["access", "authority"]),
            // Hooks. They know an incident, neither windows nor the store.
            ("alert", &["send"]),
            // Roll-ups of what is live.
            ("export", &["live", "send"]),
            // Learns from the same windows how large pools should be.
            ("sizing", &["live"]),
            // What would have prevented an incident, from the windows around it.
            ("prevent", &["live"]),
            // Spans of others, and those of them that were slow while an incident lasted. Knows an incident, neither windows nor the store.
            ("traces", &[]),
            // HTTP in: reads whatever there is to be shown.
            (
                "serve",
                &["live", "store", "ingest", "alert", "export", "sizing", "prevent", "traces", "access"],
            ),
            // Explain and plots: pictures of what is live.
            ("draw", &["live"]),
            // The commands that ask a collector over HTTP, and the shapes of what it answers.
            ("client", &["live", "send", "alert", "draw"]),
            // `tailwater top`: asks as those commands do.
            ("tui", &["client", "draw", "live"]),
            // Wiring.
            ("run", ALL),
            ("main", ALL),
        ],
    },
    // Five sorts of parsers; none knows another.
    Table {
        of: "tailwater-fuzz",
        // Where a parser of files finds what is tried, one of a stream its messages, and the fence around others' code.
        leaves: &["messages", "scratch", "fences"],
        rooms: &[
            ("wire", &[]),
            ("files", &[]),
            ("http", &[]),
            ("segments", &[]),
            ("replies", &[]),
            ("bin", &[]),
        ],
    },
    Table {
        of: "tailwater-tests",
        // What the kernel offers; how programs speak to people.
        leaves: &["os", "console"],
        rooms: &[
            // The agent's tests include it: the standard library only.
            ("disturbed", &[]),
            ("names", &[]),
            // Which servers there are, and where they listen.
            ("stack", &[]),
            // Sends to where a front listens.
            ("load", &["stack"]),
            // Counters of the kernel and the load generator's log. Knows no lab and no program.
            ("truth", &["load"]),
            // Tailwater as an operator has it. Knows no lab.
            ("programs", &[]),
            // Reads counters with what reads them for the truth. Knows no program.
            ("lab", &["stack", "load", "truth"]),
            // Cleans up after a lab.
            ("supervise", &["lab"]),
            // Systems to try the programs on. Know no lab.
            ("guests", &["programs"]),
            // What the programs cost, and how soon they tell.
            ("bench", &["load", "programs", "lab"]),
            // A lab that is watched. Judges nothing.
            ("system", &["stack", "load", "programs", "lab"]),
            // What was told, held against the truth.
            ("score", &["stack", "truth", "programs", "lab", "system"]),
            // What must not be told.
            ("controls", &["stack", "load", "truth", "programs", "lab", "system", "score"]),
            // What was advised, held against sweeps of the pools.
            ("sizing", &["stack", "load", "programs", "lab", "system"]),
            // Whose the CPU of a cgroup is, and what is said of it.
            ("stealing", &["stack", "load", "programs", "lab", "system"]),
            // What would have prevented an incident, held against servers that were changed so.
            ("prevention", &["stack", "load", "truth", "programs", "lab", "system", "score"]),
            // Graphs of services from a seed, hurt and judged. A laboratory of its own, on the other's ground.
            ("graph", &["load", "names", "truth", "programs", "lab", "score", "controls"]),
            // How often roots of known truth are right.
            ("calibration", &["stack", "programs", "score", "graph"]),
            // What other methods say about recordings, beside us.
            ("peers", &["score"]),
            // What was named, for people.
            ("demo", &["programs", "score"]),
            // One collector under many agents that tell again what recordings hold.
            ("scale", &["programs", "bench", "score"]),
            ("bin", ALL),
        ],
    },
];

/// The table of the page.
pub(crate) const PAGE: Table = Table {
    of: "collector/web",
    // What the API answers, instants of time, what a view watches.
    leaves: &["api", "time", "cell"],
    rooms: &[
        // The address.
        ("route", &[]),
        // Theme and time zone.
        ("settings", &[]),
        // Which metrics there are, and what they need; written from the collector's table.
        ("metrics", &[]),
        // An incident's words, and those of metrics.
        ("words", &["metrics"]),
        // Windows on an axis of time.
        ("grid", &[]),
        // Where the topology's boxes stand.
        ("layout", &[]),
        // What there is in a span of time.
        ("between", &[]),
        // Now, or where a recording is.
        ("moment", &[]),
        // What of an incident was seen before.
        ("earlier", &[]),
        // Which incidents go through a place.
        ("which", &["words"]),
        // Advice on pools in words, and what its curve shows.
        ("advice", &["words"]),
        // Silences in words, and one that somebody writes.
        ("silence", &["words"]),
        // Which metrics the charts of a host have, and which of them it lacks.
        ("panels", &["grid", "metrics", "words"]),
        // Who looks at the page, where that matters.
        ("session", &[]),
        // What the collector pushes.
        ("live", &["between", "moment", "session"]),
        // The keyboard goes where addresses go, and switches settings.
        ("keys", &["route", "settings"]),
        ("chart", &["grid", "settings"]),
        // Throughput against requests in flight.
        ("curve", &["advice", "chart", "settings", "words"]),
        // What several pages are made of. Knows no page, no address and no key.
        ("parts", &["between", "live", "moment", "settings", "words"]),
        ("pages", ALL),
        ("main", ALL),
    ],
};

impl Table {
    /// Its rooms, from below.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static str> {
        self.leaves.iter().copied().chain(self.rooms.iter().map(|(room, _)| *room))
    }

    /// What a room may use, from below; none if it is in no row.
    pub(crate) fn may_use(&self, room: &str) -> Option<Vec<&'static str>> {
        let at = self.rows().position(|row| row == room)?;
        let above = self.rows().take(at);
        Some(match self.rooms.iter().find(|(row, _)| *row == room) {
            None => above.collect(),
            Some((_, rooms)) if *rooms == ALL => above.collect(),
            Some((_, rooms)) => self.leaves.iter().chain(*rooms).copied().collect(),
        })
    }

    /// Rows that name what does not stand above them: the table itself would go in a circle.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (room, rooms) in self.rooms.iter().filter(|(_, rooms)| *rooms != ALL) {
            let above: Vec<&str> = self.rows().take_while(|row| row != room).collect();
            for used in rooms.iter().filter(|used| !above.contains(used)) {
                wrong.push(format!(
                    "the table of {} lets {room} use {used}, which does not stand above it",
                    self.of
                ));
            }
        }
        wrong
    }
}
