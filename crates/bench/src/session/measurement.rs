//! Measurement of one cell.

use super::dut::{SessionDut, longest_frame};
use super::result::{REPETITION, mark_partial};
use super::reuse::{IndexedResult, ReusableResults, cell_results};
use super::run_method::KnownThroughput;
use super::{CellResult, Event, MethodRun, Observer, Run, Session, SessionEnd, SessionError, Store, Target};
use crate::calibration::{calibrate, loopback};
use crate::dut::{DutSpec, Env, ExpectedTraffic, ExternalDut, ExternalDutError, RunningDut};
use crate::environment::{FixedFrequency, HostCheck};
use crate::generator::Generator;
use crate::method::{self, MeasurementError, MethodInfo, RequiredTraffic};
use crate::traffic_spec::{CaptureFile, PreparedTraffic};
use crate::trial::{MeasurerError, Trial, TrialOutput};
use runtime::SessionPriority;

/// Calibration load where no latency was measured, packets per second.
const CALIBRATION_PPS: f64 = 1e5;
/// A throughput below this is not used for other methods, packets per second.
const MIN_THROUGHPUT_PPS: f64 = 1.0;

/// Outcome of a cell.
pub(super) struct CellOutcome {
    /// Results of each traffic and method, as far as they were measured.
    pub(super) results: Vec<CellResult>,
    pub(super) end: SessionEnd,
    /// True unless all results are those of an earlier session.
    pub(super) is_new: bool,
}

/// Cause of a missing calibration.
enum CalibrationError {
    /// The loopback does not start.
    Start(SessionError),
    /// A trial failed or the session was cancelled.
    Trial(MeasurementError),
}

/// State of a cell's measurement.
struct Progress {
    results: Vec<IndexedResult>,
    /// False once a method found no rate that meets its goal, or cannot be measured.
    goals_met: bool,
    error: Option<MeasurementError>,
    /// The DUT does not forward the traffic correctly.
    nonconforming: Option<ExternalDutError>,
}

/// The services that the measurement of a cell uses.
pub(super) struct CellContext<'s> {
    pub(super) store: &'s mut dyn Store,
    pub(super) observer: &'s mut dyn Observer,
    pub(super) session_run: &'s str,
}

impl CellContext<'_> {
    /// Assigns an id to a result and stores it.
    fn store(&mut self, result: &mut report::Result) -> Result<(), SessionError> {
        result.assign_id()?;
        self.store.add(result, self.session_run).map_err(SessionError::Store)
    }
}

