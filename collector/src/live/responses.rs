//! Response times of some listeners over time: the counts by bucket of as many windows as a point stands for are added up before a quantile is
//! read from them, as quantiles themselves cannot be. Of windows in memory alone: what is kept on disk has no such counts. Knows no HTTP.

use super::series::{PIECE_WINDOWS, Series};
use super::view::{Query, Selected};
use crate::columns::Kind;
use std::sync::Mutex;
use tailwater_model::responses::{Against, Count, Histogram};
use tailwater_model::window::{HostWindow, SignalSet, WindowIndex};

/// Whose listeners.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// Host.
    pub host: &'a str,
    /// Name of a workload; `None`: all of the host.
    pub workload: Option<&'a str>,
    /// `address:port`; `None`: all of them.
    pub listener: Option<&'a str>,
}

/// Several windows as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answers {
    /// Windows behind it, of each host that was asked for its own; the others are missing, and did not count zero.
    pub windows: u32,
    /// What was answered in them.
    pub by_time: Histogram,
    /// The same, held against the threshold that was asked for.
    pub against: Against,
}

impl Answers {
    /// With what was answered in further windows.
    fn add(&mut self, more: &Self) {
        self.windows = self.windows.saturating_add(more.windows);
        self.by_time.merge(&more.by_time);
        self.against.merge(&more.against);
    }
}

/// Response times over a span.
#[derive(Debug)]
pub struct Responses {
    /// The whole span.
    pub whole: Answers,
    /// Parts of it, rising, each with its first window; parts of which no window is there are left out.
    pub points: Vec<(WindowIndex, Answers)>,
}

