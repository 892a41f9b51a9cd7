//! What generator and wires do by themselves: the same traffic through a chain without NFs.

use crate::bed::{Ask, Bed, BedError, Seen};
use crate::measure::limits;
use crate::method::Stopped;
use crate::{Goal, Mlr, Next, Search, Wired};
use config::ChainFile;
use graph::Registry;
use report::Calibration;
use std::path::Path;

/// Length of trials, how much of them decides, and how near the bounds come: enough to see who is the slower one.
const FINAL_S: f64 = 0.01;
const SUM_S: f64 = 0.05;
const WIDTH: f64 = 0.05;
/// How long latency is measured, s, and how often that is tried while the machine is in the way.
const LATENCY_S: f64 = 0.5;
const LATENCY_TRIES: usize = 5;
/// Trial time that a search may take, s.
const SEARCH_S: f64 = 1.5;

/// A chain without NFs on a CPU, from one wire to another; for both ways, another one back.
///
/// # Errors
/// As [`Wired::start`].
pub fn loopback(cpu: usize, both_ways: bool) -> Result<Wired, runtime::Error> {
    let back = if both_ways { format!(", {{ path = [\"out\", \"in\"], cores = [{cpu}] }}") } else { String::new() };
    let text = format!(
        "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
         chain = [{{ path = [\"in\", \"out\"], cores = [{cpu}] }}{back}]\n"
    );
    let none = Registry::default();
    let file = ChainFile::parse(&text, Path::new("loopback"), &none)
        .map_err(|faults| runtime::Error::Input(diagnostics::Diagnostics(faults)))?;
    Wired::start(&file, &none, both_ways)
}

/// Searches the throughput of a [`loopback`], roughly, and measures its latency at `load_pps` packets a second: what the
/// latency of a device at that load holds of the way there and back. No more than `most_pps` is tried: a capture that is read as it
/// is sent, with its own gaps, makes a trial as long as the reading.
///
/// # Errors
/// [`Stopped`].
pub fn calibrate(
    loopback: &mut dyn Bed,
    load_pps: f64,
    most_pps: Option<f64>,
    mut told: impl FnMut(&Seen) -> bool,
) -> Result<Calibration, Stopped> {
    let goal = Goal::quick().with_final_s(FINAL_S).and_then(|g| g.with_initial_s(FINAL_S)?.with_sum_s(SUM_S));
    let goal = goal.and_then(|g| g.with_width(WIDTH)).unwrap_or(Goal::quick());
    let mut limits = limits(&goal, most_pps)?;
    limits.max_traffic_s = SEARCH_S;
    // the first packets find caches cold
    loopback.trial(&Ask::load(load_pps.min(1e5), 0.05))?;
    let mut search = Mlr::new(vec![goal], limits)?;
    let found = loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                let seen = loopback.trial(&Ask::load(load_pps, duration_s))?;
                if !told(&seen) {
                    return Err(BedError::Interrupted.into());
                }
                search.tell(seen.trial)?;
            }
            Next::Done(summary) => break summary.results.into_iter().next(),
        }
    };
    let lower = found.and_then(|found| found.lower_pps).unwrap_or(0.0);
    let mut calibration = Calibration { loopback_lower_pps: lower, load_pps, ..Calibration::default() };
    for _ in 0..LATENCY_TRIES {
        let seen = loopback.trial(&Ask::load(load_pps, LATENCY_S))?;
        if let Some(delays) = &seen.delays {
            let at = |share: f64| delays.quantile_ns(share).unwrap_or(0) as f64;
            (calibration.p50_ns, calibration.p99_ns, calibration.p999_ns) = (at(0.5), at(0.99), at(0.999));
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