impl Session {
    /// Starts a DUT, measures it with each traffic and method, and then calibrates the generator without it. Every
    /// result is stored at once. Results among `earlier` are not measured again.
    ///
    /// # Errors
    /// Invalid input, a host that lacks something, a store that fails. An error during the measurement is reported as
    /// the end of the outcome, which has the results up to then.
    pub(super) fn measure(
        &mut self,
        run: &Run<'_>,
        earlier: Vec<report::Result>,
        context: CellContext<'_>,
    ) -> Result<CellOutcome, SessionError> {
        // in a separate thread: the generator is pinned, and the next cell chooses from all CPUs again
        std::thread::scope(|scope| {
            let measurement = scope.spawn(|| self.measure_in_thread(run, earlier, context));
            measurement.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn measure_in_thread(
        &mut self,
        run: &Run<'_>,
        earlier: Vec<report::Result>,
        mut context: CellContext<'_>,
    ) -> Result<CellOutcome, SessionError> {
        let traffic = match run.traffic.prepare(run.target.file(), &self.cancel.flag()) {
            Err(_) if self.cancel.is_cancelled() => {
                return Ok(CellOutcome { results: vec![], end: SessionEnd::Cancelled, is_new: false });
            }
            prepared => prepared?,
        };
        let reusable = ReusableResults::select(earlier, run, &traffic);
        if reusable.len() == traffic.len() * run.settings.methods.len() {
            context.observer.on_event(&Event::CellReused);
            let end = if reusable.results().all(is_met) { SessionEnd::Done } else { SessionEnd::GoalNotMet };
            return Ok(CellOutcome { results: reusable.into_cell_results(&traffic), end, is_new: false });
        }
        let allowed = runtime::allowed_cpus();
        // of this thread, and of the DUT that it starts
        let (priority, _restored_at_the_end) = raise_priority(run.target);
        let host_check = self.check_host(run, &allowed, context.observer);
        if !std::mem::replace(&mut self.goal_reported, true) {
            context.observer.on_event(&Event::Goal(&run.settings.goal));
        }
        let mut dut = self.start_dut(run, &traffic, context.observer)?;
        let _frequency = run.clock_mhz.map(|mhz| FixedFrequency::fix(&dut.dut_cpus, mhz)).transpose()?;
        dut.host_check = host_check;
        traffic.iter().for_each(|traffic| context.observer.on_event(&Event::TrafficPrepared(traffic)));

        let mut progress = Progress { results: vec![], goals_met: true, error: None, nonconforming: None };
        for (index, traffic) in traffic.iter().enumerate() {
            if let RunningDut::External(external) = &mut dut.dut
                && let Err(e) = external.check_forwarding(traffic)
            {
                progress.nonconforming = Some(e.into());
                break;
            }
            self.measure_traffic(run, &mut dut, (index, traffic), &reusable, &priority, &mut progress, &mut context)?;
            if progress.error.is_some() {
                break;
            }
        }
        let summary = self.stop_and_calibrate(run, dut, &allowed, &traffic, &mut progress, context.observer);
        store_calibrated(&mut progress.results, &mut context)?;
        self.outcome(progress, &traffic, summary.as_ref(), context.observer)
    }

    /// Checks the host, and reports that once per session.
    fn check_host(&mut self, run: &Run<'_>, allowed: &[usize], observer: &mut dyn Observer) -> Option<HostCheck> {
        if matches!(run.target, Target::Simulated { .. }) {
            return None;
        }
        let generator_cpu = self.generator_cpus.first().or(allowed.last()).copied();
        let other = allowed.iter().copied().filter(|cpu| Some(*cpu) != generator_cpu).take(1);
        let check = HostCheck::run(&other.chain(generator_cpu).collect::<Vec<_>>());
        if !std::mem::replace(&mut self.host_checked, true) {
            observer.on_event(&Event::HostChecked(&check));
        }
        Some(check)
    }

    /// Measures all methods with one traffic.
    #[expect(clippy::too_many_arguments, reason = "the state of one cell")]
    fn measure_traffic(
        &self,
        run: &Run<'_>,
        dut: &mut SessionDut,
        (index, traffic): (usize, &PreparedTraffic),
        reusable: &ReusableResults,
        priority: &str,
        progress: &mut Progress,
        context: &mut CellContext<'_>,
    ) -> Result<(), SessionError> {
        let mut throughput: Option<KnownThroughput> = None;
        for name in &run.settings.methods {
            let method = method::find(name).map_err(|source| SessionError::Method { name: name.clone(), source })?;
            let missing = match method.properties.traffic {
                RequiredTraffic::Connections if run.traffic.packets_per_connection().is_none() => {
                    Some("the traffic has no connections; add --tcp response=1024, or --short 10x1024")
                }
                RequiredTraffic::Tcp if traffic.tcp_settings().is_none() => {
                    Some("the traffic has no TCP connections with client and server; add --tcp response=1024")
                }
                RequiredTraffic::Flows if !traffic.is_divisible() => Some(
                    "the traffic has no flows whose addresses may change; leave out captures, profiles and connections",
                ),
                _ if run.settings.anatomy => anatomy_conflict(run, dut, traffic, method),
                _ => None,
            };
            if let Some(reason) = missing {
                context.observer.on_event(&Event::MethodSkipped { name, reason });
                progress.goals_met = false;
                continue;
            }
            let known = throughput.filter(|_| method.properties.reuses_throughput);
            if let Some(result) = reusable.find(index, name) {
                throughput = throughput_of(method, result.summary, result.limited_by).or(throughput);
                progress.goals_met &= is_met(result);
                progress.results.push((index, result.clone()));
                continue;
            }
            let mut method_run = self.run_method(run, dut, traffic, method, known, context.observer)?;
            describe_run(run, priority, &mut method_run);
            match method_run.error.take() {
                None => {}
                // other methods may be possible on this DUT
                Some(MeasurementError::Measurer(e @ MeasurerError::Unsupported { .. })) => {
                    let (name, reason) = (&*method_run.name, &*e.to_string());
                    context.observer.on_event(&Event::MethodSkipped { name, reason });
                    progress.goals_met = false;
                    continue;
                }
                Some(e) => progress.error = Some(e),
            }
            if progress.error.is_some() {
                if method_run.output.trials.is_empty() {
                    return Ok(());
                }
                mark_partial(&mut method_run);
            } else {
                context.observer.on_event(&Event::MethodDone(&method_run, traffic));
            }
            let output = &method_run.output;
            throughput = throughput_of(method, output.summary, output.limited_by.into()).or(throughput);
            let mut result = self.result(run, dut, &method_run, traffic, known);
            progress.goals_met &= is_met(&result);
            context.store(&mut result)?;
            progress.results.push((index, result));
            if progress.error.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stops the DUT and adds calibrations to the results. Returns the counts of a chain in this process.
    fn stop_and_calibrate(
        &self,
        run: &Run<'_>,
        dut: SessionDut,
        allowed: &[usize],
        traffic: &[PreparedTraffic],
        progress: &mut Progress,
        observer: &mut dyn Observer,
    ) -> Option<runtime::Summary> {
        let SessionDut { dut, generator_cpus, dut_cpus, spec, .. } = dut;
        let summary = match dut {
            RunningDut::InProcess(dut) => Some(dut.stop()),
            // closes the ports, which the calibration opens again
            other => {
                drop(other);
                None
            }
        };
        // another generator is not calibrated
        if progress.error.is_none() && progress.nonconforming.is_none() && run.generator == Generator::Bondstone {
            let calibrated = self
                .start_loopback(spec.as_ref(), dut_cpus.first().copied(), &generator_cpus, allowed, traffic)
                .map_err(CalibrationError::Start)
                .and_then(|loopback| match loopback {
                    Some(loopback) => self.calibrate(loopback, &mut progress.results, traffic, observer),
                    None => Ok(()),
                });
            match calibrated {
                Ok(()) => {}
                Err(CalibrationError::Trial(e)) => progress.error = Some(e),
                // the results are valid without
                Err(CalibrationError::Start(e)) => {
                    observer.on_event(&Event::Warning(&format!("the generator is not calibrated: {e}")));
                }
            }
        }
        summary
    }

    /// Starts a loopback: the ports of an external DUT connected without it, or an empty chain in this process.
    fn start_loopback(
        &self,
        spec: Option<&DutSpec>,
        dut_cpu: Option<usize>,
        generator_cpus: &[usize],
        allowed: &[usize],
        traffic: &[PreparedTraffic],
    ) -> Result<Option<RunningDut>, SessionError> {
        let (first, further) = generator_cpus.split_first().unwrap_or((&0, &[]));
        match (spec, dut_cpu) {
            (Some(spec), _) => {
                let Some(without) = crate::dut::registry::loopback(spec) else { return Ok(None) };
                let expected = ExpectedTraffic {
                    dst_mac: wire::build::DST_MAC,
                    destinations: vec![],
                    trace: None,
                    longest_frame: longest_frame(traffic),
                };
                let dut = ExternalDut::start("calibration", &without, expected, self.cancel.flag(), further)?;
                Ok(Some(RunningDut::External(Box::new(dut))))
            }
            (None, Some(cpu)) => {
                let pin_error = |cpu| move |source| SessionError::Pin { cpu, source };
                // the loopback pins its worker to a CPU of the set that this thread may use
                runtime::set_affinity(allowed).map_err(pin_error(cpu))?;
                let bidirectional = traffic.iter().any(PreparedTraffic::is_bidirectional);
                let mut loopback = loopback(cpu, bidirectional, longest_frame(traffic), further)?;
                runtime::pin(*first).map_err(pin_error(*first))?;
                loopback.set_stop_flag(self.cancel.flag());
                Ok(Some(RunningDut::InProcess(Box::new(loopback))))
            }
            (None, None) => Ok(None),
        }
    }

    /// Measures the loopback with each traffic, at the load at which the latency of the DUT was measured.
    fn calibrate(
        &self,
        mut loopback: RunningDut,
        results: &mut [IndexedResult],
        traffic: &[PreparedTraffic],
        observer: &mut dyn Observer,
    ) -> Result<(), CalibrationError> {
        for (index, traffic) in traffic.iter().enumerate() {
            let uncalibrated = results.iter_mut().filter(|(n, r)| *n == index && r.calibration.is_none());
            let mut uncalibrated = uncalibrated.map(|(_, result)| result).peekable();
            let Some(first) = uncalibrated.peek() else { continue };
            let load_pps = first.latency.first().map_or(CALIBRATION_PPS, |latency| latency.load_pps);
            let measured_s = first.trials.iter().map(|trial| trial.duration_s).sum();
            let is_streamed = traffic.captures().iter().any(CaptureFile::is_streamed);
            let max_pps = is_streamed.then_some(2.0 * load_pps);
            observer.on_event(&Event::MethodStarted(&format!("{}, calibration", traffic.name())));
            let on_trial = |output: &TrialOutput| {
                observer.on_event(&Event::Trial(&output.trial));
                !self.cancel.is_cancelled()
            };
            let calibration = calibrate(&mut loopback.measurer(traffic), load_pps, max_pps, measured_s, on_trial);
            observer.on_event(&Event::TrialsDone);
            let calibration = calibration.map_err(CalibrationError::Trial)?;
            uncalibrated.for_each(|result| result.calibration = Some(calibration.clone()));
        }
        if let RunningDut::InProcess(loopback) = loopback {
            loopback.stop();
        }
        Ok(())
    }

    fn outcome(
        &self,
        progress: Progress,
        traffic: &[PreparedTraffic],
        summary: Option<&runtime::Summary>,
        observer: &mut dyn Observer,
    ) -> Result<CellOutcome, SessionError> {
        let results = cell_results(progress.results, traffic);
        if let Some(e) = progress.nonconforming {
            if results.is_empty() {
                return Err(e.into());
            }
            observer.on_event(&Event::Error(&e.to_string()));
            return Ok(CellOutcome { results, end: SessionEnd::Environment, is_new: true });
        }
        let faults = summary.map_or(&[][..], |summary| &summary.errors);
        for fault in faults {
            observer.on_event(&Event::Error(&fault.to_string()));
        }
        let end = match progress.error {
            Some(MeasurementError::Measurer(MeasurerError::Interrupted)) => SessionEnd::Cancelled,
            _ if self.cancel.is_cancelled() => SessionEnd::Cancelled,
            Some(e) => {
                observer.on_event(&Event::Error(&e.to_string()));
                SessionEnd::Failed
            }
            None if summary.is_some_and(|summary| !summary.balanced) => {
                observer.on_event(&Event::Error("the packet counts do not add up; this is a bug in Bondstone"));
                SessionEnd::Failed
            }
            None if !faults.is_empty() => SessionEnd::Failed,
            None if !progress.goals_met => SessionEnd::GoalNotMet,
            None => SessionEnd::Done,
        };
        Ok(CellOutcome { results, end, is_new: true })
    }
}

/// Returns the reason why a method does not trace probes through the DUT, if it does not.
fn anatomy_conflict(
    run: &Run<'_>,
    dut: &SessionDut,
    traffic: &PreparedTraffic,
    method: &MethodInfo,
) -> Option<&'static str> {
    if ![method::THROUGHPUT, method::GIVEN_LOAD].contains(&method.name) {
        return Some("it does not trace probes; leave out --anatomy, or measure the throughput or a load");
    }
    if !matches!(run.target, Target::InProcess(_)) {
        return Some("probes are traced only through the chains of a file; leave out --anatomy");
    }
    if traffic.tcp_settings().is_some() {
        return Some("TCP connections have no probes; leave out --anatomy or --tcp");
    }
    (dut.generator_cpus.len() > 1)
        .then_some("probes are traced with one CPU of the generator; name one with --core, or leave out --anatomy")
}

/// Stores results with their calibration in place of those without.
fn store_calibrated(results: &mut [IndexedResult], context: &mut CellContext<'_>) -> Result<(), SessionError> {
    for (_, result) in results.iter_mut().filter(|(_, result)| result.calibration.is_some()) {
        let uncalibrated = std::mem::take(&mut result.id);
        context.store(result)?;
        if result.id != uncalibrated {
            context.store.delete(&uncalibrated).map_err(SessionError::Store)?;
        }
    }
    Ok(())
}

/// Returns the throughput that a method measured, if other methods may use it.
fn throughput_of(
    method: &MethodInfo,
    summary: report::Summary,
    limited_by: report::LimitedBy,
) -> Option<KnownThroughput> {
    (method.properties.is_throughput && summary.lower_pps >= MIN_THROUGHPUT_PPS)
        .then_some(KnownThroughput { summary, limited_by })
}

/// Raises the priority of this thread and, unless it starts others, of its session. Returns a description of what was
/// achieved.
fn raise_priority(target: Target<'_>) -> (String, Option<SessionPriority>) {
    // programs of containers and VMs run in sessions of their own, and would not start beside a polling one with priority
    let is_in_one_session = match target {
        Target::Simulated { .. } => return ("not raised".to_owned(), None),
        Target::InProcess(file) => file.sandboxes.is_empty(),
        Target::External { spec, file, .. } => spec.env == Env::Native && file.sandboxes.is_empty(),
    };
    let nice = if runtime::raise_priority() { "nice -20" } else { "nice 0" };
    if !is_in_one_session {
        return (format!("{nice}; session not raised, as the DUT has others"), None);
    }
    let session = SessionPriority::raise();
    (format!("{nice}, {session}"), Some(session))
}

/// Adds priority, repetition and CPU frequency to the environment of a result.
fn describe_run(run: &Run<'_>, priority: &str, method_run: &mut MethodRun) {
    let trials = &method_run.output.trials;
    let sum_s = |value: fn(&Trial) -> f64| trials.iter().map(value).sum::<f64>();
    let (off_cpu_s, sent_s) = (sum_s(|t| t.generator.off_cpu.as_secs_f64()), sum_s(|t| t.duration_s));
    let mut add = |name: &str, value: String| method_run.environment.extra.insert(name.to_owned(), value);
    add("priority", priority.to_owned());
    if sent_s > 0.0 {
        add("generator preempted", format!("{:.3} % of the time of the trials", 100.0 * off_cpu_s / sent_s));
    }
    if let Some(repetition) = run.repetition {
        add(REPETITION, repetition.to_string());
    }
    if let Some(mhz) = run.clock_mhz {
        add("frequency of the DUT's CPUs", format!("fixed, {mhz} MHz"));
    }
}

/// Returns true if a result has a rate, or needs none.
fn is_met(result: &report::Result) -> bool {
    result.summary.lower_pps > 0.0
        || method::find(&result.method.name).is_ok_and(|method| !method.properties.requires_rate)
}
