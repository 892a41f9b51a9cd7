//! What generator and wires do by themselves: the same traffic through a chain without NFs.

use crate::bed::{Ask, Bed, BedError, Seen};
use crate::measure::{HIGHEST, LATENCY_S, LATENCY_TRIES, LOWEST, latency_of, measure_within};
use crate::{Goal, Limits, MeasureError, Wired};
use chain::ChainFile;
use graph::Registry;
use report::Calibration;
use std::path::Path;

/// Length of trials, how much of them decides, and how near the bounds come: enough to see who is the slower one.
const FINAL_S: f64 = 0.01;
const SUM_S: f64 = 0.05;
const WIDTH: f64 = 0.05;
/// Trial time that a search may take, s.
const SEARCH_S: f64 = 1.5;

/// A chain without NFs on a CPU, from one wire to another.
///
/// # Errors
/// As [`Wired::start`].
pub fn loopback(cpu: usize) -> Result<Wired, runtime::Error> {
    let text = format!(
        "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
         chain = [{{ path = [\"in\", \"out\"], cores = [{cpu}] }}]\n"
    );
    let file = ChainFile::parse(&text, Path::new("loopback"), &Registry::default())
        .map_err(|faults| runtime::Error::Input(graph::Diagnostics(faults)))?;
    Wired::start(&file, 0)
}

/// Searches the throughput of a [`loopback`], roughly, and measures its latency at `load_pps` packets a second: what the
/// latency of a chain at that load holds of the way there and back.
///
/// # Errors
/// As [`measure`](crate::measure()).
pub fn calibrate(
    loopback: &mut dyn Bed,
    load_pps: f64,
    mut told: impl FnMut(&Seen) -> bool,
) -> Result<Calibration, MeasureError> {
    let goal = Goal::quick().with_final_s(FINAL_S).and_then(|g| g.with_initial_s(FINAL_S)?.with_sum_s(SUM_S));
    let goal = goal.and_then(|g| g.with_width(WIDTH)).unwrap_or(Goal::quick());
    let mut limits = Limits::new(LOWEST, HIGHEST)?;
    limits.max_traffic_s = SEARCH_S;
    let found = measure_within(loopback, goal, limits, &mut told)?.found;
    let mut calibration =
        Calibration { loopback_lower_pps: found.lower_pps.unwrap_or(0.0), load_pps, ..Calibration::default() };
    for _ in 0..LATENCY_TRIES {
        let seen = loopback.trial(&Ask::load(load_pps, LATENCY_S))?;
        if let Some(latency) = latency_of(&seen.trial, seen.delays.as_ref(), load_pps) {
            (calibration.p50_ns, calibration.p99_ns) = (latency.p50_ns, latency.p99_ns);
            calibration.p999_ns = latency.p999_ns;
        }
        if !told(&seen) {
            return Err(BedError::Interrupted.into());
        }
        if !seen.trial.machine {
            break;
        }
    }
    Ok(calibration)
}
