//! Other methods of root-cause analysis on the golden recordings, beside Tailwater: what they are given, and how often each is right.

pub mod ours;
pub mod results;
pub mod signals;
