//! Where in its batch something says to be, and how many of a kind a batch may hold: what every list beside the tables is held to. Called by the
//! converters of those lists; knows none of them.

/// Why something in a list of a batch is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It belongs to no window of its batch.
    #[error("{what} in window {offset} of {count}")]
    Offset {
        /// What it is.
        what: &'static str,
        /// Where it says to be.
        offset: u32,
        /// Windows in the batch.
        count: u32,
    },
    /// More than an agent tells.
    #[error("{count} {what}: at most {most}")]
    Many {
        /// What they are, and in what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}

/// The window of `count` that it says to be in.
pub(super) fn in_batch(what: &'static str, offset: u32, count: u32) -> Result<u32, PlaceError> {
    if offset < count { Ok(offset) } else { Err(PlaceError::Offset { what, offset, count }) }
}

/// There are `count`, and may be `most`.
pub(super) fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), PlaceError> {
    if count <= most { Ok(()) } else { Err(PlaceError::Many { what, count, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_it_is_of() {
        assert_eq!(in_batch("a count", 1, 2), Ok(1));
        assert_eq!(in_batch("a count", 2, 2).unwrap_err().to_string(), "a count in window 2 of 2");
        assert_eq!(at_most("counts in one batch", 3, 3), Ok(()));
        let many = at_most("counts in one batch", 4, 3).unwrap_err();
        assert_eq!(many.to_string(), "4 counts in one batch: at most 3");
    }
}
