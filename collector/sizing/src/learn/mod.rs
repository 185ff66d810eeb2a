//! What is learnt of one listener from its traffic, second by second. Owns which seconds count, what they add up to and when it begins
//! anew; knows no listener by name, no window and no clock.
//!
//! [`Second`] in, [`Learner`] keeps, [`crate::concurrency::Advice`] out. A learner takes less than 20 kB, in memory and as JSON, and what is
//! read back is checked.

mod cost;
mod learner;
mod little;
mod offered;
mod second;
mod shift;
mod sustained;

pub use learner::{HALF_LIFE_S, Learner};
pub use little::agrees;
pub use second::{Second, Serving, Taint, is_full};
