//! Metrics of a run for Prometheus: the counts of its summary, served by `run --metrics`.

mod server;

pub(crate) use server::Server;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use runtime::{Cycles, LinkSummary, Name, NfSummary, Occupancy, PortSummary, SandboxSummary, Summary};
use std::collections::BTreeMap;
use std::fmt;

/// Most counters and gauges of one NF that are exported, so that an NF with many cannot flood a server.
const MAX_NF_COUNTERS: usize = 256;

/// Labels of metrics that have none.
const NO_LABELS: [(&str, &str); 0] = [];

/// Format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    OpenMetrics,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the metrics of a summary as text.
fn encode(summary: Summary, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("bondstone");
    registry.register_collector(Box::new(Snapshot(summary)));
    let mut out = String::new();
    match format {
        Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

#[derive(Debug)]
struct Snapshot(Summary);

/// Writes families of metrics; families without values are omitted.
struct Families<'a>(DescriptorEncoder<'a>);

/// Name, description and value of a family of metrics.
type Family<'a, T> = (&'a str, &'a str, fn(&T) -> u64);
/// First part of the names, and value, of the families of cycles and packets.
type CycleFamily<'a, T> = (&'a str, fn(&T) -> Cycles);

impl Families<'_> {
    /// Writes a family, by a function that writes one of its values.
    fn family<V>(
        &mut self,
        (name, help, kind): (&str, &str, MetricType),
        values: impl IntoIterator<Item = V>,
        encode: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        values.try_for_each(|value| encode(&mut family, value))
    }

    fn counter<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.family((name, help, MetricType::Counter), values, |family, (labels, value)| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        self.family((name, help, MetricType::Gauge), values, |family, (labels, value)| {
            family.encode_family(&labels)?.encode_gauge(&value)
        })
    }

    fn info<L: EncodeLabelSet>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = L>) -> fmt::Result {
        self.family((name, help, MetricType::Info), values, |family, labels| family.encode_info(&labels))
    }

    /// Writes a counter of each element of `all`, whose name is the value of `label`.
    fn counters<T>(
        &mut self,
        label: &str,
        all: &[T],
        name_of: fn(&T) -> &str,
        families: &[Family<'_, T>],
    ) -> fmt::Result {
        families.iter().try_for_each(|(name, help, value)| {
            self.counter(name, help, all.iter().map(|of| ([(label, name_of(of))], value(of))))
        })
    }

    /// Writes a gauge of each element of `all`.
    fn gauges<T>(
        &mut self,
        label: &str,
        all: &[T],
        name_of: fn(&T) -> &str,
        families: &[Family<'_, T>],
    ) -> fmt::Result {
        families.iter().try_for_each(|(name, help, value)| {
            self.gauge(name, help, all.iter().map(|of| ([(label, name_of(of))], value(of))))
        })
    }

    /// Writes packets dropped of each element of `all`, by reason.
    fn drops<'d>(
        &mut self,
        name: &str,
        label: &str,
        all: impl IntoIterator<Item = (&'d str, &'d BTreeMap<Name, u64>)>,
    ) -> fmt::Result {
        let each = all.into_iter().flat_map(|(of, drops)| {
            drops.iter().map(move |(reason, n)| ([(label, of), ("reason", reason.as_ref())], *n))
        });
        self.counter(name, "Packets dropped, by reason", each)
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // every field by name, so that a new one is not forgotten
        let Summary { file, seconds, memory, pool, cycles_per_second, totals, balanced: _, drops, .. } = &self.0;
        let Summary { ports, links, chains, nfs, sandboxes, workers, errors, stuck, abandoned: _, .. } = &self.0;
        let mut out = Families(encoder);

        let labels = [("file", file.as_str()), ("memory", memory)];
        out.info("run", "Chain file, and memory of the packet pool", [labels])?;
        out.gauge("run_seconds", "Seconds since the start", [(NO_LABELS, *seconds)])?;
        let help = "Frequency of the time-stamp counter, in which all cycles are given";
        out.gauge("cycles_per_second", help, [(NO_LABELS, *cycles_per_second)])?;
        out.gauge("pool_used_buffers", "Packet buffers in use", [(NO_LABELS, pool.used)])?;
        out.gauge("pool_buffers", "Packet buffers of the pool", [(NO_LABELS, pool.capacity)])?;
        for (name, help, value) in [
            ("received_packets", "Packets received by ports", totals.received),
            ("created_packets", "Packets created by NFs", totals.created),
            ("sent_packets", "Packets accepted by ports for sending", totals.sent),
        ] {
            out.counter(name, help, [(NO_LABELS, value)])?;
        }
        let help = "Packets left in rings, between cores, and in NFs";
        out.gauge("held_packets", help, [(NO_LABELS, totals.held)])?;
        let reasons = drops.iter().map(|(reason, n)| ([("reason", reason.as_ref())], *n));
        out.counter("dropped_packets", "Packets dropped at ports, links and sandboxes and by NFs, by reason", reasons)?;
        out.gauge("run_errors", "Errors that occurred during the run", [(NO_LABELS, errors.len())])?;
        out.gauge("run_stuck_nfs", "NFs that did not finish their batch", [(NO_LABELS, stuck.len())])?;

        out.ports(ports)?;
        out.links(links)?;
        out.counters(
            "chain",
            chains,
            |chain| &chain.name,
            &[
                ("chain_packets", "Packets received for the chain", |chain| chain.packets),
                ("chain_cycles", "Cycles spent on these packets", |chain| chain.cycles),
                ("chain_throttled", "Visits postponed because of the rate", |chain| chain.throttled),
            ],
        )?;
        out.nfs(nfs)?;
        out.sandboxes(sandboxes)?;
        let workers: Vec<_> = workers.iter().map(|(cpu, worker)| (cpu.to_string(), worker)).collect();
        out.counters(
            "cpu",
            &workers,
            |(cpu, _)| cpu,
            &[
                ("worker_received_packets", "Packets of ports that the worker processed", |(_, w)| w.received),
                ("worker_received_from_links_packets", "Packets received from links between chains", |(_, w)| {
                    w.received_from_links
                }),
                ("worker_sent_packets", "Packets accepted by ports for sending", |(_, w)| w.sent),
                ("worker_sent_to_links_packets", "Packets sent into links between chains", |(_, w)| w.sent_to_links),
                ("worker_dropped_packets", "Packets dropped by the worker", |(_, w)| w.dropped),
            ],
        )?;
        let busy = workers.iter().filter_map(|(cpu, worker)| Some(([("cpu", cpu)], worker.busy_cycles?)));
        out.counter("worker_busy_cycles", "Cycles with packets or timers to process", busy)
    }
}

