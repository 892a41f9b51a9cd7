//! Command-line options of replays.

use crate::session::option_error;
use bench::{CaptureSpec, TrafficSpec};
use diagnostics::{Diagnostic, Diagnostics};
use std::path::{Path, PathBuf};
use traffic::{PrefixMap, Rewrite, Tagging};

/// Captures to replay, and rewriting of their packets.
#[derive(clap::Args)]
pub(crate) struct Captures {
    /// Replays a capture (pcap or pcapng, also gzipped) with frames of up to 15,996 bytes; captures larger than 64 MiB
    /// are streamed from the file. A second capture, given by another --pcap or after a comma, is sent into the second
    /// port at the same time, as with --bidirectional.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frames", "flows", "order", "trace", "stack", "vary", "short", "tcp", "bidirectional"])]
    pcap: Vec<PathBuf>,
    /// Rewrites IP addresses of a capture by prefix, such as 10.0.0.0/16=198.18.0.0/16, both of the same length; of
    /// several, separated by commas, the first that matches applies. Checksums are updated.
    #[arg(long, value_name = "FROM=TO", value_delimiter = ',')]
    rewrite: Vec<PrefixMap>,
    /// Removes the VLAN tags of a capture (strip), or replaces them by one tag with this VLAN ID.
    #[arg(long, value_name = "ID")]
    vlan: Option<Tagging>,
    /// Keeps the relative gaps of a capture, scaled so that its mean rate is the load. Without --rate and --method it
    /// is sent at its own rate for the duration sum of the goal: --goal quick,sum=60s.
    #[arg(long)]
    gaps: bool,
    /// Replays a capture with its own gaps at a multiple of its speed.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["rate", "method"])]
    speed: Option<f64>,
}

impl Captures {
    /// Returns the captures to replay, based on those of the scenario; `None` for synthetic traffic.
    pub(crate) fn spec(&self, default: Option<&CaptureSpec>) -> anyhow::Result<Option<CaptureSpec>> {
        let files = self.files();
        let base = match (files.is_empty(), default) {
            (false, default) => CaptureSpec { files, ..default.cloned().unwrap_or_default() },
            (true, Some(default)) => default.clone(),
            (true, None) => return self.check_unused().map(|()| None),
        };
        let Rewrite { prefixes, tagging } = base.rewrite;
        let captured = CaptureSpec {
            files: base.files,
            rewrite: Rewrite {
                prefixes: if self.rewrite.is_empty() { prefixes } else { self.rewrite.clone() },
                tagging: self.vlan.unwrap_or(tagging),
            },
            speed: self.speed.or(base.speed).or(self.gaps.then_some(1.0)),
        };
        let captured = captured.checked().map_err(|(_, d)| Diagnostics(vec![d]))?;
        Ok(Some(captured))
    }

    /// Returns the files; splits a name at a comma unless such a file exists.
    fn files(&self) -> Vec<PathBuf> {
        match &self.pcap[..] {
            [one] if !one.exists() => match one.to_str().and_then(|text| text.split_once(',')) {
                Some((forward, reverse)) => [forward, reverse].map(|name| Path::new(name).to_owned()).to_vec(),
                None => vec![one.clone()],
            },
            all => all.to_vec(),
        }
    }

    /// Checks that no option of captures is used without a capture.
    fn check_unused(&self) -> anyhow::Result<()> {
        let problem = "requires a capture: use --pcap FILE";
        match self {
            Captures { rewrite, .. } if !rewrite.is_empty() => Err(option_error("rewrite", rewrite[0], problem)),
            Captures { vlan: Some(vlan), .. } => Err(option_error("vlan", vlan, problem)),
            Captures { gaps: true, .. } => Err(option_error("gaps", "--gaps", problem)),
            Captures { speed: Some(speed), .. } => Err(option_error("speed", speed, problem)),
            _ => Ok(()),
        }
    }
}

/// Returns the error for options of synthetic traffic in a scenario that replays a capture.
pub(crate) fn replay_conflict(captured: &CaptureSpec) -> anyhow::Error {
    let problem = "the scenario replays a capture; --frames, --flows, --order, --trace, --stack, --vary, --short, --tcp and \
    --bidirectional apply to synthetic traffic only";
    let name = TrafficSpec::Capture(captured.clone()).frame_names().join(",");
    Diagnostics(vec![Diagnostic::new(problem).value(name)]).into()
}
