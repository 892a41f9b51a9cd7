//! Searches on a thousand simulated devices with known results.
//!
//! A device without noise has one correct result: the highest load that meets the goal. A noisy device has none: a load
//! near the limit meets the goal in some measurements and not in others. The correct results are the span of loads from
//! the one that meets the goal with a probability of 99 % in full-length trials to the one with 1 %; a result is
//! correct if its bounds, apart by at most the width of the goal, touch that span.

use crate::HOST;
use bench::simulated::Simulated;
use bench::{Goal, GoalResult, LimitedBy, Limits, Next, SearchKind};
use traffic::random::Random;

const TOP: f64 = 14_880_952.0;
/// Fewer devices without optimisation.
const DEVICES: u64 = if cfg!(debug_assertions) { 100 } else { 1000 };

/// Runs a search; returns the result, the number of trials, and the seconds of traffic.
fn find(kind: SearchKind, goal: Goal, mut device: Simulated) -> (GoalResult, usize, f64) {
    let mut search = kind.start(goal, Limits::new(1000.0, TOP).unwrap()).unwrap();
    loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => search.record(device.offer(load_pps, duration_s)).unwrap(),
            Next::Done(summary) => return (summary.results[0].clone(), summary.trials, summary.traffic_s),
        }
    }
}

/// Draws a rate from 20 thousand to 14 million, uniformly on a logarithmic scale.
fn rate(random: &mut Random) -> f64 {
    (2e4_f64.ln() + random.unit() * (14e6_f64 / 2e4).ln()).exp()
}

fn exact(seed: u64) -> Simulated {
    let mut random = Random::new(seed);
    let (capacity, buffer) = (rate(&mut random), random.below(5000));
    let buffer = if random.below(2) == 0 { 0 } else { buffer };
    format!("capacity={capacity},buffer={buffer},seed={seed}").parse().unwrap()
}

/// Adds trials that lose a packet at random, unless the goal is strict: no load would meet it.
fn noisy(seed: u64, goal: &Goal) -> Simulated {
    let mut random = Random::new(seed);
    let capacity = rate(&mut random);
    let noise = ["uniform:0.03", "normal:0.01", "modes:0.02", "uniform:0.1", "normal:0.03"][random.below(5) as usize];
    let strict = goal.loss_ratio() == 0.0 && goal.exceed_ratio() == 0.0;
    let flaw = if strict { 0.0 } else { [0.0, 0.05, 0.1][random.below(3) as usize] };
    format!("capacity={capacity},noise={noise},flaw={flaw},seed={seed}").parse().unwrap()
}

fn goals() -> Vec<(&'static str, Goal)> {
    let names = ["quick", "ndr", "pdr", "rfc2544", "tst009", "zero10", "loss001"];
    names.into_iter().map(|name| (name, name.parse().unwrap())).collect()
}

fn kinds() -> Vec<SearchKind> {
    ["mlr", "binary", "verified,r=2", "verified,r=3,z=5000"].into_iter().map(|text| text.parse().unwrap()).collect()
}

/// Score of a search on all devices.
#[derive(Default)]
struct Score {
    /// Sum of the spans' widths, each as a share of its upper end.
    span: f64,
    right: u32,
    below: u32,
    above: u32,
    trials: usize,
    seconds: f64,
}

impl Score {
    fn take(&mut self, span: (f64, f64), found: &GoalResult, trials: usize, seconds: f64) {
        let (lower, upper) = (found.lower_pps.unwrap_or(0.0), found.upper_pps.unwrap_or(TOP));
        match (lower > span.1, upper < span.0) {
            (true, _) => self.above += 1,
            (_, true) => self.below += 1,
            _ => self.right += 1,
        }
        self.span += (span.1 - span.0) / span.1;
        self.trials += trials;
        self.seconds += seconds;
    }

    fn line(&self, what: &str) {
        let each = DEVICES as f64;
        println!(
            "{what:34} right {:5.1} %  below {:4.1} %  above {:4.1} %  of {:4.1} %  {:6.1} trials  {:8.1} s",
            f64::from(self.right) / each * 100.0,
            f64::from(self.below) / each * 100.0,
            f64::from(self.above) / each * 100.0,
            self.span / each * 100.0,
            self.trials as f64 / each,
            self.seconds / each,
        );
    }
}

