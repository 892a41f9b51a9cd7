//! Scales and their ticks.

use crate::format::significant;

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    /// Empty for a mark between those with a number.
    pub(super) label: String,
}

/// A scale from values to pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
    pub(super) ticks: Vec<Tick>,
}

impl Scale {
    /// A scale from 0 to `high`, with about `count` ticks.
    pub(super) fn linear(high: f64, from: f64, to: f64, count: usize) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = step(high / count.max(1) as f64);
        let n = (high / step + 1e-9).floor();
        let tick = |i: u32| {
            let value = f64::from(i) * step;
            Tick { value, label: significant(value, 6) }
        };
        Scale { low: 0.0, high, from, to, log: false, ticks: (0..=n as u32).map(tick).collect() }
    }

    /// A scale around 100 %, from at most `low` to at least `high`, ticks on both sides.
    pub(super) fn around(low: f64, high: f64, from: f64, to: f64) -> Self {
        let reach = (100.0 - low).max(high - 100.0);
        let reach = if reach.is_finite() { reach.clamp(0.1, 1e6) * 1.05 } else { 1.0 };
        let step = step(reach / 4.0);
        let tick =
            |i: i32| Tick { value: 100.0 + f64::from(i) * step, label: significant(100.0 + f64::from(i) * step, 6) };
        let ticks = (-4..=4).map(tick).filter(|t| (t.value - 100.0).abs() <= reach).collect();
        Scale { low: 100.0 - reach, high: 100.0 + reach, from, to, log: false, ticks }
    }

    /// A logarithmic scale from at most `low` to at least `high`, ticks at 1, 2, 5 of each decade.
    pub(super) fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = if low.is_finite() { low.clamp(1e-6, 1e15) } else { 1e-6 };
        let high = if high.is_finite() { high.clamp(low, 1e15) } else { low };
        let steps: Vec<f64> = (-6..=15).flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(decade))).collect();
        // a little beyond a tick is not worth another step
        let first = steps.iter().rposition(|&s| s <= low * 1.001).unwrap_or(0);
        let last = steps.iter().position(|&s| s >= high * 0.999).unwrap_or(steps.len() - 1).max(first + 1);
        let wide = steps[last] / steps[first] > 3000.0;
        let tick = |&value: &f64| {
            let whole = (value.log10() - value.log10().round()).abs() < 1e-9;
            Tick { value, label: if wide && !whole { String::new() } else { significant(value, 2) } }
        };
        let ticks = steps[first..=last].iter().map(tick).collect();
        Scale { low: steps[first], high: steps[last], from, to, log: true, ticks }
    }

    /// The pixel of a value; values beyond the scale are at its ends.
    pub(super) fn px(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The largest value.
    pub(super) fn high(&self) -> f64 {
        self.high
    }
}

/// The step of 1, 2, 2.5 or 5 times a power of ten that is not below `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let m = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * power >= least * (1.0 - 1e-9)).unwrap_or(10.0);
    m * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(s: &Scale) -> Vec<&str> {
        s.ticks.iter().map(|t| t.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Scale::linear(14.88, 0.0, 1.0, 5)), ["0", "5", "10"]);
        assert_eq!(labels(&Scale::linear(0.3, 0.0, 1.0, 6)), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(&Scale::log(3.2, 180.0, 0.0, 1.0)), ["2", "5", "10", "20", "50", "100", "200"]);
        assert_eq!(labels(&Scale::log(7.0, 7.0, 0.0, 1.0)), ["5", "10"]);
    }

    proptest! {
        #[test]
        fn values_stay_on_the_scale_and_in_order(a in 1e-9..1e18f64, b in 1e-9..1e18f64) {
            let (low, high) = (a.min(b), a.max(b));
            for scale in [Scale::linear(high, 300.0, 10.0, 5), Scale::log(low, high, 300.0, 10.0)] {
                let (l, h) = (scale.px(low), scale.px(high));
                prop_assert!((10.0..=300.0).contains(&l) && (10.0..=300.0).contains(&h) && l >= h);
                prop_assert!(scale.ticks.len() >= 2 && scale.ticks.len() < 70);
            }
        }
    }
}
