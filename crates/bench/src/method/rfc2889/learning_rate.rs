//! Rate at which a switch learns addresses (RFC 2889 §5.8).

use super::learning::{Learned, Learning};
use crate::method::MethodOutput;
use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use crate::method::properties::{LoadChoice, Properties, RequiredTraffic};
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Relative width of the bounds at which the search ends.
const WIDTH: f64 = 0.05;
/// Duration of a trial at the rate from which queues do not matter, seconds.
const MIN_TRIAL_S: f64 = 0.01;
/// Rounds at a rate, while the host or the generator may have caused the loss.
const ATTEMPTS: u32 = 4;

/// Bisection of the rate, each with new addresses.
#[derive(Default)]
pub(in crate::method) struct LearningRate {
    learning: Learning,
    lower_pps: Option<f64>,
    upper_pps: Option<f64>,
    /// Rate of the current round.
    rate_pps: Option<f64>,
    attempts: u32,
    is_starved: bool,
    first: Option<Learned>,
}

impl LearningRate {
    /// Returns the next rate: the highest, the lowest, and then those between the bounds.
    fn choose(&self, context: &MethodContext) -> Option<f64> {
        let settings = &context.settings;
        match (self.lower_pps, self.upper_pps) {
            (None, None) => Some(settings.top_pps()),
            (Some(_), None) => None,
            (None, Some(upper)) if upper <= settings.limits.min_pps() => None,
            (None, Some(_)) => Some(settings.limits.min_pps()),
            (Some(lower), Some(upper)) => (upper - lower > upper * WIDTH).then(|| (lower * upper).sqrt().round()),
        }
    }
}

impl Procedure for LearningRate {
    const NAME: &'static str = "learning-rate";
    const STANDARD: Option<&'static str> = Some("RFC 2889 §5.8");
    const QUESTION: &'static str = "How many MAC addresses per second does a switch learn?";
    const DURATION_S: (f64, f64) = (3.0, 200.0);
    const PROPERTIES: Properties = Properties {
        traffic: RequiredTraffic::Flows,
        reuses_throughput: false,
        requires_rate: false,
        load: LoadChoice::Addresses,
        ..DEFAULT_PROPERTIES
    };
    const NEEDS_THROUGHPUT: bool = false;
    const RETRIES_INTERFERED_TRIALS: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        if self.rate_pps.is_none() {
            self.rate_pps = self.choose(context);
        }
        Some(self.learning.next(context.settings.flows, self.rate_pps?))
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let Some(outcome) = self.learning.record(&output, false) else { return };
        self.first.get_or_insert(outcome);
        let are_all_learned = outcome.is_all() && !outcome.is_starved();
        self.attempts += 1;
        if !are_all_learned && (outcome.interfered || outcome.is_starved()) && self.attempts < ATTEMPTS {
            return;
        }
        self.attempts = 0;
        let rate_pps = self.rate_pps.take();
        match are_all_learned {
            true => self.lower_pps = rate_pps,
            false => {
                self.upper_pps = rate_pps;
                self.is_starved = outcome.is_starved();
            }
        }
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        if self.lower_pps.is_none() && self.upper_pps.is_none() {
            return;
        }
        let per_second = |name: &str, pps: f64| Quantity::new(name, "per second", pps);
        output.quantities = vec![per_second("addresses learned", self.lower_pps.unwrap_or(0.0))];
        output.quantities.extend(self.upper_pps.map(|upper| per_second("addresses learned, upper bound", upper)));
        output.quantities.push(Quantity::new("addresses of a trial", "addresses", context.settings.flows as f64));
        output.limited_by = match self.upper_pps {
            Some(_) if self.is_starved => LimitedBy::Generator,
            Some(_) => LimitedBy::Device,
            None => LimitedBy::MaxLoad,
        };
        output.deviations.extend(self.first.and_then(|first| first.deviation()));
        if self.is_starved {
            output.deviations.push("the generator limits the rate: the DUT may learn faster".to_owned());
        }
        if self.lower_pps.is_none() {
            output.deviations.push(
                "not all addresses were learned at the lowest rate: the table may be too small, or full of earlier addresses; \
                 lower --flows, or restart the DUT"
                    .to_owned(),
            );
        }
        let lasts_s = self.lower_pps.map(|pps| context.settings.flows as f64 / pps);
        if let Some(lasts_s) = lasts_s.filter(|seconds| *seconds < MIN_TRIAL_S) {
            output.deviations.push(format!(
                "a trial at the rate lasts {}, and queues may hold its frames; raise --flows",
                format_seconds(lasts_s)
            ));
        }
        output.deviations.push(
            "each trial has new addresses where RFC 2889 §5.8 waits until the earlier ones have aged out; flooded frames are \
             observed at a second port"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::learning::tests::Switch;
    use crate::method::{MethodSettings, Thoroughness, run, start};
    use crate::search::LimitedBy;
    use crate::{Goal, Limits};

    #[test]
    fn finds_the_rate() {
        let settings = MethodSettings {
            flows: 1000,
            ..MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap())
        };
        let measure = |capacity, rate| {
            let mut method = start("learning-rate", &settings).unwrap();
            run(&mut *method, &mut Switch::new(capacity, rate), |_| true, |_| ()).unwrap();
            method.output()
        };
        for rate in [1500.0, 2e5, 9e6] {
            let output = measure(1_000_000, rate);
            let (lower, upper) = (output.quantities[0].value, output.quantities[1].value);
            assert!(lower <= rate && rate < upper && upper - lower <= upper * 0.05, "{lower} {rate} {upper}");
            assert_eq!(output.limited_by, LimitedBy::Device);
        }
        assert_eq!(measure(1_000_000, 1e9).limited_by, LimitedBy::MaxLoad);
        let full = measure(500, 1e9);
        assert_eq!(full.quantities[0].value, 0.0);
        assert!(full.deviations.iter().any(|d| d.contains("too small")), "{:?}", full.deviations);
    }
}
