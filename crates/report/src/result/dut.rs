//! The device under test.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The device under test (DUT).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Dut {
    /// Its kind: `bondstone`, `native`, `testpmd`, `ovs`, `vpp`, `bridge`, `router`, `simulated` or another driver.
    pub kind: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Name of its configuration file, without the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Contents of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::CHAIN))]
    pub chain: Option<String>,
    /// SHA-256 of that file, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub chain_sha256: Option<String>,
    /// Isolation between the NFs: `inproc`, `process` or `vm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Its NFs, in the order of the path.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::PARTS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::PARTS))]
    pub nfs: Vec<NfInstance>,
    /// Its ports.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::PARTS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::PARTS))]
    pub ports: Vec<Port>,
    /// CPUs that it ran on, numbered as by the kernel.
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::CPUS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CPUS))]
    pub cores: Vec<u32>,
}

/// An NF of the DUT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NfInstance {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
}

/// A port of the DUT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its device, as in the chain file.
    pub device: String,
    /// Its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

impl Dut {
    /// Returns its kind with its NFs or its file, for display.
    pub fn label(&self) -> String {
        let mut label = self.kind.clone();
        if let (Some(first), Some(last)) = (self.nfs.first(), self.nfs.last()) {
            label.push(' ');
            match self.nfs.len() {
                1..=4 => label += &self.nfs.iter().map(|nf| nf.kind.as_str()).collect::<Vec<_>>().join("+"),
                n => label += &format!("{}+…+{} ({n} NFs)", first.kind, last.kind),
            }
        } else if let Some(file) = &self.file {
            label.push(' ');
            label += file;
        }
        label
    }
}
