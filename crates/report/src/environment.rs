//! Where and when a measurement was made.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The machine and its state. Holds no name, address or serial number of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Environment {
    /// Start of the measurement (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub date: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Cycles of the time-stamp counter in a second; all cycles of the document are of this counter.
    pub tsc_hz: u64,
    /// Kernel and its version.
    pub kernel: String,
    /// Huge pages of the system at the start, of its usual size.
    pub hugepages: u64,
    /// Where packets were kept: `huge pages` or `ordinary pages`.
    pub memory: String,
    /// CPUs that the kernel leaves alone (`isolcpus`).
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::CPUS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CPUS))]
    pub isolated_cpus: Vec<u32>,
    /// CPUs used, by generator and DUT.
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::CPUS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CPUS))]
    pub cpus_used: Vec<u32>,
    /// Share of the time of these CPUs that a hypervisor gave to others, 0 to 1, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub steal_share: Option<f64>,
    /// Version of DPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpdk_version: Option<String>,
    /// The hypervisor that the machine runs on; left out for a real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Further facts, by name: governor, mitigations, firmware of the NIC.
    #[serde(
        default,
        deserialize_with = "limit::map::<_, _, { limit::FACTS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::FACTS))]
    pub more: BTreeMap<String, String>,
}

impl Environment {
    /// The date, in seconds since 1970-01-01T00:00:00Z; none when it is not one of RFC 3339.
    pub fn unix_seconds(&self) -> Option<i64> {
        unix_seconds(&self.date)
    }

    /// CPUs used that the kernel does not leave alone.
    pub fn shared_cpus(&self) -> Vec<u32> {
        self.cpus_used.iter().copied().filter(|cpu| !self.isolated_cpus.contains(cpu)).collect()
    }
}

/// A date of RFC 3339, in seconds since 1970-01-01T00:00:00Z.
pub fn unix_seconds(date: &str) -> Option<i64> {
    OffsetDateTime::parse(date, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// A moment, seconds since 1970-01-01T00:00:00Z, as a date of RFC 3339 in UTC; none beyond the year 9999 or before 0.
pub fn rfc3339(seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok()
}

/// The present, in whole seconds (RFC 3339, UTC): what [`Environment::date`] wants.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc().truncate_to_second();
    // cannot fail between the years 0 and 9999
    now.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_rfc_3339() {
        assert_eq!(unix_seconds("1970-01-02T00:00:01Z"), Some(86401));
        assert_eq!(unix_seconds("1970-01-02T01:00:01.5+01:00"), Some(86401));
        assert_eq!(unix_seconds("1970-01-02"), None);
        assert_eq!(rfc3339(86_401).as_deref(), Some("1970-01-02T00:00:01Z"));
        assert_eq!(rfc3339(i64::MAX), None);
        assert!(unix_seconds(&now()) > Some(1_700_000_000));
    }

    #[test]
    fn cpus_that_are_not_isolated_are_shared() {
        let e = Environment { cpus_used: vec![1, 2, 3], isolated_cpus: vec![2], ..Environment::default() };
        assert_eq!(e.shared_cpus(), [1, 3]);
    }
}
