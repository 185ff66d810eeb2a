//! The price of the agent, measured: kernel time per event, user time and memory, throughput lost, longer answers, bytes on the wire; and how long a
//! first drop takes to whoever is to be woken. Every figure of a price is a ratio against a baseline of the same run or the kernel's own
//! statistics. Nothing here is asserted: these numbers go into the README with the machine they came from.

pub mod alert_latency;
pub mod kernel_price;
pub mod steal;
pub mod tails;
pub mod throughput;
pub mod user_price;
pub mod wire_price;
pub mod wrk;

/// Median of `values`; NaN when empty.
#[must_use]
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
