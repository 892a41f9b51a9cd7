//! The computation of rates.

use super::{ChainRates, CpuRates, NfRates, PortRates, QueueUse, Rates, SandboxRates, TableUse};
use runtime::{ChainSummary, Cycles, Name, NfSummary, Occupancy, PortSummary, SandboxSummary, Summary, WorkerSummary};

/// An interval between two snapshots of the counts.
struct Interval<'a> {
    /// None for the start of the instance.
    before: Option<&'a Summary>,
    now: &'a Summary,
    seconds: f64,
}

impl Interval<'_> {
    /// Returns the growth of a count per second, and 0 if it was reset.
    fn rate(&self, before: Option<u64>, now: u64) -> f64 {
        now.saturating_sub(before.unwrap_or(0)) as f64 / self.seconds
    }

    /// Returns the element of the first snapshot that `is_same` selects.
    fn before<T>(&self, all: fn(&Summary) -> &Vec<T>, is_same: impl Fn(&T) -> bool) -> Option<&T> {
        all(self.before?).iter().find(|one| is_same(one))
    }

    fn ports(&self) -> Vec<PortRates> {
        let rates = |port: &PortSummary| {
            let old = self.before(|s| &s.ports, |old| old.name == port.name);
            let rate = |of: fn(&PortSummary) -> u64| self.rate(old.map(of), of(port));
            PortRates {
                name: port.name.clone(),
                device: port.device.clone(),
                received: rate(|p| p.received),
                received_bits: 8.0 * rate(|p| p.received_bytes),
                sent: rate(|p| p.sent),
                sent_bits: 8.0 * rate(|p| p.sent_bytes),
                dropped: rate(|p| p.drops.values().sum()),
                missed: rate(|p| p.missed),
                receive_cycles: cycles_between(old.map(|p| &p.receive), &port.receive).per_packet(),
                send_cycles: cycles_between(old.map(|p| &p.send), &port.send).per_packet(),
                link: port.link,
            }
        };
        self.now.ports.iter().map(rates).collect()
    }

    fn cpus(&self) -> Vec<CpuRates> {
        let rates = |(&cpu, worker): (&usize, &WorkerSummary)| {
            let old = self.before.and_then(|before| before.workers.get(&cpu));
            let rate = |of: fn(&WorkerSummary) -> u64| self.rate(old.map(of), of(worker));
            CpuRates {
                cpu,
                chains: worker.chains.clone(),
                busy: self.now.busy_share(cpu, self.before),
                received: rate(|w| w.received + w.received_from_links),
                sent: rate(|w| w.sent + w.sent_to_links),
                dropped: rate(|w| w.dropped),
            }
        };
        self.now.workers.iter().map(rates).collect()
    }

    fn chains(&self) -> Vec<ChainRates> {
        let rates = |chain: &ChainSummary| {
            let old = self.before(|s| &s.chains, |old| old.name == chain.name);
            let rate = |of: fn(&ChainSummary) -> u64| self.rate(old.map(of), of(chain));
            let (packets, cycles) = (rate(|c| c.packets), rate(|c| c.cycles));
            ChainRates {
                name: chain.name.clone(),
                packets,
                cycles: (packets > 0.0).then(|| cycles / packets),
                share: cycles,
                throttled: rate(|c| c.throttled),
            }
        };
        let mut chains: Vec<ChainRates> = self.now.chains.iter().map(rates).collect();
        let all: f64 = chains.iter().map(|chain| chain.share).sum();
        chains.iter_mut().for_each(|chain| chain.share /= all.max(1.0));
        chains
    }

    /// Returns the rates of the NFs, without their shares of the cycles.
    fn nfs(&self) -> Vec<NfRates> {
        let rates = |nf: &NfSummary| {
            let old = self.before(|s| &s.nfs, |old| old.name == nf.name && old.kind == nf.kind);
            let rate = |of: fn(&NfSummary) -> u64| self.rate(old.map(of), of(nf));
            let timed = cycles_between(old.map(|nf| &nf.cycles), &nf.cycles);
            let gauges = nf.counters.iter().filter(|(name, _)| nf.gauges.contains(*name));
            NfRates {
                name: nf.name.clone(),
                kind: nf.kind.clone(),
                packets: rate(|nf| nf.packets),
                per_batch: (timed.batches != 0).then(|| timed.packets as f64 / timed.batches as f64),
                cycles: timed.per_packet(),
                share: 0.0,
                dropped: rate(|nf| nf.drops.values().sum()),
                gauges: gauges.map(|(name, value)| (name.clone(), *value)).collect(),
            }
        };
        self.now.nfs.iter().map(rates).collect()
    }

    fn sandboxes(&self) -> Vec<SandboxRates> {
        let rates = |sandbox: &SandboxSummary| {
            let old = self.before(|s| &s.sandboxes, |old| old.name == sandbox.name);
            let rate = |of: fn(&SandboxSummary) -> u64| self.rate(old.map(of), of(sandbox));
            SandboxRates {
                name: sandbox.name.clone(),
                isolation: sandbox.isolation.clone(),
                cpus: sandbox.cpus.clone(),
                up: sandbox.up,
                starts: sandbox.starts,
                sent: rate(|s| s.sent),
                received: rate(|s| s.received),
                dropped: rate(|s| s.drops.values().sum()),
            }
        };
        self.now.sandboxes.iter().map(rates).collect()
    }

    /// Returns the dropped packets by reason, most first.
    fn drops(&self) -> Vec<(Name, f64)> {
        let rate = |(reason, n): (&Name, &u64)| {
            let old = self.before.and_then(|before| before.drops.get(reason)).copied();
            (reason.clone(), self.rate(old, *n))
        };
        let mut drops: Vec<_> = self.now.drops.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect();
        drops.sort_by(|a, b| b.1.total_cmp(&a.1));
        drops
    }
}

