//! Settings.

use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tables::flow::CAPACITY_MOST;

/// Settings of `monitor`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of flows per core and IP version, 64 bytes each for IPv4 and 128 for IPv6, or 256 for each with
    /// `export`. If the table is full, the flow that has been idle longest of sixteen is evicted.
    pub(super) flows: u32,
    /// Seconds without a packet after which a flow expires, 1 to 1000000.
    pub(super) idle: u32,
    /// Number of largest flows or addresses in the statistics table, by bytes since the start, up to 1048576. Workers
    /// build the table: keep it short. All with more than 1/1024 of all bytes (1/`top` if `top` is larger) are found.
    pub(super) top: u32,
    /// Key of the statistics table.
    pub(super) top_by: TopBy,
    /// Export of flows that have ended.
    pub(super) export: Option<ExportSettings>,
}

/// Key of the statistics table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TopBy {
    /// Flows.
    #[default]
    Flow,
    /// Source addresses.
    Source,
    /// Destination addresses.
    Destination,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { flows: 65_536, idle: 60, top: 10, top_by: TopBy::Flow, export: None }
    }
}

/// Export of flows to a collector.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExportSettings {
    /// Address and port of the collector, which receives IPFIX over UDP: "192.0.2.1:4739".
    pub(super) to: String,
    /// Seconds after which a flow that still has packets is exported, and its counts begin again, 1 to 86400. The setting
    /// `idle` of the monitor is the inactive timeout.
    pub(super) active: u32,
    /// True if both directions are one flow (RFC 5103), whose first packet decides which one is the forward direction.
    pub(super) biflows: bool,
    /// One of this number of packets is counted (systematic count-based sampling, RFC 5475 §5.1), 1 to 65535.
    pub(super) sample: u32,
}

impl Default for ExportSettings {
    fn default() -> Self {
        ExportSettings { to: String::new(), active: 60, biflows: false, sample: 1 }
    }
}

/// Returns the problem of flow tables that cannot be created.
pub(super) fn no_table(flows: u32, error: &tables::flow::Error) -> Diagnostic {
    let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
    Diagnostic::new(error.to_string()).key("flows").value(flows).remedy(remedy)
}
