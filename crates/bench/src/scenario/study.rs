//! The study of the scenarios in a directory: `study.toml`.

use config::Source;
use diagnostics::Diagnostic;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A study and its test environment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Title.
    pub title: String,
    /// Venue and year of publication.
    pub venue: String,
    /// Test environment.
    #[serde(default)]
    pub environment: StudyEnvironment,
}

/// Test environment of a measurement; none for facts that are not stated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StudyEnvironment {
    /// Model and number of CPUs.
    pub cpu: Option<String>,
    /// CPU frequency.
    pub clock: Option<String>,
    /// SMT: on or off.
    pub smt: Option<String>,
    /// Isolation of cores from other work.
    pub isolation: Option<String>,
    /// Bare metal or virtual machine.
    pub machine: Option<String>,
    /// NIC and link.
    pub wire: Option<String>,
    /// Location of the generator.
    pub generator: Option<String>,
    /// Version of DPDK.
    pub dpdk: Option<String>,
    /// Kernel and its version.
    pub kernel: Option<String>,
    /// Memory of the packet buffers.
    pub memory: Option<String>,
    /// Frame sizes.
    pub frames: Option<String>,
    /// Definition of throughput.
    pub throughput: Option<String>,
}

impl StudyEnvironment {
    /// Returns all facts with their display names.
    pub fn facts(&self) -> [(&'static str, Option<&str>); 12] {
        [
            ("CPU", self.cpu.as_deref()),
            ("clock", self.clock.as_deref()),
            ("SMT", self.smt.as_deref()),
            ("isolation", self.isolation.as_deref()),
            ("machine", self.machine.as_deref()),
            ("wire", self.wire.as_deref()),
            ("generator", self.generator.as_deref()),
            ("DPDK", self.dpdk.as_deref()),
            ("kernel", self.kernel.as_deref()),
            ("packets in", self.memory.as_deref()),
            ("frames", self.frames.as_deref()),
            ("throughput", self.throughput.as_deref()),
        ]
    }
}

impl Study {
    /// Reads the `study.toml` of a directory, if it exists.
    pub(super) fn read(folder: &Path) -> Result<Option<Study>, Diagnostic> {
        let path = folder.join("study.toml");
        if !path.exists() {
            return Ok(None);
        }
        let text = config::read(&path, "study")?;
        toml::from_str(&text).map(Some).map_err(|e| Source { text: &text, file: &path }.toml_error(&e))
    }
}
