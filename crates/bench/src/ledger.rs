//! The record that a search keeps: trials, the one asked for, and what is left of the budget.

use crate::search::{GoalResult, Limits, Next, SearchError, Summary};
use crate::trial::Trial;

/// A trial asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) load: u64,
    pub(crate) duration_ns: u64,
}

impl Request {
    fn load_pps(self) -> f64 {
        self.load as f64
    }

    fn duration_s(self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    pub(crate) fn next(self) -> Next {
        Next::Measure { load_pps: self.load_pps(), duration_s: self.duration_s() }
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) limits: Limits,
    pub(crate) trials: Vec<Trial>,
    pub(crate) pending: Option<Request>,
    traffic_ns: u64,
    /// Whether a trial was refused for want of budget.
    pub(crate) exhausted: bool,
}

impl Ledger {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, trials: Vec::new(), pending: None, traffic_ns: 0, exhausted: false }
    }

    /// Asks for a trial, if the budget has room for it.
    pub(crate) fn ask(&mut self, request: Request) -> Option<Request> {
        let traffic_s = (self.traffic_ns + request.duration_ns) as f64 / 1e9;
        if self.trials.len() >= self.limits.max_trials || traffic_s > self.limits.max_traffic_s {
            self.exhausted = true;
            return None;
        }
        self.pending = Some(request);
        self.pending
    }

    /// Records a trial, if it is the one asked for.
    pub(crate) fn take(&mut self, trial: Trial) -> Result<(Request, &Trial), SearchError> {
        let request = self.pending.ok_or(SearchError::Unasked(trial.load_pps))?;
        trial.check()?;
        let near = |is: f64, wanted: f64| (is - wanted).abs() <= wanted * 1e-6;
        if !near(trial.load_pps, request.load_pps()) || !near(trial.duration_s, request.duration_s()) {
            return Err(SearchError::Other {
                load_pps: trial.load_pps,
                duration_s: trial.duration_s,
                wanted_pps: request.load_pps(),
                wanted_s: request.duration_s(),
            });
        }
        self.pending = None;
        self.traffic_ns += request.duration_ns;
        self.trials.push(trial);
        let last = self.trials.len() - 1;
        Ok((request, &self.trials[last]))
    }

    pub(crate) fn summary(&self, results: Vec<GoalResult>) -> Summary {
        Summary {
            results,
            trials: self.trials.len(),
            machine_trials: self.trials.iter().filter(|trial| trial.machine).count(),
            traffic_s: self.traffic_ns as f64 / 1e9,
        }
    }
}
