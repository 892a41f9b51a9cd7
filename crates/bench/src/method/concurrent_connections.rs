//! Capacity of concurrent connections: how many a DUT keeps open at a time.

use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use super::properties::{LoadChoice, Properties, RequiredTraffic};
use super::tcp_connections::TcpConnections;
use super::{MethodOutput, Thoroughness};
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Connections opened per second if no load is given. A search for the highest rate would fill the tables of the DUT.
const OPENED_PER_S: f64 = 20_000.0;
/// Time for which all connections are open, seconds, in the quick and the standard form (sustain phase, RFC 9411 §4.3.4).
const SUSTAIN_S: (f64, f64) = (0.5, 300.0);

/// One trial that opens a connection from each pair of client address and port. Each stays open until all have been opened,
/// and has to answer its close: those completed were open at the same time. A second trial would find the state that the DUT
/// keeps of closed connections.
#[derive(Default)]
pub(super) struct ConcurrentConnections {
    started: bool,
    connections: TcpConnections,
    completed: Option<u64>,
    /// True if most of the missing connections were not opened.
    is_starved: bool,
}

impl ConcurrentConnections {
    /// Returns the connections opened per second.
    fn rate(context: &MethodContext) -> f64 {
        let settings = &context.settings;
        settings.rate_pps.map_or(OPENED_PER_S, |pps| pps / settings.packets_per_connection)
    }
}

impl Procedure for ConcurrentConnections {
    const NAME: &'static str = "concurrent-connections";
    const STANDARD: Option<&'static str> = Some("RFC 9411 §7.5");
    const QUESTION: &'static str = "How many connections may be open at a time?";
    const DURATION_S: (f64, f64) = (7.0, 310.0);
    const PROPERTIES: Properties = Properties {
        load: LoadChoice::Fixed,
        traffic: RequiredTraffic::Tcp,
        reuses_throughput: false,
        requires_rate: false,
        ..DEFAULT_PROPERTIES
    };
    const NEEDS_THROUGHPUT: bool = false;
    const RETRIES_INTERFERED_TRIALS: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        if std::mem::replace(&mut self.started, true) {
            return None;
        }
        let (pairs, rate) = (context.settings.flows, Self::rate(context));
        // rounded down in a schedule
        let duration_s = (pairs as f64 + 0.5) / rate;
        let input = TrialInput::constant(rate * context.settings.packets_per_connection, duration_s);
        let sustain_s = context.settings.select(SUSTAIN_S.0, SUSTAIN_S.1);
        Some(TrialInput { hold_s: Some(duration_s + sustain_s), ..input })
    }

    fn record(&mut self, context: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let by_packets = (output.trial.received as f64 / context.settings.packets_per_connection) as u64;
        self.completed = Some(output.connections.as_ref().map_or(by_packets, |counts| counts.client.completed));
        self.is_starved = output.trial.unsent > output.trial.lost;
        self.connections.record(&output);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let (Some(completed), pairs) = (self.completed, context.settings.flows) else { return };
        output.quantities.push(Quantity::new("concurrent connections", "connections", completed as f64));
        output.quantities.push(Quantity::new("opened at", "per second", Self::rate(context)));
        self.connections.report(output);
        output.limited_by = match completed {
            _ if self.is_starved => LimitedBy::Generator,
            n if n == pairs => LimitedBy::MaxLoad,
            _ => LimitedBy::Device,
        };
        if self.is_starved {
            output.deviations.push("the generator limits the number of connections: the DUT may keep more".to_owned());
        }
        if completed == pairs {
            output.deviations.push(format!(
                "all {pairs} pairs of client address and port had an open connection: the DUT may keep more; raise --flows"
            ));
        }
        output.deviations.push(
            "connections beyond the capacity are opened as well where RFC 9411 §7.5 searches for a number of which almost \
             none fails"
                .to_owned(),
        );
        if context.settings.thoroughness == Thoroughness::Quick {
            let (quick, standard) = (format_seconds(SUSTAIN_S.0), format_seconds(SUSTAIN_S.1));
            output
                .deviations
                .push(format!("all connections are open for {quick} where RFC 9411 §4.3.4 requires {standard}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::method::{MethodOutput, MethodSettings, Thoroughness, run, start};
    use crate::search::LimitedBy;
    use crate::trial::{ConnectionsOutput, Measurer, MeasurerError, Trial, TrialInput, TrialOutput};
    use crate::{Goal, Limits};
    use traffic::tcp::ConnectionCounts;

    /// A DUT with room for so many connections.
    struct Table(u64);

    impl Measurer for Table {
        fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
            let (load_pps, duration_s) = (input.phases[0].load_pps, input.duration_s());
            assert!(input.hold_s.unwrap() > duration_s, "the first connection is open when the last is opened");
            let opened = (load_pps / 5.0 * duration_s) as u64;
            let completed = opened.min(self.0);
            let trial = Trial {
                load_pps,
                duration_s,
                intended: 5 * opened,
                sent: 5 * opened,
                received: 5 * completed,
                lost: 5 * (opened - completed),
                ..Trial::default()
            };
            let client = ConnectionCounts { opened, completed, ..ConnectionCounts::default() };
            let connections = Some(ConnectionsOutput { client, ..ConnectionsOutput::default() });
            Ok(TrialOutput { trial, connections, ..TrialOutput::default() })
        }
    }

    fn measure(capacity: u64) -> MethodOutput {
        let settings = MethodSettings {
            packets_per_connection: 5.0,
            flows: 100_000,
            rate_pps: Some(5e5),
            ..MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap())
        };
        let mut method = start("concurrent-connections", &settings).unwrap();
        run(&mut *method, &mut Table(capacity), |_| true, |_| ()).unwrap();
        method.output()
    }

    #[test]
    fn finds_the_capacity() {
        for capacity in [0, 1, 5000, 99_999] {
            let output = measure(capacity);
            assert_eq!((output.quantities[0].value, output.limited_by), (capacity as f64, LimitedBy::Device));
        }
        let unlimited = measure(1_000_000);
        assert_eq!((unlimited.quantities[0].value, unlimited.limited_by), (100_000.0, LimitedBy::MaxLoad));
        assert!(unlimited.deviations.iter().any(|d| d.contains("--flows")), "{:?}", unlimited.deviations);
    }
}
