//! The plan of each worker: its CPU, chains, inputs and outputs.

use crate::cpu::{self, Strategy, Topology};
use crate::{Input, Output};
use config::{ChainFile, WorkerPlan};
use std::collections::BTreeMap;
use std::path::Path;

/// A worker that has not been started.
pub(super) struct PlannedWorker {
    pub(super) cpu: usize,
    pub(super) chains: Vec<usize>,
    pub(super) plan: WorkerPlan,
    pub(super) inputs: Vec<(usize, Input)>,
    pub(super) outputs: Vec<Option<Output>>,
}

impl PlannedWorker {
    /// Returns a worker that runs no chain of a file.
    pub(super) fn without_chains(cpu: usize, file: &ChainFile) -> PlannedWorker {
        let outputs = (0..file.ports.len() + file.links.len()).map(|_| None).collect();
        PlannedWorker { cpu, chains: vec![], plan: WorkerPlan::default(), inputs: vec![], outputs }
    }
}

/// Assigns the chains of a file to CPUs, one worker per CPU.
pub(super) fn plan_workers(file: &ChainFile, allowed: &[usize], strategy: Strategy) -> Vec<PlannedWorker> {
    let mut by_cpu: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let placements = cpu::place_chains(file, &Topology::read(), allowed, strategy, Path::new("/sys"));
    for (n, placement) in placements.iter().enumerate() {
        placement.cpus.iter().for_each(|&cpu| by_cpu.entry(cpu).or_default().push(n));
    }
    let workers = by_cpu.into_iter().map(|(cpu, chains)| {
        let plan = file.worker(&chains);
        let outputs = (0..file.ports.len() + file.links.len()).map(|_| None).collect();
        PlannedWorker { cpu, chains, plan, inputs: vec![], outputs }
    });
    workers.collect()
}
