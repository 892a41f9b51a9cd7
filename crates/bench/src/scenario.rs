//! Scenarios: what a study measured, written down so that it can be measured again.
//!
//! ```toml
//! bondstone = 1
//!
//! [scenario]                          # its name is that of its folder and its own: netbricks/fig1
//! title = "Cells of an array updated per packet, beside C"
//! figure = "figure 1"
//!
//! [dut]
//! chain = "chain-cells.toml"          # a chain file in the same folder; ${cells} in it becomes a value of the matrix
//! # clock_mhz = "${clock}"            # fixes the clock of its CPUs, where the machine lets it be fixed
//! needs = ["cells"]                   # kinds of NFs without which a cell of the matrix is not measured
//! # kind = "ovs"                      # another program; see `dut::Kind`
//! # env = "container"                 # what its programs run in: native or container
//! # ssh = "root@192.0.2.7"            # the machine that it runs on, and there
//! # program = "bondstone"             # this program, and
//! # inner = ["eth1", "eth2"]          # its interfaces, at the other ends of
//! # ports = ["af_packet:eth2", "af_packet:eth3"]
//!
//! [traffic]                           # beside what the chain file's table of that name says
//! frames = "64"                       # sizes with FCS and mixes, separated by commas
//! flows = 1024                        # or "${flows}", of the matrix
//! order = "round-robin"
//! # trace = "l3-1000"                 # one of NFPA's traces, in the place of flows
//! # stack = "eth/vlan:7/ipv4/udp"     # headers
//! # short = "10x1024"                 # connections of 10 packets, in the place of flows, order, trace and stack
//! # both_ways = true                  # into a second port as well, from the flows' other side
//! # profile = "day.rhai"              # a script that says what is sent in each second, in the place of all of these; its
//! # seconds = 24                      # length, where the script does not say it; see `profile`
//! # capture = "lunch.pcap"            # in the place of all of these: the frames of a capture in the same folder
//!
//! # [generator]                       # who sends, where that is not this program
//! # kind = "testpmd"                  # see `Generator`; or "external" and command = "..."
//!
//! [goal]
//! throughput = "quick"                # what counts as one; see `Goal`
//! # rate = "${rate}"                  # one load instead, packets a second
//! methods = ["throughput", "loss"]    # see `method::ALL`; by default throughput alone, or load where there is a rate
//! form = "quick"                      # or "standard"
//! search = "mlr"
//! repeat = 1                          # how often every cell is measured
//!
//! [matrix]                            # every combination is a cell
//! cells = [1, 2, 4, 8, 16, 32]
//!
//! [native]                            # rows of native-bench, NFs beside their twins in C
//! only = "cells"
//! pairs = 500
//!
//! [[published]]                       # what the study says
//! id = "bounds-checks-few"
//! figure = "1"
//! value = 20                          # or a list; or x = "GHz" and values = { "1.2" = 4.31, "2.4" = 8.60 }
//! unit = "percent slower than C"
//!
//! [[claim]]                           # what of it can be tested on any machine, and how
//! says = "1 to 8 cells: bounds checks cost a fifth of C's speed"
//! published = "bounds-checks-few"     # or a ratio: "lpm-netbricks / lpm-native"; one of several numbers: "table1[2.4]"
//! measure = "speed over C"
//! where = { source = "ring", cells = [1, 2, 4, 8] }
//! at_least = 0.75                     # or, of a ratio: within = 0.05, a share of it
//! at_most = 0.87
//! ```
//!
//! Everything that a claim's `where` selects has to lie within the bounds. With `over`, another selection, it is the mean of
//! the one divided by the mean of the other that has to. `given` names a published result whose own claim has to be
//! reproduced for this one to make sense. `untestable` says why a claim is not judged; what it selects is shown all the same.
//!
//! [`Scenario::read`] reads scenario and chain files and reports every fault with line, value and remedy; [`judge`] compares
//! what was measured with what the claims say, and measures nothing itself.

mod cells;
mod check;
mod file;
mod how;
mod judge;
mod native;
mod published;
mod study;

pub use cells::{Cell, Dut};
pub use how::How;
pub use judge::{Judged, Lacking, Missing, Observation, Spread, Verdict, judge};
pub use native::{Rows, rows};
pub use published::{Part, Published, Reference};
pub use study::{Setting, Study};

