//! A command of the user's, run once for each trial.
//!
//! It is run by `sh -c` and finds `BONDSTONE_PORT0`, … (devices, written as in a chain file), `BONDSTONE_RATE` (packets a
//! second, one direction), `BONDSTONE_SECONDS`, `BONDSTONE_FRAME` (bytes with FCS) and `BONDSTONE_CPU`. The last line that it
//! prints says what came of it: `{"sent": 1000, "received": 990}`, and `"directions": 2` if these are sums of both.

use super::{Counted, Sends};
use crate::bed::{Ask, BedError};
use crate::dut::{Line, Site};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time of a trial beyond its length.
const MORE: Duration = Duration::from_secs(30);
/// Characters of what a command said that an error shows.
const SHOWN: usize = 300;

pub(super) struct External {
    command: String,
    /// Of every trial.
    environment: Vec<String>,
    stop: Arc<AtomicBool>,
}

#[derive(Deserialize)]
struct Says {
    sent: u64,
    received: u64,
    #[serde(default = "one")]
    directions: u8,
}

fn one() -> u8 {
    1
}

impl External {
    pub(super) fn new(command: &str, devices: &[String], cpu: usize, stop: Arc<AtomicBool>) -> External {
        let ports = devices.iter().enumerate().map(|(n, device)| format!("BONDSTONE_PORT{n}={device}"));
        let environment = ports.chain([format!("BONDSTONE_CPU={cpu}")]).collect();
        External { command: command.to_owned(), environment, stop }
    }
}

impl Sends for External {
    fn trial(&mut self, site: &Site, ask: &Ask, frame: u16) -> Result<Counted, BedError> {
        let gone = |problem: String| BedError::Gone(format!("{}: the generator {problem}", site.name()));
        let seconds = ask.duration_s();
        let rate = ask.phases.first().map_or(0.0, |phase| phase.load_pps);
        let line = Line::new("env")
            .args(self.environment.iter().cloned())
            .args([
                format!("BONDSTONE_RATE={rate}"),
                format!("BONDSTONE_SECONDS={seconds}"),
                format!("BONDSTONE_FRAME={frame}"),
            ])
            .args(["sh", "-c", &self.command]);
        // what the command starts ends with it
        let root = rustix::process::geteuid().is_root();
        let line = if root { line.behind(["unshare", "--pid", "--fork", "--kill-child"]) } else { line };
        let said = line.ends_within(Duration::from_secs_f64(seconds) + MORE, &self.stop).map_err(gone)?;
        if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(BedError::Interrupted);
        }
        let last = said.trim_end().lines().next_back().unwrap_or_default();
        let says: Says = serde_json::from_str(last).map_err(|e| {
            let shown: String = last.chars().take(SHOWN).collect();
            gone(format!("printed {shown:?} last, and not {{\"sent\": N, \"received\": N}}: {e}"))
        })?;
        let Says { sent, received, directions } = says;
        Ok(Counted { sent, received, directions, elapsed_s: seconds })
    }
}
