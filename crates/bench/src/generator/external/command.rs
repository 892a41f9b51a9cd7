//! A custom command, run once for each trial.
//!
//! It is run by `sh -c` with the environment variables `BONDSTONE_PORT0`, … (devices, as in a chain file),
//! `BONDSTONE_RATE` (packets per second and direction), `BONDSTONE_SECONDS`, `BONDSTONE_FRAME` (bytes with FCS) and
//! `BONDSTONE_CPU`. The last line of its output reports the counts: `{"sent": 1000, "received": 990}`, with
//! `"directions": 2` if they are sums of both.

use super::program::{GeneratorProgram, ProgramCounts};
use crate::dut::{CommandLine, DutContext};
use crate::trial::{MeasurerError, TrialInput};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit of the command, in addition to the length of the trial.
const EXTRA_TIME: Duration = Duration::from_secs(30);
/// Characters of the command's output in an error.
const MAX_SHOWN: usize = 300;

pub(super) struct CommandGenerator {
    command: String,
    /// Environment variables of all trials.
    environment: Vec<String>,
    stop: Arc<AtomicBool>,
}

/// Last line of the command's output.
#[derive(Deserialize)]
struct ReportedCounts {
    sent: u64,
    received: u64,
    #[serde(default = "one")]
    directions: u8,
}

fn one() -> u8 {
    1
}

impl CommandGenerator {
    pub(super) fn new(command: &str, ports: &[String], cpu: usize, stop: Arc<AtomicBool>) -> CommandGenerator {
        let ports = ports.iter().enumerate().map(|(n, port)| format!("BONDSTONE_PORT{n}={port}"));
        let environment = ports.chain([format!("BONDSTONE_CPU={cpu}")]).collect();
        CommandGenerator { command: command.to_owned(), environment, stop }
    }
}

impl GeneratorProgram for CommandGenerator {
    fn trial(&mut self, context: &DutContext, input: &TrialInput, frame: u16) -> Result<ProgramCounts, MeasurerError> {
        let failed = |problem: String| MeasurerError::DutFailed(format!("{}: the generator {problem}", context.name()));
        let seconds = input.duration_s();
        let rate = input.phases.first().map_or(0.0, |phase| phase.load_pps);
        let command = CommandLine::new("env")
            .args(self.environment.iter().cloned())
            .args([
                format!("BONDSTONE_RATE={rate}"),
                format!("BONDSTONE_SECONDS={seconds}"),
                format!("BONDSTONE_FRAME={frame}"),
            ])
            .args(["sh", "-c", &self.command]);
        // a PID namespace ends background processes of the command with it
        let root = rustix::process::geteuid().is_root();
        let command = if root { command.prefixed(["unshare", "--pid", "--fork", "--kill-child"]) } else { command };
        let limit = Duration::from_secs_f64(seconds) + EXTRA_TIME;
        let output = command.output_within(limit, &self.stop).map_err(failed)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(MeasurerError::Interrupted);
        }
        let last = output.trim_end().lines().next_back().unwrap_or_default();
        let counts: ReportedCounts = serde_json::from_str(last).map_err(|e| {
            let shown: String = last.chars().take(MAX_SHOWN).collect();
            failed(format!("printed {shown:?} as its last line instead of {{\"sent\": N, \"received\": N}}: {e}"))
        })?;
        let ReportedCounts { sent, received, directions } = counts;
        Ok(ProgramCounts { sent, received, directions, elapsed_s: seconds })
    }
}
