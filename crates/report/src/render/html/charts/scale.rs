//! Axis scales and ticks.

use crate::render::format::significant;

/// A tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    /// Empty for a minor tick.
    pub(crate) label: String,
}

/// A mapping from values to pixels.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
    pub(crate) ticks: Vec<Tick>,
}

impl Scale {
    /// Returns a linear scale from 0 to `high` with about `count` ticks.
    pub(crate) fn linear(high: f64, from: f64, to: f64, count: usize) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = step(high / count.max(1) as f64);
        let n = (high / step + 1e-9).floor();
        let tick = |i: u32| {
            let value = f64::from(i) * step;
            Tick { value, label: significant(value, 6) }
        };
        Scale { low: 0.0, high, from, to, log: false, ticks: (0..=n as u32).map(tick).collect() }
    }

    /// Returns a linear scale symmetric around 100 % that includes `low` and `high`.
    pub(crate) fn around_100(low: f64, high: f64, from: f64, to: f64) -> Self {
        let extent = (100.0 - low).max(high - 100.0);
        let extent = if extent.is_finite() { extent.clamp(0.1, 1e6) * 1.05 } else { 1.0 };
        let step = step(extent / 4.0);
        let tick =
            |i: i32| Tick { value: 100.0 + f64::from(i) * step, label: significant(100.0 + f64::from(i) * step, 6) };
        let ticks = (-4..=4).map(tick).filter(|t| (t.value - 100.0).abs() <= extent).collect();
        Scale { low: 100.0 - extent, high: 100.0 + extent, from, to, log: false, ticks }
    }

    /// Returns a logarithmic scale that includes `low` and `high`, with ticks at 1, 2, 5 of each decade.
    pub(crate) fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = if low.is_finite() { low.clamp(1e-6, 1e15) } else { 1e-6 };
        let high = if high.is_finite() { high.clamp(low, 1e15) } else { low };
        let steps: Vec<f64> = (-6..=15).flat_map(|decade| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(decade))).collect();
        // tolerate values slightly beyond a tick
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

    /// Returns the pixel of a value; values beyond the scale are clamped.
    pub(crate) fn px(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Returns the largest value.
    pub(crate) fn high(&self) -> f64 {
        self.high
    }
}

/// Returns the smallest step of 1, 2, 2.5 or 5 times a power of ten that is not below `min`.
fn step(min: f64) -> f64 {
    let power = 10f64.powf(min.log10().floor());
    let m = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * power >= min * (1.0 - 1e-9)).unwrap_or(10.0);
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
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Scale::linear(14.88, 0.0, 1.0, 5)), ["0", "5", "10"]);
        assert_eq!(labels(&Scale::linear(0.3, 0.0, 1.0, 6)), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(&Scale::log(3.2, 180.0, 0.0, 1.0)), ["2", "5", "10", "20", "50", "100", "200"]);
        assert_eq!(labels(&Scale::log(7.0, 7.0, 0.0, 1.0)), ["5", "10"]);
    }

    proptest! {
        #[test]
        fn values_map_to_the_scale_in_order(a in 1e-9..1e18f64, b in 1e-9..1e18f64) {
            let (low, high) = (a.min(b), a.max(b));
            for scale in [Scale::linear(high, 300.0, 10.0, 5), Scale::log(low, high, 300.0, 10.0)] {
                let (l, h) = (scale.px(low), scale.px(high));
                prop_assert!((10.0..=300.0).contains(&l) && (10.0..=300.0).contains(&h) && l >= h);
                prop_assert!(scale.ticks.len() >= 2 && scale.ticks.len() < 70);
            }
        }
    }
}
