//! Captures as traffic, on the command line.

use crate::measuring::wrong;
use bench::{Captured, Sent};
use diagnostics::{Diagnostic, Diagnostics};
use std::path::{Path, PathBuf};
use traffic::{PrefixMap, Rewrite, Tagging};

/// Captures that are sent, and what is done to them.
#[derive(clap::Args)]
pub(crate) struct Captures {
    /// Sends the frames of this capture (pcap or pcapng, also gzipped); what 64 MiB do not hold is read as it is sent. No
    /// frame may have more than 2048 bytes. Of two, given twice or with a comma, the second goes into a second port at the same
    /// time, as with --both-ways.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frames", "flows", "order", "trace", "stack", "short", "both_ways"])]
    pcap: Vec<PathBuf>,
    /// IP addresses of a capture by prefix, both of one length, such as 10.0.0.0/16=198.18.0.0/16; several with commas, of
    /// which the first that holds an address counts. Checksums follow.
    #[arg(long, value_name = "FROM=TO", value_delimiter = ',')]
    rewrite: Vec<PrefixMap>,
    /// VLAN tags of a capture: strip, or the VLAN that all frames get in the place of their tags.
    #[arg(long, value_name = "ID")]
    vlan: Option<Tagging>,
    /// Keeps a capture's own gaps, all made longer or shorter until its mean rate is the load. Without --rate and --method it is
    /// sent at its own rate, for the goal's sum of time: --goal quick,sum=60s.
    #[arg(long)]
    gaps: bool,
    /// With its own gaps, so many times as fast as it was captured.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["rate", "method"])]
    speed: Option<f64>,
}

impl Captures {
    /// What is to be sent of captures, where the scenario has `default` if it has any; none where made frames are.
    pub(crate) fn asked(&self, default: Option<&Captured>) -> anyhow::Result<Option<Captured>> {
        let files = self.files();
        let base = match (files.is_empty(), default) {
            (false, default) => Captured { files, ..default.cloned().unwrap_or_default() },
            (true, Some(default)) => default.clone(),
            (true, None) => return self.nothing().map(|()| None),
        };
        let Rewrite { prefixes, tagging } = base.rewrite;
        let captured = Captured {
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

    /// The files; two with a comma between them, if there is no file of that name.
    fn files(&self) -> Vec<PathBuf> {
        match &self.pcap[..] {
            [one] if !one.exists() => match one.to_str().and_then(|text| text.split_once(',')) {
                Some((there, back)) => [there, back].map(|name| Path::new(name).to_owned()).to_vec(),
                None => vec![one.clone()],
            },
            all => all.to_vec(),
        }
    }

    /// Nothing is asked of captures where none is sent.
    fn nothing(&self) -> anyhow::Result<()> {
        let problem = "is of captures; say which with --pcap FILE";
        match self {
            Captures { rewrite, .. } if !rewrite.is_empty() => Err(wrong("rewrite", rewrite[0], problem)),
            Captures { vlan: Some(vlan), .. } => Err(wrong("vlan", vlan, problem)),
            Captures { gaps: true, .. } => Err(wrong("gaps", "--gaps", problem)),
            Captures { speed: Some(speed), .. } => Err(wrong("speed", speed, problem)),
            _ => Ok(()),
        }
    }
}

/// A scenario that sends captures cannot be asked for made frames.
pub(crate) fn no_made_frames(captured: &Captured) -> anyhow::Error {
    let problem = "the scenario sends a capture, whose frames are what they are; leave out --frames, --flows, --order, --trace, \
                   --stack, --short and --both-ways";
    let name = Sent::Capture(captured.clone()).names().join(",");
    Diagnostics(vec![Diagnostic::new(problem).value(name)]).into()
}
