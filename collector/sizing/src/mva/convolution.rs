//! Buzen's convolution in logarithms. Owns the normalising constants of a product-form network; knows stations only
//! as their factors.

/// A station's factor in the product form.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Factor<'a> {
    /// Time without waiting, s.
    Delay(f64),
    /// Service time of one server, s.
    Queue(f64),
    /// Rates with 1, 2, … there, 1/s; the last holds for more.
    Rates(&'a [f64]),
}

/// Throughput with 1, 2, … `jobs` in flight, G(n−1)/G(n), 1/s.
pub(crate) fn throughput<'a>(factors: impl Iterator<Item = Factor<'a>>, jobs: usize) -> Vec<f64> {
    let mut constants = vec![f64::NEG_INFINITY; jobs + 1];
    constants[0] = 0.0;
    for factor in factors {
        match factor {
            Factor::Queue(demand_s) => {
                let log_demand = demand_s.ln();
                for n in 1..=jobs {
                    constants[n] = log_sum([constants[n], constants[n - 1] + log_demand].into_iter());
                }
            }
            Factor::Delay(demand_s) if demand_s > 0.0 => {
                constants = convolve(&constants, &terms(jobs, |n| n as f64 / demand_s));
            }
            Factor::Delay(_) => {}
            Factor::Rates(rates) => {
                let rate = |n: usize| rates.get(n - 1).or(rates.last()).copied().unwrap_or(f64::INFINITY);
                constants = convolve(&constants, &terms(jobs, rate));
            }
        }
    }
    constants.windows(2).map(|pair| (pair[0] - pair[1]).exp()).collect()
}

/// The logarithm of 1 / (rate(1) · … · rate(n)), for each n.
fn terms(jobs: usize, rate: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sum = 0.0;
    let more = (1..=jobs).map(|n| {
        sum -= rate(n).ln();
        sum
    });
    std::iter::once(0.0).chain(more).collect()
}

fn convolve(left: &[f64], right: &[f64]) -> Vec<f64> {
    (0..left.len()).map(|n| log_sum((0..=n).map(|k| left[n - k] + right[k]))).collect()
}

fn log_sum(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = terms.clone().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return most;
    }
    most + terms.map(|term| (term - most).exp()).sum::<f64>().ln()
}
