//! Where something is, as people read it: `tomcat10.service@app-1`. Owns how a workload and its host are written as one, and what of a
//! workload's name is left out where room is dear; knows nothing of what is there. The page has the same in `collector/web/src/words.ts`, and
//! `places.txt` beside this file is the table that both are held against.

use std::fmt;

/// A workload on its host; displays as `workload@host`. A host that no agent observes has no workload that anybody could name: it displays
/// alone, as its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    workload: &'a str,
    host: &'a str,
}

/// Where `workload` is. In the order in which both are written.
#[must_use]
pub fn place<'a>(workload: &'a str, host: &'a str) -> Place<'a> {
    Place { workload, host }
}

impl Place<'_> {
    /// The same with the name of the workload as people say it, [`bare`]: for screens and pictures that tell an incident. What programs read,
    /// and whatever is to be typed again, has the whole name.
    #[must_use]
    pub fn short(self) -> Self {
        Self { workload: bare(self.workload), ..self }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workload {
            "" => f.write_str(self.host),
            workload => write!(f, "{workload}@{}", self.host),
        }
    }
}

/// The name of a unit of systemd without its type: `tomcat10` of `tomcat10.service`. A name of anything else is returned as it is.
#[must_use]
pub fn bare(unit: &str) -> &str {
    [".service", ".scope", ".slice"].iter().find_map(|kind| unit.strip_suffix(kind)).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_in_the_table_that_the_page_is_held_against_too() {
        let rows: Vec<[&str; 4]> = include_str!("places.txt")
            .lines()
            .skip(1)
            .map(|line| <[&str; 4]>::try_from(line.split(',').collect::<Vec<_>>()).unwrap())
            .collect();
        assert!(rows.iter().any(|[workload, ..]| workload.is_empty()), "a host that no agent observes");
        for [workload, host, whole, short] in rows {
            let place = place(workload, host);
            assert_eq!((place.to_string(), place.short().to_string()), (whole.to_owned(), short.to_owned()));
        }
    }
}
