//! The host, time, program and calibration of a measurement.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The host and its state. Contains no name, address or serial number of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Environment {
    /// Start of the measurement (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub date: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Frequency of the time-stamp counter, Hz; all cycles in the document are of this counter.
    pub tsc_hz: u64,
    /// Kernel and version.
    pub kernel: String,
    /// Huge pages of the default size at the start.
    pub hugepages: u64,
    /// Memory of the packets: `huge pages` or `ordinary pages`.
    pub memory: String,
    /// CPUs isolated from the scheduler (`isolcpus`).
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::CPUS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CPUS))]
    pub isolated_cpus: Vec<u32>,
    /// CPUs used by generator and DUT.
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::CPUS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CPUS))]
    pub cpus_used: Vec<u32>,
    /// Share of the time of these CPUs that the hypervisor gave to other guests (steal time), 0 to 1, if it is
    /// reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub steal_share: Option<f64>,
    /// Version of DPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpdk_version: Option<String>,
    /// Hypervisor; left out on a physical host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Further facts, by name: governor, mitigations, firmware of the NIC.
    #[serde(
        default,
        alias = "more",
        deserialize_with = "limit::map::<_, _, { limit::FACTS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::FACTS))]
    pub extra: BTreeMap<String, String>,
}

impl Environment {
    /// Returns the date in seconds since 1970-01-01T00:00:00Z; `None` if it is not a date of RFC 3339.
    pub fn unix_seconds(&self) -> Option<i64> {
        unix_seconds(&self.date)
    }

    /// Returns the used CPUs that are not isolated.
    pub fn shared_cpus(&self) -> Vec<u32> {
        self.cpus_used.iter().copied().filter(|cpu| !self.isolated_cpus.contains(cpu)).collect()
    }
}

/// Parses a date of RFC 3339 into seconds since 1970-01-01T00:00:00Z.
pub fn unix_seconds(date: &str) -> Option<i64> {
    OffsetDateTime::parse(date, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// Formats seconds since 1970-01-01T00:00:00Z as a date of RFC 3339 in UTC; `None` beyond the years 0 to 9999.
pub fn rfc3339(seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok()
}

/// Returns the current time in whole seconds (RFC 3339, UTC), for [`Environment::date`].
pub fn now() -> String {
    let now = OffsetDateTime::now_utc().truncate_to_second();
    // cannot fail between the years 0 and 9999
    now.format(&Rfc3339).unwrap_or_default()
}

/// The program that made the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Command line that repeats the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A measurement of the generator against a loopback, with the same frames. It is stored beside the result and never
/// subtracted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Calibration {
    /// Throughput of the loopback (lower bound), packets per second.
    pub loopback_lower_pps: f64,
    /// Load at which its latency was measured, packets per second.
    pub load_pps: f64,
    /// Median latency of the loopback, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// 99.9th percentile, nanoseconds.
    pub p999_ns: f64,
    /// Id of the document of the calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_rfc_3339_dates() {
        assert_eq!(unix_seconds("1970-01-02T00:00:01Z"), Some(86401));
        assert_eq!(unix_seconds("1970-01-02T01:00:01.5+01:00"), Some(86401));
        assert_eq!(unix_seconds("1970-01-02"), None);
        assert_eq!(rfc3339(86_401).as_deref(), Some("1970-01-02T00:00:01Z"));
        assert_eq!(rfc3339(i64::MAX), None);
        assert!(unix_seconds(&now()) > Some(1_700_000_000));
    }

    #[test]
    fn shared_cpus_are_those_not_isolated() {
        let e = Environment { cpus_used: vec![1, 2, 3], isolated_cpus: vec![2], ..Environment::default() };
        assert_eq!(e.shared_cpus(), [1, 3]);
    }
}
