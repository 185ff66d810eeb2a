//! Files, variables and flags that are right, and what is said of those that are not.

use super::*;

fn check(text: &str, over: Layer) -> Result<Config, String> {
    check_in(&tempfile::tempdir().unwrap(), text, over)
}

/// Where `identity` in this folder is the default.
fn check_in(folder: &tempfile::TempDir, text: &str, over: Layer) -> Result<Config, String> {
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, text).unwrap();
    load_beside(&folder.path().join("identity"), Some(&path), over).map_err(|e| {
        let prefix = format!("{}/", folder.path().display());
        e.to_string().replace(&prefix, "")
    })
}

fn refused(text: &str, expect: &str) {
    let error = check(text, Layer::default()).unwrap_err();
    assert!(error.starts_with(expect), "{error}");
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = check("", Layer::default()).unwrap();
    assert_eq!(config.collector, DEFAULT_COLLECTOR);
    assert_eq!(config.windows_per_batch, 2);
    assert!(!config.host.is_empty());
    assert_eq!(config.tls, None);
}

#[test]
fn flags_win_over_the_file() {
    let over = Layer { host: Some("flag".to_owned()), ..Layer::default() };
    let text = "host = \"file\"\nwindows_per_batch = 5\nscope_cgroup = \"lab/web/\"\n";
    let config = check(text, over).unwrap();
    assert_eq!(config.host, "flag");
    assert_eq!(config.windows_per_batch, 5);
    assert_eq!(config.scope_cgroup.as_deref(), Some("/lab/web"));
}

/// Fails if a file that says nothing of it refuses a collector's configuration, or if a refusal in file or flag is not heard.
#[test]
fn a_collectors_configuration_is_taken_unless_the_operator_refuses_it() {
    let takes = |text: &str, flag: Option<bool>| {
        let over = Layer { take_configuration: flag, ..Layer::default() };
        check(text, over).unwrap().take_configuration
    };
    assert!(takes("", None));
    assert!(!takes("take_configuration = false\n", None));
    assert!(!takes("", Some(false)));
    assert!(!takes("take_configuration = true\n", Some(false)));
    assert!(takes("take_configuration = false\n", Some(true)));
}

#[test]
fn errors_name_file_line_and_remedy() {
    refused(
        "host = \"a\"\nwindow_per_batch = 2\n",
        "agent.toml:2: unknown key `window_per_batch`; remove it or use one of: `collector`, ",
    );
    refused(
        "[tls]\ncert = \"c\"\nkye = \"k\"\n",
        "agent.toml:3: unknown key `kye`; remove it or use one of: `cert`, `key`, `ca`",
    );
    refused(
        "\nwindows_per_batch = 65\n",
        "agent.toml:2: windows_per_batch = 65 is out of range; use 1 to 64",
    );
    refused("host = 3\n", "agent.toml:1: invalid type: integer `3`, expected a string; see ");
    refused("host = \n", "agent.toml:1: ");
    refused(
        "disabled_signals = [\"cpu\", \"disk\"]\n",
        "agent.toml:1: disabled_signals: there is no signal \"disk\"; use of cpu, run_queue,",
    );
    refused("collector = \"db-1\"\n", "agent.toml:1: collector = \"db-1\" is none of unix:");
    refused("collector = \"http://db-1\"\n", "agent.toml:1: collector = \"http://db-1\" has no port");
    refused("cpu_budget_ratio = nan\n", "agent.toml:1: cpu_budget_ratio = NaN is out of range");
    refused(
        "late_ms = 0\n",
        "agent.toml:1: late_ms = 0 and very_late_ms = 3000 are out of order or of range",
    );
    refused("very_late_ms = 500\n", "agent.toml:1: late_ms = 500 and very_late_ms = 500 are out of order");
    refused(
        "late_ms = 2000000\n",
        "agent.toml:1: late_ms = 2000000 and very_late_ms = 4000000 are out of order or of range",
    );
    refused("scope_cgroup = \"/../x\"\n", "agent.toml:1: scope_cgroup = \"/../x\" is no path");
    refused("host = \"a\\u0007\"\n", "agent.toml:1: host = ");
}

#[test]
fn errors_of_flags_name_flag_and_variable() {
    let over = Layer { buffered_batches: Some(0), ..Layer::default() };
    assert_eq!(
        check("", over).unwrap_err(),
        "--buffered-batches (TAILWATER_AGENT_BUFFERED_BATCHES): buffered_batches = 0 is out of range; use 1 to 100000"
    );
}

