//! How much load a lab bears on this machine, and a lab as small as that. Measured before any default load is sent: by what a request
//! takes of each tier, and by whether a short load is served without a queue running over. Knows no cell and no server.

use super::kept::Kept;
use super::machine::{Moment, Spell};
use super::{Fit, Lab, LabConfig, Scale, TierHandle};
use crate::console::progress::{complain, step};
use crate::lab::scenario;
use crate::load::{LoadPlan, Mode, Summary};
use crate::os::process::wait_for;
use crate::stack::Tier;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Length of a measurement.
const MEASURED_MS: u64 = 2_000;
/// Measurements before the machine is given up.
const MEASURED_MAX: u32 = 10;
/// The most that the default load takes of the busiest tier's CPU: what the tuned load takes of it where it was tuned, and quotas are
/// made smaller until a smaller load takes as much. On a machine on which it would take more the load is made smaller: a tier that is
/// nearly full never recovers from a stall, because a request takes more of its CPU the more of them there are.
const UTILISATION_MAX: f64 = 0.6;
/// The most that servers and load take of all CPUs that other programs leave. Agents and a collector come on top, and where a
/// machine is full no quota says any more which tier gives way.
const MACHINE_MAX: f64 = 0.7;
/// A load smaller than this share of the tuned one: queues of a few dozen, which the machine's own hiccups fill.
const SHARE_MIN: f64 = 0.15;
/// A load that is smaller by less than this does not ask for smaller limits: they hold a little more than they should.
const SHARE_RESCALED: f64 = 0.85;
/// Slower, 99 of 100 requests: the machine itself makes them wait, and the front's queue holds 280 ms of them.
const P99_MAX_US: u64 = 150_000;
/// A load that was kept from an earlier lab is given up, and searched for anew, where the machine bears so much more by now.
const OUTGROWN: f64 = 1.3;
/// After a load that was too much, the next is this share of it.
const LOWER: f64 = 0.75;
/// And none after it is a larger share of it than this.
const BELOW_CEILING: f64 = 0.85;
/// A request of a measurement that takes longer has failed.
const TIMEOUT_MS: u64 = 10_000;
/// No drop for so long: SYNs that were refused came again, and were let in.
const CALM: Duration = Duration::from_millis(1_500);
/// So long it is waited for.
pub const CALM_MAX: Duration = Duration::from_secs(30);
/// As many requests are met in the queues of a load that is served.
const QUEUED_SERVED: u64 = 16;
/// And so many in the mean of all looks.
const QUEUED_STANDS: u64 = 2;

/// Steps of the warm-up: users at once, and the share of its requests that each step sends. The last has as many users as there are
/// workers, so that every connection between the tiers is open before it matters.
const WARM_UP: [(u32, f64); 3] = [(8, 0.05), (40, 0.15), (150, 0.8)];
const WARM_UP_STEP_MS: u64 = 12_000;

/// What a short load showed.
#[derive(Debug, Clone)]
struct Measured {
    rate_per_second: f64,
    capacity_per_second: f64,
    busiest: Tier,
    dropped: u64,
    summary: Summary,
    machine: Spell,
}

impl Measured {
    /// The load that leaves the busiest tier, and the machine, room for a stall.
    fn borne_per_second(&self) -> f64 {
        let Spell { cpus, steal_ratio, lab_cores, other_cores, .. } = self.machine;
        let left = (cpus as f64 * (1.0 - steal_ratio) - other_cores).max(0.0);
        let machine = MACHINE_MAX * self.rate_per_second * left / lab_cores.max(1e-3);
        machine.min(UTILISATION_MAX * self.capacity_per_second)
    }

    /// Why this load was too much, if it was.
    fn overload(&self) -> Option<String> {
        let Summary { sent, failed, p99_us, .. } = self.summary;
        let what = if failed > 0 {
            format!("{failed} of {sent} requests failed")
        } else if self.dropped > 0 {
            format!("{} packets were dropped, and sent again", self.dropped)
        } else if p99_us > P99_MAX_US {
            format!("p99 was {} ms", p99_us / 1000)
        } else {
            return None;
        };
        Some(format!("{:.0} requests a second were too many: {what}; {}", self.rate_per_second, self.machine))
    }
}

