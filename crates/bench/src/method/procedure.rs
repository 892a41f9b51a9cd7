//! The frame that all methods share: the throughput search that comes first, pauses, retries, and the trial log.

use super::properties::{LoadChoice, Properties, RequiredTraffic};
use super::{Method, MethodOutput, MethodSettings, Step, Thoroughness};
use crate::search::{Goal, GoalResult, LimitedBy, Next, Remark, Search, SearchBounds, SearchError};
use crate::trial::{Trial, TrialInput, TrialOutput};
use report::{Summary, limit};

/// The part of a method that differs from the other methods.
pub(super) trait Procedure {
    /// Name.
    const NAME: &'static str;
    /// Standard that defines it.
    const STANDARD: Option<&'static str>;
    /// Question that it answers.
    const QUESTION: &'static str;
    /// Approximate duration of the quick and the standard form, see [`MethodInfo`](super::MethodInfo).
    const DURATION_S: (f64, f64);
    /// Properties; most methods differ from [`DEFAULT_PROPERTIES`] in one or two.
    const PROPERTIES: Properties = DEFAULT_PROPERTIES;
    /// True if it starts with a throughput search.
    const NEEDS_THROUGHPUT: bool = true;
    /// True if a trial with host interference is repeated.
    const RETRIES_INTERFERED_TRIALS: bool = true;

    /// Returns the next trial, or `None` at the end. Called once per trial.
    fn next(&mut self, context: &MethodContext) -> Option<TrialInput>;

    /// Records the output of a trial.
    fn record(&mut self, context: &MethodContext, input: &TrialInput, output: TrialOutput);

    /// Returns the seconds without traffic before each trial. RFC 2544 §23: two seconds after the learning frames, five
    /// to restabilise after the previous trial.
    fn pause_s(thoroughness: Thoroughness) -> f64 {
        match thoroughness {
            Thoroughness::Quick => 0.007,
            Thoroughness::Standard => 7.0,
        }
    }

    /// Adds the results so far to `output`.
    fn report(&self, context: &MethodContext, output: &mut MethodOutput);
}

/// Properties of a method that searches for the throughput, or uses a known one.
pub(super) const DEFAULT_PROPERTIES: Properties = Properties {
    load: LoadChoice::Search,
    traffic: RequiredTraffic::Any,
    is_throughput: false,
    reuses_throughput: true,
    relative_to_line_rate: false,
    requires_rate: true,
    counts_only: false,
};

/// Settings and throughput that a procedure reads.
pub(super) struct MethodContext {
    pub(super) settings: MethodSettings,
    /// Throughput in packets per second; 0 if the method needs none.
    pub(super) throughput_pps: f64,
}

impl MethodContext {
    /// Returns a share of the throughput, rounded down to whole packets per second and clamped to the limits.
    pub(super) fn load_at_share(&self, share: f64) -> f64 {
        let limits = &self.settings.limits;
        (self.throughput_pps * share).floor().clamp(limits.min_pps(), limits.max_pps())
    }
}

/// Retries of a trial with host interference after the search. The trials of a search may be much shorter; their
/// retries are set by the limits.
const MAX_RETRIES: u32 = 4;

/// Runs a procedure after the throughput search that it may need.
pub(super) struct MethodRunner<P> {
    procedure: P,
    context: MethodContext,
    search: Option<Box<dyn Search>>,
    /// Result of the search.
    throughput: Option<GoalResult>,
    pending: Option<Step>,
    /// True if a pause has followed the last trial.
    paused: bool,
    /// Trial to execute after the pause, or to repeat.
    queued: Option<TrialInput>,
    done: bool,
    /// True if the method ended because a result document cannot contain more trials.
    trial_limit_reached: bool,
    trials: Vec<Trial>,
    /// Consecutive retries because of host interference.
    retries: u32,
    /// Trials of the procedure that count in spite of host interference.
    interfered_trials: u32,
}