/// What all of `whose` answered in `[first, last]`, as at most so many points, and how many of the answers took `within_ns` at most.
#[must_use]
pub fn responses(
    series: &Mutex<Series>,
    whose: &[Whose<'_>],
    (first, last): (WindowIndex, WindowIndex),
    max_points: usize,
    within_ns: u64,
) -> Responses {
    let max_points = max_points.max(1);
    let step = last.0.saturating_sub(first.0).saturating_add(1).div_ceil(max_points as u64).max(1);
    let mut whole = Answers::default();
    let mut points = vec![Answers::default(); max_points];
    for of in whose {
        Series::pieces(PIECE_WINDOWS, series, of.host, (first, last), |part| {
            let query = Query { host: of.host, workload: of.workload, listener: of.listener, metric: "" };
            let Some(selected) = part.with_names(of.host, |names| Selected::of(names, query)) else { return };
            // Nothing listens there that this could be of: that is no silence.
            if selected.ids.as_ref().is_some_and(|ids| ids.listeners.is_empty()) {
                return;
            }
            part.windows(of.host, |window| {
                let place = window.index.0.checked_sub(first.0).and_then(|n| usize::try_from(n / step).ok());
                let Some(point) = place.and_then(|n| points.get_mut(n)) else { return };
                if let Some(answers) = of_window(&selected, window, within_ns) {
                    point.add(&answers);
                    whole.add(&answers);
                }
            });
        });
    }
    told_where_answered(&mut points);
    let starts = (0_u64..).map(|n| WindowIndex(first.0.saturating_add(n.saturating_mul(step))));
    let points = starts.zip(points).filter(|(_, answers)| answers.windows > 0).collect();
    Responses { whole, points }
}

/// An answer that ends late is found so in a later window than the one that counts it: what a point has beyond its own answers is of the nearest ones
/// before it that have room. What is of answers from before the span stays out of the points.
fn told_where_answered(points: &mut [Answers]) {
    let mut owed = 0_u64;
    for Answers { against, .. } in points.iter_mut().rev() {
        let longer = against.longer.saturating_add(owed);
        owed = longer.saturating_sub(against.counted);
        against.longer = longer - owed;
    }
}

/// What was answered in a window. `None`: that is not known.
fn of_window(selected: &Selected, window: &HostWindow, within_ns: u64) -> Option<Answers> {
    let requests = SignalSet::of(["requests"]);
    if window.uncovered.meets(requests) || window.sampled.meets(requests) {
        return None;
    }
    let view = selected.view(window, &[Kind::Listener]);
    let of = &view.listen;
    let longer = window.longer_than(of, within_ns);
    let mut answers = Answers { windows: 1, ..Answers::default() };
    let mut add = |counts: &[Count]| {
        answers.by_time.add(counts);
        // Those that took longer are told of all listeners together: once, below.
        answers.against.add(counts, longer.map(|_| 0), within_ns);
    };
    match &selected.ids {
        None => add(window.responses.all()),
        Some(ids) => ids.listeners.iter().for_each(|id| add(window.responses.of(*id))),
    }
    answers.against.longer = longer.unwrap_or(0);
    if of.turns().is_none() {
        // What came is mostly on connections with several exchanges at once. Where nothing was answered on others, an answer of before may have
        // ended late: that is no window of which requests are known, and is told of the one that counts the answer.
        let ends = answers.by_time.answers() == 0 && answers.against.longer > 0;
        return ends.then_some(Answers { windows: 0, ..answers });
    }
    // Answers without their times: whoever recorded them told none.
    (of.answered == 0 || answers.by_time.answers() > 0).then_some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tailwater_model::responses::{Quantile, Share};
    use tailwater_model::window::{Input, ListenerInfo, ListenerWindow, WorkloadInfo};

    fn named(host: &str) -> Input {
        let listener = |id, port| ListenerInfo {
            id,
            workload: 3,
            address: [0, 0, 0, 0].into(),
            port,
            path: None,
            comm: String::new(),
            pool: None,
            started_with: 0,
            pid: 0,
        };
        Input::Entities {
            host: host.into(),
            workloads: vec![WorkloadInfo { id: 3, name: "nginx".into(), ..WorkloadInfo::default() }],
            listeners: vec![listener(1, 80), listener(2, 81)],
            edges: vec![],
            devices: vec![],
        }
    }

    /// Answers by listener and bucket.
    fn window(host: &str, index: u64, counted: &[(u32, usize, u64)]) -> HostWindow {
        let mut w = HostWindow { host: host.into(), index: WindowIndex(index), ..HostWindow::default() };
        for (listener, bucket, answers) in counted {
            w.responses.add(*listener, *bucket, *answers);
            w.listeners.entry(*listener).or_default().answered += answers;
        }
        w
    }

    fn series(windows: Vec<HostWindow>) -> Mutex<Series> {
        let mut series = Series::new(10, 1 << 26);
        for host in ["web-1", "web-2"] {
            series.saw(&named(host));
        }
        for w in windows {
            series.saw(&Input::Window(Arc::new(w)));
        }
        Mutex::new(series)
    }

    const WEB_1: Whose<'_> = Whose { host: "web-1", workload: Some("nginx"), listener: None };

    fn asked(series: &Mutex<Series>, whose: &[Whose<'_>], last: u64, max_points: usize) -> Responses {
        responses(series, whose, (WindowIndex(100), WindowIndex(last)), max_points, 500_000_000)
    }

    #[test]
    fn a_point_is_of_the_sum_of_its_windows_and_not_of_their_quantiles() {
        // 99 quick answers in one window, one that stood in the next.
        let series = series(vec![window("web-1", 100, &[(1, 12, 99)]), window("web-1", 101, &[(1, 23, 1)])]);
        let each = asked(&series, &[WEB_1], 101, 20);
        let p50: Vec<_> = each.points.iter().map(|(_, a)| a.by_time.quantile(0.5)).collect();
        assert!(matches!(p50.as_slice(), [Some(Quantile::At(_)), Some(Quantile::Above(_))]), "{p50:?}");
        let both = asked(&series, &[WEB_1], 101, 1);
        let [(WindowIndex(100), answers)] = both.points.as_slice() else { panic!("{both:?}") };
        // The 50th of the 99 that lie between 4.096 ms and 8.192 ms.
        let Some(Quantile::At(ms)) = answers.by_time.quantile(0.5) else { panic!("{answers:?}") };
        assert!(answers.windows == 2 && (ms - 6.1647).abs() < 0.001, "{ms}");
        assert_eq!(both.whole, *answers);
    }

    #[test]
    fn silence_is_a_point_without_answers_and_what_is_not_known_is_none() {
        let mut uncovered = window("web-1", 101, &[(1, 4, 1)]);
        uncovered.uncovered = SignalSet::of(["requests"]);
        let mut untold = window("web-1", 102, &[]);
        untold.listeners.insert(1, ListenerWindow { answered: 5, ..ListenerWindow::default() });
        let mut multiplexed = window("web-1", 103, &[(1, 4, 1)]);
        let http2 = ListenerWindow { multiplexed_connections: 4, open_max: 4, ..ListenerWindow::default() };
        multiplexed.listeners.insert(1, http2);
        let silent = window("web-1", 105, &[]);
        let series = series(vec![uncovered, untold, multiplexed, silent]);
        let got = asked(&series, &[WEB_1], 110, 100);
        let [(WindowIndex(105), answers)] = got.points.as_slice() else { panic!("{got:?}") };
        assert_eq!((answers.windows, answers.by_time.answers()), (1, 0));
    }

    #[test]
    fn the_share_within_a_threshold_is_a_number_of_those_hosts_whose_agents_count_by_it() {
        // 262 ms to 524 ms, of two listeners; two and one of theirs took longer than 500 ms.
        let mut counted = window("web-1", 100, &[(1, 18, 7), (2, 18, 3)]);
        counted.late_ms = [500, 3_000];
        for (id, late) in [(1, 2), (2, 1)] {
            counted.listeners.entry(id).or_default().late = Some(late);
        }
        let other = window("web-2", 100, &[(1, 18, 5)]);
        let series = series(vec![counted, other]);
        let held = |whose: &[Whose<'_>]| {
            let held = asked(&series, whose, 100, 9).whole.against.held();
            (held.surely, held.perhaps, held.not)
        };
        assert_eq!(held(&[WEB_1]), (7, 0, 3));
        assert_eq!(held(&[Whose { listener: Some("10.0.0.1:80"), ..WEB_1 }]), (5, 0, 2));
        assert_eq!(held(&[WEB_1, Whose { host: "web-2", ..WEB_1 }]), (7, 5, 3));
        let at_300 = responses(&series, &[WEB_1], (WindowIndex(100), WindowIndex(100)), 1, 300_000_000);
        assert_eq!(at_300.whole.against.held().perhaps, 10, "of another threshold they count nothing");
    }

    #[test]
    fn an_answer_that_is_found_late_in_a_later_point_is_late_in_the_one_that_counts_it() {
        let with_late = |index, answers, late| {
            let mut w = window("web-1", index, &[(1, 4, answers)]);
            w.late_ms = [500, 3_000];
            w.listeners.entry(1).or_default().late = Some(late);
            w
        };
        let shares = |windows| {
            let got = asked(&series(windows), &[WEB_1], 130, 31);
            let shares =
                got.points.iter().map(|(_, a)| Share::of(&a.against.held()).map(|share| share.least));
            (shares.collect::<Vec<_>>(), got.whole.against.held().not)
        };
        assert_eq!(shares(vec![with_late(110, 1, 0), with_late(120, 0, 1)]), (vec![Some(0.0), None], 1));
        // More than the nearest point answered is of the one before that.
        let several = vec![with_late(100, 4, 0), with_late(110, 2, 0), with_late(120, 0, 3)];
        assert_eq!(shares(several), (vec![Some(0.75), Some(0.0), None], 3));
        assert_eq!(shares(vec![with_late(120, 0, 1)]), (vec![None], 0), "of an answer before the span");
        // Meanwhile there are exchanges on other connections alone: of that window nothing else is known.
        let mut http2 = with_late(120, 0, 1);
        let row = http2.listeners.entry(1).or_default();
        (row.multiplexed_connections, row.pieces_in, row.open_max) = (1, 5, 2);
        assert_eq!(shares(vec![with_late(110, 1, 0), http2]), (vec![Some(0.0)], 1));
    }

    #[test]
    fn a_listener_a_workload_and_a_tier_of_two_hosts_have_their_own_answers() {
        let series =
            series(vec![window("web-1", 100, &[(1, 3, 5), (2, 4, 7)]), window("web-2", 100, &[(1, 3, 11)])]);
        let answers = |whose: &[Whose<'_>]| {
            let whole = asked(&series, whose, 100, 9).whole;
            (whole.windows, whole.by_time.counts[3], whole.by_time.counts[4])
        };
        assert_eq!(answers(&[Whose { listener: Some("10.0.0.1:81"), ..WEB_1 }]), (1, 0, 7));
        assert_eq!(answers(&[WEB_1]), (1, 5, 7));
        assert_eq!(answers(&[Whose { workload: None, ..WEB_1 }]), (1, 5, 7));
        assert_eq!(answers(&[WEB_1, Whose { host: "web-2", ..WEB_1 }]), (2, 16, 7));
        assert_eq!(answers(&[Whose { host: "web-3", ..WEB_1 }]), (0, 0, 0));
    }

    #[test]
    fn a_span_of_more_windows_than_are_taken_at_once_is_read_whole() {
        let count = 2 * PIECE_WINDOWS as u64 + 5;
        let series = series((0..count).map(|n| window("web-1", 100 + n, &[(1, 2, 1)])).collect());
        let got = asked(&series, &[WEB_1], 99 + count, 7);
        assert_eq!((got.whole.by_time.answers(), got.points.len()), (count, 7));
        let windows: u64 = got.points.iter().map(|(_, answers)| u64::from(answers.windows)).sum();
        assert_eq!(windows, count);
    }
}