#[test]
fn a_thousand_devices_without_noise() {
    let _lock = HOST.read().unwrap_or_else(|e| e.into_inner());
    for (name, goal) in goals() {
        let mut seconds = vec![];
        for kind in kinds() {
            let mut score = Score::default();
            for seed in 0..DEVICES {
                let device = exact(seed);
                let (found, trials, time) = find(kind, goal, device.clone());
                // the buffer absorbs more in shorter trials, never less, so the final duration determines the result
                let right = device.expected_throughput(kind, &goal, 0.5, TOP);
                assert!(found.regular && found.remarks.is_empty(), "{kind} {name} {device}: {found:?}");
                let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
                // the packets that a short trial may lose are rounded down
                let is_below = right < upper || goal.loss_ratio() > 0.0 && right == upper;
                assert!(lower <= right && is_below, "{kind} {name} {device}: {lower}..{upper} without {right}");
                assert!(upper - lower <= (goal.width() * upper).max(1.0), "{kind} {name} {device}: {lower}..{upper}");
                assert_eq!(found.limited_by, LimitedBy::Device);
                score.take((right, right), &found, trials, time);
            }
            score.line(&format!("{name} by {kind}"));
            assert_eq!(u64::from(score.right), DEVICES);
            seconds.push(score.seconds);
        }
        // for the same goal, and so the same duration sum
        println!("{name}: mlr takes {:.0} % of the time of binary", seconds[0] / seconds[1] * 100.0);
        assert!(seconds[0] < seconds[1], "{name}: {seconds:?}");
    }
}

#[test]
fn a_thousand_noisy_devices() {
    let _lock = HOST.read().unwrap_or_else(|e| e.into_inner());
    for (name, goal) in goals() {
        for kind in kinds() {
            let mut score = Score::default();
            for seed in 0..DEVICES {
                let device = noisy(seed, &goal);
                let (found, trials, time) = find(kind, goal, device.clone());
                let span = (
                    device.expected_throughput(kind, &goal, 0.99, TOP),
                    device.expected_throughput(kind, &goal, 0.01, TOP) + 1.0,
                );
                score.take(span, &found, trials, time);
            }
            score.line(&format!("{name} by {kind}"));
            assert!(u64::from(score.right) * 100 >= DEVICES * 95, "{name} by {kind}");
        }
    }
}

/// A search that fails a load after one trial with loss is often wrong, so that the tests above are meaningful.
#[test]
fn a_hasty_search_is_often_wrong() {
    let _lock = HOST.read().unwrap_or_else(|e| e.into_inner());
    let goal: Goal = "ndr".parse().unwrap();
    let hasty = goal.with_exceed_ratio(0.0).unwrap();
    let binary = SearchKind::Binary { step_pps: None };
    let mut score = Score::default();
    for seed in 0..DEVICES {
        let device = noisy(seed, &goal);
        let span = (
            device.expected_throughput(binary, &goal, 0.99, TOP),
            device.expected_throughput(binary, &goal, 0.01, TOP) + 1.0,
        );
        let (found, trials, time) = find(binary, hasty, device);
        score.take(span, &found, trials, time);
    }
    score.line("ndr by one bad trial");
    assert!(u64::from(score.right) * 100 < DEVICES * 60);
}

#[test]
fn a_starved_generator_is_always_the_limit() {
    let _lock = HOST.read().unwrap_or_else(|e| e.into_inner());
    for (name, goal) in goals() {
        for kind in kinds() {
            for seed in 0..100 {
                let mut starved = exact(seed);
                starved.generator_pps = starved.capacity_pps * 0.7;
                let (found, ..) = find(kind, goal, starved.clone());
                assert_eq!(found.limited_by, LimitedBy::Generator, "{kind} {name} {starved}");
                let limit = starved.generator_pps / (1.0 - goal.loss_ratio());
                let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
                assert!(lower <= limit + 25.0 && upper >= limit - 1.0, "{kind} {name} {starved}: {lower}..{upper}");
            }
        }
    }
}
