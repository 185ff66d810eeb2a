//! Stations and the network that they make. Owns what is a valid one, its capacity and its throughput; knows no pool.

use super::convolution::{self, Factor};
use crate::evidence::{Refusal, not_negative, positive};

/// Most requests in flight that a network is computed for: more than that no pool of threads has.
pub const JOBS_MAX: u32 = 4096;

/// Where a request spends time.
#[derive(Debug, Clone, PartialEq)]
pub enum Station {
    /// Nobody waits for another there: think time, calls to tiers that are far from full.
    Delay {
        /// Time of a request there, all visits together, s.
        demand_s: f64,
    },
    /// One server, first come first served or shared: one CPU, one disk.
    Queue {
        /// Service time of a request there, all visits together, s.
        demand_s: f64,
    },
    /// A server whose speed depends on how many are there.
    LoadDependent {
        /// Requests per second of the network with 1, 2, … there; the last holds for all that are more.
        rates: Vec<f64>,
    },
}

impl Station {
    /// Some CPUs that one queue feeds. With a fraction (a quota), as many whole ones, all slower by the same part.
    ///
    /// # Errors
    /// [`Refusal::Input`] if there is no CPU, more than [`JOBS_MAX`], or no demand.
    pub fn cpus(cpus: f64, demand_s: f64) -> Result<Self, Refusal> {
        let cpus = positive("the number of CPUs", cpus)?;
        if cpus > f64::from(JOBS_MAX) {
            return Err(Refusal::Input { what: "the number of CPUs", value: cpus });
        }
        let demand_s = positive("CPU time per request, s,", demand_s)?;
        let whole = cpus.ceil();
        let rate = cpus / whole / demand_s;
        let rates: Vec<f64> = (1..=whole as u32).map(|n| f64::from(n) * rate).collect();
        Ok(match rates[..] {
            [rate] => Self::Queue { demand_s: 1.0 / rate },
            _ => Self::LoadDependent { rates },
        })
    }

    fn factor(&self) -> Factor<'_> {
        match self {
            Self::Delay { demand_s } => Factor::Delay(*demand_s),
            Self::Queue { demand_s } => Factor::Queue(*demand_s),
            Self::LoadDependent { rates } => Factor::Rates(rates),
        }
    }

    /// Requests per second that it can do at the most.
    fn capacity(&self) -> f64 {
        match self {
            Self::Delay { .. } => f64::INFINITY,
            Self::Queue { demand_s } => 1.0 / demand_s,
            Self::LoadDependent { rates } => rates.last().copied().unwrap_or(0.0),
        }
    }
}

/// A closed network: what is answered comes in again at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    stations: Vec<Station>,
}

impl Network {
    /// A network of these stations, of which one at least is no delay.
    ///
    /// # Errors
    /// [`Refusal::Input`] if a time or a rate cannot be, [`Refusal::NoMaximum`] if nothing limits it.
    pub fn new(stations: Vec<Station>) -> Result<Self, Refusal> {
        for station in &stations {
            match station {
                Station::Delay { demand_s } => {
                    not_negative("the time of a delay, s,", *demand_s).map(drop)?
                }
                Station::Queue { demand_s } => positive("a service time, s,", *demand_s).map(drop)?,
                Station::LoadDependent { rates } => {
                    positive("the number of rates", rates.len() as f64)?;
                    rates.iter().try_for_each(|rate| positive("a rate, 1/s,", *rate).map(drop))?;
                }
            }
        }
        let network = Self { stations };
        if network.capacity().is_finite() { Ok(network) } else { Err(Refusal::NoMaximum) }
    }

    /// Requests per second that it tends to with ever more in flight: those of its slowest station.
    pub fn capacity(&self) -> f64 {
        self.stations.iter().map(Station::capacity).fold(f64::INFINITY, f64::min)
    }

