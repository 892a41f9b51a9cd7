//! The statistics of sandboxes, merged with those of the host side.

use super::Sandboxes;
use super::counts::{Counts, Run};
use super::instance::Instance;
use crate::supervisor::{self, ProcessState};
use runtime::{NfSummary, PortSummary, SandboxSummary, Summary};

impl Sandboxes {
    /// Returns the statistics of both sides, so far or at the end.
    pub(crate) fn merge(&self, mut done: Summary, ended: bool) -> Summary {
        for instance in &self.running {
            merge_instance(&mut done, instance, ended);
        }
        for instance in self.ended.iter().rev() {
            merge_instance(&mut done, instance, true);
        }
        // the newest is first
        merge_rows(&mut done.sandboxes, |one, other| one.name == other.name, add_sandbox);
        merge_rows(&mut done.nfs, same_nf, add_nf);
        let place = |position: Option<usize>| position.unwrap_or(usize::MAX);
        done.ports.sort_by_key(|port| place(self.file.ports.iter().position(|own| own.name == port.name)));
        done.nfs.sort_by_key(|nf| place(self.file.nfs.iter().position(|own| own.name == nf.name)));
        let this_side = done.balanced;
        done.compute_totals();
        done.balanced &= !ended || this_side;
        done
    }
}

/// Adds the statistics of an instance to those of the host side.
fn merge_instance(done: &mut Summary, instance: &Instance, ended: bool) {
    let Instance { sandbox, process, place, .. } = instance;
    let state = process.state();
    let mut summary = SandboxSummary {
        name: sandbox.name.clone(),
        isolation: sandbox.isolation.name().into(),
        runtime: instance.runtime.clone().into(),
        transport: sandbox.transport.name().into(),
        cpus: place.cpus.clone(),
        sleeps: place.sleeps,
        starts: state.starts,
        startup_ms: state.startup_time.as_secs_f64() * 1e3,
        up: state.ready && !ended,
        suppressed_lines: state.line_limit.suppressed(),
        ..Default::default()
    };
    let now = state.report.iter();
    // statistics of ended processes are added to those of their successors
    let mut nfs = state.nf_totals.clone();
    supervisor::add_nfs(&mut nfs, now.clone().flat_map(|now| now.nfs.iter().cloned()));
    let counts = counts(instance, &state, done);
    let run = Run {
        seconds: done.seconds,
        cpus: summary.cpus.len(),
        starts: state.starts,
        hops: instance.hops,
        ended,
        complete: state.finished && state.failures == 0,
    };
    let problem = counts.problem(nfs.values(), run);
    summary.implausible = problem.is_some();
    if let Some(problem) = &problem {
        done.errors.push(format!(
            "sandbox {:?}: the counts that it reported cannot be true and are not part of the totals: {problem}",
            sandbox.name
        ));
        nfs.values_mut().for_each(|nf| nf.implausible = true);
    }
    let in_flight = if summary.implausible { crossed(instance, done).in_flight() } else { counts.in_flight() };
    if ended && in_flight < 0 {
        summary.created = in_flight.unsigned_abs();
    }
    if ended && in_flight > 0 {
        summary.add_drops("sandbox_lost", in_flight as u64);
        if state.failures == 0 && !summary.implausible && !state.ended {
            done.errors
                .push(format!("sandbox {:?}: {in_flight} packets entered it and were not returned", sandbox.name));
        }
    }
    let is_crossing = |name: &str| sandbox.ports().any(|own| own == name);
    for port in done.ports.extract_if(.., |port| is_crossing(&port.name)) {
        summary.sent += port.sent;
        summary.received += port.received;
        // packets left in the queue of the host side
        summary.add_drops("sandbox_lost", port.held);
        summary.send.merge(port.send);
        summary.receive.merge(port.receive);
        port.drops
            .iter()
            .for_each(|(reason, n)| summary.add_drops(if reason == "tx_full" { "sandbox_full" } else { reason }, *n));
    }
    let passthrough = state.passthrough_ports().into_values();
    done.ports.extend(passthrough.map(|port| match summary.implausible {
        true => PortSummary { name: port.name, device: port.device, ..Default::default() },
        false => port,
    }));
    let crossing = || now.clone().flat_map(|now| &now.ports).filter(|port| is_crossing(&port.name));
    if !summary.implausible {
        supervisor::add_drops(&mut summary.drops, &state.drops);
        supervisor::add_crossing_drops(&mut summary.drops, crossing());
    }
    for port in crossing() {
        summary.inner_receive.merge(port.receive);
        summary.inner_send.merge(port.send);
    }
    done.nfs.extend(nfs.into_values());
    done.errors.extend(state.errors.iter().chain(now.flat_map(|now| &now.errors)).cloned());
    for &cpu in summary.cpus.iter().filter(|_| !state.ended) {
        let worker = done.workers.entry(cpu).or_default();
        worker.chains.push(format!("sandbox {}", sandbox.name));
        let inner = state.report.as_ref().and_then(|report| report.workers.get(&cpu)?.busy_cycles);
        inner.iter().for_each(|cycles| *worker.busy_cycles.get_or_insert(0) += cycles);
    }
    done.sandboxes.push(summary);
}

