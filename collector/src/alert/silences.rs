//! All silences: those of the configuration, and those that people make for some hours while the collector runs, which a file keeps over a
//! restart. Owns that list, its bounds and its file; what one silence covers is said in `silence.rs`.

use super::AlertError;
use super::config;
use super::message;
use super::rules;
use super::silence::Silence;
use crate::clock::Clock;
use crate::kept::{Kept, KeptError};
use crate::lock::lock;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use tailwater_model::Incident;

/// Silences that people have made and that have not ended yet.
const MADE_MAX: usize = 256;
/// The longest of them: whoever wants one for ever writes it into the configuration, where others read it.
const LONGEST_S: u64 = 31 * 86_400;
/// Bytes of a comment or a matcher.
const TEXT_BYTES_MAX: usize = 200;
/// Kinds, hooks or days of one silence.
const LIST_MAX: usize = 64;
/// Incidents that a silence remembers to have held something back of: those that somebody who comes back to work looks through, and 2 kB.
const INCIDENTS_MAX: usize = 64;

/// What somebody asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// It ends after so many seconds, by the collector's clock. `None`: `until` of `silence` says when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
    /// What is not told.
    pub silence: config::Silence,
}

/// A silence, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name, for whoever ends it. `None`: it is the configuration's.
    pub id: Option<String>,
    /// Who made it; empty where the collector wants no token. `None`: it is the configuration's.
    pub by: Option<String>,
    /// When, Unix ns.
    pub made_unix_ns: Option<u64>,
    /// Whether it covers anything at this moment.
    pub now: bool,
    /// Messages that were not sent because of it since the collector's start: new incidents, changes and reminders of such as were told,
    /// for each hook.
    pub untold: u64,
    /// Ids of the incidents that these were about, in the order in which it first held back something of each; the newest 64.
    #[serde(default)]
    pub incidents: Vec<String>,
    /// Whether it covers the incident that was asked about at this moment, for some hook. Not there: none was asked about, or it is not in
    /// memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<bool>,
    /// What is not told, and when.
    pub silence: config::Silence,
}

/// Why a silence cannot be made or ended.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// By what was asked.
    #[error("{0}")]
    Asked(String),
    /// By its file: nothing was changed.
    #[error(transparent)]
    File(#[from] KeptError),
}

/// One that somebody made, as the file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    id: String,
    by: String,
    made_unix_ns: u64,
    silence: config::Silence,
}

/// The file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    /// Number of the newest that was ever made: names do not come again.
    newest: u64,
    silence: Vec<Made>,
}

/// What was not told because of a silence.
#[derive(Debug, Clone, Default)]
struct Untold {
    messages: u64,
    /// What they were about, each once.
    incidents: VecDeque<String>,
}

impl Untold {
    fn note(&mut self, incident: &str) {
        self.messages += 1;
        if self.incidents.iter().any(|known| known == incident) {
            return;
        }
        if self.incidents.len() >= INCIDENTS_MAX {
            self.incidents.pop_front();
        }
        self.incidents.push_back(incident.to_owned());
    }
}

#[derive(Debug)]
struct Held {
    made: Option<Made>,
    read: Silence,
    untold: Mutex<Untold>,
}

impl Held {
    fn new(asked: &config::Silence, made: Option<Made>) -> Result<Self, (&'static str, String)> {
        Ok(Self { made, read: Silence::new(asked)?, untold: Mutex::default() })
    }

    fn id(&self) -> Option<&str> {
        self.made.as_ref().map(|made| made.id.as_str())
    }

