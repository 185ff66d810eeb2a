//! The best number of requests in flight of a server, and what follows for pools when the number of servers changes.
//! Owns B's equations 1 to 8, the fit of equation 7 and what is said of it; knows neither where a curve comes from
//! nor a chain of tiers.

mod advice;
mod bottleneck;
mod cost;
mod fit;
mod law;
mod needs;
mod scaling;

pub use advice::{Advice, Conditions, Model, advise};
pub use bottleneck::{Bottleneck, TierDemand, bottleneck, throughput_of, utilisation};
pub use fit::{CurveFit, fit, fit_curve};
pub use law::{Deployment, Law, Optimum, Span};
pub use needs::{LOSS_MAX, QUOTA_USED, Unsaturated};
pub use scaling::{Measured, Rescaled, connections_per_caller, gamma, rescale, with_calls};
