//! Comparison of measured with published results.

use super::{Claim, Metric, Published, Quantity, Scenario, Selection};
use std::collections::BTreeMap;
use std::fmt;

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Metric, which determines the unit.
    pub metric: Metric,
    /// Labels that distinguish it from other values of the metric.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
    /// Interval of the value, if known: 95 % confidence of a ratio, or the bounds at which a search ended.
    pub bounds: Option<(f64, f64)>,
}

/// A measurement that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// True if `native-bench` would have measured it.
    pub native: bool,
    /// Part that is missing.
    pub part: MissingPart,
    /// Labels that it would have had, as far as known.
    pub labels: BTreeMap<String, String>,
    /// Reason.
    pub reason: String,
}

/// Missing part of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// The whole measurement.
    All,
    /// The latency.
    Latency,
    /// The upper bound: the measured value is a lower bound.
    UpperBound,
}

/// Range of the measured values that are compared with a published result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueRange {
    /// Metric.
    pub metric: Metric,
    /// True for a ratio of two values of the metric, which has no unit.
    pub is_ratio: bool,
    /// Number of values.
    pub count: usize,
    /// Smallest and largest value.
    pub values: (f64, f64),
    /// Outermost bounds of the intervals of the values.
    pub bounds: Option<(f64, f64)>,
}

/// A claim of a study and the verdict on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding<'a> {
    /// Claim; none for a result that was published as an image only.
    pub claim: Option<&'a Claim>,
    /// Text of the claim.
    pub text: String,
    /// Published result as text.
    pub published: String,
    /// Measured values.
    pub measured: Option<ValueRange>,
    /// Verdict.
    pub verdict: Verdict,
}

/// Verdict on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every value is within the bounds.
    Reproduced,
    /// Some values are out of bounds.
    Contradicted {
        /// Number of values out of bounds.
        outside: usize,
    },
    /// The claim cannot be tested here, for this reason.
    NotTestable(String),
}

/// Evaluates every claim of a scenario. Verdicts depend on the values, not on their intervals.
pub fn evaluate<'a>(scenario: &'a Scenario, observations: &[Observation], missing: &[Missing]) -> Vec<Finding<'a>> {
    let mut all: Vec<Finding<'a>> = vec![];
    for claim in &scenario.claims {
        let required = claim.requires.as_ref().map(|id| {
            let is_about = |f: &&Finding<'a>| f.claim.is_some_and(|c| c.published.value.id == *id);
            (id, all.iter().find(is_about).map(|f| f.verdict.clone()))
        });
        let (measured, verdict) = evaluate_claim(claim, required, observations, missing);
        let published = claim.published.text(&scenario.published);
        all.push(Finding { claim: Some(claim), text: claim.text.clone(), published, measured, verdict });
    }
    let without_claim = |p: &&Published| p.image && !scenario.claims.iter().any(|c| c.published.value.id == p.id);
    let images = scenario.published.iter().filter(without_claim).map(|image| Finding {
        claim: None,
        text: image.conditions.clone().unwrap_or_else(|| image.id.clone()),
        published: image.text(),
        measured: None,
        verdict: Verdict::NotTestable("published as an image only, without numbers".to_owned()),
    });
    all.extend(images);
    all
}

/// Evaluates a claim; `required` is the id of the result that it requires, with the verdict on it.
fn evaluate_claim(
    claim: &Claim,
    required: Option<(&String, Option<Verdict>)>,
    observations: &[Observation],
    missing: &[Missing],
) -> (Option<ValueRange>, Verdict) {
    let select = |missing: &[Missing], missing_divisors: &[Missing]| match &claim.quantity {
        Some(quantity) => select(quantity, observations, missing, missing_divisors),
        None => (vec![], vec![]),
    };
    let (mut values, mut reasons) = select(missing, missing);
    // a lower bound is enough for a claim that only has a minimum, and as the divisor of one that only has a maximum
    if !values.is_empty() && values.iter().all(|(value, _)| claim.allows(*value)) {
        let others: Vec<Missing> = missing.iter().filter(|m| m.part != MissingPart::UpperBound).cloned().collect();
        (values, reasons) = match (claim.min, claim.max) {
            (_, None) => select(&others, missing),
            (None, _) => select(missing, &others),
            _ => (values, reasons),
        };
    }
    reasons.extend(claim.not_testable.clone());
    let range = claim.quantity.as_ref().and_then(|q| value_range(q, &values));
    match required {
        Some((_, Some(Verdict::Reproduced))) | None => {}
        Some((id, _)) => reasons.push(format!("it requires that {id} is reproduced")),
    }
    if !reasons.is_empty() {
        return (range, Verdict::NotTestable(reasons.join("; ")));
    }
    let outside = values.iter().filter(|(value, _)| !claim.allows(*value)).count();
    (range, if outside == 0 { Verdict::Reproduced } else { Verdict::Contradicted { outside } })
}

