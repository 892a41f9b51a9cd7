//! The VNFs of a device under test that packets are for by destination MAC address.

use super::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Packets for one of several destination MAC addresses, which flows have in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Vnf {
    /// Rate received, packets per second and direction.
    pub received_pps: f64,
    /// Median of the latency, nanoseconds, if packets were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile, if at least ten samples lie beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// 99.9th percentile, if at least ten samples lie beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
    /// Mean of the absolute values of IPDV, the difference of the delays of packets received one after the other (RFC
    /// 5481 §4.1), nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// Busy cycles of the time-stamp counter per packet in its NFs, if they are copies of a chain file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
}

impl Vnf {
    /// Returns the quantities over all VNFs: mean and minimum of the rates received and their fairness, and the mean jitter;
    /// none without VNFs.
    pub fn quantities(all: &[Vnf]) -> Vec<Quantity> {
        let rates: Vec<f64> = all.iter().map(|vnf| vnf.received_pps).collect();
        let jitter: Vec<f64> = all.iter().filter_map(|vnf| vnf.jitter_ns).collect();
        let lowest = rates.iter().copied().reduce(f64::min);
        [
            Quantity::mean("received by a VNF", "pps", &rates),
            lowest.map(|lowest| Quantity::new("received by the slowest VNF", "pps", lowest)),
            fairness(&rates).map(|index| Quantity::new("fairness of VNFs", "ratio", index)),
            Quantity::mean("jitter of a VNF", "ns", &jitter),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Returns Jain's fairness index of shares, `(Σx)² / (n · Σx²)`: 1 if all are equal, `1 / n` if one has everything (Jain,
/// Chiu, Hawe, DEC-TR-301). `None` if all are 0.
fn fairness(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_that_of_jain() {
        assert_eq!((fairness(&[]), fairness(&[0.0, 0.0])), (None, None));
        assert_eq!(fairness(&[3.0; 7]), Some(1.0));
        assert_eq!(fairness(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[1.0, 3.0]), Some(0.8));
    }

    #[test]
    fn quantities_are_over_all_vnfs() {
        let vnf = |received_pps, jitter_ns| Vnf { received_pps, jitter_ns, ..Vnf::default() };
        let all = [vnf(1e6, Some(100.0)), vnf(3e6, None)];
        let values: Vec<_> = Vnf::quantities(&all).into_iter().map(|q| (q.name, q.value)).collect();
        let expected = [
            ("received by a VNF", 2e6),
            ("received by the slowest VNF", 1e6),
            ("fairness of VNFs", 0.8),
            ("jitter of a VNF", 100.0),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(Vnf::quantities(&[]).is_empty());
    }
}
