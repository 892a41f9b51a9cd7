//! Numbers and curves that a method produces.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number that a method produces, in addition to the bounds of the summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Quantity {
    /// Its name, such as `corrected buffer time` or `pdv p99.9`.
    pub name: String,
    /// Unit: `pps`, `bps`, `frames`, `s`, `ns`, `per second`, `ratio`, `connections`, `segments`, `addresses`.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// Spread of the values of which it is the mean or median, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Spread of the values of which a quantity is the mean or median.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Spread {
    /// Number of values.
    pub samples: u64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Standard deviation of the sample; 0 for one value.
    #[serde(alias = "sigma")]
    pub stddev: f64,
}

/// A curve, such as loss over load, or over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Points (x, y), ordered by x.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::POINTS }>")]
    #[schemars(length(max = limit::POINTS))]
    pub points: Vec<[f64; 2]>,
}

/// An axis of a curve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Unit, as of a [`Quantity`].
    pub unit: String,
}

impl Quantity {
    /// Returns a quantity without a spread.
    pub fn new(name: &str, unit: &str, value: f64) -> Quantity {
        Quantity { name: name.to_owned(), unit: unit.to_owned(), value, spread: None }
    }

    /// Returns the mean of values; `None` without values.
    pub fn mean(name: &str, unit: &str, values: &[f64]) -> Option<Quantity> {
        let spread = Spread::of(values)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Quantity { spread: Some(spread), ..Quantity::new(name, unit, mean) })
    }

    /// Returns the median of values; `None` without values.
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

impl Spread {
    /// Computes the spread of values; `None` without values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let (n, first) = (values.len() as f64, *values.first()?);
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some(Spread {
            samples: values.len() as u64,
            min: values.iter().copied().fold(first, f64::min),
            max: values.iter().copied().fold(first, f64::max),
            stddev: if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians_have_a_spread() {
        let of = |values: &[f64]| (Quantity::mean("", "", values), Quantity::median("", "", values));
        assert_eq!(of(&[]), (None, None));
        let (mean, median) = of(&[4.0, 1.0, 10.0]);
        let (mean, median) = (mean.unwrap(), median.unwrap());
        assert_eq!((mean.value, median.value), (5.0, 4.0));
        // 4, 1, 10: squares 1 + 16 + 25 over two
        let sigma = 21_f64.sqrt();
        assert_eq!(mean.spread, Some(Spread { samples: 3, min: 1.0, max: 10.0, stddev: sigma }));
        assert_eq!(of(&[4.0, 1.0]).1.unwrap().value, 2.5);
        assert_eq!(Spread::of(&[7.0]), Some(Spread { samples: 1, min: 7.0, max: 7.0, stddev: 0.0 }));
    }
}
