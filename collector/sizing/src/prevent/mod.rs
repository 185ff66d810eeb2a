//! What would have prevented an overflow: the same first attempts once more through a chain of synchronous tiers, with another backlog, other
//! pools, or one server more. Owns the model of the chain, its replay, and the search for the smallest change; knows no incident, no window
//! of a listener, and draws nothing at random: the same input gives the same answer everywhere.
//!
//! `attempts` tells first attempts from those that come again, `chain` is what goes in, `replay` (with `server`, one server of a tier) the discrete-event simulation, `outcome` what came out,
//! `reproduce` whether the model gives what was seen, `knob` what can be changed, `margin` how much more than what was seen that has to stand, and `search` the smallest changes with what each does.
//!
//! # What is modelled
//! A tier is one or several servers, asked by turns. A connection attempt that finds the accept queue full is dropped and tried again by the
//! kernel of whoever connects, in one of two ways ([`Retries`]): of both, the one is taken that gives what was seen. A worker holds its request from accept to answer, and so while it waits for
//! the tier below (synchronous calls); an event-driven tier has no such limit. A request needs CPU time, which is had in turn, then
//! its call below, then time in which it waits for something else. Whatever holds a server up slows all of that down, window by window.
//!
//! # What is not
//! Service times are the mean ones and arrivals are spread evenly in their window, so queues of a tier that is nearly full all the time
//! are too short here: the model is for overflows that a stall or a burst makes, and is asked first whether it reproduces the one seen.

mod attempts;
mod chain;
mod knob;
mod margin;
mod outcome;
mod replay;
mod reproduce;
mod search;
mod server;

pub use attempts::{Came, FirstAttempts};
pub use chain::{Chain, Entry, Retries, Tier, WINDOW_S};
pub use knob::{Change, Knob, SIZE_MAX};
pub use margin::MARGIN;
pub use outcome::{Goodput, Outcome};
pub use replay::{EVENTS_MAX, REQUESTS_MAX, replay};
pub use reproduce::{REPRODUCED, Reproduction, Sought, Wanted};
pub use search::{Candidate, Effect, Prevention, prevention, what_if};
