//! Weighted linear least squares in a few parameters, as sums that can be added. Owns the normal equations and their
//! solution; knows no curve and no law.

/// A pivot of the scaled normal matrix below this says that the columns cannot be told apart: f64 has 16 digits, and a pivot is the
/// square of what is left of a column after the ones before it.
const PIVOT_MIN: f64 = 1e-11;

/// Normal equations of a weighted fit: sums over observations, so those of two halves add up to those of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Normal<const P: usize> {
    moments: [[f64; P]; P],
    right: [f64; P],
}

/// A fit's parameters, and of each the standard error if the weights are inverse variances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Solution<const P: usize> {
    pub(crate) parameters: [f64; P],
    pub(crate) errors: [f64; P],
}

/// The Cholesky factor of the normal matrix scaled to a diagonal of ones, without which columns like 1 and N² differ by ten digits.
struct Factor<const P: usize> {
    scale: [f64; P],
    lower: [[f64; P]; P],
}

impl<const P: usize> Normal<P> {
    /// No observation.
    pub(crate) fn new() -> Self {
        Self { moments: [[0.0; P]; P], right: [0.0; P] }
    }

    /// Adds `left_weight · columns · columnsᵀ` on the left and `right · columns` on the right. An observation `value`
    /// with weight `w` is `(w, w · value)`.
    pub(crate) fn add(&mut self, columns: [f64; P], left_weight: f64, right: f64) {
        for (row, of) in self.moments.iter_mut().zip(columns) {
            row.iter_mut().zip(columns).for_each(|(sum, column)| *sum += left_weight * of * column);
        }
        self.right.iter_mut().zip(columns).for_each(|(sum, column)| *sum += right * column);
    }

    /// Adds other sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (row, more) in self.moments.iter_mut().zip(other.moments) {
            row.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.right.iter_mut().zip(other.right).for_each(|(sum, more)| *sum += more);
    }

    /// Adds a part of other sums, 0 to 1.
    pub(crate) fn merge_part(&mut self, other: &Self, part: f64) {
        for (row, more) in self.moments.iter_mut().zip(other.moments) {
            row.iter_mut().zip(more).for_each(|(sum, more)| *sum += part * more);
        }
        self.right.iter_mut().zip(other.right).for_each(|(sum, more)| *sum += part * more);
    }

    /// The parameters; none if the observations cannot tell them apart.
    pub(crate) fn solve(&self) -> Option<Solution<P>> {
        let factor = self.factor()?;
        let parameters = factor.solve(self.right);
        let mut errors = [0.0; P];
        for (i, error) in errors.iter_mut().enumerate() {
            let mut unit = [0.0; P];
            unit[i] = 1.0;
            *error = factor.solve(unit)[i].sqrt();
        }
        parameters
            .iter()
            .chain(&errors)
            .all(|value| value.is_finite())
            .then_some(Solution { parameters, errors })
    }

    #[allow(clippy::needless_range_loop, reason = "indices of a matrix, as in the textbook")]
    fn factor(&self) -> Option<Factor<P>> {
        let mut scale = [0.0; P];
        for i in 0..P {
            let diagonal = self.moments[i][i];
            if !(diagonal.is_finite() && diagonal > 0.0) {
                return None;
            }
            scale[i] = 1.0 / diagonal.sqrt();
        }
        let mut lower = [[0.0; P]; P];
        for i in 0..P {
            for j in 0..=i {
                let before: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
                let rest = self.moments[i][j] * scale[i] * scale[j] - before;
                if i != j {
                    lower[i][j] = rest / lower[j][j];
                } else if rest > PIVOT_MIN {
                    lower[i][i] = rest.sqrt();
                } else {
                    return None;
                }
            }
        }
        Some(Factor { scale, lower })
    }
}

impl<const P: usize> Factor<P> {
    #[allow(clippy::needless_range_loop, reason = "indices of a matrix, as in the textbook")]
    fn solve(&self, right: [f64; P]) -> [f64; P] {
        let mut value = [0.0; P];
        for i in 0..P {
            let before: f64 = (0..i).map(|k| self.lower[i][k] * value[k]).sum();
            value[i] = (right[i] * self.scale[i] - before) / self.lower[i][i];
        }
        for i in (0..P).rev() {
            let after: f64 = (i + 1..P).map(|k| self.lower[k][i] * value[k]).sum();
            value[i] = (value[i] - after) / self.lower[i][i];
        }
        for i in 0..P {
            value[i] *= self.scale[i];
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(n: f64) -> [f64; 3] {
        [1.0, n - 1.0, n * (n - 1.0)]
    }

    #[test]
    fn a_parabola_comes_back_however_its_columns_differ() {
        let of = |n: f64| 2e-3 + 1e-3 * (n - 1.0) + 1e-8 * n * (n - 1.0);
        let mut sums = Normal::new();
        for n in [1.0, 8.0, 64.0, 512.0, 4096.0] {
            let weight = 1.0 / (of(n) * of(n));
            sums.add(columns(n), weight, weight * of(n));
        }
        let [a, b, c] = sums.solve().unwrap().parameters;
        assert!(
            (a / 2e-3 - 1.0).abs() < 1e-8 && (b / 1e-3 - 1.0).abs() < 1e-8 && (c / 1e-8 - 1.0).abs() < 1e-6
        );
    }

    #[test]
    fn errors_are_those_of_a_mean_for_one_parameter() {
        let mut sums = Normal::new();
        (0..16).for_each(|i| sums.add([1.0], 4.0, 4.0 * f64::from(i % 2)));
        let solution = sums.solve().unwrap();
        assert!((solution.parameters[0] - 0.5).abs() < 1e-12);
        assert!((solution.errors[0] - 0.5 / 4.0).abs() < 1e-12, "sigma 1/2 over the root of 16");
    }

    #[test]
    fn columns_that_cannot_be_told_apart_have_no_solution() {
        let mut sums = Normal::new();
        (0..9).for_each(|_| sums.add(columns(5.0), 1.0, 1.0));
        assert_eq!(sums.solve(), None);
        sums.add(columns(6.0), 1.0, 1.0);
        assert_eq!(sums.solve(), None, "two points for three parameters");
        sums.add(columns(1.0), f64::NAN, 1.0);
        assert_eq!(sums.solve(), None);
    }
}
