//! Scenarios: measurements of a study, written so that they can be repeated.
//!
//! ```toml
//! bondstone = 1
//!
//! [scenario]                          # named after its directory and file: netbricks/fig1
//! title = "Cells of an array updated per packet, compared with C"
//! figure = "figure 1"
//!
//! [dut]
//! chain = "chain-cells.toml"          # a chain file in the same directory, in which ${cells} is replaced
//! # clock_mhz = "${clock}"            # fixed clock frequency of its CPUs, if the machine supports it
//! needs = ["cells"]                   # NF kinds without which the cells are not measured
//! # kind = "ovs"                      # another program; see `dut::registry`
//! # env = "container"                 # environment of its programs: native or container
//! # ssh = "root@192.0.2.7"            # remote host that it runs on,
//! # program = "bondstone"             # Bondstone on that host,
//! # interfaces = ["eth1", "eth2"]     # and interfaces there that are connected to
//! # ports = ["af_packet:eth2", "af_packet:eth3"]
//!
//! [traffic]                           # supplements the table of the same name in the chain file
//! frames = "64"                       # frame sizes with FCS and mixes, separated by commas
//! flows = 1024                        # or "${flows}", a parameter of the matrix
//! order = "round-robin"
//! # trace = "l3-1000"                 # an NFPA trace instead of flows
//! # stack = "eth/vlan:7/ipv4/udp"     # headers
//! # short = "10x1024"                 # connections of 10 packets instead of flows, order, trace and stack
//! # tcp = "response=1024"             # TCP connections with client and server instead of frames, order, trace, stack
//! # bidirectional = true                  # also into a second port, with the flows reversed
//! # profile = "day.rhai"              # a script that determines the traffic of each second, instead of all of these
//! # duration_s = 24                   # length of the profile, if the script does not set it; see `profile`
//! # capture = "lunch.pcap"            # the frames of a capture in the same directory, instead of all of these
//!
//! # [generator]                       # another generator
//! # kind = "testpmd"                  # see `Generator`; or "command" with command = "..."
//!
//! [goal]
//! throughput = "quick"                # goal of a throughput search; see `Goal`
//! # rate = "${rate}"                  # a single load instead, packets per second
//! methods = ["throughput", "loss"]    # see `method::METHODS`; by default throughput, or load if there is a rate
//! thoroughness = "quick"              # or "standard"
//! search = "mlr"
//! repeat = 1                          # number of measurements of every cell
//!
//! [matrix]                            # every combination is a cell
//! cells = [1, 2, 4, 8, 16, 32]
//!
//! [native]                            # rows of native-bench, which compares NFs with their C baselines
//! filter = "cells"
//! pairs = 500
//!
//! [quick]                             # values to which the quick form is reduced; by default all
//! cells = [1, 8]                      # frames = "64", or names of devices: dut = [...]
//!
//! [[published]]                       # a result of the study
//! id = "bounds-checks-few"
//! figure = "1"
//! value = 20                          # or a list; or x = "GHz" and values = { "1.2" = 4.31, "2.4" = 8.60 }
//! unit = "percent slower than C"
//!
//! [[claim]]                           # a claim of the study that can be tested on any machine
//! text = "1 to 8 cells: bounds checks cost a fifth of C's speed"
//! published = "bounds-checks-few"     # or a ratio: "lpm-netbricks / lpm-native"; one of several numbers: "table1[2.4]"
//! metric = "speed over C"
//! where = { source = "ring", cells = [1, 2, 4, 8] }
//! min = 0.75                          # or, for a ratio, tolerance = 0.05 (a share of it)
//! max = 0.87
//! ```
//!
//! All values that `where` selects have to be within the bounds. With `divided_by`, another selection, the ratio of the
//! means has to be within them. `requires` names a published result whose own claim has to be reproduced first.
//! `not_testable` is the reason why a claim has no verdict; its values are still reported.
//!
//! [`Scenario::read`] reads scenario and chain files and reports every error with line, value and remedy. [`evaluate`]
//! compares measured values with claims.

mod cells;
mod check;
mod file;
mod finding;
mod native;
mod published;
mod quick;
mod settings;
mod study;

pub use cells::{Cell, CellDut};
pub use finding::{Finding, Missing, MissingPart, Observation, ValueRange, Verdict, evaluate};
pub use native::parse_native_bench;
pub use published::{Published, PublishedReference, PublishedValue};
pub use settings::MeasurementSettings;
pub use study::{Study, StudyEnvironment};