/// What to do after a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    /// This load is the one.
    Keep,
    /// Measure this load.
    Measure(f64),
}

/// The search for a load that is served. Pure.
#[derive(Debug)]
struct Search {
    tuned_per_second: f64,
    /// No load from here on will be tried again.
    ceiling_per_second: f64,
    /// The last measurement was not believed, and made once more: a machine that others use too may stall in the very seconds of one.
    doubted: bool,
    /// Nothing was measured yet of a load that was kept from an earlier lab, with limits made for it.
    kept: bool,
    /// By one measurement this machine is too slow for any lab.
    hopeless: bool,
}

impl Search {
    fn new(tuned_per_second: f64) -> Self {
        Self {
            tuned_per_second,
            ceiling_per_second: f64::INFINITY,
            doubted: false,
            kept: false,
            hopeless: false,
        }
    }

    /// Begins with what an earlier lab ended with. Where limits were made smaller for it, no more is asked of these.
    fn kept(tuned_per_second: f64, kept: &Kept) -> Self {
        let smaller = kept.scale() != Scale::TUNED;
        let most = if smaller { kept.rate_per_second } else { tuned_per_second };
        Self { kept: smaller, ..Self::new(most) }
    }

    /// Whether the machine bears much more by now than the load that was kept from an earlier lab.
    fn is_outgrown(&mut self, measured: &Measured) -> bool {
        std::mem::take(&mut self.kept)
            && measured.overload().is_none()
            && measured.borne_per_second() > OUTGROWN * measured.rate_per_second
    }

    /// Whether this machine is too slow for any lab, as a measurement says: the second that says so is believed. In the seconds of the
    /// first a server may still compile what it runs, and others may want the machine.
    fn gives_up(&mut self) -> bool {
        std::mem::replace(&mut self.hopeless, true)
    }

    fn next(&mut self, measured: &Measured) -> Next {
        let rate = measured.rate_per_second;
        let borne = measured.borne_per_second();
        if measured.overload().is_some() {
            if borne >= rate && !self.doubted {
                self.doubted = true;
                return Next::Measure(rate);
            }
            self.ceiling_per_second = rate;
            return Next::Measure((LOWER * rate).min(borne));
        }
        self.doubted = false;
        // The figures of two measurements differ by some hundredths.
        if borne < 0.95 * rate {
            return Next::Measure(borne);
        }
        let wanted = self.tuned_per_second.min(borne).min(BELOW_CEILING * self.ceiling_per_second);
        if wanted > 1.15 * rate { Next::Measure(wanted) } else { Next::Keep }
    }
}

impl Lab {
    /// Warms up a lab that was just started, finds the load that it bears, and makes it smaller if that is less than the tuned one.
    /// With a load that an earlier lab was found to bear it begins as small as that one ended.
    pub(super) fn fit_to_machine(&mut self, kept: Option<Kept>) -> Result<()> {
        if self.config.warm_up_requests == 0 {
            return self.set_quotas();
        }
        let tuned = scenario::rate_per_second(self.stack());
        let hint = step("the servers are warmed up", Duration::from_secs(4), || self.warm_up())?;
        self.set_quotas()?;
        if let Some(kept) = kept {
            return self.find_load(tuned, Search::kept(tuned, &kept), kept.rate_per_second);
        }
        // A first guess that is far too high would fill queues that then take long to empty.
        self.find_load(tuned, Search::new(tuned), tuned.min(UTILISATION_MAX * hint))
    }

    /// Measures the load once more with those who watch the lab at work beside it, and makes the lab smaller where that is too much. On
    /// a slow machine they take CPUs that the lab was measured with; a machine with much to spare is not measured again.
    pub fn fit_beside_observers(&mut self) -> Result<()> {
        let Some(fit) = self.fit.as_ref().filter(|fit| !fit.has_room()) else { return Ok(()) };
        let (tuned, rate) = (fit.tuned_per_second, fit.rate_per_second);
        self.tried.clone_from(&fit.tried);
        self.find_load(tuned, Search::new(rate), rate)
    }

