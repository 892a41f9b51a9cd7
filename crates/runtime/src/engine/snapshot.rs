//! The counts of a running engine.

use super::driver_counts::DriverCounts;
use super::{End, Engine};
use crate::occupancy::Occupancy;
use crate::ports::PortDrop;
use crate::summary::{ChainSummary, LinkSummary, NfSummary, PortSummary, Summary};
use graph::Named as _;

impl Engine {
    /// Returns the counts so far.
    pub fn snapshot(&self) -> Summary {
        let ports = self.names.ports.iter().map(|(name, device)| PortSummary {
            name: name.clone(),
            device: device.clone(),
            ..Default::default()
        });
        let links = self.names.links.iter().map(|name| LinkSummary { name: name.clone(), ..Default::default() });
        let nfs = self.names.nfs.iter().map(|(name, kind)| NfSummary {
            name: name.clone(),
            kind: (*kind).into(),
            ..Default::default()
        });
        let mut s = Summary {
            file: self.file.file.display().to_string(),
            seconds: self.started.elapsed().as_secs_f64(),
            memory: self.eal.memory().name().into(),
            pool: Occupancy {
                used: self.packets_in_use() as u64,
                capacity: self.pools().map(|p| p.size() as u64).sum(),
            },
            ports: ports.collect(),
            links: links.collect(),
            nfs: nfs.collect(),
            errors: self.errors.messages(),
            ..Default::default()
        };
        for worker in &self.workers {
            let of_worker = s.workers.entry(worker.cpu).or_default();
            of_worker.chains.extend(worker.chains.iter().map(|&chain| self.file.chains[chain].name.clone()));
            *of_worker.busy_cycles.get_or_insert_default() +=
                worker.busy.get() + worker.counted_elsewhere.busy_cycles.unwrap_or_default();
            let drops = worker.nodes.iter().flat_map(|(_, stats)| stats.drops.iter());
            of_worker.dropped += drops.map(graph::Counter::get).sum::<u64>();
            worker.nodes.iter().for_each(|(nf, stats)| s.nfs[*nf].add(stats));
            for (name, usage) in &worker.usage {
                match s.chains.iter_mut().find(|c| c.name == *name) {
                    Some(chain) => chain.add(usage),
                    None => s.chains.push(ChainSummary::of(name, usage)),
                }
            }
            for (end, stats) in &worker.sent {
                of_worker.add_sent(stats, matches!(end, End::Link(_)));
                match *end {
                    End::Port(port) => s.ports[port].add_sent(stats),
                    End::Link(link) => s.links[link].add_sent(stats),
                }
            }
            for (end, stats) in &worker.received {
                of_worker.add_received(stats, matches!(end, End::Link(_)));
                match *end {
                    End::Port(port) => s.ports[port].add_received(stats),
                    End::Link(link) => s.links[link].add_received(stats),
                }
            }
            of_worker.add_wrapping(&worker.counted_elsewhere);
        }
        for link in &mut s.links {
            // up to date even if the receiving worker is not
            link.queue.iter_mut().for_each(|queue| queue.used = link.sent.saturating_sub(link.received));
        }
        s.nfs.iter_mut().enumerate().for_each(|(nf, of)| of.memory = self.accounts.peak(nf));
        for (port, capture) in &self.captures {
            s.ports[*port].drop_sent(PortDrop::WriteFailed.name(), capture.lost());
        }
        for (port, monitor) in &self.monitors {
            let port = &mut s.ports[*port];
            DriverCounts::of(monitor).add_to(port);
            port.link = monitor.link();
            s.errors.extend(monitor.deletion().map(|error| format!("port {:?}: {error}", port.name)));
        }
        for (port, tap) in &self.taps {
            let port = &mut s.ports[*port];
            DriverCounts::of_tap(tap).add_to(port);
            if let Some(error) = tap.deletion() {
                port.link = Some(false);
                s.errors.push(format!("port {:?}: {error}", port.name));
            }
        }
        self.removed_ports.iter().for_each(|(port, counts)| counts.add_to(&mut s.ports[*port]));
        s.compute_totals();
        s
    }
}