use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A checked scenario.
pub struct Scenario {
    /// Path of the file.
    pub file: PathBuf,
    /// Name of directory and file, such as `netbricks/fig1`.
    pub name: String,
    /// Title.
    pub title: String,
    /// Figure or table of the study, such as `figure 1`.
    pub figure: Option<String>,
    /// Study, if the directory has a `study.toml`.
    pub study: Option<Study>,
    /// Measurement settings of its cells.
    pub settings: MeasurementSettings,
    /// Cells; the last parameter of the matrix changes fastest.
    pub cells: Vec<Cell>,
    /// Traffic and goal keys that the matrix varies: `flows`, `rate`, `trace`.
    pub varied: Vec<&'static str>,
    /// Rows of `native-bench` that belong to it.
    pub native: Option<NativeBench>,
    /// Values of labels to which its quick form is reduced; others are measured with all values.
    pub quick: Selection,
    /// Published results.
    pub published: Vec<Published>,
    /// Claims to be tested.
    pub claims: Vec<Claim>,
}

/// A run of `native-bench`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeBench {
    /// Substring of the names of rows.
    pub filter: String,
    /// Pairs of samples per row.
    pub pairs: u32,
}

/// A claim to be tested.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Text.
    pub text: String,
    /// Published result that it is about.
    pub published: PublishedReference,
    /// Note for readers of the verdict.
    pub note: Option<String>,
    /// Measured quantity to compare.
    pub quantity: Option<Quantity>,
    /// Lower bound in the unit of the quantity, inclusive.
    pub min: Option<f64>,
    /// Upper bound, inclusive.
    pub max: Option<f64>,
    /// Identifier of a published result whose claim has to be reproduced first.
    pub requires: Option<String>,
    /// Reason why it cannot be tested.
    pub not_testable: Option<String>,
}

/// A measured quantity, or a ratio of means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// Metric.
    pub metric: Metric,
    /// Selected values.
    pub selection: Selection,
    /// Values whose mean divides the mean of the selected ones.
    pub divided_by: Option<Selection>,
}

/// Selected values of labels such as `nf` or a parameter of the matrix; other labels may have any value.
pub type Selection = BTreeMap<String, Vec<String>>;

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Highest load that met the goal, packets per second.
    Throughput,
    /// Throughput as a share of the rate of 10 Gigabit Ethernet for the same frames.
    LineShare,
    /// Median latency at 80 % of the throughput, nanoseconds.
    P50,
    /// 99th percentile of that latency.
    P99,
    /// 99.9th percentile of that latency.
    P999,
    /// Mean time of traced probes between NFs, in queues, the switch on the host and crossings, as a share of their latency
    /// after they were sent.
    HostShare,
    /// Speed relative to C: cycles per packet of the C baseline in `native-bench` divided by those of Bondstone.
    SpeedOverC,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 7] = [
        Metric::Throughput,
        Metric::LineShare,
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::HostShare,
        Metric::SpeedOverC,
    ];

    /// Returns its name in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::LineShare => "share of 10 GbE",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::HostShare => "share of latency in the host",
            Metric::SpeedOverC => "speed over C",
        }
    }

    /// Returns true if it is a latency, or a share of one.
    pub const fn is_latency(self) -> bool {
        matches!(self, Metric::P50 | Metric::P99 | Metric::P999 | Metric::HostShare)
    }

    /// Returns true if `native-bench` measures it, false if it is measured in cells.
    pub const fn is_native(self) -> bool {
        matches!(self, Metric::SpeedOverC)
    }

    /// Returns the display unit and the factor between it and the stored unit.
    pub const fn unit(self) -> (&'static str, f64) {
        match self {
            Metric::Throughput => ("Mpps", 1e6),
            Metric::P50 | Metric::P99 | Metric::P999 => ("us", 1e3),
            Metric::LineShare | Metric::HostShare | Metric::SpeedOverC => ("", 1.0),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Scenario {
    /// Returns true if a text is a scenario: it has the table `[scenario]`.
    pub fn is(text: &str) -> bool {
        DeTable::parse(text).is_ok_and(|table| table.get_ref().contains_key("scenario"))
    }

    /// Reads and checks a file and the chain files that it names, with the NFs of `registry`.
    ///
    /// # Errors
    /// All errors of the files, each with location, value and remedy.
    pub fn read(file: &Path, registry: &Registry) -> Result<Scenario, Vec<Diagnostic>> {
        let text = config::read(file, "scenario").map_err(|d| vec![d])?;
        Scenario::parse(&text, file, registry)
    }

    /// As [`Scenario::read`], from the text of `file`; names in it are relative to the directory of `file`.
    ///
    /// # Errors
    /// As [`Scenario::read`].
    pub fn parse(text: &str, file: &Path, registry: &Registry) -> Result<Scenario, Vec<Diagnostic>> {
        check::check(text, file, registry)
    }

    /// Returns the title of a scenario without checking it.
    ///
    /// # Errors
    /// If the file cannot be read or is not a scenario.
    pub fn title(file: &Path) -> Result<String, Diagnostic> {
        let text = config::read(file, "scenario")?;
        check::title(&text, file)
    }

    /// Returns the published result of an identifier.
    pub fn published(&self, id: &str) -> Option<&Published> {
        self.published.iter().find(|p| p.id == id)
    }
}
