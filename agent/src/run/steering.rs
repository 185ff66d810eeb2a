//! What a collector may change of how this agent measures: windows to a batch, and signals that are left out. Owns the bounds, and that what
//! the operator of this machine left out stays left out; knows no stream.

use crate::run::pipeline::Shared;
use crate::sample::sampler::Handle;
use crate::signal::SignalKind;
use crate::stream::encode::signal_kind;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tailwater_proto::columnar::WINDOWS_MAX;
use tailwater_proto::v1;

/// How it is measured: windows to a batch, and what is left out.
type Measured = (u32, BTreeSet<SignalKind>);

/// See above.
#[derive(Debug)]
pub struct Steering {
    /// As the operator wants it.
    own: Measured,
    handle: Handle,
    shared: Arc<Shared>,
    /// As it is now, if a collector ever said.
    now: Mutex<Option<Measured>>,
}

impl Steering {
    /// `windows_per_batch` and `disabled` are the operator's, and are in force already.
    pub fn new(
        windows_per_batch: u32,
        disabled: BTreeSet<SignalKind>,
        handle: Handle,
        shared: Arc<Shared>,
    ) -> Self {
        Self { own: (windows_per_batch, disabled), handle, shared, now: Mutex::default() }
    }

    /// Does as the collector says, within bounds. What is so already is not told again.
    pub fn configure(&self, configuration: &v1::Configuration) {
        let (own_windows, own_disabled) = &self.own;
        let windows = match configuration.windows_per_batch {
            0 => *own_windows,
            wanted => wanted.min(WINDOWS_MAX),
        };
        let mut disabled: BTreeSet<SignalKind> =
            configuration.disabled.iter().filter_map(|n| signal_kind(*n)).collect();
        disabled.extend(own_disabled);
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (windows, disabled);
        if now.as_ref() == Some(&wanted) {
            return;
        }
        tracing::info!(
            version = configuration.version,
            windows_per_batch = windows,
            disabled = wanted.1.len(),
            "configuration from the collector"
        );
        self.shared.windows_per_batch.store(windows, Ordering::Relaxed);
        self.handle.disable(wanted.1.clone());
        *now = Some(wanted);
    }

    /// As it is now: windows to a batch, and what is left out. `None`: no collector ever said.
    pub fn now(&self) -> Option<(u32, BTreeSet<SignalKind>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_says_how_within_bounds_and_never_takes_back_what_the_operator_left_out() {
        let shared = Arc::new(Shared::default());
        let own = BTreeSet::from([SignalKind::Memory]);
        let handle = Handle::new(own.clone()).unwrap();
        let steering = Steering::new(2, own.clone(), handle, Arc::clone(&shared));
        assert_eq!(steering.now(), None);
        let says = |windows_per_batch, disabled: &[i32]| {
            let disabled = disabled.to_vec();
            steering.configure(&v1::Configuration { version: 1, windows_per_batch, disabled });
            let (windows, left_out) = steering.now().unwrap();
            assert_eq!(shared.windows_per_batch.load(Ordering::Relaxed), windows);
            (windows, left_out)
        };
        assert_eq!(says(0, &[]), (2, own.clone()));
        let block_io = v1::Signal::BlockIo as i32;
        let both = BTreeSet::from([SignalKind::Memory, SignalKind::BlockIo]);
        assert_eq!(says(u32::MAX, &[block_io, block_io, 0, -7, i32::MAX]), (64, both));
        assert_eq!(says(1, &[]), (1, own));
    }
}
