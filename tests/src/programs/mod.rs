//! Tailwater's programs as an operator has them: started and stopped by their command lines, asked over HTTP, listened to, and read from
//! what they record. Knows what they print and send, nothing of their insides and nothing of the lab.

pub mod daemons;
pub mod one_machine;
pub mod reported;
pub mod trace_sums;
pub mod webhook_receiver;