    /// Measures loads, `rate` first, until one is served, and makes the lab as small as that.
    fn find_load(&mut self, tuned: f64, mut search: Search, mut rate: f64) -> Result<()> {
        for _ in 0..MEASURED_MAX {
            let measured = step("what this machine can do is measured", Duration::from_secs(3), || {
                self.measure(rate.max(SHARE_MIN * tuned))
            })?;
            self.note_overload(&measured);
            if search.is_outgrown(&measured) {
                self.rescale(Scale::TUNED)?;
                (search, rate) = (Search::new(tuned), tuned.min(measured.borne_per_second()));
                continue;
            }
            match search.next(&measured) {
                Next::Measure(next) if next < SHARE_MIN * tuned => {
                    // What a load that was too much took of the CPUs says little of a smaller one: the smallest is tried.
                    let smallest =
                        measured.overload().is_none() || measured.rate_per_second <= SHARE_MIN * tuned;
                    if smallest && search.gives_up() {
                        return too_slow(next, tuned, &measured);
                    }
                    rate = SHARE_MIN * tuned;
                }
                Next::Measure(next) => rate = next,
                Next::Keep => {
                    rate = measured.rate_per_second;
                    let limits_for = self.config.scale.requests * tuned;
                    if rate >= SHARE_RESCALED * limits_for {
                        self.rate_per_second = rate;
                        let fit = self.fitted(tuned, measured);
                        Kept::keep(&self.tuned, &fit);
                        self.fit = Some(fit);
                        return self.tell_fit();
                    }
                    let capacity = measured.capacity_per_second / self.config.scale.cores;
                    let cores = (rate / (UTILISATION_MAX * capacity)).min(1.0);
                    self.rescale(Scale { requests: rate / tuned, cores })?;
                    // With these quotas the busiest tier is as busy as in the tuned lab: more is not there to be found.
                    search.tuned_per_second = rate;
                }
            }
        }
        bail!(
            "no load was served {MEASURED_MAX} times over; the last that was too much: {}",
            self.tried.last().map_or("none", String::as_str)
        )
    }

    fn fitted(&mut self, tuned_per_second: f64, measured: Measured) -> Fit {
        Fit {
            tuned_per_second,
            rate_per_second: measured.rate_per_second,
            scale: self.config.scale,
            capacity_per_second: measured.capacity_per_second,
            busiest: measured.busiest,
            p99: Duration::from_micros(measured.summary.p99_us),
            machine: measured.machine,
            tried: std::mem::take(&mut self.tried),
        }
    }

    /// What is out of the ordinary is said.
    fn tell_fit(&self) -> Result<()> {
        if let Some(fit) = self.fit.as_ref().filter(|fit| fit.rate_per_second < fit.tuned_per_second) {
            complain(&format!("lab: {fit}"));
        }
        Ok(())
    }

    fn note_overload(&mut self, measured: &Measured) {
        if let Some(overload) = measured.overload() {
            complain(&format!("lab: {overload}"));
            self.tried.push(overload);
        }
    }

    /// Starts the servers anew with limits of another size.
    fn rescale(&mut self, scale: Scale) -> Result<()> {
        self.start_anew(self.tuned.scaled(scale))
    }

    /// Ends the servers and starts them with these limits, warmed up without quotas.
    pub(super) fn start_anew(&mut self, config: LabConfig) -> Result<()> {
        self.stop_servers()?;
        self.config = config;
        self.place_servers()?;
        self.set_network_limits()?;
        self.start_servers()?;
        self.warm_up()?;
        self.set_quotas()
    }