impl Families<'_> {
    fn ports(&mut self, ports: &[PortSummary]) -> fmt::Result {
        let devices = ports.iter().map(|port| [("port", &port.name), ("device", &port.device)]);
        self.info("port", "Device of the port", devices)?;
        self.counters(
            "port",
            ports,
            |port| &port.name,
            &[
                ("port_received_packets", "Packets received", |port| port.received),
                ("port_received_bytes", "Bytes received, without FCS; 0 for rings", |port| port.received_bytes),
                ("port_sent_packets", "Packets sent", |port| port.sent),
                ("port_sent_bytes", "Bytes sent, without FCS; 0 for rings", |port| port.sent_bytes),
                ("port_missed_packets", "Packets that the device dropped before they were received", |port| {
                    port.missed
                }),
                ("port_copied_packets", "Packets copied into one buffer", |port| port.copied),
                ("port_send_errors", "Packets that the device accepted and did not send", |port| port.send_errors),
            ],
        )?;
        let held = ports.iter().map(|port| ([("port", &port.name)], port.held));
        self.gauge("port_held_packets", "Packets left in the queue", held)?;
        self.drops("port_dropped_packets", "port", ports.iter().map(|port| (port.name.as_str(), &port.drops)))?;
        self.queues("port", ports.iter().map(|port| (&port.name, port.queue)))?;
        let up = ports.iter().filter_map(|port| Some(([("port", &port.name)], u64::from(port.link?))));
        self.gauge("port_link_up", "1 if the link is up, for devices that report it", up)?;
        self.cycles("port", ports, |port| &port.name, &[("port_receive", |p| p.receive), ("port_send", |p| p.send)])
    }

    fn links(&mut self, links: &[LinkSummary]) -> fmt::Result {
        self.counters(
            "link",
            links,
            |link| &link.name,
            &[
                ("link_sent_packets", "Packets sent into the rings", |link| link.sent),
                ("link_received_packets", "Packets received from the rings", |link| link.received),
            ],
        )?;
        self.queues("link", links.iter().map(|link| (&link.name, link.queue)))?;
        self.drops("link_dropped_packets", "link", links.iter().map(|link| (link.name.as_str(), &link.drops)))?;
        self.cycles("link", links, |link| &link.name, &[("link_send", |l| l.send), ("link_receive", |l| l.receive)])
    }

    fn nfs(&mut self, nfs: &[NfSummary]) -> fmt::Result {
        self.info("nf", "Kind of the NF", nfs.iter().map(|nf| [("nf", nf.name.as_str()), ("kind", &nf.kind)]))?;
        self.counters(
            "nf",
            nfs,
            |nf| &nf.name,
            &[
                ("nf_packets", "Packets processed", |nf| nf.packets),
                ("nf_created_packets", "Packets created", |nf| nf.created),
                ("nf_restarts", "Rebuilds after a panic", |nf| nf.restarts),
            ],
        )?;
        self.drops("nf_dropped_packets", "nf", nfs.iter().map(|nf| (nf.name.as_str(), &nf.drops)))?;
        self.gauges(
            "nf",
            nfs,
            |nf| &nf.name,
            &[
                ("nf_held_packets", "Packets held for later", |nf| nf.held),
                ("nf_memory_bytes", "Peak memory; 0 if it is not counted", |nf| nf.memory),
                ("nf_implausible", "1 if the NF is in a sandbox whose counts cannot be true", |nf| {
                    u64::from(nf.implausible)
                }),
            ],
        )?;
        let counted = nfs.iter().flat_map(|nf| own_counters(nf, false));
        self.counter("nf_counters", "Counters of the NF itself", counted)?;
        let present = nfs.iter().flat_map(|nf| own_counters(nf, true));
        self.gauge("nf_gauges", "Present values of the NF, such as a number of sessions", present)?;
        let tables = nfs
            .iter()
            .flat_map(|nf| nf.occupancy.iter().map(|(table, of)| ([("nf", nf.name.as_str()), ("table", table)], *of)));
        let entries = tables.clone().map(|(labels, of)| (labels, of.used));
        self.gauge("nf_table_entries", "Entries of tables that packets fill", entries)?;
        let capacity = tables.map(|(labels, of)| (labels, of.capacity));
        self.gauge("nf_table_capacity", "The most entries that the tables can have", capacity)?;
        self.cycles("nf", nfs, |nf| &nf.name, &[("nf", |nf| nf.cycles)])?;
        self.counters(
            "nf",
            nfs,
            |nf| &nf.name,
            &[("nf_timed_batches", "Batches whose cycles were counted", |nf| nf.cycles.batches)],
        )
    }

    fn sandboxes(&mut self, sandboxes: &[SandboxSummary]) -> fmt::Result {
        let isolation = sandboxes.iter().map(|s| {
            let SandboxSummary { name, isolation, runtime, transport, .. } = s;
            [("sandbox", name.as_str()), ("isolation", isolation), ("runtime", runtime), ("transport", transport)]
        });
        self.info("sandbox", "Isolation of the sandbox", isolation)?;
        self.counters(
            "sandbox",
            sandboxes,
            |sandbox| &sandbox.name,
            &[
                ("sandbox_starts", "Starts of the process", |s| s.starts),
                ("sandbox_sent_packets", "Packets sent into the sandbox", |s| s.sent),
                ("sandbox_received_packets", "Packets received from the sandbox", |s| s.received),
                ("sandbox_created_packets", "Packets received in excess of those sent", |s| s.created),
                ("sandbox_suppressed_lines", "Lines of output that were not printed", |s| s.suppressed_lines),
            ],
        )?;
        self.drops("sandbox_dropped_packets", "sandbox", sandboxes.iter().map(|s| (s.name.as_str(), &s.drops)))?;
        let startup = sandboxes.iter().map(|s| ([("sandbox", &s.name)], s.startup_ms / 1000.0));
        self.gauge("sandbox_startup_seconds", "Time from the last start of the process until it was ready", startup)?;
        self.gauges(
            "sandbox",
            sandboxes,
            |sandbox| &sandbox.name,
            &[
                ("sandbox_up", "1 if the process is running", |s| u64::from(s.up)),
                ("sandbox_implausible", "1 if the counts of the sandbox cannot be true", |s| u64::from(s.implausible)),
            ],
        )?;
        self.cycles(
            "sandbox",
            sandboxes,
            |sandbox| &sandbox.name,
            &[
                ("sandbox_send", |s| s.send),
                ("sandbox_receive", |s| s.receive),
                ("sandbox_inner_receive", |s| s.inner_receive),
                ("sandbox_inner_send", |s| s.inner_send),
            ],
        )
    }

    /// Writes the occupancy of the queues of ports or links, whose name is the value of `label`.
    fn queues<'q>(
        &mut self,
        label: &str,
        all: impl Iterator<Item = (&'q String, Option<Occupancy>)> + Clone,
    ) -> fmt::Result {
        let known = all.filter_map(|(name, queue)| Some(([(label, name)], queue?)));
        let used = known.clone().map(|(labels, queue)| (labels, queue.used));
        self.gauge(&format!("{label}_queue_packets"), "Packets in the receive queues", used)?;
        let capacity = known.map(|(labels, queue)| (labels, queue.capacity));
        self.gauge(&format!("{label}_queue_capacity"), "The most packets that the receive queues can have", capacity)
    }

    /// Writes the cycles and the timed packets of each element of `all`; names begin with the first part of a family.
    fn cycles<T>(
        &mut self,
        label: &str,
        all: &[T],
        name_of: fn(&T) -> &str,
        families: &[CycleFamily<'_, T>],
    ) -> fmt::Result {
        families.iter().try_for_each(|(name, cycles)| {
            let each = |value: fn(Cycles) -> u64| all.iter().map(move |of| ([(label, name_of(of))], value(cycles(of))));
            self.counter(&format!("{name}_cycles"), "Cycles spent on timed packets", each(|c| c.cycles))?;
            self.counter(&format!("{name}_timed_packets"), "Packets whose cycles were counted", each(|c| c.packets))
        })
    }
}

