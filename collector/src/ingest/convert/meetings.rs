//! From the wire's ends of connections to the model's, and what cannot be refused. Called by `convert` alone; knows no window.

use super::place::{PlaceError, at_most, in_batch};
use tailwater_model::window::{ConnectionEnd, EntityId, Meeting};
use tailwater_proto::v1;

/// Ends of one batch: an agent tells 256 in a second, and the largest batch has a little more than three.
const MEETINGS_MAX: usize = 256 * 5;

/// Each with its window in the batch. `listener` and `edge` give the ids of here; an end that has none, or is of a kind that a later version tells, is left
/// out.
pub(super) fn met(
    meetings: &[v1::Meeting],
    count: u32,
    mut listener: impl FnMut(u32) -> Option<EntityId>,
    mut edge: impl FnMut(u32) -> Option<EntityId>,
) -> Result<Vec<(u32, Meeting)>, PlaceError> {
    at_most("ends of connections in one batch", meetings.len(), MEETINGS_MAX)?;
    let mut found = Vec::new();
    for meeting in meetings {
        let offset = in_batch("an end of a connection", meeting.window_offset, count)?;
        let pair = meeting.pair;
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
        assert!(matches!(read(&[late]), Err(PlaceError::Offset { offset: 2, count: 2, .. })));
        let many = vec![of(None); MEETINGS_MAX + 1];
        assert!(matches!(read(&many), Err(PlaceError::Many { most: MEETINGS_MAX, .. })));
    }
}
