//! Quantiles of a few hundred numbers. Owns sorting and interpolation; knows nothing of what the numbers mean.

/// The quantiles at `parts` (0 to 1) of finite numbers, interpolated linearly between neighbours; none without a number.
pub(crate) fn quantiles<const P: usize>(mut values: Vec<f64>, parts: [f64; P]) -> Option<[f64; P]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(parts.map(|part| {
        let at = part.clamp(0.0, 1.0) * last as f64;
        let below = (at.floor() as usize).min(last);
        let above = (below + 1).min(last);
        values[below] + (values[above] - values[below]) * (at - below as f64)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantiles(values, [0.0, 0.025, 0.5, 1.0]), Some([0.0, 2.5, 50.0, 100.0]));
        assert_eq!(quantiles(vec![7.0], [0.05, 0.95]), Some([7.0, 7.0]));
        assert_eq!(quantiles(Vec::new(), [0.5]), None);
    }
}
