//! Claims: whether what they name exists, and whether they can be judged at all.

use super::{Checker, MOST_OF_A_KIND, Matrix, OF_EVERY_CELL, is_put_in, plain};
use crate::Sent;
use crate::scenario::cells;
use crate::scenario::file::{self, File, Where};
use crate::scenario::{Claim, Facts, Measure, Published, Quantity, Reference};
use std::collections::BTreeSet;
use toml::Spanned;

/// What tells a row of `native-bench` from the others.
const OF_EVERY_ROW: [&str; 5] = ["nf", "source", "flows", "frame", "cells"];

impl Checker<'_> {
    pub(super) fn claims(&mut self, file: &File, published: &[Published], matrix: &Matrix, sent: &Sent) -> Vec<Claim> {
        let mut claims: Vec<Claim> = vec![];
        for (n, claim) in file.claim.iter().enumerate() {
            if n == MOST_OF_A_KIND {
                let says = claim.get_ref().says.get_ref();
                self.fault(claim.span(), says, "is one claim too many", format!("write {MOST_OF_A_KIND} at most"));
                break;
            }
            let claim = self.claim(file, claim, published, matrix, sent, &claims);
            claims.extend(claim);
        }
        if !self.faults.is_empty() {
            // a claim with a wrong name is about nothing, and that is said already
            return claims;
        }
        let mut about = BTreeSet::new();
        for claim in &file.claim {
            let reference = Reference::new(claim.get_ref().published.get_ref());
            about.extend(reference.parts().map(|part| part.id.clone()));
        }
        for p in file.published.iter().map(Spanned::get_ref).filter(|p| !p.image && !about.contains(p.id.get_ref())) {
            self.fault(p.id.span(), p.id.get_ref(), "no claim is about it", "add a [[claim]] with it, or remove it");
        }
        claims
    }

    fn claim(
        &mut self,
        file: &File,
        written: &Spanned<file::Claim>,
        published: &[Published],
        matrix: &Matrix,
        sent: &Sent,
        before: &[Claim],
    ) -> Option<Claim> {
        let claim = written.get_ref();
        let says = &claim.says;
        let reference = Reference::new(claim.published.get_ref());
        for part in reference.parts() {
            let id = &part.id;
            if let (Some(at), Some(p)) = (&part.at, published.iter().find(|p| p.id == *id)) {
                if !part.is_in(published) {
                    let names: Vec<&str> = p.values.iter().map(|(name, _)| name.as_str()).collect();
                    let remedy = format!("write one of {} in brackets", names.join(", "));
                    self.fault(claim.published.span(), at, format!("names no number of {id}"), remedy);
                    return None;
                }
            } else if !published.iter().any(|p| p.id == *id) {
                let near = config::nearest(id, published.iter().map(|p| p.id.as_str()));
                let remedy =
                    near.map_or("name one of the [[published]]".to_owned(), |near| format!("did you mean {near:?}?"));
                self.fault(claim.published.span(), id, "is published nowhere in this file", remedy);
                return None;
            }
        }
        if let Some(given) = claim.given.as_ref().filter(|g| !before.iter().any(|c| c.published.of.id == *g.get_ref()))
        {
            let remedy = "name the published result of a claim that stands before";
            self.fault(given.span(), given.get_ref(), "no claim before this one is about it", remedy);
        }
        let quantity = self.quantity(file, claim, matrix, sent)?;
        let (at_least, at_most) = self.bounds(claim, quantity.as_ref(), &reference, published)?;
        let bounded = at_least.is_some() || at_most.is_some();
        if bounded == claim.untestable.is_some() {
            let remedy = "write within, at_least or at_most; or untestable = WHY";
            self.fault(says.span(), says.get_ref(), "has to have bounds, or a reason why it is not judged", remedy);
        }
        Some(Claim {
            says: says.get_ref().clone(),
            published: reference,
            note: claim.note.clone(),
            quantity,
            at_least,
            at_most,
            given: claim.given.as_ref().map(|g| g.get_ref().clone()),
            untestable: claim.untestable.as_ref().map(|u| u.get_ref().clone()),
        })
    }

    /// What is measured; none of an error, and none within where the claim measures nothing.
    fn quantity(&mut self, file: &File, claim: &file::Claim, matrix: &Matrix, sent: &Sent) -> Option<Option<Quantity>> {
        let Some(name) = &claim.measure else {
            let needless = claim.over.as_ref().map(Spanned::span).or(claim.facts.keys().next().map(Spanned::span));
            if let Some(span) = needless {
                let remedy = "write measure = \"throughput\" or another";
                self.fault(span, "measure", "is missing: what is to be selected?", remedy);
            }
            return Some(None);
        };
        let Some(measure) = Measure::ALL.into_iter().find(|m| m.name() == name.get_ref()) else {
            let known: Vec<_> = Measure::ALL.iter().map(|m| m.name()).collect();
            self.fault(name.span(), name.get_ref(), "cannot be measured", format!("use one of: {}", known.join(", ")));
            return None;
        };
        if measure.is_native() && file.native.is_none() {
            let remedy = "add [native] with only = PART OF THE ROW'S NAME";
            self.fault(name.span(), name.get_ref(), "comes from native-bench, of which nothing is asked", remedy);
        }
        let of_flows = of_flows(file, matrix);
        let facts = self.facts(&claim.facts, measure, matrix, (sent, &of_flows));
        let over = claim.over.as_ref().map(|over| self.facts(over.get_ref(), measure, matrix, (sent, &of_flows)));
        Some(Some(Quantity { measure, facts, over }))
    }

    fn facts(
        &mut self,
        written: &Where,
        measure: Measure,
        matrix: &Matrix,
        (sent, of_flows): (&Sent, &Vec<String>),
    ) -> Facts {
        let mut facts = Facts::new();
        for (name, values) in written {
            let texts = self.texts(values);
            let known: Vec<&str> = if measure.is_native() {
                OF_EVERY_ROW.to_vec()
            } else {
                OF_EVERY_CELL.into_iter().chain(matrix.iter().map(|(n, _)| n.as_str())).collect()
            };
            if !known.contains(&name.get_ref().as_str()) {
                let problem = format!("tells no measurement of {measure} from another");
                self.fault(name.span(), name.get_ref(), problem, format!("use one of: {}", known.join(", ")));
                continue;
            }
            if !measure.is_native() {
                let possible: Vec<String> = match name.get_ref().as_str() {
                    "frames" => sent.names(),
                    "flows" if !of_flows.is_empty() => of_flows.clone(),
                    "flows" => match sent {
                        Sent::Made { flows, .. } => vec![flows.to_string()],
                        Sent::Capture(_) | Sent::Profile(_) => vec![],
                    },
                    name => matrix.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default(),
                };
                for value in texts.iter().filter(|v| !possible.contains(v)) {
                    let remedy = format!("use one of: {}", possible.join(", "));
                    self.fault(values.span(), value, format!("no cell has it for {}", name.get_ref()), remedy);
                }
            }
            facts.insert(name.get_ref().clone(), texts);
        }
        facts
    }

    fn bounds(
        &mut self,
        claim: &file::Claim,
        quantity: Option<&Quantity>,
        reference: &Reference,
        published: &[Published],
    ) -> Option<(Option<f64>, Option<f64>)> {
        let (least, most) = (claim.at_least.as_ref(), claim.at_most.as_ref());
        let first = [claim.within.as_ref(), least, most].into_iter().flatten().next();
        let Some(first) = first else { return Some((None, None)) };
        let Some(quantity) = quantity else {
            let remedy = "write measure = \"throughput\" or another";
            self.fault(first.span(), &first.get_ref().to_string(), "bounds nothing: the claim measures nothing", remedy);
            return None;
        };
        let numbers = [least, most].map(|n| n.map(|n| *n.get_ref()));
        if let Some(within) = &claim.within {
            let share = *within.get_ref();
            let is_ratio = quantity.over.is_some() || quantity.measure.unit().0.is_empty();
            let Some(ratio) = reference.ratio(published).filter(|_| is_ratio) else {
                let remedy = "write at_least and at_most";
                let problem = "is of a ratio, and this is none: absolute numbers are those of a machine";
                self.fault(within.span(), &share.to_string(), problem, remedy);
                return None;
            };
            if !(share > 0.0 && share < 1.0) || numbers != [None, None] {
                let remedy = "write a share such as 0.05, and neither at_least nor at_most";
                self.fault(within.span(), &share.to_string(), "is no tolerance", remedy);
                return None;
            }
            return Some((Some(ratio * (1.0 - share)), Some(ratio * (1.0 + share))));
        }
        let ordered = numbers[0].is_none_or(|least| numbers[1].is_none_or(|most| least <= most));
        if !ordered || numbers.iter().flatten().any(|n| !n.is_finite() || *n < 0.0) {
            let written = first.get_ref().to_string();
            self.fault(
                first.span(),
                &written,
                "is no bound, or above the other one",
                "write the lower one as at_least",
            );
        }
        Some((numbers[0], numbers[1]))
    }
}

/// Numbers of flows that the matrix puts in; none where it does not.
fn of_flows(file: &File, matrix: &Matrix) -> Vec<String> {
    let Some(written) = file.traffic.flows.as_ref().filter(|flows| is_put_in(Some(flows))) else { return vec![] };
    let all = cells::combinations(matrix);
    let texts = all.iter().filter_map(|cell| cells::substitute(&plain(written), cell, &mut BTreeSet::new()).ok());
    texts.collect::<BTreeSet<_>>().into_iter().collect()
}
