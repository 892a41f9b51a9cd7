//! The quick form of a scenario: a part of its values, measured for a shorter time.

use super::{Scenario, Selection};
use crate::method::Thoroughness;
use crate::scenario::MeasurementSettings;

/// Longest duration sum of a search, in trials of its final duration.
const MAX_FINAL_TRIALS: u64 = 4;
/// Longest duration sum of a given load, nanoseconds.
const MAX_LOAD_NS: u64 = 1_000_000_000;
/// Longest final trial, nanoseconds.
const MAX_FINAL_NS: u64 = 50_000_000;
/// Narrowest bounds of a search, as a share of the upper one.
const MIN_WIDTH: f64 = 0.05;
/// Most pairs of samples per row of `native-bench`.
const MAX_PAIRS: u32 = 60;

impl Scenario {
    /// Reduces the scenario to its quick form: the values of `[quick]`, measured once, with searches in trials of up
    /// to 50 ms. Claims are judged on the values that are left.
    pub fn reduce_to_quick(&mut self) {
        let quick = &self.quick;
        let is_measured = |name: &str, value: &str| quick.get(name).is_none_or(|all| all.iter().any(|v| v == value));
        self.cells.retain(|cell| cell.parameters.iter().all(|(name, value)| is_measured(name, value)));
        for cell in &mut self.cells {
            cell.traffic.retain_frames(|name| is_measured("frames", name));
            cell.settings.reduce_to_quick();
        }
        self.settings.reduce_to_quick();
        if let Some(native) = &mut self.native {
            native.pairs = native.pairs.min(MAX_PAIRS);
        }
        for claim in &mut self.claims {
            // labels of native-bench are others
            let Some(quantity) = claim.quantity.as_mut().filter(|quantity| !quantity.metric.is_native()) else {
                continue;
            };
            let selections = [Some(&mut quantity.selection), quantity.divided_by.as_mut()];
            let left = selections.into_iter().flatten().map(|selection| reduce(selection, quick)).max();
            match left.unwrap_or(Left::All) {
                Left::All => {}
                Left::Some => {
                    let note = "the quick form has a part of its values".to_owned();
                    claim.note = Some(claim.note.take().map_or(note.clone(), |own| format!("{own}; {note}")));
                }
                Left::None => {
                    claim.quantity = None;
                    claim.not_testable.get_or_insert_with(|| "its values are not part of the quick form".to_owned());
                }
            }
        }
    }
}

/// Values of a selection that are left.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    All,
    Some,
    /// A label has none.
    None,
}

/// Removes values that are not in `quick`.
fn reduce(selection: &mut Selection, quick: &Selection) -> Left {
    let mut left = Left::All;
    for (name, values) in selection {
        let before = values.len();
        values.retain(|value| quick.get(name).is_none_or(|all| all.contains(value)));
        left = left.max(match values.len() {
            0 => Left::None,
            now if now < before => Left::Some,
            _ => Left::All,
        });
    }
    left
}

impl MeasurementSettings {
    fn reduce_to_quick(&mut self) {
        let goal = &mut self.goal;
        goal.final_ns = goal.final_ns.min(MAX_FINAL_NS);
        goal.initial_ns = goal.initial_ns.min(goal.final_ns);
        let most = if self.rate_pps.is_some() { MAX_LOAD_NS } else { MAX_FINAL_TRIALS * goal.final_ns };
        goal.sum_ns = goal.sum_ns.min(most);
        goal.width = goal.width.max(MIN_WIDTH);
        self.thoroughness = Thoroughness::Quick;
        self.repeat = 1;
    }
}
