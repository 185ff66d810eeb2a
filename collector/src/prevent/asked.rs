//! Sizes that somebody asks about: `backlog@web-1=640,workers@app-1=300`. Owns how they are written and which tier of a chain they are of; knows no
//! replay.

use super::places::Place;
use super::told;
use tailwater_sizing::evidence::Refusal;
use tailwater_sizing::prevent::{Change, Entry, Knob, SIZE_MAX, Tier};

/// What may be asked about; a size is above zero and up to [`SIZE_MAX`].
const KNOBS: [Knob; 4] = [Knob::Backlog, Knob::Workers, Knob::Pool, Knob::Servers];
/// Sizes of one question.
const ASKED_MAX: usize = 16;

/// One size of the tier on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    knob: Knob,
    host: String,
    to: u32,
}

impl Asked {
    /// From `what@host=size`, several with commas between them.
    ///
    /// # Errors
    /// A sentence that names the part that is none, with what may be asked.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let asked: Vec<Self> = text.split(',').map(one).collect::<Result<_, _>>()?;
        if asked.len() > ASKED_MAX {
            return Err(format!(
                "{} sizes are asked about at once, and at the most {ASKED_MAX} can be",
                asked.len()
            ));
        }
        Ok(asked)
    }

    /// As a change of the chain of `places`.
    pub(super) fn of(&self, places: &[Place], tiers: &[Tier]) -> Result<Change, Refusal> {
        let tier = places.iter().position(|place| place.server.host == self.host);
        let (tier, of) = tier.and_then(|at| Some((at, tiers.get(at)?))).ok_or_else(|| {
            let tiers: Vec<&str> = places.iter().map(|place| place.server.host.as_str()).collect();
            Refusal::NotSeen {
                what: format!(
                    "{}, which is no tier of this incident: it has {}",
                    self.host,
                    tiers.join(", ")
                ),
            }
        })?;
        let from = match (self.knob, of.entry) {
            (Knob::Backlog, Entry::AcceptQueue { backlog }) => Some(backlog),
            (Knob::Backlog, Entry::Open) => {
                let what = format!(
                    "an accept queue of {}: requests come to it on connections that are open",
                    of.name
                );
                return Err(Refusal::NotSeen { what });
            }
            (Knob::Workers, _) => of.workers,
            (Knob::Pool, _) => of.pool,
            (Knob::Servers, _) => u32::try_from(of.speed.len()).ok(),
            (Knob::EventDriven, _) => None,
        };
        Ok(Change { knob: self.knob, tier, from, to: Some(self.to) })
    }
}

fn one(text: &str) -> Result<Asked, String> {
    let wrong = || {
        format!(
            "{text:?} is no size to ask about: write backlog@HOST=640, workers@HOST=300, pool@HOST=80 or servers@HOST=2"
        )
    };
    let (what, rest) = text.trim().split_once('@').ok_or_else(wrong)?;
    let (host, to) = rest.rsplit_once('=').ok_or_else(wrong)?;
    let knob = KNOBS.into_iter().find(|knob| told::what(*knob) == what).ok_or_else(wrong)?;
    let to = to.parse().ok().filter(|to| (1..=SIZE_MAX).contains(to)).ok_or_else(wrong)?;
    if host.is_empty() {
        return Err(wrong());
    }
    Ok(Asked { knob, host: host.to_owned(), to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_what_is_none_is_named() {
        let asked = Asked::parse("backlog@web-1=640, workers@app=1=300").unwrap();
        let of = |knob, host: &str, to| Asked { knob, host: host.into(), to };
        assert_eq!(asked, [of(Knob::Backlog, "web-1", 640), of(Knob::Workers, "app=1", 300)]);
        for text in [
            "",
            "backlog",
            "backlog@web-1",
            "backlog@web-1=",
            "backlog@web-1=0",
            "backlog@=5",
            "depth@web-1=5",
            "pool@a=99999",
        ] {
            let told = Asked::parse(text).unwrap_err();
            assert!(told.contains("write backlog@HOST=640"), "{told}");
        }
        let many = vec!["pool@a=5"; ASKED_MAX + 1].join(",");
        assert!(Asked::parse(&many).unwrap_err().contains("17 sizes"));
    }
}
