//! From the wire's ends of connections to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use tailwater_model::window::{ConnectionEnd, EntityId, Meeting};
use tailwater_proto::v1;

/// Ends of one batch: an agent tells 256 in a second, and the largest batch has a little more than three.
const MEETINGS_MAX: usize = 256 * 5;

/// Why ends of connections are not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeetingsError {
    /// It belongs to no window of its batch.
    #[error("an end of a connection in window {offset} of {count}")]
    Offset {
        /// Where it says to be.
        offset: u32,
        /// Windows in the batch.
        count: u32,
    },
    /// More than an agent tells.
    #[error("{count} ends of connections in one batch: at most {MEETINGS_MAX}")]
    Many {
        /// How many there are.
        count: usize,
    },
}

/// Each with its window in the batch. `listener` and `edge` give the ids of here; an end that has none, or is of a kind that a later version tells, is left
/// out.
pub(super) fn met(
    meetings: &[v1::Meeting],
    count: u32,
    mut listener: impl FnMut(u32) -> Option<EntityId>,
    mut edge: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, Meeting)>, MeetingsError> {
    if meetings.len() > MEETINGS_MAX {
        return Err(MeetingsError::Many { count: meetings.len() });
    }
    let mut found = Vec::new();
    for meeting in meetings {
        let (offset, pair) = (meeting.window_offset, meeting.pair);
        if offset >= count {
            return Err(MeetingsError::Offset { offset, count });
        }
        // An agent tells 0 of what is beyond its tables.
        let is_known = |id: &EntityId| *id != 0;
        let end = match meeting.end {
            Some(v1::meeting::End::Listener(id)) => {
                listener(id).filter(is_known).map(ConnectionEnd::Accepted)
            }
            Some(v1::meeting::End::Edge(id)) => edge(id).filter(is_known).map(ConnectionEnd::Connected),
            None => None,
        };
        found.extend(end.map(|end| (offset, Meeting { pair, end })));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_taken_with_the_ids_of_here_and_what_cannot_be_is_refused() {
        use v1::meeting::End;
        let of = |end| v1::Meeting { window_offset: 1, pair: 7, end };
        let read = |all: &[v1::Meeting]| {
            let known = |more| move |id: u32| (id < 5).then_some(if id == 0 { 0 } else { id + more });
            met(all, 2, known(100), known(200))
        };
        let all = [Some(End::Listener(3)), Some(End::Edge(3)), Some(End::Edge(9)), Some(End::Edge(0)), None]
            .map(of);
        let told = |end| (1, Meeting { pair: 7, end });
        let expected = [ConnectionEnd::Accepted(103), ConnectionEnd::Connected(203)].map(told).to_vec();
        assert_eq!(read(&all), Ok(expected));
        let late = v1::Meeting { window_offset: 2, ..of(None) };
        assert_eq!(read(&[late]), Err(MeetingsError::Offset { offset: 2, count: 2 }));
        let many = vec![of(None); MEETINGS_MAX + 1];
        assert_eq!(read(&many), Err(MeetingsError::Many { count: MEETINGS_MAX + 1 }));
    }
}
