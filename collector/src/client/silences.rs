//! `tailwater silence` and `tailwater silences`: making, listing and ending what is not told. Knows the API, not who is told.

use super::Collector;
use super::options::{Api, duration};
use crate::alert::api::End;
use crate::alert::config::Silence;
use crate::alert::silences::{Asked, Listed};
use crate::text::{json_line, line};
use anyhow::Result;
use serde::Deserialize;
use std::io::Write;
use std::time::Duration;
use tailwater_model::civil::Civil;
use tailwater_model::incident::Kind;

/// What `tailwater silence` says. Matchers that are not given match everything; `*` stands for any text.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("end").required(true).args(["lasts", "until"]))]
pub struct Wanted {
    /// Why nobody is told, for whoever finds it
    comment: String,
    /// It ends after this time, such as 30m, 2h or 1d; 31 days at most
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<Duration>,
    /// It ends at this moment, such as 2026-11-21T23:00:00Z
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// It begins at this moment, with --until [default: now]
    #[arg(long, value_name = "MOMENT", conflicts_with = "lasts")]
    from: Option<String>,
    /// Only between these times of day, UTC, such as 22:00-04:30
    #[arg(long, value_name = "HH:MM-HH:MM")]
    daily: Option<String>,
    /// Only on these days, UTC, such as sat,sun
    #[arg(long, value_name = "DAY", value_delimiter = ',')]
    days: Vec<String>,
    /// Host of a drop or of the root
    #[arg(long)]
    host: Option<String>,
    /// Workload of a drop or of the root
    #[arg(long)]
    workload: Option<String>,
    /// Tier of a drop or of the root
    #[arg(long)]
    tier: Option<String>,
    /// ADDRESS:PORT of a drop
    #[arg(long)]
    listener: Option<String>,
    /// Only these kinds of incidents, such as syn_flood
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<Kind>,
    /// Only these hooks
    #[arg(long = "hook", value_name = "NAME", value_delimiter = ',')]
    hooks: Vec<String>,
    /// The collector
    #[command(flatten)]
    api: Api,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
        let all = Kind::ALL.map(Kind::name);
        format!("the kinds are {}", all.join(", "))
    })
}

#[derive(Deserialize)]
struct All {
    silences: Vec<Listed>,
}

#[derive(Deserialize)]
struct Ended {}

/// Makes one.
pub async fn silence(wanted: Wanted) -> Result<()> {
    let Wanted {
        comment,
        lasts,
        until,
        from,
        daily,
        days,
        host,
        workload,
        tier,
        listener,
        kinds,
        hooks,
        api,
    } = wanted;
    let silence = Silence { comment, from, until, daily, days, host, workload, tier, listener, kinds, hooks };
    // What is shorter than a second would have ended before anybody heard of it.
    let asked = Asked { for_s: lasts.map(|lasts| lasts.as_secs().max(1)), silence };
    let made: Listed = Collector::new(&api)?.post("/api/v1/silences", &asked).await?;
    let id = made.id.as_deref().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    write!(out, "{}", told(&made))?;
    writeln!(out, "end it before with `tailwater silences --end {id}`")?;
    Ok(())
}

/// Lists them, or ends one.
pub async fn silences(api: &Api, end: Option<&str>, json: bool) -> Result<()> {
    let collector = Collector::new(api)?;
    if let Some(id) = end {
        let _: Ended = collector.post("/api/v1/silences/end", &End { id: id.to_owned() }).await?;
        println!("{} has ended; what goes on and was not told is told with its next change", line(id));
        return Ok(());
    }
    let all: All = collector.get("/api/v1/silences").await?;
    let mut out = std::io::stdout().lock();
    for one in &all.silences {
        if json {
            writeln!(out, "{}", json_line(one)?)?;
        } else {
            write!(out, "{}", told(one))?;
        }
    }
    if all.silences.is_empty() && !json {
        writeln!(out, "no silence: every incident is told to the hooks that want it")?;
    }
    Ok(())
}

/// Two lines: which, since when, by whom, until when and why; then what it covers.
fn told(one: &Listed) -> String {
    let asked = &one.silence;
    let moment = |unix_ns| {
        let at = Civil::of(unix_ns);
        format!("{} {}", at.date(), at.time_ms())
    };
    let made = match (one.made_unix_ns, one.by.as_deref()) {
        (None, _) => "of the configuration".to_owned(),
        (Some(at), None | Some("")) => format!("made {}", moment(at)),
        (Some(at), Some(by)) => format!("made {} by {by}", moment(at)),
    };
    let until = asked.until.as_ref().map_or("for ever".to_owned(), |until| format!("until {until}"));
    let now = if one.now { "holds now" } else { "does not hold now" };
    let id = one.id.as_deref().unwrap_or("-");
    let list = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
    let kinds: Vec<String> = asked.kinds.iter().map(|kind| kind.name().to_owned()).collect();
    let of = [
        ("from", asked.from.clone()),
        ("daily", asked.daily.clone()),
        ("days", list(&asked.days)),
        ("host", asked.host.clone()),
        ("workload", asked.workload.clone()),
        ("tier", asked.tier.clone()),
        ("listener", asked.listener.clone()),
        ("kinds", list(&kinds)),
        ("hooks", list(&asked.hooks)),
    ];
    let of: Vec<String> =
        of.into_iter().filter_map(|(key, value)| Some(format!("{key} {}", value?))).collect();
    let of = if of.is_empty() { "everything".to_owned() } else { of.join(", ") };
    let first = format!("{id:<4} {now}, {until}: {} ({made})", asked.comment);
    format!("{}\n     {}; {} messages were not sent\n", line(&first), line(&of), one.untold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_with_its_end_its_reason_and_what_it_covers() {
        let silence: Silence = toml::from_str(
            "comment = \"a deploy\\u001b[31m\"\nuntil = \"2026-11-21T23:00:00Z\"\nhost = \"web-*\"\nkinds = [\"syn_flood\"]",
        )
        .unwrap();
        let one = Listed {
            id: Some("s7".into()),
            by: Some("ann".into()),
            made_unix_ns: Some(0),
            now: true,
            untold: 3,
            incidents: Vec::new(),
            covers: None,
            silence,
        };
        let text = told(&one);
        assert!(text.starts_with("s7   holds now, until 2026-11-21T23:00:00Z: a deploy"), "{text}");
        assert!(text.contains("(made 1970-01-01 00:00:00.000 by ann)") && !text.contains('\u{1b}'), "{text}");
        assert!(text.ends_with("\n     host web-*, kinds syn_flood; 3 messages were not sent\n"), "{text}");
        let silence: Silence = toml::from_str("comment = \"nights\"\ndaily = \"22:00-04:30\"").unwrap();
        let one = Listed { id: None, by: None, made_unix_ns: None, now: false, untold: 0, silence, ..one };
        assert!(told(&one).starts_with("-    does not hold now, for ever: nights (of the configuration)\n"));
    }

    #[test]
    fn an_unknown_kind_is_answered_with_those_there_are() {
        assert_eq!(kind("syn_flood"), Ok(Kind::SynFlood));
        assert!(kind("flood").unwrap_err().contains("near_overflow"));
    }
}