    /// Sends the warm-up's requests, a few users first, and returns a first guess at the capacity. Where requests fail, it waits for
    /// what is left of them and goes on with fewer users.
    fn warm_up(&mut self) -> Result<f64> {
        let mut most = self.config.web.workers.min(self.config.app.workers);
        let mut capacity = f64::INFINITY;
        for (users, share) in WARM_UP {
            let users = users.min(most);
            let (before, moment) = (self.truth()?, self.moment()?);
            let plan = LoadPlan {
                mode: Mode::Closed { users, think_ms: 0 },
                requests_max: Some((f64::from(self.config.warm_up_requests) * share) as u64),
                duration_ms: WARM_UP_STEP_MS,
                timeout_ms: TIMEOUT_MS,
                ..LoadPlan::default()
            };
            let summary = self.load(&plan)?.wait()?.summary;
            let machine = moment.until(&self.moment()?);
            capacity = self.capacity_of(&before, summary.sent)?.1;
            if summary.failed <= summary.sent / 100 {
                continue;
            }
            let said = format!(
                "the warm-up with {users} users at once: {} of {} requests failed; {machine}",
                summary.failed, summary.sent
            );
            most = users / 2;
            if most < 4 {
                bail!("{said}; {}; the servers' logs are in {}", machine.shortage(), self.folder().display());
            }
            complain(&format!("lab: {said}: going on with {most}"));
            self.tried.push(said);
            self.drain()?;
        }
        Ok(capacity)
    }

    /// Waits until nothing is left of a load that was too much: queues are empty, and no client's retry is refused any more.
    pub fn drain(&self) -> Result<()> {
        self.wait_until_queued("the queues to be empty after a load that was too much", 0, CALM_MAX)
    }

    /// Waits until a load that goes on is served again: nothing is dropped, and no queue is left of a stall.
    pub fn wait_until_served(&self, longest: Duration) -> Result<()> {
        self.wait_until_queued("the load to be served again", QUEUED_SERVED, longest)
    }

    fn wait_until_queued(&self, what: &str, most: u64, longest: Duration) -> Result<()> {
        let refused = |lab: &Lab| -> Result<(u64, u64)> {
            let truth = lab.truth()?;
            let tiers = || lab.homes().map(|handle| truth.tier(handle.tier));
            Ok((tiers().map(|tier| tier.listen_drops).sum(), tiers().map(|tier| tier.accept_queue).sum()))
        };
        let (mut drops, _) = refused(self)?;
        let (mut since, mut looks, mut waited) = (Instant::now(), 0, 0);
        wait_for(what, longest, || {
            let (now, queued) = refused(self)?;
            (looks, waited) = (looks + 1, waited + queued);
            let calm = since.elapsed() >= CALM;
            // Where all workers are busy some wait all the time.
            let stands = calm && waited > looks * QUEUED_STANDS;
            if now != drops || queued > most || stands {
                (drops, since, looks, waited) = (now, Instant::now(), 0, 0);
                return Ok(None);
            }
            Ok(calm.then_some(()))
        })
    }

    pub(super) fn moment(&self) -> Result<Moment> {
        Moment::now(self.ground.top().cpu_usage_ns()?, &self.ground.top().pids())
    }

    /// Sends a load for [`MEASURED_MS`], and waits for the end of what it did.
    fn measure(&self, rate_per_second: f64) -> Result<Measured> {
        let (before, moment) = (self.truth()?, self.moment()?);
        let mode = Mode::Open { rate_per_second };
        let plan = LoadPlan { timeout_ms: TIMEOUT_MS, ..LoadPlan::new(mode, MEASURED_MS) };
        let summary = self.load(&plan)?.wait()?.summary;
        let machine = moment.until(&self.moment()?);
        let (busiest, capacity_per_second) = self.capacity_of(&before, summary.sent)?;
        let used = self.truth()?.since(&before);
        let dropped = self.homes().map(|handle| used.tier(handle.tier).listen_overflows).sum();
        let measured = Measured { rate_per_second, capacity_per_second, busiest, dropped, summary, machine };
        if measured.overload().is_some() {
            self.drain()?;
        }
        Ok(measured)
    }

