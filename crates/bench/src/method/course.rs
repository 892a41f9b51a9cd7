//! The way that methods have in common: the throughput first where it is needed, pauses, repeats, the record.

use super::{Findings, Form, Method, Settings, Step};
use crate::bed::{Ask, Seen};
use crate::goal::Goal;
use crate::search::{GoalResult, LimitedBy, Next, Remark, Search, SearchError};
use crate::trial::Trial;
use report::{Summary, limit};

/// What sets a method apart from the others.
pub(super) trait Plan {
    /// Its name, as in [`ALL`](super::ALL).
    const NAME: &'static str;
    /// What defines it.
    const STANDARD: Option<&'static str>;
    /// Whether it begins with the throughput.
    const NEEDS_THROUGHPUT: bool = true;
    /// Whether a trial that the machine spoilt is repeated.
    const REPEATS: bool = true;

    /// The next trial, if there is one. Asked once for each.
    fn next(&mut self, known: &Known) -> Option<Ask>;

    /// Takes in what came of it.
    fn tell(&mut self, known: &Known, ask: &Ask, seen: Seen);

    /// Seconds without traffic before each trial. RFC 2544 §23: two seconds for what is learnt, five to restabilise after
    /// the trial before.
    fn rest_s(form: Form) -> f64 {
        match form {
            Form::Quick => 0.007,
            Form::Standard => 7.0,
        }
    }

    /// Adds what has been found so far.
    fn sum_up(&self, known: &Known, findings: &mut Findings);
}

/// What a plan may look at.
pub(super) struct Known {
    pub(super) settings: Settings,
    /// The throughput, packets a second; 0 where none is needed.
    pub(super) throughput_pps: f64,
}

impl Known {
    /// A share of the throughput as a whole load within the limits.
    pub(super) fn load(&self, share: f64) -> f64 {
        let limits = &self.settings.limits;
        (self.throughput_pps * share).floor().clamp(limits.min_pps(), limits.max_pps())
    }
}

/// Most repeats of a trial after the search; one of a search, which may be much shorter, is repeated as its limits say.
const REPEATS: u32 = 4;

/// A method: a plan and what comes before it.
pub(super) struct Course<P> {
    plan: P,
    known: Known,
    search: Option<Box<dyn Search>>,
    found: Option<GoalResult>,
    pending: Option<Step>,
    /// Whether a pause has come since the last trial.
    rested: bool,
    /// A trial to be asked for after the pause, or once more.
    waiting: Option<Ask>,
    over: bool,
    /// Whether it ended because a result holds no more trials.
    full: bool,
    trials: Vec<Trial>,
    /// How often in a row the machine was in the way.
    spoilt: u32,
    /// Trials of the plan that count though it was.
    doubtful: u32,
}

impl<P: Plan> Course<P> {
    pub(super) fn new(plan: P, settings: Settings) -> Result<Self, SearchError> {
        let needed = P::NEEDS_THROUGHPUT && settings.throughput_pps.is_none();
        let search = if needed { Some(settings.search.start(settings.goal, settings.limits)?) } else { None };
        let throughput_pps = settings.throughput_pps.filter(|_| P::NEEDS_THROUGHPUT).unwrap_or(0.0);
        Ok(Self {
            plan,
            known: Known { settings, throughput_pps },
            search,
            found: None,
            pending: None,
            rested: false,
            waiting: None,
            over: false,
            full: false,
            trials: Vec::new(),
            spoilt: 0,
            doubtful: 0,
        })
    }

    /// The trial to make next.
    fn choose(&mut self) -> Option<Ask> {
        if let Some(ask) = self.waiting.take() {
            self.full = self.trials.len() >= limit::TRIALS;
            return (!self.full).then_some(ask);
        }
        if let Some(search) = &mut self.search
            && self.found.is_none()
        {
            match search.next() {
                Next::Measure { load_pps, duration_s } => return Some(Ask::load(load_pps, duration_s)),
                Next::Done(summary) => self.found = summary.results.into_iter().next(),
            }
            self.known.throughput_pps = self.found.as_ref().and_then(|found| found.lower_pps).unwrap_or(0.0);
        }
        if P::NEEDS_THROUGHPUT && self.known.throughput_pps <= 0.0 {
            return None;
        }
        if self.trials.len() >= limit::TRIALS {
            self.full = true;
            return None;
        }
        self.plan.next(&self.known)
    }

    fn is_searching(&self) -> bool {
        self.search.is_some() && self.found.is_none()
    }
}

/// Whether a trial is the one asked for and adds up.
fn check(ask: &Ask, trial: &Trial) -> Result<(), SearchError> {
    trial.check()?;
    let wanted_pps = ask.phases.first().map_or(0.0, |phase| phase.load_pps);
    let wanted_s = ask.duration_s();
    let near = |is: f64, wanted: f64| (is - wanted).abs() <= wanted * 1e-6;
    if near(trial.load_pps, wanted_pps) && near(trial.duration_s, wanted_s) {
        return Ok(());
    }
    Err(SearchError::Other { load_pps: trial.load_pps, duration_s: trial.duration_s, wanted_pps, wanted_s })
}

