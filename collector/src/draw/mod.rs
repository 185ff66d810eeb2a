//! One incident for people, as text and as a picture. Pure.

pub mod explain;
pub mod plot;
pub mod prevention;
mod resource;