/// Returns the packets that an instance created, dropped and holds, and those that crossed its boundary, by the last
/// reports.
pub(super) fn counts(instance: &Instance, state: &ProcessState, done: &Summary) -> Counts {
    let mut counts = crossed(instance, done);
    // drops at passthrough ports are in the totals
    for port in state.passthrough_ports().values() {
        counts.entered = counts.entered.saturating_add(port.received);
        counts.left = counts.left.saturating_add(port.sent).saturating_add(port.held);
    }
    let [created, dropped, held] = state.report.as_ref().map(supervisor::totals).unwrap_or_default();
    counts.created = state.created.saturating_add(created);
    counts.dropped = state.dropped.saturating_add(dropped);
    counts.held = held;
    counts
}

/// Returns the packets that entered and left a sandbox through the host side.
fn crossed(instance: &Instance, done: &Summary) -> Counts {
    let crossing = done.ports.iter().filter(|port| instance.sandbox.ports().any(|own| own == port.name));
    crossing.fold(Counts::default(), |sum, port| Counts {
        entered: sum.entered + port.sent,
        left: sum.left + port.received,
        ..sum
    })
}

/// Adds each row to the first one that is the same.
fn merge_rows<T>(rows: &mut Vec<T>, same: impl Fn(&T, &T) -> bool, add: impl Fn(&mut T, T)) {
    for row in std::mem::take(rows) {
        match rows.iter_mut().find(|first| same(first, &row)) {
            Some(first) => add(first, row),
            None => rows.push(row),
        }
    }
}

/// Returns true if counts are of the same NF: on the host side, or in any process of a sandbox.
fn same_nf(one: &NfSummary, other: &NfSummary) -> bool {
    (&one.name, &one.kind, one.implausible) == (&other.name, &other.kind, other.implausible)
}

fn add_nf(to: &mut NfSummary, other: NfSummary) {
    to.merge(&other);
    to.held += other.held;
    if to.table.is_none() {
        to.table = other.table;
    }
}

/// Adds the counts of an ended process to those of its successor.
fn add_sandbox(to: &mut SandboxSummary, ended: SandboxSummary) {
    to.starts += ended.starts;
    to.sent += ended.sent;
    to.received += ended.received;
    to.created += ended.created;
    to.implausible |= ended.implausible;
    to.suppressed_lines += ended.suppressed_lines;
    ended.drops.iter().for_each(|(reason, n)| to.add_drops(reason, *n));
    to.send.merge(ended.send);
    to.receive.merge(ended.receive);
    to.inner_receive.merge(ended.inner_receive);
    to.inner_send.merge(ended.inner_send);
}