impl<P: Plan> Method for Course<P> {
    fn next(&mut self) -> Step {
        if let Some(step) = &self.pending {
            return step.clone();
        }
        if self.over {
            return Step::Done;
        }
        let Some(ask) = self.choose() else {
            self.over = true;
            return Step::Done;
        };
        let rest_s = P::rest_s(self.known.settings.form);
        let step = if self.rested || rest_s <= 0.0 {
            Step::Trial(ask)
        } else {
            self.waiting = Some(ask);
            Step::Pause(rest_s)
        };
        self.pending = Some(step.clone());
        step
    }

    fn tell(&mut self, seen: Seen) -> Result<(), SearchError> {
        let Some(Step::Trial(ask)) = &self.pending else { return Err(SearchError::Unasked(seen.trial.load_pps)) };
        check(ask, &seen.trial)?;
        if self.is_searching()
            && let Some(search) = &mut self.search
        {
            search.tell(seen.trial.clone())?;
            self.trials.push(seen.trial);
            (self.pending, self.rested) = (None, false);
            return Ok(());
        }
        let ask = ask.clone();
        (self.pending, self.rested) = (None, false);
        self.trials.push(seen.trial.clone());
        if seen.trial.machine && P::REPEATS {
            if self.spoilt < REPEATS.min(self.known.settings.limits.machine_repeats) {
                self.spoilt += 1;
                self.waiting = Some(ask);
                return Ok(());
            }
            self.doubtful += 1;
        }
        self.spoilt = 0;
        self.plan.tell(&self.known, &ask, seen);
        Ok(())
    }

    fn paused(&mut self) {
        if matches!(self.pending, Some(Step::Pause(_))) {
            (self.pending, self.rested) = (None, true);
        }
    }

    fn findings(&self) -> Findings {
        let Known { settings, throughput_pps } = &self.known;
        let found = self.found.as_ref();
        let mut findings = Findings {
            method: report::Method {
                name: P::NAME.to_owned(),
                standard: P::STANDARD.map(str::to_owned),
                quick: settings.form == Form::Quick,
            },
            goal: found.map_or(settings.goal, |found| found.goal),
            summary: Summary {
                lower_pps: *throughput_pps,
                upper_pps: found.and_then(|found| found.upper_pps),
                conditional_pps: found.and_then(|found| found.conditional_pps),
            },
            limited_by: found.map_or(LimitedBy::MaxLoad, |found| found.limited_by),
            latency: vec![],
            quantities: vec![],
            series: vec![],
            streams: vec![],
            deviations: vec![],
            trials: self.trials.clone(),
        };
        let says = &mut findings.deviations;
        if P::NEEDS_THROUGHPUT && settings.throughput_pps.is_some() {
            says.push(format!("the throughput of {throughput_pps} packets/s is that of an earlier measurement"));
        }
        if self.search.is_some() {
            says.extend(of_goal(&found.map_or(settings.goal, |found| found.goal)));
        }
        let rest_s = P::rest_s(settings.form);
        if rest_s > 0.0 && settings.form == Form::Quick && !self.trials.is_empty() {
            says.push(format!(
                "pauses of {} between trials where RFC 2544 §23 asks for {}",
                time(rest_s),
                time(P::rest_s(Form::Standard))
            ));
        }
        for remark in found.into_iter().flat_map(|found| &found.remarks) {
            says.push(remark.to_string());
        }
        match found {
            Some(GoalResult { lower_pps: None, remarks, .. }) if P::NAME != "throughput" => {
                let why =
                    if remarks.contains(&Remark::NothingHolds) { "no load meets" } else { "none was found to meet" };
                says.push(format!("there is no throughput to measure at: {why} the goal"));
            }
            Some(GoalResult { limited_by: LimitedBy::Generator, .. }) => {
                says.push("the throughput is the generator's: the device may forward more".to_owned());
            }
            _ => {}
        }
        if self.doubtful != 0 {
            says.push(format!(
                "{} trials count though the machine was in the way, as it was each of {} times",
                self.doubtful,
                REPEATS.min(settings.limits.machine_repeats) + 1
            ));
        }
        if self.full {
            says.push(format!("it ended after {} trials: a result holds no more", limit::TRIALS));
        }
        self.plan.sum_up(&self.known, &mut findings);
        findings
    }
}

/// Where a goal differs from RFC 2544.
fn of_goal(goal: &Goal) -> Vec<String> {
    let mut says = vec![];
    if goal.final_s() < 60.0 {
        says.push(format!("trials of {} where RFC 2544 §24 asks for 60 s", time(goal.final_s())));
    }
    if goal.loss_ratio() > 0.0 {
        let percent = (goal.loss_ratio() * 1e8).round() / 1e6;
        says.push(format!("trials may lose {percent} % of their packets where RFC 2544 §26.1 allows none"));
    }
    if goal.exceed_ratio() > 0.0 {
        let percent = (goal.exceed_ratio() * 1e4).round() / 1e2;
        says.push(format!("{percent} % of the trial time may have more loss where RFC 2544 §26.1 has none"));
    }
    says
}

/// Seconds for people.
pub(super) fn time(seconds: f64) -> String {
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    match seconds {
        s if s >= 3600.0 => format!("{} h", rounded(s / 3600.0)),
        s if s >= 1.0 => format!("{} s", rounded(s)),
        s if s >= 1e-3 => format!("{} ms", rounded(s * 1e3)),
        s => format!("{} µs", rounded(s * 1e6)),
    }
}
