//! Comparing what was measured with what was published. Measures nothing.

use super::{Claim, Facts, Measure, Published, Quantity, Scenario};
use std::collections::BTreeMap;
use std::fmt;

/// One number that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// What it is a number of, and so its unit.
    pub measure: Measure,
    /// What tells it from the others of that measure.
    pub facts: BTreeMap<String, String>,
    /// The number.
    pub value: f64,
    /// Bounds of its interval, where there is one: 95 % confidence of a ratio, or between which a search ended.
    pub bounds: Option<(f64, f64)>,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Whether it would have come from `native-bench`.
    pub native: bool,
    /// What of it is missing.
    pub what: Lacking,
    /// What it would have been a number of, as far as that is known.
    pub facts: BTreeMap<String, String>,
    /// Why.
    pub why: String,
}

/// What of a measurement is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// All of it.
    All,
    /// Its latency.
    Latency,
    /// How much more it may be: what was measured is a lower bound.
    Upper,
}

/// What stands beside a published result: one number, or several from one to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// What they are numbers of.
    pub measure: Measure,
    /// Whether they are divided by others of that measure, and have no unit.
    pub is_ratio: bool,
    /// How many.
    pub count: usize,
    /// The smallest and the largest.
    pub values: (f64, f64),
    /// The outermost bounds of their intervals.
    pub bounds: Option<(f64, f64)>,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged<'a> {
    /// The claim; none for what exists as an image only.
    pub claim: Option<&'a Claim>,
    /// What it is about.
    pub says: String,
    /// What was published, for people.
    pub published: String,
    /// What was measured here.
    pub here: Option<Spread>,
    /// Whether that agrees.
    pub verdict: Verdict,
}

/// Whether something measured agrees with what was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every number lies within the bounds.
    Reproduced,
    /// So many do not.
    Contradicted {
        /// Numbers out of bounds.
        outside: usize,
    },
    /// It cannot be told here: why.
    NotTestable(String),
}

/// Judges every claim of a scenario by its numbers; an interval is for people, and decides nothing.
pub fn judge<'a>(scenario: &'a Scenario, seen: &[Observation], missing: &[Missing]) -> Vec<Judged<'a>> {
    let mut all: Vec<Judged<'a>> = vec![];
    for claim in &scenario.claims {
        let given = claim.given.as_ref().map(|id| {
            let of = |j: &&Judged<'a>| j.claim.is_some_and(|c| c.published.of.id == *id);
            (id, all.iter().find(of).map(|j| j.verdict.clone()))
        });
        let (here, verdict) = one(claim, given, seen, missing);
        let published = claim.published.words(&scenario.published);
        all.push(Judged { claim: Some(claim), says: claim.says.clone(), published, here, verdict });
    }
    let alone = |p: &&Published| p.image && !scenario.claims.iter().any(|c| c.published.of.id == p.id);
    let images = scenario.published.iter().filter(alone).map(|image| Judged {
        claim: None,
        says: image.conditions.clone().unwrap_or_else(|| image.id.clone()),
        published: image.words(),
        here: None,
        verdict: Verdict::NotTestable("it was published as an image only, without numbers".to_owned()),
    });
    all.extend(images);
    all
}

fn one(
    claim: &Claim,
    given: Option<(&String, Option<Verdict>)>,
    seen: &[Observation],
    missing: &[Missing],
) -> (Option<Spread>, Verdict) {
    let select = |missing: &[Missing], of_divisors: &[Missing]| match &claim.quantity {
        Some(quantity) => select(quantity, seen, missing, of_divisors),
        None => (vec![], vec![]),
    };
    let (mut numbers, mut reasons) = select(missing, missing);
    // what is enough already may well be more, and what it is divided by where it is little enough
    if !numbers.is_empty() && numbers.iter().all(|(value, _)| claim.allows(*value)) {
        let others: Vec<Missing> = missing.iter().filter(|m| m.what != Lacking::Upper).cloned().collect();
        (numbers, reasons) = match (claim.at_least, claim.at_most) {
            (_, None) => select(&others, missing),
            (None, _) => select(missing, &others),
            _ => (numbers, reasons),
        };
    }
    reasons.extend(claim.untestable.clone());
    let spread = claim.quantity.as_ref().and_then(|q| spread(q, &numbers));
    match given {
        Some((_, Some(Verdict::Reproduced))) | None => {}
        Some((id, _)) => reasons.push(format!("it has a sense only where {id} is reproduced")),
    }
    if !reasons.is_empty() {
        return (spread, Verdict::NotTestable(reasons.join("; ")));
    }
    let outside = numbers.iter().filter(|(value, _)| !claim.allows(*value)).count();
    (spread, if outside == 0 { Verdict::Reproduced } else { Verdict::Contradicted { outside } })
}

/// A number, and the bounds of its interval.
type Number = (f64, Option<(f64, f64)>);
/// What was found, and why that is not all.
type Found = (Vec<Number>, Vec<String>);

