//! Checks of `[[claim]]`.

use super::{CELL_LABELS, Checker, MAX_ITEMS, Matrix, as_text, has_parameter};
use crate::TrafficSpec;
use crate::method::TRACED_SHARES;
use crate::scenario::cells;
use crate::scenario::file::{self, File, Where};
use crate::scenario::{Claim, Metric, Published, PublishedReference, Quantity, Selection};
use std::collections::BTreeSet;
use toml::Spanned;

/// Labels of the rows of `native-bench`.
const ROW_LABELS: [&str; 5] = ["nf", "source", "flows", "frame", "cells"];

/// Label of the load at which probes were traced, percent of the throughput.
const LOAD_LABEL: &str = "load";

impl Checker<'_> {
    pub(super) fn claims(
        &mut self,
        file: &File,
        published: &[Published],
        matrix: &Matrix,
        traffic: &TrafficSpec,
    ) -> Vec<Claim> {
        let mut claims: Vec<Claim> = vec![];
        if self.invalid.published || self.invalid.matrix || self.invalid.traffic {
            // claims refer to them
            return claims;
        }
        let errors = self.errors.len();
        for (n, claim) in file.claim.iter().enumerate() {
            if n == MAX_ITEMS {
                let text = claim.get_ref().text.get_ref();
                self.error(claim.span(), text, "too many claims", format!("write up to {MAX_ITEMS}"));
                break;
            }
            let complete = self.errors.len() == errors && !self.invalid.claims;
            let claim = self.claim(file, claim, published, matrix, traffic, complete.then_some(&claims[..]));
            claims.extend(claim);
        }
        if self.errors.len() != errors || self.invalid.claims {
            // a claim with an unknown id would be reported twice
            return claims;
        }
        let mut referenced = BTreeSet::new();
        for claim in &file.claim {
            let reference = PublishedReference::parse(claim.get_ref().published.get_ref());
            referenced.extend(reference.values().map(|value| value.id.clone()));
        }
        for p in
            file.published.iter().map(Spanned::get_ref).filter(|p| !p.image && !referenced.contains(p.id.get_ref()))
        {
            self.error(p.id.span(), p.id.get_ref(), "no claim refers to it", "add a [[claim]] that does, or remove it");
        }
        claims
    }

    fn claim(
        &mut self,
        file: &File,
        written: &Spanned<file::Claim>,
        published: &[Published],
        matrix: &Matrix,
        traffic: &TrafficSpec,
        before: Option<&[Claim]>,
    ) -> Option<Claim> {
        let claim = written.get_ref();
        let text = &claim.text;
        let reference = PublishedReference::parse(claim.published.get_ref());
        for value in reference.values() {
            let id = &value.id;
            if let (Some(number), Some(p)) = (&value.name, published.iter().find(|p| p.id == *id)) {
                if !value.exists_in(published) {
                    let names: Vec<&str> = p.values.iter().map(|(name, _)| name.as_str()).collect();
                    let remedy = format!("write one of these in brackets: {}", names.join(", "));
                    self.error(claim.published.span(), number, format!("{id} has no such number"), remedy);
                    return None;
                }
            } else if !published.iter().any(|p| p.id == *id) {
                let near = config::nearest(id, published.iter().map(|p| p.id.as_str()));
                let remedy = near.map_or("use the id of a [[published]] result".to_owned(), |near| {
                    format!("did you mean {near:?}?")
                });
                self.error(claim.published.span(), id, "unknown id of a published result", remedy);
                return None;
            }
        }
        let is_before = |id: &String| before.is_none_or(|before| before.iter().any(|c| c.published.value.id == *id));
        if let Some(required) = claim.requires.as_ref().filter(|id| !is_before(id.get_ref())) {
            let remedy = "name the published result of an earlier claim";
            self.error(required.span(), required.get_ref(), "no claim before this one refers to it", remedy);
        }
        let quantity = self.quantity(file, claim, matrix, traffic)?;
        let (min, max) = self.bounds(claim, quantity.as_ref(), &reference, published)?;
        let bounded = min.is_some() || max.is_some();
        if bounded == claim.not_testable.is_some() {
            let remedy = "add tolerance, min or max; or not_testable = REASON";
            self.error(text.span(), text.get_ref(), "needs either bounds or not_testable", remedy);
        }
        Some(Claim {
            text: text.get_ref().clone(),
            published: reference,
            note: claim.note.clone(),
            quantity,
            min,
            max,
            requires: claim.requires.as_ref().map(|id| id.get_ref().clone()),
            not_testable: claim.not_testable.as_ref().map(|reason| reason.get_ref().clone()),
        })
    }

    /// Returns the values that the quick form measures.
    pub(super) fn quick(&mut self, file: &File, matrix: &Matrix, traffic: &TrafficSpec) -> Selection {
        if self.invalid.matrix || self.invalid.traffic {
            return Selection::new();
        }
        self.selection(&file.quick, Metric::Throughput, matrix, (traffic, &varied_flows(file, matrix)))
    }

    /// Returns the measured quantity, `Some(None)` if the claim has none, and none after an error.
    fn quantity(
        &mut self,
        file: &File,
        claim: &file::Claim,
        matrix: &Matrix,
        traffic: &TrafficSpec,
    ) -> Option<Option<Quantity>> {
        let Some(name) = &claim.metric else {
            let unused =
                claim.divided_by.as_ref().map(Spanned::span).or(claim.selection.keys().next().map(Spanned::span));
            if let Some(span) = unused {
                let remedy = "add metric = \"throughput\" or another";
                self.error(span, "metric", "missing: no values can be selected", remedy);
            }
            return Some(None);
        };
        let Some(metric) = Metric::ALL.into_iter().find(|m| m.name() == name.get_ref()) else {
            let known: Vec<_> = Metric::ALL.iter().map(|m| m.name()).collect();
            self.error(name.span(), name.get_ref(), "unknown metric", format!("use one of: {}", known.join(", ")));
            return None;
        };
        if metric.is_native() && file.native.is_none() {
            let remedy = "add [native] with filter = PART OF THE ROW'S NAME";
            self.error(name.span(), name.get_ref(), "is measured by native-bench, which is not configured", remedy);
        }
        if metric == Metric::HostShare && file.goal.anatomy != Some(true) {
            let remedy = "add anatomy = true to [goal]";
            self.error(name.span(), name.get_ref(), "is measured only on traced probes", remedy);
        }
        let varied_flows = varied_flows(file, matrix);
        let selection = self.selection(&claim.selection, metric, matrix, (traffic, &varied_flows));
        let divided_by = claim.divided_by.as_ref();
        let divided_by = divided_by.map(|d| self.selection(d.get_ref(), metric, matrix, (traffic, &varied_flows)));
        Some(Some(Quantity { metric, selection, divided_by }))
    }

    /// Checks a selection of labels.
    fn selection(
        &mut self,
        written: &Where,
        metric: Metric,
        matrix: &Matrix,
        (traffic, varied_flows): (&TrafficSpec, &Vec<String>),
    ) -> Selection {
        let mut selection = Selection::new();
        for (name, values) in written {
            let texts = self.value_texts(values);
            let known: Vec<&str> = if metric.is_native() {
                ROW_LABELS.to_vec()
            } else {
                let load = (metric == Metric::HostShare).then_some(LOAD_LABEL);
                CELL_LABELS.into_iter().chain(load).chain(matrix.iter().map(|(n, _)| n.as_str())).collect()
            };
            if !known.contains(&name.get_ref().as_str()) {
                let problem = format!("is not a label of {metric}");
                self.error(name.span(), name.get_ref(), problem, format!("use one of: {}", known.join(", ")));
                continue;
            }
            if !metric.is_native() {
                let possible: Vec<String> = match name.get_ref().as_str() {
                    "frames" => traffic.frame_names(),
                    LOAD_LABEL if metric == Metric::HostShare => {
                        TRACED_SHARES.map(|share| format!("{:.0}", share * 100.0)).to_vec()
                    }
                    "flows" if !varied_flows.is_empty() => varied_flows.clone(),
                    "flows" => match traffic {
                        TrafficSpec::Synthetic { flows, .. } => vec![flows.to_string()],
                        TrafficSpec::Capture(_) | TrafficSpec::Profile(_) => vec![],
                    },
                    name => matrix.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default(),
                };
                for value in texts.iter().filter(|v| !possible.contains(v)) {
                    let remedy = format!("use one of: {}", possible.join(", "));
                    self.error(values.span(), value, format!("no cell has this value of {}", name.get_ref()), remedy);
                }
            }
            selection.insert(name.get_ref().clone(), texts);
        }
        selection
    }

    /// Returns the bounds of a claim.
    fn bounds(
        &mut self,
        claim: &file::Claim,
        quantity: Option<&Quantity>,
        reference: &PublishedReference,
        published: &[Published],
    ) -> Option<(Option<f64>, Option<f64>)> {
        let (min, max) = (claim.min.as_ref(), claim.max.as_ref());
        let first = [claim.tolerance.as_ref(), min, max].into_iter().flatten().next();
        let Some(first) = first else { return Some((None, None)) };
        let Some(quantity) = quantity else {
            let remedy = "add metric = \"throughput\" or another";
            self.error(first.span(), &first.get_ref().to_string(), "bound without a metric", remedy);
            return None;
        };
        let numbers = [min, max].map(|n| n.map(|n| *n.get_ref()));
        if let Some(tolerance) = &claim.tolerance {
            let share = *tolerance.get_ref();
            let is_ratio = quantity.divided_by.is_some() || quantity.metric.unit().0.is_empty();
            let Some(ratio) = reference.ratio(published).filter(|_| is_ratio) else {
                let remedy = "use min and max";
                let problem = "applies to ratios only: absolute values depend on the machine";
                self.error(tolerance.span(), &share.to_string(), problem, remedy);
                return None;
            };
            if !(share > 0.0 && share < 1.0) || numbers != [None, None] {
                let remedy = "write a share such as 0.05, without min and max";
                self.error(tolerance.span(), &share.to_string(), "invalid tolerance", remedy);
                return None;
            }
            return Some((Some(ratio * (1.0 - share)), Some(ratio * (1.0 + share))));
        }
        let ordered = numbers[0].is_none_or(|min| numbers[1].is_none_or(|max| min <= max));
        if !ordered || numbers.iter().flatten().any(|n| !n.is_finite() || *n < 0.0) {
            let written = first.get_ref().to_string();
            self.error(
                first.span(),
                &written,
                "invalid bound, or min above max",
                "write finite bounds from 0, the lower one as min",
            );
        }
        Some((numbers[0], numbers[1]))
    }
}

/// Returns the numbers of flows if the matrix varies them.
fn varied_flows(file: &File, matrix: &Matrix) -> Vec<String> {
    let Some(written) = file.traffic.flows.as_ref().filter(|flows| has_parameter(Some(flows))) else { return vec![] };
    let all = cells::combinations(matrix);
    let texts = all.iter().filter_map(|cell| cells::substitute(&as_text(written), cell, &mut BTreeSet::new()).ok());
    texts.collect::<BTreeSet<_>>().into_iter().collect()
}
