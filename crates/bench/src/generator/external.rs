//! Generators that are other programs.
//!
//! The built-in generator first checks that the device forwards as specified; then the other program opens the same
//! ports.

mod command;
mod program;
mod testpmd;

use crate::dut::{Description, DutContext, DutError, StartedDevice};
use crate::method::{self, LoadChoice, Properties};
use crate::scenario::MeasurementSettings;
use crate::traffic_spec::{PreparedTraffic, SyntheticOptions, TrafficSpec};
use crate::trial::{MeasurerError, Trial, TrialInput, TrialOutput};
use command::CommandGenerator;
use program::{GeneratorProgram, ProgramCounts};
use report::Frames;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use testpmd::TestpmdGenerator;
use traffic::Order;

/// A kind of generator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Generator {
    /// The built-in packet generator.
    #[default]
    Bondstone,
    /// DPDK's testpmd; bidirectional, without a rate limit.
    Testpmd,
    /// A custom command.
    Command(String),
}

/// A running device with another program as the generator.
pub struct ExternalGenerator {
    // dropped first; the device may still use its ports
    program: Box<dyn GeneratorProgram + Send>,
    device: StartedDevice,
    context: DutContext,
    generator: Generator,
}

impl Generator {
    /// Returns its name in scenario files.
    pub fn name(&self) -> &'static str {
        match self {
            Generator::Bondstone => "bondstone",
            Generator::Testpmd => "testpmd",
            Generator::Command(_) => "command",
        }
    }

    /// Checks that it supports the traffic and the methods.
    ///
    /// # Errors
    /// Problem and remedy, if it does not.
    pub fn check(
        &self,
        traffic: &TrafficSpec,
        settings: &MeasurementSettings,
    ) -> Result<(), (&'static str, &'static str)> {
        if *self == Generator::Bondstone {
            return Ok(());
        }
        let TrafficSpec::Synthetic { options, order, .. } = traffic else {
            return Err(("cannot send captures or profiles", "send synthetic traffic"));
        };
        if *options != (SyntheticOptions { bidirectional: options.bidirectional, ..SyntheticOptions::default() })
            || *order != Order::default()
        {
            return Err(("cannot send these flows", "remove order, trace, stack, vary, short and tcp"));
        }
        let all = |has: fn(&Properties) -> bool| {
            settings.methods.iter().all(|name| method::find(name).is_ok_and(|method| has(&method.properties)))
        };
        match self {
            Generator::Testpmd if !all(|method| method.load == LoadChoice::Highest) => {
                Err(("has no rate limit: it always sends at its highest rate", "use only the method receive-rate"))
            }
            Generator::Testpmd if !options.bidirectional => Err((
                "sends bidirectional traffic only",
                "set bidirectional = true, for all generators that are compared",
            )),
            _ if !all(|method| method.counts_only) => {
                Err(("only counts packets", "use throughput, load, loss or receive-rate"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the traffic for the result, given that of the built-in generator.
    pub fn traffic(&self, built_in: report::Traffic) -> report::Traffic {
        match self {
            Generator::Bondstone => built_in,
            _ => report::Traffic {
                flows: 0,
                burst: 0,
                protocol: "the generator's own".to_owned(),
                seed: None,
                ..built_in
            },
        }
    }
}

impl FromStr for Generator {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Generator, &'static str> {
        match text {
            "bondstone" => Ok(Generator::Bondstone),
            "testpmd" => Ok(Generator::Testpmd),
            "command" => Ok(Generator::Command(String::new())),
            _ => Err("unknown generator; known are bondstone, testpmd and command"),
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExternalGenerator {
    /// Starts a generator on a CPU at the ports of a running device, which must be closed.
    ///
    /// # Errors
    /// If the program is missing or does not start.
    pub(crate) fn start(
        (mut context, device): (DutContext, StartedDevice),
        generator: &Generator,
        cpu: usize,
        stop: Arc<AtomicBool>,
    ) -> Result<ExternalGenerator, DutError> {
        let ports = device.generator_ports().to_vec();
        let program: Box<dyn GeneratorProgram + Send> = match generator {
            Generator::Bondstone => {
                return Err(context.error("the built-in generator is not a program", "report a bug in Bondstone"));
            }
            Generator::Testpmd => Box::new(TestpmdGenerator::start(&mut context, &ports, cpu, stop)?),
            Generator::Command(command) => Box::new(CommandGenerator::new(command, &ports, cpu, stop)),
        };
        Ok(ExternalGenerator { program, device, context, generator: generator.clone() })
    }

    /// Returns the description of the device.
    pub fn description(&self) -> &Description {
        self.device.description()
    }

    /// Returns the generator.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// Runs a trial with frames of the size of `traffic`.
    pub(crate) fn trial(
        &mut self,
        traffic: &PreparedTraffic,
        input: &TrialInput,
    ) -> Result<TrialOutput, MeasurerError> {
        let TrialInput { phases, loss_bins, delay_variation, tagged_at_s, disturbance, .. } = input;
        let unsupported =
            |what, remedy| Err(MeasurerError::Unsupported { dut: self.context.name().to_owned(), what, remedy });
        let Frames::FrameBytes(frame) = traffic.document().frames else {
            return unsupported(
                "offered several frame sizes by another generator",
                "use fixed sizes, such as frames = \"64,512\"",
            );
        };
        let [phase] = phases[..] else {
            return unsupported("offered several loads in a trial by another generator", "use the method throughput");
        };
        let needs_more = *delay_variation || *loss_bins != 0 || tagged_at_s.is_some() || input.profile;
        if disturbance.is_some() || needs_more {
            return unsupported(
                "measured by this method with another generator, which only counts packets",
                "use throughput, load, loss or receive-rate",
            );
        }
        let counts = self.program.trial(&self.context, input, frame)?;
        if counts.directions != traffic.directions() {
            let (counted, sent) = (counts.directions, traffic.directions());
            return Err(MeasurerError::DutFailed(format!(
                "{}: the generator counted {counted} directions instead of {sent}: print \"directions\": {sent}",
                self.context.name()
            )));
        }
        self.device.check(&self.context).map_err(|e| MeasurerError::DutFailed(e.to_string()))?;
        Ok(TrialOutput { trial: trial(counts, phase.load_pps, phase.duration_s), ..TrialOutput::default() })
    }
}

/// Returns the trial of a program's counts; scheduled packets that it did not send are unsent.
fn trial(counts: ProgramCounts, load_pps: f64, duration_s: f64) -> Trial {
    let ProgramCounts { sent, received, directions, elapsed_s } = counts;
    // duplicates cannot be detected
    let received = received.min(sent);
    let intended = ((load_pps * elapsed_s * f64::from(directions)).round() as u64).max(sent).max(1);
    Trial {
        load_pps,
        directions,
        duration_s,
        intended,
        sent,
        unsent: intended - sent,
        received,
        lost: sent - received,
        ..Trial::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_consistent_for_any_program_output() {
        for (sent, received) in [(0, 0), (5, 9), (90, 80), (1000, 7)] {
            let trial = trial(ProgramCounts { sent, received, directions: 2, elapsed_s: 0.5 }, 100.0, 0.5);
            assert_eq!(trial.check(), Ok(()));
            assert_eq!(trial.sent, sent);
        }
        let half = trial(ProgramCounts { sent: 100, received: 50, directions: 2, elapsed_s: 0.5 }, 100.0, 0.5);
        assert_eq!((half.forwarding_pps(), half.sent_pps()), (50.0, 100.0));
        // the rate is that of the time in which it sent
        let long = trial(ProgramCounts { sent: 200, received: 100, directions: 2, elapsed_s: 1.0 }, 100.0, 0.5);
        assert_eq!(long.forwarding_pps(), 50.0);
    }
}
