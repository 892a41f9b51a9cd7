//! Numbers that a method comes to, and curves.

use crate::{format, limit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number that a method comes to, beyond the bounds of the summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Quantity {
    /// What it is, in the method's own words, as `corrected buffer time` or `pdv p99.9`.
    pub name: String,
    /// Unit: `pps`, `bps`, `frames`, `s`, `ns`, `per second`, `ratio`.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// The single values that it sums up, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// How far the values lie apart of which a quantity is the mean or the median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Spread {
    /// How many.
    pub samples: u64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Standard deviation of the sample; 0 for one.
    pub sigma: f64,
}

/// A curve that a method comes to, such as loss over load, or over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// What goes to the right, and its unit.
    pub x: Axis,
    /// What goes up, and its unit.
    pub y: Axis,
    /// Its points, x and y, in the order of x.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::POINTS }>")]
    #[schemars(length(max = limit::POINTS))]
    pub points: Vec<[f64; 2]>,
}

/// One direction of a plot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Axis {
    /// What.
    pub name: String,
    /// Unit, as of a [`Quantity`].
    pub unit: String,
}

impl Quantity {
    /// A single number.
    pub fn new(name: &str, unit: &str, value: f64) -> Quantity {
        Quantity { name: name.to_owned(), unit: unit.to_owned(), value, spread: None }
    }

    /// The mean of values; none of none.
    pub fn mean(name: &str, unit: &str, values: &[f64]) -> Option<Quantity> {
        let spread = Spread::of(values)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Quantity { spread: Some(spread), ..Quantity::new(name, unit, mean) })
    }

    /// The median of values; none of none.
    pub fn median(name: &str, unit: &str, values: &[f64]) -> Option<Quantity> {
        let spread = Spread::of(values)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let even = sorted.len().is_multiple_of(2);
        let median = if even { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] };
        Some(Quantity { spread: Some(spread), ..Quantity::new(name, unit, median) })
    }
}

impl Quantity {
    /// Its value with a unit that people read, and where it sums up several the smallest, the largest and how many.
    pub fn in_words(&self) -> (String, Option<[String; 3]>) {
        let spread = self.spread.filter(|spread| spread.samples > 1);
        let of = |value: f64| in_unit(value, &self.unit);
        (of(self.value), spread.map(|s| [of(s.min), of(s.max), s.samples.to_string()]))
    }
}

/// A value with its unit, in thousands or thousandths of it where that is easier to read.
fn in_unit(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "ns" if value >= 1e9 => (value / 1e9, "s"),
        "ns" if value >= 1e6 => (value / 1e6, "ms"),
        "ns" if value >= 1e3 => (value / 1e3, "µs"),
        "s" if value == 0.0 || value >= 1.0 => (value, "s"),
        "s" if value >= 1e-3 => (value * 1e3, "ms"),
        "s" => (value * 1e6, "µs"),
        "pps" => return format::pps(value),
        "bps" => (value / 1e9, "Gbit/s"),
        "ratio" => return format::percent(value),
        unit => (value, unit),
    };
    let digits = if value.fract() == 0.0 || value >= 1e4 { 0 } else { 3 };
    format!("{value:.digits$} {unit}")
}

impl Spread {
    /// Of values; none of none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let (n, first) = (values.len() as f64, *values.first()?);
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some(Spread {
            samples: values.len() as u64,
            min: values.iter().copied().fold(first, f64::min),
            max: values.iter().copied().fold(first, f64::max),
            sigma: if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let of = |unit: &str, value: f64| Quantity::new("x", unit, value).in_words().0;
        assert_eq!(of("ns", 1500.0), "1.500 µs");
        assert_eq!(of("s", 0.00025), "250 µs");
        assert_eq!(of("frames", 4096.0), "4096 frames");
        assert_eq!(of("ratio", 0.5), "50 %");
        let (mean, spread) = Quantity::mean("x", "s", &[1.0, 3.0]).unwrap().in_words();
        assert_eq!((&*mean, spread.unwrap()), ("2 s", ["1 s", "3 s", "2"].map(str::to_owned)));
        assert_eq!(Quantity::mean("x", "s", &[1.0]).unwrap().in_words().1, None);
    }

    #[test]
    fn means_and_medians() {
        let of = |values: &[f64]| (Quantity::mean("", "", values), Quantity::median("", "", values));
        assert_eq!(of(&[]), (None, None));
        let (mean, median) = of(&[4.0, 1.0, 10.0]);
        let (mean, median) = (mean.unwrap(), median.unwrap());
        assert_eq!((mean.value, median.value), (5.0, 4.0));
        // of 4, 1, 10: squares 1 + 16 + 25 over two
        let sigma = 21_f64.sqrt();
        assert_eq!(mean.spread, Some(Spread { samples: 3, min: 1.0, max: 10.0, sigma }));
        assert_eq!(of(&[4.0, 1.0]).1.unwrap().value, 2.5);
        assert_eq!(Spread::of(&[7.0]), Some(Spread { samples: 1, min: 7.0, max: 7.0, sigma: 0.0 }));
    }
}
