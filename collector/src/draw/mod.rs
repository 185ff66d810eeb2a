//! Incidents for people, as text and as a picture. Pure.

pub mod difference;
pub mod earlier;
pub mod explain;
pub mod plot;
pub mod prevention;
mod resource;
pub mod traces;