    /// The busiest tier, and the requests a second at which it would use all of its quota, by what was used since `before`.
    fn capacity_of(&self, before: &super::Truth, sent: u64) -> Result<(Tier, f64)> {
        let used = self.truth()?.since(before);
        let of = |handle: &TierHandle| {
            let seconds = used.tier(handle.tier).cpu_usage_ns as f64 / 1e9;
            (handle.tier, self.config.limits(handle.tier).cores * sent as f64 / seconds.max(1e-3))
        };
        let least = self.homes().map(of).min_by(|a, b| a.1.total_cmp(&b.1));
        Ok(least.unwrap_or((Tier::Web, f64::INFINITY)))
    }

    /// Requests a second at which the busiest tier would use all of its CPU, measured now at half the default load.
    pub fn capacity(&self) -> Result<f64> {
        Ok(self.measure(self.rate_per_second / 2.0)?.capacity_per_second)
    }

    /// Requests a second of the default load: [`scenario::rate_per_second`], less where the machine bears less.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.rate_per_second
    }

    /// How the lab was made to fit the machine; none if it was not warmed up.
    #[must_use]
    pub fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    /// The default load, for so long.
    #[must_use]
    pub fn default_load(&self, duration_ms: u64) -> LoadPlan {
        self.part_of_default_load(1.0, duration_ms)
    }

    /// This part of it, for so long.
    #[must_use]
    pub fn part_of_default_load(&self, part: f64, duration_ms: u64) -> LoadPlan {
        LoadPlan::new(Mode::Open { rate_per_second: part * self.rate_per_second }, duration_ms)
    }
}

