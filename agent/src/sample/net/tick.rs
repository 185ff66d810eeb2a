//! Looks at every listening socket each 5 ms where the kernel gives programs no timer (PREEMPT_RT): reads iterators over the tables
//! of them. Knows no window.

use crate::attach::iterator::KernelIterator;
use crate::attach::privilege;
use crate::sample::repeated::Repeated;
use std::time::Duration;

/// As `cfg_tick_ns` of the kernel's timer.
const EVERY: Duration = Duration::from_millis(5);

/// Looks once, so that an iterator that this kernel refuses is an error here, and then every 5 ms until the value is dropped.
pub(super) fn start(tables: [KernelIterator; 2]) -> std::io::Result<Repeated> {
    let look = move || tables.iter().try_for_each(KernelIterator::run);
    look()?;
    let (mut begun, mut refused) = (false, false);
    Repeated::start("listener-tick", EVERY, move || {
        if !begun && let Err(error) = privilege::drop_unneeded() {
            tracing::warn!("listener-tick: {error}");
        }
        begun = true;
        let looked = look();
        if let Err(error) = &looked
            && !refused
        {
            tracing::warn!("listeners cannot be looked at: {error}; drops are not seen meanwhile");
        }
        refused = looked.is_err();
    })
}
