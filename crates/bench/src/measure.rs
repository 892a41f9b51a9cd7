//! One result: a throughput searched for, latency at a share of it, and what each node did.

use crate::bed::{Ask, Bed, BedError, Seen};
use crate::{Goal, GoalResult, LimitedBy, Limits, Mlr, Next, Remark, Search, SearchError, Trial};
use report::{Latency, Node, Summary};
use std::collections::BTreeMap;
use traffic::Delays;

/// Share of the throughput at which latency and cycles are measured, as in NSDI'16 and OSDI'16.
pub const LATENCY_SHARE: f64 = 0.8;
/// Time that trials in which the machine was in the way may take in a row, s: where half of them are, short ones have to be
/// repeated often.
const SPOILT_S: f64 = 1.0;
/// How long that takes, s, and how often it is tried while the machine is in the way.
pub(crate) const LATENCY_S: f64 = 0.5;
pub(crate) const LATENCY_TRIES: usize = 5;
/// Highest load that is tried, packets a second.
pub(crate) const HIGHEST: f64 = 150e6;
/// Lowest, packets a second: a thousand in a trial of 50 ms.
pub(crate) const LOWEST: f64 = 20e3;

/// What was measured of one sort of frames.
pub struct Measured {
    /// What the search found.
    pub found: GoalResult,
    /// Every trial, in order.
    pub trials: Vec<Trial>,
    /// Latency at [`LATENCY_SHARE`] of the throughput.
    pub latency: Option<Latency>,
    /// What each NF and port did at that load.
    pub nodes: Vec<Node>,
    /// Packets dropped by the chain in all trials, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Why a measurement came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A search that cannot be.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A trial that could not be made, or was not to be.
    #[error(transparent)]
    Bed(#[from] BedError),
}

/// Searches the highest load that meets `goal`, then measures latency below it. `told` sees every trial; it stops the
/// measurement by returning false.
///
/// # Errors
/// [`Error`].
pub fn measure(bed: &mut dyn Bed, goal: Goal, told: impl FnMut(&Seen) -> bool) -> Result<Measured, Error> {
    let mut limits = Limits::new(LOWEST, HIGHEST)?;
    limits.machine_repeats = limits.machine_repeats.max((SPOILT_S / goal.final_s()) as u32);
    measure_within(bed, goal, limits, told)
}

/// As [`measure`], within these limits.
pub(crate) fn measure_within(
    bed: &mut dyn Bed,
    goal: Goal,
    limits: Limits,
    mut told: impl FnMut(&Seen) -> bool,
) -> Result<Measured, Error> {
    let mut drops = BTreeMap::new();
    // the first packets find caches cold and neighbours unknown
    add(&mut drops, &bed.trial(&Ask::load(1e5, 0.05))?.drops);
    let mut search = Mlr::new(vec![goal], limits)?;
    let found = loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                let seen = bed.trial(&Ask::load(load_pps, duration_s))?;
                add(&mut drops, &seen.drops);
                if !told(&seen) {
                    return Err(BedError::Interrupted.into());
                }
                search.tell(seen.trial)?;
            }
            Next::Done(summary) => break summary.results.into_iter().next().expect("one goal, one result"),
        }
    };
    let (mut latency, mut nodes) = (None, vec![]);
    if let Some(lower) = found.lower_pps {
        let at = (lower * LATENCY_SHARE).max(1.0);
        for _ in 0..LATENCY_TRIES {
            let seen = bed.trial(&Ask::load(at, LATENCY_S))?;
            add(&mut drops, &seen.drops);
            latency = latency_of(&seen.trial, seen.delays.as_ref(), lower);
            if !told(&seen) {
                return Err(BedError::Interrupted.into());
            }
            nodes = seen.nodes;
            if !seen.trial.machine {
                break;
            }
        }
    }
    Ok(Measured { found, trials: search.trials().to_vec(), latency, nodes, drops })
}

/// Offers one load in trials of the goal's length until its sum of time is over.
///
/// # Errors
/// [`Error`].
pub fn offer(
    bed: &mut dyn Bed,
    goal: Goal,
    load_pps: f64,
    mut told: impl FnMut(&Seen) -> bool,
) -> Result<Measured, Error> {
    let (mut drops, mut nodes) = (BTreeMap::new(), vec![]);
    bed.trial(&Ask::load(1e5_f64.min(load_pps), 0.05))?;
    let (mut trials, mut latency, mut spent, mut spoilt) = (vec![], None, 0.0, 0.0);
    while spent < goal.sum_s() {
        let seen = bed.trial(&Ask::load(load_pps, goal.final_s()))?;
        add(&mut drops, &seen.drops);
        let go_on = told(&seen);
        let Seen { trial, delays, .. } = seen;
        nodes = seen.nodes;
        // one in which the machine was in the way is made again, as long as that takes no more time than the others
        if trial.machine && spoilt < goal.sum_s() {
            spoilt += goal.final_s();
        } else {
            latency = latency_of(&trial, delays.as_ref(), load_pps).or(latency);
            spent += goal.final_s();
        }
        if !go_on {
            return Err(BedError::Interrupted.into());
        }
        trials.push(trial);
    }
    let judged: Vec<_> = trials.iter().filter(|t: &&Trial| !t.machine).collect();
    let holds = !judged.is_empty()
        && judged.iter().filter(|t| t.loss_ratio() > goal.loss_ratio()).count() as f64
            <= goal.exceed_ratio() * judged.len() as f64;
    let unsent: u64 = judged.iter().map(|t| t.unsent).sum();
    let forwarded: f64 = trials.iter().map(Trial::forwarding_pps).sum::<f64>() / trials.len().max(1) as f64;
    let found = GoalResult {
        goal,
        lower_pps: holds.then_some(load_pps),
        upper_pps: (!holds && !judged.is_empty()).then_some(load_pps),
        conditional_pps: Some(forwarded),
        width: None,
        regular: false,
        limited_by: match () {
            () if judged.is_empty() => LimitedBy::Machine,
            () if unsent != 0 => LimitedBy::Generator,
            () if holds => LimitedBy::MaxLoad,
            () => LimitedBy::Device,
        },
        remarks: if judged.is_empty() { vec![Remark::Machine { load_pps }] } else { vec![] },
    };
    Ok(Measured { found, trials, latency, nodes, drops })
}

/// Adds what was dropped to what was dropped before.
fn add(drops: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (reason, n) in more {
        *drops.entry(reason.clone()).or_default() += n;
    }
}

/// The latency of a trial, if anything came back.
pub(crate) fn latency_of(trial: &Trial, delays: Option<&Delays>, throughput: f64) -> Option<Latency> {
    let delays = delays?;
    let at = |share: f64| delays.quantile_ns(share).unwrap_or(0) as f64;
    Some(Latency {
        load_pps: trial.load_pps,
        share_of_throughput: Some(trial.load_pps / throughput),
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: delays.max_ns().unwrap_or(0) as f64,
        samples: delays.count(),
        lost: trial.lost,
        machine: trial.machine,
        latency_hdr: trial.latency_hdr.clone(),
    })
}

impl Measured {
    /// The bounds as a result has them.
    pub fn summary(&self) -> Summary {
        Summary {
            lower_pps: self.found.lower_pps.unwrap_or(0.0),
            upper_pps: self.found.upper_pps,
            conditional_pps: self.found.conditional_pps,
        }
    }

    /// What set the limit, as a result has it.
    pub fn limited_by(&self) -> report::LimitedBy {
        match self.found.limited_by {
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