#[test]
fn a_collector_is_a_socket_or_a_url_with_a_port() {
    let config = check("", Layer::default()).unwrap();
    assert_eq!(config.collector, "unix:///run/tailwater/agents.sock");
    for (text, problem) in [
        ("unix://run/agents.sock", "has no whole path"),
        ("unix:///run/tailwater/", "has no whole path"),
        ("http://127.0.0.1", "has no port"),
        ("db-1:4781", "is none of unix://, https:// and http://"),
    ] {
        refused(
            &format!("collector = {text:?}\n"),
            &format!("agent.toml:1: collector = {text:?} {problem}; write unix:///PATH"),
        );
    }
}

#[test]
fn tls_needs_all_three_files_and_https_needs_tls() {
    refused(
        "[tls]\ncert = \"c\"\nkey = \"k\"\n",
        "--tls-ca (TAILWATER_AGENT_TLS_CA): mutual TLS needs cert, key and ca; ca is missing",
    );
    refused(
        "collector = \"https://db-1:4781\"\n",
        "agent.toml:1: collector https://db-1:4781 needs mutual TLS",
    );
    let text = "collector = \"https://db-1:4781\"\n[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"\n";
    let config = check(text, Layer::default()).unwrap();
    assert_eq!(config.tls.unwrap().ca, Path::new("a"));
}

#[test]
fn who_has_joined_needs_no_configuration_and_who_says_whom_to_speak_to_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("identity");
    let joined = Identity {
        collector: "https://c:4781".to_owned(),
        host: "web-1".to_owned(),
        issued_unix_s: 1,
        expires_unix_s: 2,
    };
    identity::prepare(&at).unwrap();
    joined.keep(&at, Some("key"), b"cert", Some(&vec![1].into())).unwrap();
    let speaks = |text: &str, over: Layer| {
        let config = check_in(&folder, text, over).unwrap();
        (config.collector, config.host, config.identity.is_some(), config.tls.is_some_and(|of| of.joined))
    };
    let as_joined = ("https://c:4781".to_owned(), "web-1".to_owned(), true, true);
    assert_eq!(speaks("", Layer::default()), as_joined);
    // By another of its names.
    let other = speaks("collector = \"https://d:4781\"\n", Layer::default());
    assert_eq!(other, ("https://d:4781".to_owned(), "web-1".to_owned(), true, true));
    let local = speaks("collector = \"unix:///run/a.sock\"\nhost = \"h\"\n", Layer::default());
    assert_eq!(local, ("unix:///run/a.sock".to_owned(), "h".to_owned(), false, false));
    let own = "collector = \"https://c:4781\"\nhost = \"h\"\n[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"\n";
    assert_eq!(speaks(own, Layer::default()), ("https://c:4781".to_owned(), "h".to_owned(), false, false));
    std::fs::write(at.join("identity.toml"), "host = 1").unwrap();
    assert!(check_in(&folder, "", Layer::default()).unwrap_err().contains("makes it anew"));
}