/// The numbers that a quantity is about; `of_divisors` is what is missing of those that it is divided by.
fn select(quantity: &Quantity, seen: &[Observation], missing: &[Missing], of_divisors: &[Missing]) -> Found {
    let measure = quantity.measure;
    let (numbers, mut reasons) = group(measure, &quantity.facts, seen, missing);
    let Some(over) = &quantity.over else { return (numbers, reasons) };
    let (divisors, others) = group(measure, over, seen, of_divisors);
    reasons.extend(others.into_iter().filter(|why| !reasons.contains(why)).collect::<Vec<_>>());
    let mean = |of: &dyn Fn(&Number) -> f64, all: &[Number]| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let value = |n: &Number| n.0;
    let (a, b) = (mean(&value, &numbers), mean(&value, &divisors));
    if numbers.is_empty() || divisors.is_empty() || b == 0.0 {
        if reasons.is_empty() {
            reasons.push("what it is to be divided by is 0".to_owned());
        }
        return (vec![], reasons);
    }
    // the ratio lies between these if both means do
    let low = |n: &Number| n.1.map_or(n.0, |bounds| bounds.0);
    let high = |n: &Number| n.1.map_or(n.0, |bounds| bounds.1);
    let known = numbers.iter().chain(&divisors).all(|n| n.1.is_some()) && mean(&low, &divisors) > 0.0;
    let bounds =
        known.then(|| (mean(&low, &numbers) / mean(&high, &divisors), mean(&high, &numbers) / mean(&low, &divisors)));
    (vec![(a / b, bounds)], reasons)
}

fn group(measure: Measure, facts: &Facts, seen: &[Observation], missing: &[Missing]) -> Found {
    let absent = |m: &&Missing| {
        let concerns = match m.what {
            // a latency is that of a share of the rate
            Lacking::All | Lacking::Upper => true,
            Lacking::Latency => measure.is_latency(),
        };
        m.native == measure.is_native()
            && concerns
            && facts.iter().all(|(name, values)| m.facts.get(name).is_none_or(|v| values.contains(v)))
    };
    let mut reasons: Vec<String> = missing.iter().filter(absent).map(|m| m.why.clone()).collect();
    let mut known = std::collections::BTreeSet::new();
    reasons.retain(|why| known.insert(why.clone()));
    let meant = |o: &&Observation| {
        o.measure == measure && facts.iter().all(|(name, values)| o.facts.get(name).is_some_and(|v| values.contains(v)))
    };
    let found: Vec<&Observation> = seen.iter().filter(meant).collect();
    let lacks = |name: &String, value: &String| !found.iter().any(|o| o.facts.get(name) == Some(value));
    let lacking = facts.iter().flat_map(|(n, values)| values.iter().map(move |v| (n, v))).find(|(n, v)| lacks(n, v));
    if reasons.is_empty() {
        match lacking {
            Some((name, value)) => reasons.push(format!("no {measure} was measured with {name} {value}")),
            None if found.is_empty() => reasons.push(format!("no {measure} was measured")),
            None => {}
        }
    }
    (found.into_iter().map(|o| (o.value, o.bounds)).collect(), reasons)
}

fn spread(quantity: &Quantity, numbers: &[Number]) -> Option<Spread> {
    let least = numbers.iter().map(|n| n.0).min_by(f64::total_cmp)?;
    let most = numbers.iter().map(|n| n.0).max_by(f64::total_cmp)?;
    let low = numbers.iter().map(|n| n.1.map(|b| b.0)).collect::<Option<Vec<_>>>();
    let high = numbers.iter().map(|n| n.1.map(|b| b.1)).collect::<Option<Vec<_>>>();
    let low = low.and_then(|all| all.into_iter().min_by(f64::total_cmp));
    let high = high.and_then(|all| all.into_iter().max_by(f64::total_cmp));
    Some(Spread {
        measure: quantity.measure,
        is_ratio: quantity.over.is_some() || quantity.measure.unit().0.is_empty(),
        count: numbers.len(),
        values: (least, most),
        bounds: low.zip(high),
    })
}

impl Claim {
    fn allows(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least) && self.at_most.is_none_or(|most| value <= most)
    }

    /// Its bounds for people: `0.828 to 0.916`.
    pub fn bounds(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{least:.3} to {most:.3}"),
            (Some(least), None) => format!("{least:.3} or more"),
            (None, Some(most)) => format!("{most:.3} or less"),
            (None, None) => "anything".to_owned(),
        }
    }
}

impl fmt::Display for Spread {
    /// `9.231 Mpps (9.231 to 9.402)`, or `0.912 to 0.954 (0.901 to 0.960)` where it is several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, of) = if self.is_ratio { ("", 1.0) } else { self.measure.unit() };
        let digits = if unit == "us" { 1 } else { 3 };
        let (least, most) = (self.values.0 / of, self.values.1 / of);
        write!(f, "{least:.digits$}")?;
        if self.count > 1 {
            write!(f, " to {most:.digits$}")?;
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
    /// Its name: `reproduced`, `contradicted`, `not testable here`.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Contradicted { .. } => "contradicted",
            Verdict::NotTestable(_) => "not testable here",
        }
    }
}

impl Judged<'_> {
    /// Whether an interval reaches across the bounds, so that the verdict hangs on less than the measurement can tell.
    pub fn is_close(&self) -> bool {
        let (Some(claim), Some(here)) = (self.claim, self.here) else { return false };
        let Some((low, high)) = here.bounds else { return false };
        match self.verdict {
            Verdict::Reproduced => !claim.allows(low) || !claim.allows(high),
            Verdict::Contradicted { .. } => {
                let reaches = claim.at_least.is_none_or(|least| high >= least);
                here.count == 1 && reaches && claim.at_most.is_none_or(|most| low <= most)
            }
            Verdict::NotTestable(_) => false,
        }
    }

    /// The published results that it is about.
    pub fn published_of<'s>(&self, scenario: &'s Scenario) -> Vec<&'s Published> {
        let Some(claim) = self.claim else { return vec![] };
        let mut ids: Vec<&str> = claim.published.parts().map(|part| part.id.as_str()).collect();
        ids.dedup();
        ids.into_iter().filter_map(|id| scenario.published(id)).collect()
    }
}

#[cfg(test)]
mod tests;
