//! Rates between two snapshots of the counts.

use runtime::{Cycles, Name, NfSummary, PortSummary, Summary};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rates of an instance, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Chain file.
    pub(crate) file: String,
    /// Seconds since the start of the instance.
    pub(crate) uptime: f64,
    /// Seconds between the snapshots.
    pub(crate) interval: f64,
    /// CPUs of workers.
    pub(crate) cpus: Vec<usize>,
    /// Share of the workers' cycles that were spent on packets, estimated from timed batches; 1 is all of them.
    pub(crate) busy: f64,
    /// Packets received by ports.
    pub(crate) received: f64,
    /// Packets sent by ports.
    pub(crate) sent: f64,
    /// Packets dropped.
    pub(crate) dropped: f64,
    /// Ports, in the order of the summary.
    pub(crate) ports: Vec<PortRates>,
    /// NFs, in the order of the summary.
    pub(crate) nfs: Vec<NfRates>,
    /// Dropped packets by reason, most first.
    pub(crate) drops: Vec<(Name, f64)>,
}

/// Rates of a port, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PortRates {
    pub(crate) name: String,
    pub(crate) device: String,
    /// Packets received.
    pub(crate) received: f64,
    /// Bits received, without FCS.
    pub(crate) received_bits: f64,
    /// Packets sent.
    pub(crate) sent: f64,
    /// Bits sent, without FCS.
    pub(crate) sent_bits: f64,
    /// Packets dropped at the port.
    pub(crate) dropped: f64,
    /// Cycles per packet received and sent, where packets were timed.
    pub(crate) receive_cycles: Option<f64>,
    pub(crate) send_cycles: Option<f64>,
    /// Link state, if the device reports it.
    pub(crate) link: Option<bool>,
}

/// Rates of an NF, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NfRates {
    pub(crate) name: String,
    pub(crate) kind: Name,
    /// Packets processed.
    pub(crate) packets: f64,
    /// Packets per batch, where batches were timed.
    pub(crate) per_batch: Option<f64>,
    /// Cycles per packet, where packets were timed.
    pub(crate) cycles: Option<f64>,
    /// Share of the cycles of all ports and NFs; 1 is all of them.
    pub(crate) share: f64,
    /// Packets dropped.
    pub(crate) dropped: f64,
    /// Values such as numbers of sessions, not per second.
    pub(crate) gauges: BTreeMap<String, u64>,
}

/// Cycles between two snapshots.
fn cycles_between(before: Option<&Cycles>, now: &Cycles) -> Cycles {
    let before = before.copied().unwrap_or_default();
    Cycles {
        cycles: now.cycles.saturating_sub(before.cycles),
        packets: now.packets.saturating_sub(before.packets),
        batches: now.batches.saturating_sub(before.batches),
    }
}