impl<P: Procedure> MethodRunner<P> {
    pub(super) fn new(plan: P, settings: MethodSettings) -> Result<Self, SearchError> {
        let needed = P::NEEDS_THROUGHPUT && settings.throughput_pps.is_none();
        let search = if needed { Some(settings.search.start(settings.goal, settings.limits)?) } else { None };
        let throughput_pps = settings.throughput_pps.filter(|_| P::NEEDS_THROUGHPUT).unwrap_or(0.0);
        Ok(Self {
            procedure: plan,
            context: MethodContext { settings, throughput_pps },
            search,
            throughput: None,
            pending: None,
            paused: false,
            queued: None,
            done: false,
            trial_limit_reached: false,
            trials: Vec::new(),
            retries: 0,
            interfered_trials: 0,
        })
    }

    /// Returns the next trial.
    fn choose(&mut self) -> Option<TrialInput> {
        if let Some(input) = self.queued.take() {
            self.trial_limit_reached = self.trials.len() >= limit::TRIALS;
            return (!self.trial_limit_reached).then_some(input);
        }
        if let Some(search) = &mut self.search
            && self.throughput.is_none()
        {
            match search.next() {
                Next::Measure { load_pps, duration_s } => return Some(TrialInput::constant(load_pps, duration_s)),
                Next::Done(summary) => self.throughput = summary.results.into_iter().next(),
            }
            self.context.throughput_pps = self.throughput.as_ref().and_then(|result| result.lower_pps).unwrap_or(0.0);
        }
        if P::NEEDS_THROUGHPUT && self.context.throughput_pps <= 0.0 {
            return None;
        }
        if self.trials.len() >= limit::TRIALS {
            self.trial_limit_reached = true;
            return None;
        }
        self.procedure.next(&self.context)
    }

    fn is_searching(&self) -> bool {
        self.search.is_some() && self.throughput.is_none()
    }
}

/// Checks that a trial is the requested one and that its counts are consistent.
fn check(input: &TrialInput, trial: &Trial) -> Result<(), SearchError> {
    trial.check()?;
    let requested_pps = input.phases.first().map_or(0.0, |phase| phase.load_pps);
    let requested_s = input.duration_s();
    let near = |actual: f64, requested: f64| (actual - requested).abs() <= requested * 1e-6;
    if near(trial.load_pps, requested_pps) && near(trial.duration_s, requested_s) {
        return Ok(());
    }
    Err(SearchError::DifferentTrial {
        load_pps: trial.load_pps,
        duration_s: trial.duration_s,
        requested_pps,
        requested_s,
    })
}

impl<P: Procedure> Method for MethodRunner<P> {
    fn next(&mut self) -> Step {
        if let Some(step) = &self.pending {
            return step.clone();
        }
        if self.done {
            return Step::Done;
        }
        let Some(input) = self.choose() else {
            self.done = true;
            return Step::Done;
        };
        let rest_s = P::pause_s(self.context.settings.thoroughness);
        let step = if self.paused || rest_s <= 0.0 {
            Step::Trial(input)
        } else {
            self.queued = Some(input);
            Step::Pause(rest_s)
        };
        self.pending = Some(step.clone());
        step
    }

    fn record(&mut self, output: TrialOutput) -> Result<(), SearchError> {
        let Some(Step::Trial(input)) = &self.pending else {
            return Err(SearchError::UnexpectedTrial(output.trial.load_pps));
        };
        check(input, &output.trial)?;
        if self.is_searching()
            && let Some(search) = &mut self.search
        {
            search.record(output.trial.clone())?;
            self.trials.push(output.trial);
            (self.pending, self.paused) = (None, false);
            return Ok(());
        }
        let input = input.clone();
        (self.pending, self.paused) = (None, false);
        self.trials.push(output.trial.clone());
        if output.trial.host_interference && P::RETRIES_INTERFERED_TRIALS {
            if self.retries < MAX_RETRIES.min(self.context.settings.limits.interference_retries) {
                self.retries += 1;
                self.queued = Some(input);
                return Ok(());
            }
            self.interfered_trials += 1;
        }
        self.retries = 0;
        self.procedure.record(&self.context, &input, output);
        Ok(())
    }

    fn paused(&mut self) {
        if matches!(self.pending, Some(Step::Pause(_))) {
            (self.pending, self.paused) = (None, true);
        }
    }

    fn bounds(&self) -> SearchBounds {
        self.search.as_ref().map(|search| search.bounds()).unwrap_or_default()
    }