#[test]
fn who_joins_first_needs_no_identity_yet_and_who_has_certificates_joins_nobody() {
    let text =
        "collector = \"https://c:4781\"\nhost = \"node-1\"\njoin_token_file = \"t\"\njoin_ca = \"a\"\n";
    let folder = tempfile::tempdir().unwrap();
    let config = check_in(&folder, text, Layer::default()).unwrap();
    let join = Join { token_file: "t".into(), ca: Some("a".into()) };
    let identity = folder.path().join("identity");
    assert_eq!((config.join, config.identity.as_deref()), (Some(join), Some(identity.as_path())));
    assert_eq!((config.host.as_str(), config.tls.map(|of| of.joined)), ("node-1", Some(true)));
    let printed = toml::to_string(&check(text, Layer::default()).unwrap()).unwrap();
    for line in ["join_token_file = \"t\"", "join_ca = \"a\""] {
        assert!(printed.lines().any(|of| of == line), "{printed}");
    }
    refused(
        "join_token_file = \"t\"\n",
        "agent.toml:1: collector unix:///run/tailwater/agents.sock is none to join",
    );
    let given = format!("{text}[tls]\ncert = \"c\"\nkey = \"k\"\nca = \"a\"\n");
    let config = check(&given, Layer::default()).unwrap();
    assert_eq!((config.join, config.identity), (None, None));
    assert_eq!(config.tls.unwrap().cert, Path::new("c"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load(Some(Path::new("/nonexistent/agent.toml")), Layer::default()).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/agent.toml: cannot be read: No such file"));
}

#[test]
fn variables_that_nothing_reads_are_refused() {
    let known = ["TAILWATER_AGENT_HOST".to_owned()];
    let check = |v: &str| check_environment([v.to_owned(), "PATH".to_owned()].into_iter(), &known);
    assert_eq!(check("TAILWATER_AGENT_HOST"), Ok(()));
    assert_eq!(check("TAILWATER_OTHER"), Ok(()));
    assert!(check("TAILWATER_AGENT_HOTS").unwrap_err().to_string().contains("TAILWATER_AGENT_HOTS"));
}

#[test]
fn databases_that_are_asked_are_named_whole_and_what_is_wrong_with_one_is_said_with_its_line() {
    let of = |more: &str| format!("windows_per_batch = 2\n[[database]]\nkind = \"mariadb\"\n{more}\n");
    let good = "port = 3306\nclient = [\"mariadb\", \"--user=tailwater\"]";
    let config = check(&of(good), Layer::default()).unwrap();
    assert_eq!((config.databases.len(), config.databases[0].port), (1, Some(3306)));
    let shown = toml::to_string(&config).unwrap();
    assert!(shown.contains("[[database]]\nport = 3306\nkind = \"mariadb\"\n"), "{shown}");
    refused(&of("client = [\"mariadb\"]"), "agent.toml:2: [[database]]: needs either port or socket");
    refused(
        &of("port = 1\nsocket = \"/a\"\nclient = [\"mariadb\"]"),
        "agent.toml:2: [[database]]: needs either",
    );
    refused(
        &of("socket = \"a\"\nclient = [\"mariadb\"]"),
        "agent.toml:2: [[database]]: socket = \"a\" is no whole path",
    );
    refused(&of("port = 3306\nclient = []"), "agent.toml:2: [[database]] at port 3306: client is empty");
    let long = format!("port = 3306\nclient = [\"{}\"]", "x".repeat(2_000));
    refused(&of(&long), "agent.toml:2: [[database]] at port 3306: client has 2000 bytes");
    refused("[[database]]\nkind = \"oracle\"\n", "agent.toml:2: unknown variant `oracle`");
    let many = format!("[[database]]\nkind = \"mariadb\"\n{good}\n").repeat(9);
    refused(&many, "agent.toml:33: [[database]] for the 9th time");
}

#[test]
fn the_example_file_is_valid_and_shows_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/tailwater-agent.toml");
    let text = std::fs::read_to_string(path).unwrap();
    // Keys with examples are commented out; with the marks removed they must be accepted too.
    let shown: String = text.lines().map(|l| l.strip_prefix("#: ").unwrap_or(l).to_owned() + "\n").collect();
    assert!(check(&text, Layer::default()).is_ok());
    // The folder that `identity` names is read, and is not here.
    let here: String =
        shown.lines().filter(|l| !l.starts_with("identity = ")).map(|l| l.to_owned() + "\n").collect();
    check(&here, Layer::default()).unwrap();
    let mut documented = BTreeSet::new();
    let mut table = String::new();
    for line in shown.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned() + ".";
        } else if let Some((key, _)) = line.split_once(" = ") {
            documented.insert(format!("{table}{key}"));
        }
    }
    // Those that are for tests only have no flag that `--help` shows.
    let flags = <Layer as clap::Args>::augment_args(clap::Command::new("agent"));
    let hidden: BTreeSet<String> =
        flags.get_arguments().filter(|a| a.is_hide_set()).map(|a| a.get_id().to_string()).collect();
    let (top, tls) = (keys_of(""), keys_of("[tls]"));
    assert!(top.contains("tls") && tls.contains("cert") && !hidden.is_empty(), "{top:?} {tls:?} {hidden:?}");
    let database = keys_of("[[database]]");
    assert!(top.contains("database") && database.contains("client"), "{top:?} {database:?}");
    let all = top
        .into_iter()
        .filter(|key| key != "tls" && key != "database")
        .chain(tls.iter().map(|key| format!("tls.{key}")))
        .chain(database.iter().map(|key| format!("database.{key}")));
    let missing: Vec<String> = all.filter(|key| !hidden.contains(key) && !documented.contains(key)).collect();
    assert_eq!(missing, Vec::<String>::new(), "not in deploy/tailwater-agent.toml");
}

/// The keys below this head of a table, from what the parser says it knows.
fn keys_of(head: &str) -> BTreeSet<String> {
    const UNKNOWN: &str = "a_key_that_nobody_has";
    let error = toml::from_str::<Layer>(&format!("{head}\n{UNKNOWN} = 1\n")).unwrap_err().to_string();
    let expected = error.split_once(&format!("unknown field `{UNKNOWN}`, expected ")).unwrap().1;
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