    /// Requests per second with 1, 2, … `jobs` in flight (at the most [`JOBS_MAX`]).
    pub fn throughput(&self, jobs: u32) -> Vec<f64> {
        let jobs = jobs.min(JOBS_MAX) as usize;
        if self.stations.iter().any(|station| matches!(station, Station::LoadDependent { .. })) {
            return convolution::throughput(self.stations.iter().map(Station::factor), jobs);
        }
        let (mut delay_s, mut queues) = (0.0, Vec::new());
        for station in &self.stations {
            match station {
                Station::Delay { demand_s } => delay_s += demand_s,
                Station::Queue { demand_s } => queues.push((*demand_s, 0.0)),
                Station::LoadDependent { .. } => {}
            }
        }
        let mut all = Vec::with_capacity(jobs);
        for n in 1..=jobs {
            // An arrival sees the network with one request less in it.
            let response_s: f64 = queues.iter().map(|(demand_s, queued)| demand_s * (1.0 + queued)).sum();
            let throughput = n as f64 / (delay_s + response_s);
            queues
                .iter_mut()
                .for_each(|(demand_s, queued)| *queued = throughput * *demand_s * (1.0 + *queued));
            all.push(throughput);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(seen: f64, expect: f64, part: f64) -> bool {
        (seen / expect - 1.0).abs() <= part
    }

    #[test]
    fn recursion_and_convolution_agree() {
        let stations = || {
            vec![
                Station::Delay { demand_s: 0.05 },
                Station::Queue { demand_s: 2e-3 },
                Station::Queue { demand_s: 1.5e-3 },
            ]
        };
        let exact = Network::new(stations()).unwrap().throughput(300);
        let convolved = convolution::throughput(stations().iter().map(Station::factor), 300);
        assert!(exact.iter().zip(&convolved).all(|(a, b)| near(*a, *b, 1e-9)));
        assert!(near(exact[0], 1.0 / 0.0535, 1e-12), "one alone waits for nobody");
    }

    /// M/M/c with a finite population, from its balance equations.
    #[test]
    fn two_cpus_are_the_machine_repairman_of_the_textbook() {
        let (think_s, demand_s, jobs) = (0.013, 1e-3, 40_u32);
        let network =
            Network::new(vec![Station::Delay { demand_s: think_s }, Station::cpus(2.0, demand_s).unwrap()])
                .unwrap();
        let mut weights = vec![1.0];
        for n in 1..=jobs {
            let (arrive, leave) = (f64::from(jobs - n + 1) / think_s, f64::from(n.min(2)) / demand_s);
            weights.push(weights[n as usize - 1] * arrive / leave);
        }
        let sum: f64 = weights.iter().sum();
        let busy: f64 = weights.iter().zip(0_u32..).map(|(w, n)| w / sum * f64::from(n.min(2))).sum();
        let throughput = network.throughput(jobs);
        assert!(near(throughput[jobs as usize - 1], busy / demand_s, 1e-9));
    }

    #[test]
    fn far_beyond_saturation_it_is_the_capacity() {
        let network =
            Network::new(vec![Station::Delay { demand_s: 0.5 }, Station::cpus(3.5, 2e-3).unwrap()]).unwrap();
        let throughput = network.throughput(JOBS_MAX + 1);
        assert_eq!(throughput.len(), JOBS_MAX as usize);
        assert!(near(throughput[JOBS_MAX as usize - 1], 1750.0, 1e-6), "{:?}", throughput.last());
        assert!(throughput.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - 1e-9)));
    }

    #[test]
    fn half_a_cpu_is_one_that_is_half_as_fast() {
        assert_eq!(Station::cpus(0.5, 1e-3).unwrap(), Station::Queue { demand_s: 2e-3 });
    }

    #[test]
    fn what_limits_nothing_or_cannot_be_is_refused() {
        assert_eq!(Network::new(vec![Station::Delay { demand_s: 1.0 }]), Err(Refusal::NoMaximum));
        assert_eq!(Network::new(Vec::new()), Err(Refusal::NoMaximum));
        for wrong in [
            Station::Queue { demand_s: 0.0 },
            Station::Delay { demand_s: f64::NAN },
            Station::LoadDependent { rates: vec![1.0, -1.0] },
            Station::LoadDependent { rates: Vec::new() },
        ] {
            assert!(matches!(Network::new(vec![wrong.clone()]), Err(Refusal::Input { .. })), "{wrong:?}");
        }
        assert!(Station::cpus(0.0, 1e-3).is_err() && Station::cpus(1.0, f64::INFINITY).is_err());
    }
}