impl Rates {
    /// Returns the rates from `before` until `now`, of the same instance; without `before`, since the start.
    pub(crate) fn between(before: Option<&Summary>, now: &Summary) -> Rates {
        let interval = (now.seconds - before.map_or(0.0, |before| before.seconds)).max(1e-9);
        let per_second = |before: Option<u64>, now: u64| now.saturating_sub(before.unwrap_or(0)) as f64 / interval;
        let sum = |drops: &BTreeMap<Name, u64>| drops.values().sum::<u64>();
        let ports: Vec<PortRates> = now
            .ports
            .iter()
            .map(|port| {
                let old = before.and_then(|b| b.ports.iter().find(|old| old.name == port.name));
                let rate = |of: fn(&PortSummary) -> u64| per_second(old.map(of), of(port));
                PortRates {
                    name: port.name.clone(),
                    device: port.device.clone(),
                    received: rate(|p| p.received),
                    received_bits: 8.0 * rate(|p| p.received_bytes),
                    sent: rate(|p| p.sent),
                    sent_bits: 8.0 * rate(|p| p.sent_bytes),
                    dropped: per_second(old.map(|p| sum(&p.drops)), sum(&port.drops)),
                    receive_cycles: cycles_between(old.map(|p| &p.receive), &port.receive).per_packet(),
                    send_cycles: cycles_between(old.map(|p| &p.send), &port.send).per_packet(),
                    link: port.link,
                }
            })
            .collect();
        let mut nfs: Vec<NfRates> = now
            .nfs
            .iter()
            .map(|nf| {
                let old = before.and_then(|b| b.nfs.iter().find(|old| old.name == nf.name && old.kind == nf.kind));
                let rate = |of: fn(&NfSummary) -> u64| per_second(old.map(of), of(nf));
                let timed = cycles_between(old.map(|nf| &nf.cycles), &nf.cycles);
                NfRates {
                    name: nf.name.clone(),
                    kind: nf.kind.clone(),
                    packets: rate(|nf| nf.packets),
                    per_batch: (timed.batches != 0).then(|| timed.packets as f64 / timed.batches as f64),
                    cycles: timed.per_packet(),
                    share: 0.0,
                    dropped: per_second(old.map(|nf| sum(&nf.drops)), sum(&nf.drops)),
                    gauges: nf
                        .counters
                        .iter()
                        .filter(|(name, _)| nf.gauges.contains(*name))
                        .map(|(n, v)| (n.clone(), *v))
                        .collect(),
                }
            })
            .collect();
        let of_ports =
            ports.iter().flat_map(|port| [(port.receive_cycles, port.received), (port.send_cycles, port.sent)]);
        let spent = |(cycles, packets): (Option<f64>, f64)| cycles.unwrap_or(0.0) * packets;
        let all: f64 = of_ports.chain(nfs.iter().map(|nf| (nf.cycles, nf.packets))).map(spent).sum();
        nfs.iter_mut().for_each(|nf| nf.share = spent((nf.cycles, nf.packets)) / all.max(1.0));
        let drop = |(reason, n): (&Name, &u64)| {
            (reason.clone(), per_second(before.and_then(|b| b.drops.get(reason)).copied(), *n))
        };
        let mut drops: Vec<_> = now.drops.iter().map(drop).filter(|(_, rate)| *rate > 0.0).collect();
        drops.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total = |of: fn(&Summary) -> u64| per_second(before.map(of), of(now));
        let capacity = now.workers.len().max(1) as f64 * now.cycles_per_second.max(1) as f64;
        Rates {
            file: now.file.clone(),
            uptime: now.seconds,
            interval,
            cpus: now.workers.keys().copied().collect(),
            busy: (all / capacity).min(1.0),
            received: total(|s| s.totals.received),
            sent: total(|s| s.totals.sent),
            dropped: total(|s| s.totals.dropped),
            ports,
            nfs,
            drops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Totals;

    fn summary(seconds: f64, packets: u64) -> Summary {
        let cycles = |each| Cycles { cycles: packets / 4 * each, packets: packets / 4, batches: packets / 256 };
        let drops: BTreeMap<Name, u64> = [("ttl_expired".into(), packets / 10)].into();
        Summary {
            file: "edge.toml".into(),
            seconds,
            cycles_per_second: 1_000_000,
            totals: Totals {
                received: packets,
                dropped: packets / 10,
                sent: packets - packets / 10,
                ..Totals::default()
            },
            drops: drops.clone(),
            ports: vec![PortSummary {
                name: "lan".into(),
                received: packets,
                received_bytes: 60 * packets,
                receive: cycles(30),
                ..Default::default()
            }],
            nfs: vec![NfSummary {
                name: "hops".into(),
                kind: "ttl".into(),
                packets,
                cycles: cycles(10),
                drops,
                counters: [("sessions".to_owned(), 7), ("created".to_owned(), packets)].into(),
                gauges: ["sessions".to_owned()].into(),
                ..Default::default()
            }],
            workers: [(1, Default::default())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn rates_are_those_between_the_snapshots() {
        let rates = Rates::between(Some(&summary(10.0, 102_400)), &summary(12.0, 122_880));
        assert_eq!((rates.interval, rates.received, rates.sent, rates.dropped), (2.0, 10_240.0, 9216.0, 1024.0));
        assert_eq!((rates.ports[0].received, rates.ports[0].received_bits), (10_240.0, 8.0 * 60.0 * 10_240.0));
        assert_eq!((rates.ports[0].receive_cycles, rates.ports[0].send_cycles), (Some(30.0), None));
        let nf = &rates.nfs[0];
        assert_eq!((nf.packets, nf.cycles, nf.per_batch, nf.share), (10_240.0, Some(10.0), Some(64.0), 0.25));
        assert_eq!(nf.gauges, [("sessions".to_owned(), 7)].into());
        // 40 cycles of each of 10,240 packets per second, of a million
        assert!((rates.busy - 0.4096).abs() < 1e-9, "{}", rates.busy);
        assert_eq!(rates.drops, [("ttl_expired".into(), 1024.0)]);
    }

    #[test]
    fn the_first_rates_are_those_since_the_start_and_counts_never_go_back() {
        assert_eq!(Rates::between(None, &summary(2.0, 20_480)).received, 10_240.0);
        // a rebuilt NF counts from 0
        assert_eq!(Rates::between(Some(&summary(2.0, 20_480)), &summary(3.0, 0)).nfs[0].packets, 0.0);
    }
}
