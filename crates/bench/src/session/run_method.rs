//! One method with one traffic on a running DUT.

use super::dut::{SessionDut, remote_environment};
use super::{Event, MethodRun, Observer, Run, Session, SessionError, live};
use crate::dut::RunningDut;
use crate::environment::{Steal, environment};
use crate::generator::Generator;
use crate::method::{self, LoadChoice, MeasurementError, MethodInfo, MethodSettings, ProfileSummary, RunStep};
use crate::search::Limits;
use crate::traffic_spec::{PreparedTraffic, TrafficSpec};
use crate::trial::{DirectionCounts, Measurer, TrialInput, TrialOutput};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Largest load as a multiple of the throughput where the medium sets no limit.
const OVERLOAD: f64 = 1.5;
/// Load and minimum duration of the warm-up trial.
const WARM_UP_PPS: f64 = 1e5;
const WARM_UP_S: f64 = 0.05;
/// Connections of the shortest trial at the lowest load of a search.
const MIN_CONNECTIONS: f64 = 20.0;
/// Interval at which a pause checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A throughput measured before, with its limiting factor.
#[derive(Clone, Copy)]
pub(super) struct KnownThroughput {
    pub(super) summary: report::Summary,
    pub(super) limited_by: report::LimitedBy,
}

/// Returns the settings of the methods for one traffic.
fn method_settings(
    run: &Run<'_>,
    traffic: &PreparedTraffic,
    throughput_pps: Option<f64>,
) -> Result<MethodSettings, SessionError> {
    let settings = &run.settings;
    let line_pps = |bps| report::rate::line_pps(bps, traffic.document().frames.mean_bytes());
    let given = settings.line_rate_bps.map(line_pps);
    // in-memory ports have no line rate; a DUT that is faster than the default must be overloaded as well
    let default = line_pps(report::rate::TEN_GBE_BPS).max(throughput_pps.unwrap_or(0.0) * OVERLOAD);
    let mut settings = MethodSettings {
        line_pps: Some(given.unwrap_or(default).min(traffic::pace::MAX_PPS)),
        throughput_pps,
        rate_pps: settings.rate_pps.or_else(|| traffic.captured_pps()),
        search: settings.search,
        soak_s: settings.soak_s,
        anatomy: settings.anatomy,
        flows: traffic.document().flows,
        ..MethodSettings::new(settings.thoroughness, settings.goal, Limits::in_real_time(&settings.goal, given)?)
    };
    if let TrafficSpec::Profile(timetable) = &run.traffic {
        settings.profile = Some(ProfileSummary { mean_pps: timetable.mean_pps(), seconds: timetable.seconds() });
    }
    if let Some(packets) = run.traffic.packets_per_connection() {
        settings.packets_per_connection = packets.into();
        let least_pps = (MIN_CONNECTIONS * f64::from(packets) / settings.goal.initial_s()) as u64;
        let limits = &mut settings.limits;
        limits.min_pps = limits.min_pps.max(least_pps).min(limits.max_pps);
    }
    Ok(settings)
}

