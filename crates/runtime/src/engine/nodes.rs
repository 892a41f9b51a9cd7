//! The nodes of workers, and what builds them.

use super::planned_worker::PlannedWorker;
use crate::error::Error;
use crate::faults::attribution::{MemoryAccounts, NfActivity};
use crate::worker::rebuild::NodeBuilder;
use config::ChainFile;
use diagnostics::Diagnostics;
use graph::{BuildContext, SettingFiles, SharedState};
use std::sync::Arc;

/// The builders of the nodes of each worker.
pub(super) type Builders = Vec<Vec<Arc<NodeBuilder>>>;

/// The nodes of each worker.
pub(super) type Nodes = Vec<Vec<Box<dyn graph::Node>>>;

/// Builds a copy of each NF for each worker that runs it; returns the nodes, and what is needed to rebuild them.
pub(super) fn build_nodes(
    file: &ChainFile,
    workers: &[PlannedWorker],
    accounts: &MemoryAccounts,
    files: &SettingFiles,
) -> Result<(Nodes, Builders), Error> {
    let shared = SharedState::default();
    let mut diagnostics = vec![];
    let (mut all, mut all_builders) = (vec![], vec![]);
    for worker in 0..workers.len() {
        let (mut nodes, mut builders) = (vec![], vec![]);
        for &nf in &workers[worker].plan.nfs {
            let builder = node_builder(file, workers, worker, (nf, nf), accounts, (&shared, files));
            match builder.build() {
                Ok(node) => nodes.push(node),
                Err(d) => diagnostics.push(file.locate(nf, d)),
            }
            builders.push(Arc::new(builder));
        }
        all.push(nodes);
        all_builders.push(builders);
    }
    diagnostics.dedup();
    if diagnostics.is_empty() { Ok((all, all_builders)) } else { Err(Error::Input(Diagnostics(diagnostics))) }
}

/// Returns what builds the copy of an NF for a worker; the index of the NF is given in the file and in [`Names`](super::Names).
pub(super) fn node_builder(
    file: &ChainFile,
    workers: &[PlannedWorker],
    worker: usize,
    (nf, in_names): (usize, usize),
    accounts: &MemoryAccounts,
    (shared, files): (&SharedState, &SettingFiles),
) -> NodeBuilder {
    let copies = |ws: &[PlannedWorker]| ws.iter().filter(|p| p.plan.nfs.contains(&nf)).count();
    let context = BuildContext {
        name: file.nfs[nf].name.clone(),
        base_dir: file.folder().to_owned(),
        copy: (copies(&workers[..worker]), copies(workers)),
        shared: shared.clone(),
        before: None,
        files: files.with_own_record(),
        check_only: false,
    };
    let activity = format!("nf {:?}, while it was built,", context.name);
    let activity = Arc::new(NfActivity::new(activity, in_names, accounts));
    NodeBuilder { factory: file.nfs[nf].factory.clone(), context, activity }
}