fn too_slow(next: f64, tuned: f64, measured: &Measured) -> Result<()> {
    bail!(
        "the lab needs a machine that serves {:.0} requests a second and this one serves {next:.0} (the {} tier could do {:.0}, p99 {} ms): {}",
        SHARE_MIN * tuned,
        measured.busiest.name(),
        measured.capacity_per_second,
        measured.summary.p99_us / 1000,
        measured.machine.shortage()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose busiest tier can serve `capacity`, and that serves no more than `supply` in all.
    fn measured(rate: f64, capacity: f64, supply: f64) -> Measured {
        let lab_cores = rate / 1000.0;
        let machine = Spell { cpus: 2, steal_ratio: 0.0, lab_cores, other_cores: 0.2, busiest: None };
        let p99_us = if rate > supply { 900_000 } else { 20_000 };
        Measured {
            rate_per_second: rate,
            capacity_per_second: capacity,
            busiest: Tier::App,
            dropped: if rate > 1.2 * supply { 70 } else { 0 },
            summary: Summary { sent: 100, p99_us, ..Summary::default() },
            machine,
        }
    }

    /// The load that a search ends with, and how many measurements it took.
    fn found(first: f64, capacity: f64, supply: f64) -> (f64, u32) {
        let (mut search, mut rate) = (Search::new(1000.0), first);
        for count in 1..=MEASURED_MAX {
            match search.next(&measured(rate, capacity, supply)) {
                Next::Keep => return (rate, count),
                Next::Measure(next) => rate = next,
            }
        }
        panic!("no end: {search:?}");
    }

    #[test]
    fn a_machine_as_the_tuned_one_is_measured_once() {
        assert_eq!(found(1000.0, 1750.0, 5000.0), (1000.0, 1));
        // The warm-up's guess was far too low.
        assert_eq!(found(500.0, 1750.0, 5000.0), (1000.0, 2));
        let (rate, _) = found(1000.0, 1300.0, 5000.0);
        assert!((rate - 780.0).abs() < 0.1, "{rate}");
    }

    #[test]
    fn a_machine_that_is_full_without_a_full_tier_bears_less() {
        let mut full = measured(1000.0, 1750.0, 5000.0);
        full.machine.lab_cores = 1.6;
        assert_eq!(Search::new(1000.0).next(&full), Next::Measure(0.7 * 1000.0 * 1.8 / 1.6));
        full.machine.lab_cores = 1.2;
        assert_eq!(Search::new(1000.0).next(&full), Next::Keep);
        full.machine.steal_ratio = 0.3;
        assert_eq!(Search::new(1000.0).next(&full), Next::Measure(0.7 * 1000.0 * (2.0 * 0.7 - 0.2) / 1.2));
    }

    #[test]
    fn a_slow_machine_and_one_that_is_not_to_be_had_end_below_what_they_bear() {
        for slower in [2.0, 3.0] {
            let (rate, count) = found(1000.0, 1750.0 / slower, 5000.0);
            assert!((rate - 0.6 * 1750.0 / slower).abs() < 1.0 && count <= 2, "{rate} after {count}");
        }
        for supply in [900.0, 600.0, 350.0] {
            let (rate, count) = found(1000.0, 1750.0, supply);
            assert!(rate <= supply && rate > 0.6 * supply, "{rate} of {supply}");
            assert!(count <= 7, "{count} measurements for {supply}");
        }
    }

    #[test]
    fn a_load_that_was_kept_is_measured_once_and_given_up_where_the_machine_bears_much_more_or_less() {
        let kept = |requests, cores| Kept { boot_id: String::new(), rate_per_second: 600.0, requests, cores };
        // Limits were made for it: no more is asked of them.
        let mut search = Search::kept(1000.0, &kept(0.6, 0.8));
        let as_it_was = measured(600.0, 1000.0, 5000.0);
        assert!(!search.is_outgrown(&as_it_was));
        assert_eq!(search.next(&as_it_was), Next::Keep);
        // Faster by half: the next lab would be as small again and again.
        let faster = measured(600.0, 1500.0, 5000.0);
        assert!(Search::kept(1000.0, &kept(0.6, 0.8)).is_outgrown(&faster));
        assert!(Search::kept(1000.0, &kept(0.6, 1.0)).is_outgrown(&faster));
        assert!(!search.is_outgrown(&faster), "only the first measurement is of the load that was kept");
        // With the tuned limits a larger load can be found.
        let mut search = Search::kept(1000.0, &kept(1.0, 1.0));
        assert!(!search.is_outgrown(&faster));
        assert_eq!(search.next(&faster), Next::Measure(900.0));
        // Slower: as any load that is too much.
        let slower = measured(600.0, 600.0, 5000.0);
        let mut search = Search::kept(1000.0, &kept(0.6, 0.8));
        assert!(!search.is_outgrown(&slower));
        assert_eq!(search.next(&slower), Next::Measure(360.0));
    }

    #[test]
    fn one_stall_lowers_nothing_and_two_do() {
        let mut search = Search::new(1000.0);
        let stalled = measured(1000.0, 1750.0, 700.0);
        assert_eq!(search.next(&stalled), Next::Measure(1000.0));
        assert_eq!(search.next(&stalled), Next::Measure(750.0));
        // It does not come back to what was too much.
        assert_eq!(search.next(&measured(750.0, 1750.0, 5000.0)), Next::Keep);
    }

    #[test]
    fn a_machine_is_too_slow_when_two_measurements_say_so() {
        let mut search = Search::new(1000.0);
        assert!(!search.gives_up() && search.gives_up());
    }

    #[test]
    fn what_was_too_much_and_what_is_lacking_are_one_sentence_each() {
        let mut too_much = measured(1000.0, 1750.0, 700.0);
        too_much.machine.steal_ratio = 0.31;
        assert_eq!(
            too_much.overload().unwrap(),
            "1000 requests a second were too many: 70 packets were dropped, and sent again; steal 31 %, other programs 0.2 of 2 CPUs"
        );
        let error = too_slow(120.0, 1000.0, &too_much).unwrap_err().to_string();
        assert_eq!(
            error,
            "the lab needs a machine that serves 150 requests a second and this one serves 120 (the app tier could do 1750, p99 900 ms): \
             the hypervisor took 31 % of this machine's CPU for others: try again when they are quiet, or on another machine"
        );
    }
}