/// Returns the cycles between two snapshots.
fn cycles_between(before: Option<&Cycles>, now: &Cycles) -> Cycles {
    let before = before.copied().unwrap_or_default();
    Cycles {
        cycles: now.cycles.saturating_sub(before.cycles),
        packets: now.packets.saturating_sub(before.packets),
        batches: now.batches.saturating_sub(before.batches),
    }
}

fn queues(now: &Summary) -> Vec<QueueUse> {
    let ports = now.ports.iter().map(|port| (format!("port {}", port.name), port.queue));
    let links = now.links.iter().map(|link| (format!("link {}", link.name), link.queue));
    ports.chain(links).filter_map(|(name, queue)| Some(QueueUse { name, packets: queue? })).collect()
}

fn tables(now: &Summary) -> Vec<TableUse> {
    let of = |nf: &NfSummary| {
        let table = |(table, entries): (&Name, &Occupancy)| TableUse {
            nf: nf.name.clone(),
            table: table.clone(),
            entries: *entries,
        };
        nf.occupancy.iter().map(table).collect::<Vec<_>>()
    };
    now.nfs.iter().flat_map(of).collect()
}

impl Rates {
    /// Returns the rates from `before` until `now`, of the same instance; without `before`, since the start.
    pub(crate) fn between(before: Option<&Summary>, now: &Summary) -> Rates {
        let seconds = (now.seconds - before.map_or(0.0, |before| before.seconds)).max(1e-9);
        let interval = Interval { before, now, seconds };
        let (ports, mut nfs) = (interval.ports(), interval.nfs());
        let of_ports =
            ports.iter().flat_map(|port| [(port.receive_cycles, port.received), (port.send_cycles, port.sent)]);
        let spent = |(cycles, packets): (Option<f64>, f64)| cycles.unwrap_or(0.0) * packets;
        let all: f64 = of_ports.chain(nfs.iter().map(|nf| (nf.cycles, nf.packets))).map(spent).sum();
        nfs.iter_mut().for_each(|nf| nf.share = spent((nf.cycles, nf.packets)) / all.max(1.0));
        let total = |of: fn(&Summary) -> u64| interval.rate(before.map(of), of(now));
        Rates {
            file: now.file.clone(),
            uptime: now.seconds,
            interval: seconds,
            pool: now.pool,
            received: total(|s| s.totals.received),
            sent: total(|s| s.totals.sent),
            received_bits: ports.iter().map(|port| port.received_bits).sum(),
            sent_bits: ports.iter().map(|port| port.sent_bits).sum(),
            dropped: total(|s| s.totals.dropped),
            cpus: interval.cpus(),
            chains: interval.chains(),
            ports,
            nfs,
            sandboxes: interval.sandboxes(),
            queues: queues(now),
            tables: tables(now),
            drops: interval.drops(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Totals;
    use std::collections::BTreeMap;

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
                queue: Some(Occupancy { used: 5, capacity: 512 }),
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
                occupancy: [("sessions".into(), Occupancy { used: 3, capacity: 4 })].into(),
                ..Default::default()
            }],
            chains: vec![ChainSummary { name: "c".into(), packets, cycles: 20 * packets, throttled: 0 }],
            sandboxes: vec![SandboxSummary { name: "s".into(), sent: packets, starts: 2, ..Default::default() }],
            workers: [(1, WorkerSummary { received: packets, busy_cycles: Some(25 * packets), ..Default::default() })]
                .into(),
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
        assert_eq!((rates.received_bits, rates.sent_bits), (8.0 * 60.0 * 10_240.0, 0.0));
        let cpu = &rates.cpus[0];
        assert_eq!((cpu.cpu, cpu.busy, cpu.received, cpu.sent), (1, Some(0.256), 10_240.0, 0.0));
        let chain = &rates.chains[0];
        assert_eq!((chain.packets, chain.cycles, chain.share), (10_240.0, Some(20.0), 1.0));
        let sandbox = &rates.sandboxes[0];
        assert_eq!((sandbox.sent, sandbox.received, sandbox.starts), (10_240.0, 0.0, 2));
        assert_eq!((rates.queues[0].name.as_str(), rates.queues[0].packets.used), ("port lan", 5));
        assert_eq!((rates.tables[0].nf.as_str(), rates.tables[0].entries.share()), ("hops", 0.75));
        assert_eq!(rates.drops, [("ttl_expired".into(), 1024.0)]);
    }

    #[test]
    fn the_first_rates_are_those_since_the_start_and_counts_never_go_back() {
        assert_eq!(Rates::between(None, &summary(2.0, 20_480)).received, 10_240.0);
        // a rebuilt NF counts from 0
        assert_eq!(Rates::between(Some(&summary(2.0, 20_480)), &summary(3.0, 0)).nfs[0].packets, 0.0);
    }
}