use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A scenario, read and checked.
pub struct Scenario {
    /// Where it came from.
    pub file: PathBuf,
    /// The folder's name and the file's, such as `netbricks/fig1`.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Where the study has it, such as `figure 1`.
    pub figure: Option<String>,
    /// The study, if there is a `study.toml` beside the scenario.
    pub study: Option<Study>,
    /// How its cells are measured.
    pub how: How,
    /// What is measured; of the matrix, the parameter that stands last changes first.
    pub cells: Vec<Cell>,
    /// What of traffic and goal its matrix changes: `flows`, `rate`, `trace`.
    pub changed: Vec<&'static str>,
    /// Which rows of `native-bench` belong to it.
    pub native: Option<Native>,
    /// What was published.
    pub published: Vec<Published>,
    /// Relations to be tested.
    pub claims: Vec<Claim>,
}

/// Rows of `native-bench`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// Only rows whose name holds this.
    pub only: String,
    /// Pairs of samples for each.
    pub pairs: u32,
}

/// A relation to be tested.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What it says, in a few words.
    pub says: String,
    /// What was published of it.
    pub published: Reference,
    /// What a reader of the verdict should know.
    pub note: Option<String>,
    /// What of ours stands beside it.
    pub quantity: Option<Quantity>,
    /// Lower bound, in the unit of the quantity; none where everything is high enough.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
    /// A published result whose own claim has to be reproduced for this one to make sense.
    pub given: Option<String>,
    /// Why it is not judged.
    pub untestable: Option<String>,
}

/// Something measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// What.
    pub measure: Measure,
    /// Of what.
    pub facts: Facts,
    /// What its mean is divided by the mean of, if by anything.
    pub over: Option<Facts>,
}

/// For some facts, such as `nf` or a parameter of the matrix, the values that are meant; others do not matter.
pub type Facts = BTreeMap<String, Vec<String>>;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// The highest rate that met the goal, packets a second.
    Throughput,
    /// That rate as a share of what 10-Gigabit Ethernet carries of the same frames.
    LineShare,
    /// The median of the latency at 80 % of the throughput, nanoseconds.
    P50,
    /// Its 99th percentile.
    P99,
    /// Its 99.9th percentile.
    P999,
    /// Packets in the time in which C forwards one: C's cycles per packet in `native-bench` divided by ours.
    SpeedOverC,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 6] =
        [Measure::Throughput, Measure::LineShare, Measure::P50, Measure::P99, Measure::P999, Measure::SpeedOverC];

    /// Its name in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Throughput => "throughput",
            Measure::LineShare => "share of 10 GbE",
            Measure::P50 => "p50",
            Measure::P99 => "p99",
            Measure::P999 => "p99.9",
            Measure::SpeedOverC => "speed over C",
        }
    }

    /// Whether it is a latency.
    pub const fn is_latency(self) -> bool {
        matches!(self, Measure::P50 | Measure::P99 | Measure::P999)
    }

    /// Whether it comes from `native-bench`; else it does from the cells.
    pub const fn is_native(self) -> bool {
        matches!(self, Measure::SpeedOverC)
    }

    /// The unit in which people read it, and how many of its own make one.
    pub const fn unit(self) -> (&'static str, f64) {
        match self {
            Measure::Throughput => ("Mpps", 1e6),
            Measure::P50 | Measure::P99 | Measure::P999 => ("us", 1e3),
            Measure::LineShare | Measure::SpeedOverC => ("", 1.0),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Scenario {
    /// Whether a file's text is a scenario: has the table `[scenario]`.
    pub fn is(text: &str) -> bool {
        DeTable::parse(text).is_ok_and(|table| table.get_ref().contains_key("scenario"))
    }

    /// Reads and checks a file and the chain files that it names, whose NFs are of `registry`.
    ///
    /// # Errors
    /// Every fault found, each with its place, the value and a remedy.
    pub fn read(file: &Path, registry: &Registry) -> Result<Scenario, Vec<Diagnostic>> {
        let text = config::read(file, "scenario").map_err(|d| vec![d])?;
        Scenario::parse(&text, file, registry)
    }

    /// As [`Scenario::read`], of the text of a file; what belongs to it is looked for in the folder of `file`.
    ///
    /// # Errors
    /// As [`Scenario::read`].
    pub fn parse(text: &str, file: &Path, registry: &Registry) -> Result<Scenario, Vec<Diagnostic>> {
        check::check(text, file, registry)
    }

    /// The title of a scenario, without a look at anything else of it.
    ///
    /// # Errors
    /// When the file cannot be read or is no scenario.
    pub fn title(file: &Path) -> Result<String, Diagnostic> {
        let text = config::read(file, "scenario")?;
        check::title(&text, file)
    }

    /// What was published under an id.
    pub fn published(&self, id: &str) -> Option<&Published> {
        self.published.iter().find(|p| p.id == id)
    }
}
