//! Places for connections that show no certificate, and so may join and nothing else: few in all, and few from each network, so that whoever takes
//! all that it gets keeps nobody else from joining.

use crate::access::attempts::network;
use crate::lock::lock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// So many of them are there at once: strangers, as long as they have shown no token, who must not take agents' places.
pub const PLACES_MAX: usize = 32;
/// So many of them from one address, or one /64 of IPv6.
pub const PLACES_OF_ONE_MAX: usize = 8;

/// Who has which.
#[derive(Debug, Default)]
pub struct Joining(Mutex<HashMap<IpAddr, usize>>);

/// One place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    all: Arc<Joining>,
    network: IpAddr,
}

impl Joining {
    /// A place for a connection from there; the text says why there is none.
    pub fn take(self: &Arc<Self>, from: IpAddr) -> Result<Place, String> {
        let network = network(from);
        let mut held = lock(&self.0);
        if held.values().sum::<usize>() >= PLACES_MAX {
            return Err(format!("{PLACES_MAX} without a certificate are open"));
        }
        let own = held.entry(network).or_default();
        if *own >= PLACES_OF_ONE_MAX {
            return Err(format!("{PLACES_OF_ONE_MAX} without a certificate are open from there"));
        }
        *own += 1;
        drop(held);
        Ok(Place { all: Arc::clone(self), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.all.0);
        if let Some(own) = held.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_has_a_few_places_and_all_have_not_many_more() {
        let all = Arc::new(Joining::default());
        let take = |last: u8| all.take(IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<_> = (0..PLACES_OF_ONE_MAX).map(|_| take(1).unwrap()).collect();
        assert!(take(1).unwrap_err().contains("from there"));
        let others = 2..=u8::try_from(PLACES_MAX).unwrap();
        held.extend(others.map_while(|of| take(of).ok()));
        let full = take(99).unwrap_err();
        assert!(!full.contains("from there"), "{full}");
        assert_eq!(held.len(), PLACES_MAX);
        assert_eq!(lock(&all.0).len(), 1 + PLACES_MAX - PLACES_OF_ONE_MAX);
        held.remove(0);
        assert!(take(1).is_ok() && take(1).is_ok(), "what is dropped is free");
        drop(held);
        assert!(lock(&all.0).is_empty(), "nobody is remembered");
        let six = |last: u16| all.take(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]));
        let held: Vec<_> = (0..PLACES_OF_ONE_MAX as u16).map(|n| six(n).unwrap()).collect();
        assert!(six(99).is_err());
        drop(held);
    }
}