/// A value and its interval.
type Value = (f64, Option<(f64, f64)>);
/// Selected values, and reasons why some are missing.
type Selected = (Vec<Value>, Vec<String>);

/// Selects the values of a quantity; `missing_divisors` are the missing measurements of its divisor.
fn select(
    quantity: &Quantity,
    observations: &[Observation],
    missing: &[Missing],
    missing_divisors: &[Missing],
) -> Selected {
    let metric = quantity.metric;
    let (values, mut reasons) = select_labels(metric, &quantity.selection, observations, missing);
    let Some(divisor) = &quantity.divided_by else { return (values, reasons) };
    let (divisors, others) = select_labels(metric, divisor, observations, missing_divisors);
    reasons.extend(others.into_iter().filter(|reason| !reasons.contains(reason)).collect::<Vec<_>>());
    let mean = |of: &dyn Fn(&Value) -> f64, all: &[Value]| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let value = |n: &Value| n.0;
    let (a, b) = (mean(&value, &values), mean(&value, &divisors));
    if values.is_empty() || divisors.is_empty() || b == 0.0 {
        if reasons.is_empty() {
            reasons.push("the divisor is 0".to_owned());
        }
        return (vec![], reasons);
    }
    // the ratio is within these bounds if both means are within theirs
    let low = |n: &Value| n.1.map_or(n.0, |bounds| bounds.0);
    let high = |n: &Value| n.1.map_or(n.0, |bounds| bounds.1);
    let known = values.iter().chain(&divisors).all(|n| n.1.is_some()) && mean(&low, &divisors) > 0.0;
    let bounds =
        known.then(|| (mean(&low, &values) / mean(&high, &divisors), mean(&high, &values) / mean(&low, &divisors)));
    (vec![(a / b, bounds)], reasons)
}

/// Selects the values of a metric by their labels.
fn select_labels(metric: Metric, selection: &Selection, observations: &[Observation], missing: &[Missing]) -> Selected {
    let is_missing = |m: &&Missing| {
        let concerns = match m.part {
            // latency is measured at a share of the throughput
            MissingPart::All | MissingPart::UpperBound => true,
            MissingPart::Latency => metric.is_latency(),
        };
        m.native == metric.is_native()
            && concerns
            && selection.iter().all(|(name, values)| m.labels.get(name).is_none_or(|v| values.contains(v)))
    };
    let mut reasons: Vec<String> = missing.iter().filter(is_missing).map(|m| m.reason.clone()).collect();
    let mut known = std::collections::BTreeSet::new();
    reasons.retain(|reason| known.insert(reason.clone()));
    let is_selected = |o: &&Observation| {
        o.metric == metric
            && selection.iter().all(|(name, values)| o.labels.get(name).is_some_and(|v| values.contains(v)))
    };
    let selected: Vec<&Observation> = observations.iter().filter(is_selected).collect();
    let lacks = |name: &String, value: &String| !selected.iter().any(|o| o.labels.get(name) == Some(value));
    let mut labels = selection.iter().flat_map(|(n, values)| values.iter().map(move |v| (n, v)));
    if reasons.is_empty() {
        match labels.find(|(n, v)| lacks(n, v)) {
            Some((name, value)) => reasons.push(format!("{metric} was not measured with {name} {value}")),
            None if selected.is_empty() => reasons.push(format!("{metric} was not measured")),
            None => {}
        }
    }
    (selected.into_iter().map(|o| (o.value, o.bounds)).collect(), reasons)
}

