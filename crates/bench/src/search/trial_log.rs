//! Trial log of a search: completed trials, the pending one, and the budget.

use crate::search::{GoalResult, Limits, Next, SearchError, Summary};
use crate::trial::Trial;

/// Requested trial.
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
pub(crate) struct TrialLog {
    pub(crate) limits: Limits,
    pub(crate) trials: Vec<Trial>,
    pub(crate) pending: Option<Request>,
    traffic_ns: u64,
    /// True once a trial exceeded the budget.
    pub(crate) exhausted: bool,
    series: InterferedSeries,
}

/// Consecutive trials that do not count because of host interference.
#[derive(Clone, Copy, Default, Debug)]
struct InterferedSeries {
    trials: u32,
    highest_load: u64,
    last_load: u64,
}

/// Loads below this fraction of one that could not be judged say nothing: buffers absorb the interference there, whatever
/// the DUT.
pub(crate) const UNJUDGED_FRACTION: u64 = 4;

impl TrialLog {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            trials: Vec::new(),
            pending: None,
            traffic_ns: 0,
            exhausted: false,
            series: InterferedSeries::default(),
        }
    }

    /// Requests a trial, unless it exceeds the budget.
    pub(crate) fn request(&mut self, request: Request) -> Option<Request> {
        let traffic_s = (self.traffic_ns + request.duration_ns) as f64 / 1e9;
        if self.trials.len() >= self.limits.max_trials || traffic_s > self.limits.max_traffic_s {
            self.exhausted = true;
            return None;
        }
        self.pending = Some(request);
        self.pending
    }

    /// Records a trial, if it is the requested one.
    pub(crate) fn record(&mut self, trial: Trial) -> Result<(Request, &Trial), SearchError> {
        let request = self.pending.ok_or(SearchError::UnexpectedTrial(trial.load_pps))?;
        trial.check()?;
        let near = |actual: f64, requested: f64| (actual - requested).abs() <= requested * 1e-6;
        if !near(trial.load_pps, request.load_pps()) || !near(trial.duration_s, request.duration_s()) {
            return Err(SearchError::DifferentTrial {
                load_pps: trial.load_pps,
                duration_s: trial.duration_s,
                requested_pps: request.load_pps(),
                requested_s: request.duration_s(),
            });
        }
        self.pending = None;
        self.traffic_ns += request.duration_ns;
        self.trials.push(trial);
        let last = self.trials.len() - 1;
        Ok((request, &self.trials[last]))
    }

    /// Records that the last trial, at this load, counts, or does not because of host interference.
    pub(crate) fn record_interference(&mut self, counts: bool, load: u64) {
        let InterferedSeries { trials, highest_load, .. } = self.series;
        self.series = if counts {
            InterferedSeries::default()
        } else {
            InterferedSeries { trials: trials + 1, highest_load: highest_load.max(load), last_load: load }
        };
    }

    /// Returns true once the host is too busy to measure the DUT.
    pub(crate) fn host_is_too_busy(&self) -> bool {
        let InterferedSeries { trials, highest_load, last_load } = self.series;
        trials > self.limits.interference_retries && last_load < highest_load / UNJUDGED_FRACTION
    }

    /// Returns the number of trials with host interference.
    pub(crate) fn interfered_trials(&self) -> usize {
        self.trials.iter().filter(|trial| trial.host_interference).count()
    }

    pub(crate) fn summary(&self, results: Vec<GoalResult>) -> Summary {
        Summary {
            results,
            trials: self.trials.len(),
            interfered_trials: self.interfered_trials(),
            traffic_s: self.traffic_ns as f64 / 1e9,
        }
    }
}