    fn listed(&self, unix_ns: u64, about: Option<&Incident>) -> Listed {
        let made = self.made.as_ref();
        let untold = lock(&self.untold);
        Listed {
            id: made.map(|made| made.id.clone()),
            by: made.map(|made| made.by.clone()),
            made_unix_ns: made.map(|made| made.made_unix_ns),
            now: self.read.holds_at(unix_ns),
            untold: untold.messages,
            incidents: untold.incidents.iter().cloned().collect(),
            covers: about.map(|incident| self.read.fits(incident, unix_ns)),
            silence: self.read.asked().clone(),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub struct Silences {
    configured: Vec<Held>,
    made: Mutex<Vec<Held>>,
    /// One change at a time. The list itself is not locked meanwhile: workers read it, and must not wait for a disk.
    changing: Mutex<()>,
    hooks: Vec<String>,
    file: Kept,
    clock: Clock,
}

impl Silences {
    /// Those of the configuration, and of `data`/silences.toml. One of these that cannot be read tells more than it should, which the log
    /// says; it is not written over.
    pub fn open(
        configured: &[config::Silence],
        hooks: Vec<String>,
        data: &Path,
        clock: Clock,
    ) -> Result<Self, AlertError> {
        let configured: Result<Vec<_>, _> = configured.iter().map(|asked| Held::new(asked, None)).collect();
        let configured = configured.map_err(|(key, what)| AlertError::Silence(key, what))?;
        let file = Kept::at(
            data.join("silences.toml"),
            "What is not told, and until when: made with `tailwater silence`, ended with `tailwater silences --end ID`.",
        );
        let made = match file.load::<File>() {
            Ok(file) => read(file.unwrap_or_default().silence),
            Err(e) => {
                tracing::warn!("silences that were made before are not kept: {e}");
                Vec::new()
            }
        };
        let (made, changing) = (Mutex::new(made), Mutex::new(()));
        Ok(Self { configured, made, changing, hooks, file, clock })
    }

    /// Why `hook` is not to be told of `incident` now: the comment of the first silence that covers it. `counted`: one message less is sent
    /// because of it.
    pub(super) fn covers(&self, hook: &str, incident: &Incident, counted: bool) -> Option<String> {
        let now = self.clock.unix_ns();
        let made = lock(&self.made);
        let held = self.configured.iter().chain(made.iter()).find(|h| h.read.covers(hook, incident, now))?;
        if counted {
            lock(&held.untold).note(&incident.id);
        }
        Some(held.read.asked().comment.clone())
    }

    /// The configuration's, then those that were made and have not ended, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        self.list_about(None)
    }

    /// The same, each with whether it covers this incident now.
    #[must_use]
    pub fn list_about(&self, incident: Option<&Incident>) -> Vec<Listed> {
        let now = self.clock.unix_ns();
        let made = lock(&self.made);
        let made = made.iter().filter(|held| !held.read.ended(now));
        self.configured.iter().chain(made).map(|held| held.listed(now, incident)).collect()
    }

    /// Makes one; it holds when this returns. Waits for the disk.
    pub fn make(&self, asked: Asked, by: &str) -> Result<Listed, SilenceError> {
        let now = self.clock.unix_ns();
        let silence = self.checked(asked, now).map_err(SilenceError::Asked)?;
        let full = format!(
            "{MADE_MAX} silences are there, the most there may be\n  remedy: end one: `tailwater silences` lists them; or make one that covers more"
        );
        let changing = lock(&self.changing);
        let made = self.file.change(|file: &mut File| {
            drop_ended(file, now);
            if file.silence.len() >= MADE_MAX {
                return Ok(None);
            }
            file.newest += 1;
            let id = format!("s{}", file.newest);
            file.silence.push(Made { id: id.clone(), by: by.to_owned(), made_unix_ns: now, silence });
            Ok(Some((id, file.silence.clone())))
        })?;
        let (id, all) = made.ok_or(SilenceError::Asked(full))?;
        self.take(all);
        drop(changing);
        let listed = self.list().into_iter().find(|one| one.id.as_ref() == Some(&id));
        listed.ok_or_else(|| SilenceError::Asked("it has ended already".to_owned()))
    }

    /// Ends one before its time. Waits for the disk. `false`: there is none of this name.
    pub fn end(&self, id: &str) -> Result<bool, SilenceError> {
        // A folder that cannot be written is no reason to say of a name that there is none.
        if !lock(&self.made).iter().any(|held| held.id() == Some(id)) {
            return Ok(false);
        }
        let now = self.clock.unix_ns();
        let changing = lock(&self.changing);
        let all = self.file.change(|file: &mut File| {
            drop_ended(file, now);
            file.silence.retain(|made| made.id != id);
            Ok(file.silence.clone())
        })?;
        self.take(all);
        drop(changing);
        Ok(true)
    }

    /// These are those that were made; what is known of each stays.
    fn take(&self, all: Vec<Made>) {
        let all = read(all);
        let mut made = lock(&self.made);
        for held in &all {
            if let Some(before) = made.iter().find(|before| before.id() == held.id()) {
                lock(&held.untold).clone_from(&lock(&before.untold));
            }
        }
        *made = all;
    }

    fn checked(&self, asked: Asked, now_unix_ns: u64) -> Result<config::Silence, String> {
        let Asked { for_s, mut silence } = asked;
        let now_s = now_unix_ns / 1_000_000_000;
        if silence.comment.trim().is_empty() {
            return Err(
                "a silence needs a comment: why nobody is told\n  remedy: say it to whoever finds it".into(),
            );
        }
        let matchers = [&silence.host, &silence.workload, &silence.tier, &silence.listener];
        let texts = matchers.into_iter().flatten().chain(&silence.hooks).chain(&silence.days);
        if texts.chain([&silence.comment]).any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(format!("a text of it is longer than {TEXT_BYTES_MAX} bytes\n  remedy: shorten it"));
        }
        if silence.kinds.len().max(silence.hooks.len()).max(silence.days.len()) > LIST_MAX {
            return Err(format!("a list of it is longer than {LIST_MAX}\n  remedy: leave it out for all"));
        }
        match (for_s, &silence.until) {
            (Some(_), Some(_)) => {
                return Err("for_s and until are given\n  remedy: give one of them".into());
            }
            (Some(s), None) => {
                let end_s = now_s.saturating_add(s.min(LONGEST_S + 1));
                silence.until = Some(message::rfc3339(end_s.saturating_mul(1_000_000_000)));
            }
            (None, _) => {}
        }
        let read = rules::silence(&silence, &self.hooks)
            .map_err(|(key, what, remedy)| format!("{key}: {what}\n  remedy: {remedy}"))?;
        if read.ended(now_unix_ns) {
            return Err("it would end before it begins\n  remedy: give a time to come".into());
        }
        if !read.ended((now_s + LONGEST_S) * 1_000_000_000) {
            return Err(format!(
                "it would last for more than {} days\n  remedy: say when it ends, with for_s or until; one for ever belongs in a [[silence]] of the configuration",
                LONGEST_S / 86_400
            ));
        }
        Ok(silence)
    }
}

fn drop_ended(file: &mut File, now_unix_ns: u64) {
    file.silence.retain(|made| Silence::new(&made.silence).is_ok_and(|read| !read.ended(now_unix_ns)));
}

/// Of a file that somebody changed by hand, what can be read.
fn read(all: Vec<Made>) -> Vec<Held> {
    let mut read = Vec::new();
    for made in all {
        let asked = made.silence.clone();
        let id = made.id.clone();
        match Held::new(&asked, Some(made)) {
            Ok(held) => read.push(held),
            Err((key, what)) => tracing::warn!("silence {id} of the file does not hold: {key}: {what}"),
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::incident;

    fn silences(folder: &Path) -> Silences {
        Silences::open(&[], vec!["pager".into()], folder, Clock::default()).unwrap()
    }

    fn asked(for_s: Option<u64>, text: &str) -> Asked {
        Asked { for_s, silence: toml::from_str(text).unwrap() }
    }

    #[test]
    fn one_is_made_listed_kept_over_a_restart_and_ended_and_its_name_does_not_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let all = silences(folder.path());
        let i = incident("01A", 1);
        assert_eq!(all.covers("pager", &i, true), None);
        let made = all.make(asked(Some(3600), "comment = \"a deploy\""), "ann").unwrap();
        assert_eq!((made.id.as_deref(), made.by.as_deref(), made.now), (Some("s1"), Some("ann"), true));
        assert_eq!(all.covers("pager", &i, true).as_deref(), Some("a deploy"));
        all.make(asked(Some(60), "comment = \"elsewhere\"\nhost = \"nowhere-*\""), "").unwrap();
        let told = |all: &Silences| -> Vec<_> {
            all.list().into_iter().map(|one| (one.id.unwrap(), one.untold)).collect()
        };
        assert_eq!(told(&all), [("s1".to_owned(), 1), ("s2".to_owned(), 0)], "a new one takes nothing away");
        let again = silences(folder.path());
        assert_eq!(told(&again), [("s1".to_owned(), 0), ("s2".to_owned(), 0)]);
        assert_eq!(again.covers("pager", &i, false).as_deref(), Some("a deploy"));
        assert!(again.end("s1").unwrap() && !again.end("s1").unwrap() && again.end("s2").unwrap());
        assert_eq!((again.covers("pager", &i, true), again.list()), (None, Vec::new()));
        let next = again.make(asked(Some(60), "comment = \"c\""), "").unwrap();
        assert_eq!(next.id.as_deref(), Some("s3"));
    }

    #[test]
    fn a_silence_knows_which_incidents_it_held_something_back_of_and_whether_it_covers_one() {
        let folder = tempfile::tempdir().unwrap();
        let all = silences(folder.path());
        all.make(asked(Some(60), "comment = \"web\"\nhost = \"web-1\""), "").unwrap();
        all.make(asked(Some(60), "comment = \"elsewhere\"\nhost = \"nowhere\""), "").unwrap();
        let told = |all: &Silences| (all.list()[0].untold, all.list()[0].incidents.clone());
        for id in ["01A", "01B", "01A"] {
            assert!(all.covers("pager", &incident(id, 1), true).is_some());
        }
        assert!(
            all.covers("pager", &incident("01C", 1), false).is_some(),
            "asked about, and nothing held back"
        );
        assert_eq!(told(&all), (3, vec!["01A".to_owned(), "01B".to_owned()]));
        all.make(asked(Some(60), "comment = \"another\"\nhost = \"nowhere\""), "").unwrap();
        assert_eq!(told(&all), (3, vec!["01A".to_owned(), "01B".to_owned()]), "a new one takes nothing away");
        let covers = |of: Vec<Listed>| of.into_iter().map(|one| one.covers).collect::<Vec<_>>();
        assert_eq!(covers(all.list()), [None::<bool>; 3]);
        let about = incident("01D", 1);
        assert_eq!(covers(all.list_about(Some(&about))), [Some(true), Some(false), Some(false)]);
        for n in 0..INCIDENTS_MAX {
            all.covers("pager", &incident(&format!("02{n:03}"), 1), true);
        }
        let (untold, incidents) = told(&all);
        assert_eq!((untold, incidents.len(), incidents[0].as_str()), (3 + 64, 64, "02000"), "the newest");
    }

    #[test]
    fn one_without_an_end_a_reason_or_a_meaning_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let all = silences(folder.path());
        let long = format!("comment = \"{}\"", "x".repeat(TEXT_BYTES_MAX + 1));
        for (for_s, text, part) in [
            (None, "comment = \"c\"", "31 days"),
            (Some(LONGEST_S + 1), "comment = \"c\"", "31 days"),
            (Some(u64::MAX), "comment = \"c\"", "31 days"),
            (Some(60), "comment = \" \"", "needs a comment"),
            (Some(60), "comment = \"c\"\nuntil = \"2099-01-01T00:00:00Z\"", "give one of them"),
            (Some(0), "comment = \"c\"", "before it begins"),
            (None, "comment = \"c\"\nuntil = \"2020-01-01T00:00:00Z\"", "before it begins"),
            (None, "comment = \"c\"\nuntil = \"tomorrow\"", "until"),
            (Some(60), "comment = \"c\"\nhooks = [\"x\"]", "pager"),
            (Some(60), &long, "longer than"),
        ] {
            let Err(SilenceError::Asked(why)) = all.make(asked(for_s, text), "") else { panic!("{text}") };
            assert!(why.contains(part), "{text}: {why}");
            assert!(why.contains("remedy"), "{why}");
        }
        assert_eq!(all.list(), []);
        for n in 0..MADE_MAX {
            // None of them may end before the last was written, however slow the disk is.
            all.make(asked(Some(86_400 + n as u64), "comment = \"c\""), "").unwrap();
        }
        let why = all.make(asked(Some(60), "comment = \"c\""), "").unwrap_err().to_string();
        assert!(why.contains("256 silences") && why.contains("remedy"), "{why}");
    }

    #[test]
    fn a_file_that_cannot_be_read_silences_nothing_and_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("silences.toml");
        std::fs::write(&file, "newest = x\n").unwrap();
        let all = silences(folder.path());
        assert_eq!(all.list(), []);
        let why = all.make(asked(Some(60), "comment = \"c\""), "").unwrap_err().to_string();
        assert!(why.contains("silences.toml") && why.contains("line 1") && why.contains("remedy"), "{why}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "newest = x\n");
    }
}