    fn output(&self) -> MethodOutput {
        let MethodContext { settings, throughput_pps } = &self.context;
        let result = self.throughput.as_ref();
        let mut output = MethodOutput {
            method: report::Method {
                name: P::NAME.to_owned(),
                standard: P::STANDARD.map(str::to_owned),
                quick: settings.thoroughness == Thoroughness::Quick,
            },
            goal: result.map_or(settings.goal, |result| result.goal),
            summary: Summary {
                lower_pps: *throughput_pps,
                upper_pps: result.and_then(|result| result.upper_pps),
                conditional_pps: result.and_then(|result| result.conditional_pps),
            },
            limited_by: result.map_or(LimitedBy::MaxLoad, |result| result.limited_by),
            latency: vec![],
            anatomy: vec![],
            quantities: vec![],
            series: vec![],
            streams: vec![],
            deviations: vec![],
            trials: self.trials.clone(),
        };
        let deviations = &mut output.deviations;
        if P::NEEDS_THROUGHPUT && settings.throughput_pps.is_some() {
            deviations
                .push(format!("the throughput of {throughput_pps} packets/s is taken from an earlier measurement"));
        }
        if self.search.is_some() {
            deviations.extend(goal_deviations(&result.map_or(settings.goal, |result| result.goal)));
        }
        let rest_s = P::pause_s(settings.thoroughness);
        if rest_s > 0.0 && settings.thoroughness == Thoroughness::Quick && !self.trials.is_empty() {
            deviations.push(format!(
                "pauses of {} between trials where RFC 2544 §23 requires {}",
                format_seconds(rest_s),
                format_seconds(P::pause_s(Thoroughness::Standard))
            ));
        }
        for remark in result.into_iter().flat_map(|result| &result.remarks) {
            deviations.push(remark.to_string());
        }
        match result {
            Some(GoalResult { lower_pps: None, remarks, .. }) if !P::PROPERTIES.is_throughput => {
                let cause =
                    if remarks.contains(&Remark::NothingHolds) { "no load meets" } else { "no load was found to meet" };
                deviations.push(format!("the throughput is unknown: {cause} the goal"));
            }
            Some(GoalResult { limited_by: LimitedBy::Generator, .. }) => {
                deviations.push("the generator limits the throughput: the DUT may forward more".to_owned());
            }
            _ => {}
        }
        let no_buffer: Vec<u64> = self.trials.iter().map(|t| t.unsent_no_buffer).filter(|n| *n != 0).collect();
        if !no_buffer.is_empty() {
            deviations.push(format!(
                "in {} trials the DUT held all packet buffers, and {} packets were not sent; they count as lost by the \
                 DUT",
                no_buffer.len(),
                no_buffer.iter().sum::<u64>()
            ));
        }
        if self.interfered_trials != 0 {
            deviations.push(format!(
                "{} trials with host interference count: each of {} attempts had it",
                self.interfered_trials,
                MAX_RETRIES.min(settings.limits.interference_retries) + 1
            ));
        }
        if self.trial_limit_reached {
            deviations.push(format!("the method ended after {} trials, the limit of a result document", limit::TRIALS));
        }
        self.procedure.report(&self.context, &mut output);
        output
    }
}

/// Describes where a goal differs from RFC 2544.
fn goal_deviations(goal: &Goal) -> Vec<String> {
    let mut deviations = vec![];
    if goal.final_s() < 60.0 {
        deviations.push(format!("trials of {} where RFC 2544 §24 requires 60 s", format_seconds(goal.final_s())));
    }
    if goal.loss_ratio() > 0.0 {
        let percent = (goal.loss_ratio() * 1e8).round() / 1e6;
        deviations.push(format!("loss ratio {percent} % where RFC 2544 §26.1 requires 0"));
    }
    if goal.exceed_ratio() > 0.0 {
        let percent = (goal.exceed_ratio() * 1e4).round() / 1e2;
        deviations.push(format!("exceed ratio {percent} % where RFC 2544 §26.1 requires 0"));
    }
    deviations
}

/// Formats a duration with a unit.
pub(super) fn format_seconds(seconds: f64) -> String {
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    match seconds {
        s if s >= 3600.0 => format!("{} h", rounded(s / 3600.0)),
        s if s >= 1.0 => format!("{} s", rounded(s)),
        s if s >= 1e-3 => format!("{} ms", rounded(s * 1e3)),
        s => format!("{} µs", rounded(s * 1e6)),
    }
}
