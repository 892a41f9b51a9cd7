//! Notes about the NFs that run as one loop, and those that do not.

use graph::{Blueprint, Graph};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names of nodes as a list, such as `a, b or c`.
pub(super) fn list(blueprint: &Blueprint, nodes: &[u16], and: &str) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| blueprint.nodes[usize::from(*node)].name.as_str()).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} {and} {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// Returns a note for each segment of a worker's graph, and one for the other NFs by reason.
pub(super) fn notes(cpu: usize, blueprint: &Blueprint, graph: &Graph) -> Vec<String> {
    let compiled: BTreeSet<u16> = graph.segments().flat_map(|(_, nodes)| nodes).copied().collect();
    let runs = blueprint.straight_runs(|node| graph.is_per_packet(node));
    let in_runs: BTreeSet<u16> = runs.iter().flatten().map(|hop| blueprint.hops[usize::from(hop.0)].node).collect();
    let reason = |node: u16| match () {
        () if !graph.is_per_packet(node) => "process whole batches",
        () if !in_runs.contains(&node) => "have no neighbour that processes packet by packet",
        () => "were not compiled together with these settings; compile the chain file again",
    };
    let mut others: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    for node in (0..blueprint.nodes.len() as u16).filter(|node| !compiled.contains(node)) {
        others.entry(reason(node)).or_default().push(node);
    }
    let fused = graph.segments().map(|(_, nodes)| format!("CPU {cpu} fuses {}", list(blueprint, nodes, "and")));
    let others = others.iter().map(|(reason, nodes)| {
        let names = list(blueprint, nodes, "and");
        format!("CPU {cpu} does not fuse NFs that {reason}: {names}")
    });
    fused.chain(others).collect()
}