/// Returns the range of the values of a quantity.
fn value_range(quantity: &Quantity, values: &[Value]) -> Option<ValueRange> {
    let min = values.iter().map(|n| n.0).min_by(f64::total_cmp)?;
    let max = values.iter().map(|n| n.0).max_by(f64::total_cmp)?;
    let low = values.iter().map(|n| n.1.map(|b| b.0)).collect::<Option<Vec<_>>>();
    let high = values.iter().map(|n| n.1.map(|b| b.1)).collect::<Option<Vec<_>>>();
    let low = low.and_then(|all| all.into_iter().min_by(f64::total_cmp));
    let high = high.and_then(|all| all.into_iter().max_by(f64::total_cmp));
    Some(ValueRange {
        metric: quantity.metric,
        is_ratio: quantity.divided_by.is_some() || quantity.metric.unit().0.is_empty(),
        count: values.len(),
        values: (min, max),
        bounds: low.zip(high),
    })
}

impl Claim {
    /// Returns true if the value is within the bounds.
    fn allows(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// Returns the bounds as text: `0.828 to 0.916`.
    pub fn bounds(&self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) => format!("{min:.3} to {max:.3}"),
            (Some(min), None) => format!("{min:.3} or more"),
            (None, Some(max)) => format!("{max:.3} or less"),
            (None, None) => "unbounded".to_owned(),
        }
    }
}

impl fmt::Display for ValueRange {
    /// Writes `9.231 Mpps (9.231 to 9.402)`, or `0.912 to 0.954 (0.901 to 0.960)` for several values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, of) = if self.is_ratio { ("", 1.0) } else { self.metric.unit() };
        let digits = if unit == "us" { 1 } else { 3 };
        let (min, max) = (self.values.0 / of, self.values.1 / of);
        write!(f, "{min:.digits$}")?;
        if self.count > 1 {
            write!(f, " to {max:.digits$}")?;
        }
        if !unit.is_empty() {
            write!(f, " {unit}")?;
        }
        if let Some((low, high)) = self.bounds {
            write!(f, " ({:.digits$} to {:.digits$})", low / of, high / of)?;
        }
        Ok(())
    }
}

impl Verdict {
    /// Returns it without number and reason, as reports show it.
    pub const fn kind(&self) -> report::reproduction::Verdict {
        use report::reproduction::Verdict as Kind;
        match self {
            Verdict::Reproduced => Kind::Reproduced,
            Verdict::Contradicted { .. } => Kind::Contradicted,
            Verdict::NotTestable(_) => Kind::NotTestable,
        }
    }
}

impl Finding<'_> {
    /// Returns true if an interval crosses a bound, so that the verdict is within the uncertainty of the measurement.
    pub fn is_close(&self) -> bool {
        let (Some(claim), Some(measured)) = (self.claim, self.measured) else { return false };
        let Some((low, high)) = measured.bounds else { return false };
        match self.verdict {
            Verdict::Reproduced => !claim.allows(low) || !claim.allows(high),
            Verdict::Contradicted { .. } => {
                let reaches_min = claim.min.is_none_or(|min| high >= min);
                measured.count == 1 && reaches_min && claim.max.is_none_or(|max| low <= max)
            }
            Verdict::NotTestable(_) => false,
        }
    }

    /// Returns the published results that it is about.
    pub fn published_results<'s>(&self, scenario: &'s Scenario) -> Vec<&'s Published> {
        let Some(claim) = self.claim else {
            let is_own = |p: &&Published| p.image && *p.conditions.as_ref().unwrap_or(&p.id) == self.text;
            return scenario.published.iter().filter(is_own).collect();
        };
        let mut ids: Vec<&str> = claim.published.values().map(|value| value.id.as_str()).collect();
        ids.dedup();
        ids.into_iter().filter_map(|id| scenario.published(id)).collect()
    }
}

#[cfg(test)]
mod tests;