impl Session {
    /// Runs a method.
    pub(super) fn run_method(
        &self,
        run: &Run<'_>,
        dut: &mut SessionDut,
        traffic: &PreparedTraffic,
        method: &'static MethodInfo,
        throughput: Option<KnownThroughput>,
        observer: &mut dyn Observer,
    ) -> Result<MethodRun, SessionError> {
        let mut settings = method_settings(run, traffic, throughput.map(|known| known.summary.lower_pps))?;
        if method.properties.load == LoadChoice::Given && traffic.captured_pps().is_some() {
            // parts of a capture have other rates than the whole
            settings.goal = settings.goal.with_final_s(settings.goal.sum_s())?;
        }
        let mut procedure = method::start(method.name, &settings)
            .map_err(|source| SessionError::Method { name: method.name.to_owned(), source })?;
        let several = run.settings.methods.len() > 1;
        let name = if several { format!("{}, {}", traffic.name(), method.name) } else { traffic.name().to_owned() };
        observer.on_event(&Event::MethodStarted(&name));
        let steal = Steal::now(&dut.cpus);
        let mut counts = RunCounts::default();
        let is_simulated = matches!(dut.dut, RunningDut::Simulated(_));
        let (progress, generator_cpus) = (dut.dut.progress(), dut.generator_cpus.clone());
        let mut measurer = dut.dut.measurer(traffic);
        let warm_up = match run.generator {
            // connections would leave state in the tables whose room is measured
            Generator::Bondstone if method.properties.load != LoadChoice::Fixed => warm_up(&mut measurer, &settings),
            _ => Ok(()),
        };
        let ended = warm_up.and_then(|()| {
            let observer: Mutex<&mut dyn Observer> = Mutex::new(&mut *observer);
            let on_step = |step: RunStep<'_>| {
                let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
                match step {
                    RunStep::Started(input, bounds) => {
                        let load_pps = input.phases.first().map_or(0.0, |phase| phase.load_pps);
                        observer.on_event(&Event::TrialStarted { load_pps, duration_s: input.duration_s(), bounds });
                    }
                    RunStep::Done(output) => {
                        observer.on_event(&Event::Trial(&output.trial));
                        counts.add(output);
                    }
                }
                !self.cancel.is_cancelled()
            };
            let pause = |seconds: f64| {
                // a simulated device has virtual time
                if !is_simulated {
                    self.pause(seconds);
                }
            };
            std::thread::scope(|scope| {
                let (running, end) = mpsc::channel::<()>();
                if let Some(progress) = &progress {
                    let (observer, generator_cpus) = (&observer, &generator_cpus);
                    scope.spawn(move || live::report_seconds(progress, observer, generator_cpus, &end));
                }
                let ended = method::run(&mut *procedure, &mut measurer, on_step, pause);
                drop(running);
                ended
            })
        });
        observer.on_event(&Event::TrialsDone);
        let RunCounts { nodes, drops, directions } = counts;
        Ok(MethodRun {
            name,
            method,
            output: procedure.output(),
            nodes,
            drops,
            directions,
            environment: environment_of(dut, steal),
            line_pps: settings.line_pps,
            limits: settings.limits,
            error: ended.err(),
        })
    }

    fn pause(&self, seconds: f64) {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end && !self.cancel.is_cancelled() {
            std::thread::sleep((end - Instant::now()).min(POLL_INTERVAL));
        }
    }
}

/// Sends packets that fill caches and neighbour tables.
fn warm_up(measurer: &mut dyn Measurer, settings: &MethodSettings) -> Result<(), MeasurementError> {
    let load_pps = settings.rate_pps.unwrap_or(settings.limits.max_pps()).min(WARM_UP_PPS);
    measurer.trial(&TrialInput::constant(load_pps, (1.0 / load_pps).max(WARM_UP_S)))?;
    Ok(())
}

/// Counts over all trials of a method.
#[derive(Default)]
struct RunCounts {
    nodes: Vec<report::Node>,
    drops: BTreeMap<String, u64>,
    directions: Vec<DirectionCounts>,
}

impl RunCounts {
    fn add(&mut self, output: &TrialOutput) {
        self.nodes.clone_from(&output.nodes);
        self.directions.resize(output.directions.len().max(self.directions.len()), DirectionCounts::default());
        for (sum, direction) in self.directions.iter_mut().zip(&output.directions) {
            sum.sent += direction.sent;
            sum.received += direction.received;
        }
        for (reason, n) in &output.drops {
            *self.drops.entry(reason.clone()).or_default() += n;
        }
    }
}

/// Describes the host; `steal` is the stolen time at the start of the method.
fn environment_of(dut: &SessionDut, steal: Steal) -> report::Environment {
    let mut environment = environment(&dut.cpus, &dut.memory);
    if let Some(check) = &dut.host_check {
        let verdict = format!("{}: {}", check.fitness.name(), check.summary());
        environment.extra.insert("host check".to_owned(), verdict);
    }
    if !dut.generator_cpus.is_empty() {
        let cpus: Vec<String> = dut.generator_cpus.iter().map(usize::to_string).collect();
        environment.extra.insert("generator CPUs".to_owned(), cpus.join(","));
    }
    if let Some(remote) = dut.dut.description().and_then(|description| description.environment.as_ref()) {
        environment.extra.extend(remote_environment(remote));
    }
    if let RunningDut::External(external) = &dut.dut {
        let facts = external.ports().nics().iter().map(|nic| (format!("NIC of port {}", nic.port), nic.to_string()));
        environment.extra.extend(facts);
    }
    environment.steal_share = Steal::now(&dut.cpus).share_since(steal);
    environment
}
