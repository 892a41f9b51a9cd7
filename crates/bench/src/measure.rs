//! What measurements with real devices have in common.

use crate::method::Findings;
use crate::{Goal, LimitedBy, Limits, SearchError, Trial};

/// Time that trials in which the machine was in the way may take in a row, s: where half of them are, short ones have to be
/// repeated often.
const SPOILT_S: f64 = 1.0;
/// Highest load that is tried, packets a second.
pub(crate) const HIGHEST: f64 = 150e6;
/// Lowest, packets a second: a hundred in a trial of 50 ms.
pub(crate) const LOWEST: f64 = 2e3;

/// Loads for a search in whose trials a core may be taken away.
///
/// # Errors
/// When `most_pps`, what the medium carries, leaves none.
pub fn limits(goal: &Goal, most_pps: Option<f64>) -> Result<Limits, SearchError> {
    let highest = most_pps.unwrap_or(HIGHEST).min(HIGHEST);
    let mut limits = Limits::new(LOWEST.min(highest), highest)?;
    limits.machine_repeats = limits.machine_repeats.max((SPOILT_S / goal.final_s()) as u32);
    Ok(limits)
}

impl Findings {
    /// What set the limit, as a result has it.
    pub fn limit(&self) -> report::LimitedBy {
        match self.limited_by {
            LimitedBy::Device => report::LimitedBy::Dut,
            LimitedBy::Budget => report::LimitedBy::Budget,
            LimitedBy::Generator => report::LimitedBy::Generator,
            LimitedBy::MaxLoad => report::LimitedBy::Load,
            LimitedBy::Machine => report::LimitedBy::Machine,
        }
    }
}

/// A trial as a result has it.
pub fn document(trial: &Trial) -> report::Trial {
    report::Trial {
        load_pps: trial.load_pps,
        duration_s: trial.duration_s,
        intended: trial.intended,
        sent: trial.sent,
        unsent: trial.unsent,
        received: trial.received,
        lost: trial.lost,
        duplicate: trial.duplicate,
        reordered: trial.reordered,
        corrupt: trial.corrupt,
        late: trial.late,
        phases: trial.phases.iter().map(|p| report::Phase { load_pps: p.load_pps, duration_s: p.duration_s }).collect(),
        poll_gap_max_ns: trial.poll_gap_max_ns.generator.max(trial.poll_gap_max_ns.worker),
        machine: trial.machine,
        latency_hdr: trial.latency_hdr.clone(),
        late_hdr: trial.late_hdr.clone(),
    }
}
