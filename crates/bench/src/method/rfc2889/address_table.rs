//! Size of the address table of a switch (RFC 2889 §5.7, address caching capacity).

use super::learning::{Learned, Learning};
use crate::method::MethodOutput;
use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure};
use crate::method::properties::{LoadChoice, Properties, RequiredTraffic};
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Addresses learned per second if no load is given.
const LEARNED_PPS: f64 = 20_000.0;

/// One round with as many addresses as there are flows.
#[derive(Default)]
pub(in crate::method) struct AddressTable {
    learning: Learning,
    outcome: Option<Learned>,
}

impl Procedure for AddressTable {
    const NAME: &'static str = "address-table";
    const STANDARD: Option<&'static str> = Some("RFC 2889 §5.7");
    const QUESTION: &'static str = "How many MAC addresses does a switch keep?";
    const DURATION_S: (f64, f64) = (0.2, 22.0);
    const PROPERTIES: Properties = Properties {
        load: LoadChoice::Fixed,
        traffic: RequiredTraffic::Flows,
        reuses_throughput: false,
        requires_rate: false,
        ..DEFAULT_PROPERTIES
    };
    const NEEDS_THROUGHPUT: bool = false;
    const RETRIES_INTERFERED_TRIALS: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let settings = &context.settings;
        let rate_pps = settings.rate_pps.unwrap_or(LEARNED_PPS);
        self.outcome.is_none().then(|| self.learning.next(settings.flows, rate_pps))
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        self.outcome = self.learning.record(&output, true);
    }

    fn report(&self, _: &MethodContext, output: &mut MethodOutput) {
        let Some(outcome) = self.outcome else { return };
        let Learned { offered, learned, interfered, .. } = outcome;
        let addresses = |name: &str, n: u64| Quantity::new(name, "addresses", n as f64);
        output.quantities = vec![addresses("addresses learned", learned), addresses("addresses offered", offered)];
        output.limited_by = match outcome.is_all() {
            true if outcome.is_starved() => LimitedBy::Generator,
            true => LimitedBy::MaxLoad,
            false => LimitedBy::Device,
        };
        output.deviations.extend(outcome.deviation());
        if outcome.is_all() {
            output.deviations.push("all addresses were learned: the table may hold more; raise --flows".to_owned());
        }
        if interfered || outcome.is_starved() {
            output
                .deviations
                .push("the generator or the host lost frames, whose addresses may not have been learned".to_owned());
        }
        output.deviations.push(
            "one number of addresses where RFC 2889 §5.7 searches for one of which all are learned; flooded frames are \
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
    fn counts_the_addresses_that_are_kept() {
        let settings = MethodSettings {
            flows: 10_000,
            ..MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap())
        };
        for (capacity, limited_by) in [
            (0, LimitedBy::Device),
            (8192, LimitedBy::Device),
            (10_000, LimitedBy::MaxLoad),
            (99_999, LimitedBy::MaxLoad),
        ] {
            let mut method = start("address-table", &settings).unwrap();
            run(&mut *method, &mut Switch::new(capacity, 1e9), |_| true, |_| ()).unwrap();
            let output = method.output();
            assert_eq!((output.quantities[0].value, output.limited_by), (capacity.min(10_000) as f64, limited_by));
            assert_eq!(output.trials.len(), 3);
        }
    }
}
