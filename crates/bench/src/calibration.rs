//! Calibration of the generator: the same traffic through a loopback without a DUT.

use crate::method::MeasurementError;
use crate::trial::{Measurer, MeasurerError, TrialInput, TrialOutput};
use crate::{Goal, InProcessDut, Limits, Mlr, Next, Search};
use config::ChainFile;
use graph::Registry;
use report::Calibration;
use std::path::Path;

/// Goal of the calibration: trial duration, duration sum and width, enough to compare generator and DUT.
const TRIAL_DURATION_S: f64 = 0.01;
const DURATION_SUM_S: f64 = 0.05;
const WIDTH: f64 = 0.05;
/// Duration of the latency trial in seconds, and attempts while it has host interference.
const LATENCY_S: f64 = 0.5;
const LATENCY_ATTEMPTS: usize = 5;
/// Maximum trial time of the search, seconds.
const MAX_SEARCH_S: f64 = 1.5;

/// Starts a chain without NFs on a CPU between two in-memory ports, for frames of up to `longest_frame` bytes without
/// FCS; for both directions, another one in reverse. The generator has a thread on each of `further_cpus` besides the
/// calling thread.
///
/// # Errors
/// As [`InProcessDut::start`].
pub fn loopback(
    cpu: usize,
    bidirectional: bool,
    longest_frame: usize,
    further_cpus: &[usize],
) -> Result<InProcessDut, runtime::Error> {
    let back = if bidirectional { format!(", {{ path = [\"out\", \"in\"], cores = [{cpu}] }}") } else { String::new() };
    let max_frame = longest_frame.max(packet::MAX_FRAME);
    let text = format!(
        "bondstone = 1\nmax_frame = {max_frame}\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
         chain = [{{ path = [\"in\", \"out\"], cores = [{cpu}] }}{back}]\n"
    );
    let registry = Registry::default();
    let file = ChainFile::parse(&text, Path::new("loopback"), &registry)
        .map_err(|diagnostics| runtime::Error::Input(diagnostics::Diagnostics(diagnostics)))?;
    InProcessDut::start_with_cores(&file, &registry, bidirectional, further_cpus)
}

/// Measures the approximate throughput of a [`loopback`], and its latency at `load_pps` packets per second: the part of
/// a DUT's latency that generator and ports cause. Search and latency trial last at most `measured_s` each, the trial
/// time of the measurement. Loads are at most `max_pps`: trials with a capture that is streamed from its file last as
/// long as reading it.
///
/// # Errors
/// [`MeasurementError`].
pub fn calibrate(
    loopback: &mut dyn Measurer,
    load_pps: f64,
    max_pps: Option<f64>,
    measured_s: f64,
    mut on_trial: impl FnMut(&TrialOutput) -> bool,
) -> Result<Calibration, MeasurementError> {
    let goal = Goal::quick()
        .with_final_s(TRIAL_DURATION_S)
        .and_then(|g| g.with_initial_s(TRIAL_DURATION_S)?.with_sum_s(DURATION_SUM_S));
    let goal = goal.and_then(|g| g.with_width(WIDTH)).unwrap_or(Goal::quick());
    let mut limits = Limits::in_real_time(&goal, max_pps)?;
    limits.max_traffic_s = MAX_SEARCH_S.min(measured_s);
    // fills caches
    loopback.trial(&TrialInput::constant(load_pps.min(1e5), 0.05))?;
    let mut search = Mlr::new(vec![goal], limits)?;
    let result = loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                let output = loopback.trial(&TrialInput::constant(load_pps, duration_s))?;
                if !on_trial(&output) {
                    return Err(MeasurerError::Interrupted.into());
                }
                search.record(output.trial)?;
            }
            Next::Done(summary) => break summary.results.into_iter().next(),
        }
    };
    let lower = result.and_then(|result| result.lower_pps).unwrap_or(0.0);
    let mut calibration = Calibration { loopback_lower_pps: lower, load_pps, ..Calibration::default() };
    for _ in 0..LATENCY_ATTEMPTS {
        let output = loopback.trial(&TrialInput::constant(load_pps, LATENCY_S.min(measured_s)))?;
        if let Some(delays) = &output.delays {
            let at = |share: f64| delays.quantile_ns(share).unwrap_or(0) as f64;
            (calibration.p50_ns, calibration.p99_ns, calibration.p999_ns) = (at(0.5), at(0.99), at(0.999));
        }
        if !on_trial(&output) {
            return Err(MeasurerError::Interrupted.into());
        }
        if !output.trial.host_interference {
            break;
        }
    }
    Ok(calibration)
}
