//! Small numerics. Owns linear least squares, quantiles and the repeatable sequence; knows nothing of what the numbers mean.

pub(crate) mod least_squares;
pub(crate) mod quantile;
pub(crate) mod sequence;
