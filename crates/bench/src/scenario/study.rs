//! The study that scenarios of a folder are of: `study.toml`.

use config::Source;
use diagnostics::Diagnostic;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where a study was published and on what it measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Its title.
    pub title: String,
    /// Where and when it was published.
    pub venue: String,
    /// What it measured on.
    #[serde(default)]
    pub environment: Setting,
}

/// What one should know of a place where something was measured; left out where it is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setting {
    /// Model and number of the CPUs.
    pub cpu: Option<String>,
    /// Their frequency.
    pub clock: Option<String>,
    /// Whether cores run two threads.
    pub smt: Option<String>,
    /// Whether cores were kept free of other work.
    pub isolation: Option<String>,
    /// A machine of metal, or a virtual one.
    pub machine: Option<String>,
    /// NIC and link.
    pub wire: Option<String>,
    /// Where the generator was.
    pub generator: Option<String>,
    /// Version of DPDK.
    pub dpdk: Option<String>,
    /// Kernel and its version.
    pub kernel: Option<String>,
    /// What packets were kept in.
    pub memory: Option<String>,
    /// Sizes of frames.
    pub frames: Option<String>,
    /// What counted as throughput.
    pub throughput: Option<String>,
}

impl Setting {
    /// All of it, with names for people.
    pub fn all(&self) -> [(&'static str, Option<&str>); 12] {
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
    /// Reads the `study.toml` of a folder, if there is one.
    pub(super) fn of(folder: &Path) -> Result<Option<Study>, Diagnostic> {
        let path = folder.join("study.toml");
        if !path.exists() {
            return Ok(None);
        }
        let text = config::read(&path, "study")?;
        toml::from_str(&text).map(Some).map_err(|e| Source { text: &text, file: &path }.toml(&e))
    }
}