/// Returns the number of the rule that a counter belongs to: its name is the number and the rule.
pub(crate) fn rule_number(counter: &str) -> Option<u64> {
    counter.split_once(' ')?.0.parse().ok()
}

/// Returns the counters or the gauges of an NF. Those of the rules of a firewall are omitted: there may be thousands.
fn own_counters(nf: &NfSummary, gauges: bool) -> impl Iterator<Item = ([(&str, &str); 2], u64)> {
    let own = nf.counters.iter().filter(|(name, _)| rule_number(name).is_none()).take(MAX_NF_COUNTERS);
    let chosen = own.filter(move |(name, _)| nf.gauges.contains(*name) == gauges);
    chosen.map(|(name, n)| ([("nf", nf.name.as_str()), ("name", name.as_str())], *n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a summary in which every number is another one.
    fn summary() -> Value {
        let mut n = 1000;
        let mut next = || {
            n += 1;
            n
        };
        let mut cycles = || json!({ "cycles": next(), "packets": next(), "batches": 0 });
        let [port, link, other] = [(); 3].map(|()| (cycles(), cycles()));
        let inner = (cycles(), cycles());
        let queues = [(); 2].map(|()| json!({ "used": next(), "capacity": next() }));
        json!({
            "file": "a \"file\".toml", "seconds": next(), "memory": "huge pages", "pool": { "used": next(), "capacity": next() }, "cycles_per_second": next(),
            "totals": { "received": next(), "created": next(), "sent": next(), "held": next(), "dropped": 0 },
            "balanced": true, "drops": { "tx_full": next() },
            "ports": [{
                "name": "in", "device": "null", "received": next(), "received_bytes": next(), "sent": next(),
                "sent_bytes": next(), "held": next(), "drops": { "tx_full": next() }, "missed": next(),
                "copied": next(), "send_errors": next(), "receive": port.0, "send": port.1, "link": true, "queue": queues[0],
            }],
            "links": [{
                "name": "a.b", "sent": next(), "received": next(), "drops": { "shuffle_full": next() },
                "send": link.0, "receive": link.1, "queue": queues[1],
            }],
            "chains": [{ "name": "c", "packets": next(), "cycles": next(), "throttled": next() }],
            "nfs": [{
                "name": "fw", "kind": "firewall", "packets": next(), "created": next(), "held": next(),
                "drops": { "denied": next() }, "restarts": next(), "memory": next(),
                "counters": { "connections": next(), "opened": next() }, "gauges": ["connections"],
                "occupancy": { "connections_ipv4": { "used": next(), "capacity": next() } },
                "cycles": { "cycles": next(), "packets": next(), "batches": next() },
            }],
            "sandboxes": [{
                "name": "s", "isolation": "process", "runtime": "none", "transport": "memif", "cpus": [1],
                "sleeps": false, "starts": next(), "startup_ms": 1000 * next(), "up": true, "sent": next(),
                "received": next(), "created": next(), "drops": { "sandbox_lost": next() },
                "suppressed_lines": next(), "send": other.0, "receive": other.1, "inner_receive": inner.0,
                "inner_send": inner.1,
            }],
            "workers": { "3": {
                "chains": ["c"], "received": next(), "received_from_links": next(), "sent": next(),
                "sent_to_links": next(), "dropped": next(), "busy_cycles": next(),
            }},
            "errors": ["one", "two"],
        })
    }

    /// Appends the numbers in a value.
    fn numbers(value: &Value, to: &mut Vec<u64>) {
        match value {
            Value::Number(n) => to.extend(n.as_u64().filter(|n| *n > 1000)),
            Value::Array(all) => all.iter().for_each(|value| numbers(value, to)),
            Value::Object(all) => all.values().for_each(|value| numbers(value, to)),
            _ => {}
        }
    }

    fn text(summary: &Value, format: Format) -> String {
        encode(serde_json::from_value(summary.clone()).unwrap(), format).unwrap()
    }

    #[test]
    fn every_number_of_the_summary_is_exported_once() {
        let mut summary = summary();
        let mut expected = vec![];
        numbers(&summary, &mut expected);
        let startup = summary.pointer_mut("/sandboxes/0/startup_ms").unwrap().as_u64().unwrap();
        expected.iter_mut().filter(|n| **n == startup).for_each(|n| *n /= 1000);
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = text(&summary, format);
            let values =
                text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().1);
            let mut found: Vec<_> = values.map(|n| n.parse::<f64>().unwrap() as u64).filter(|n| *n > 1000).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn names_and_labels_are_those_of_the_summary() {
        let text = text(&summary(), Format::Prometheus);
        for line in [
            "bondstone_run_info{file=\"a \\\"file\\\".toml\",memory=\"huge pages\"} 1",
            "bondstone_run_errors 2",
            "bondstone_port_info{port=\"in\",device=\"null\"} 1",
            "bondstone_port_link_up{port=\"in\"} 1",
            "bondstone_sandbox_up{sandbox=\"s\"} 1",
            "# TYPE bondstone_nf_gauges gauge",
            "# TYPE bondstone_nf_counters_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        for start in [
            "bondstone_nf_dropped_packets_total{nf=\"fw\",reason=\"denied\"} ",
            "bondstone_nf_gauges{nf=\"fw\",name=\"connections\"} ",
            "bondstone_nf_counters_total{nf=\"fw\",name=\"opened\"} ",
            "bondstone_nf_table_capacity{nf=\"fw\",table=\"connections_ipv4\"} ",
            "bondstone_worker_busy_cycles_total{cpu=\"3\"} ",
            "bondstone_worker_received_packets_total{cpu=\"3\"} ",
            "bondstone_link_dropped_packets_total{link=\"a.b\",reason=\"shuffle_full\"} ",
        ] {
            assert!(text.lines().any(|line| line.starts_with(start)), "{start}\n{text}");
        }
    }

    #[test]
    fn rules_and_many_counters_are_not_exported() {
        let rules = (0..50).map(|n| (format!("{n} drop dport {n}"), n));
        let counters = rules.chain((0..1000).map(|n| (format!("c{n}"), n))).collect();
        let nf = NfSummary { name: "fw".into(), counters, ..NfSummary::default() };
        let text = encode(Summary { nfs: vec![nf], ..Summary::default() }, Format::Prometheus).unwrap();
        assert_eq!(text.matches("\nbondstone_nf_counters_total{").count(), MAX_NF_COUNTERS);
        assert!(!text.contains("dport"), "{text}");
    }
}
