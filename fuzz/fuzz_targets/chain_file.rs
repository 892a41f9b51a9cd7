//! Chain files: diagnostics have a location and no control characters, and a valid file yields a graph.
#![no_main]

use config::{ChainFile, Sandbox, Start};
use diagnostics::Diagnostic;
use graph::{BuildContext, Graph, Hop, Target};
use libfuzzer_sys::fuzz_target;
use packet::HeapPool;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

fn check_diagnostic(diagnostic: &Diagnostic, text: &str) {
    let line = diagnostic.line.expect("a line");
    assert!((1..=text.matches('\n').count() + 1).contains(&line), "{diagnostic:?}");
    let length = text.split('\n').nth(line - 1).unwrap_or_default().chars().count();
    assert!((1..=length + 1).contains(&diagnostic.column.expect("a column")), "{diagnostic:?}");
    assert!(!diagnostic.problem.trim().is_empty(), "{diagnostic:?}");
    assert!(!diagnostic.to_string().chars().any(|c| c.is_control() && c != '\n'), "{diagnostic:?}");
}

fuzz_target!(|text: &str| {
    let file = match ChainFile::parse(text, Path::new("fuzz.toml"), &REGISTRY) {
        Ok(file) => file,
        Err(faults) => {
            assert!(!faults.is_empty());
            return faults.iter().for_each(|diagnostic| check_diagnostic(diagnostic, text));
        }
    };
    file.warnings.iter().for_each(|warning| check_diagnostic(warning, text));
    // the parts of each sandbox are valid, too, except for excess names and ports
    let none = BTreeMap::new();
    if let Ok(host) = file.host_side(Path::new("/run/fuzz"), &[0], &none, &REGISTRY) {
        let sum = |of: fn(&Sandbox) -> usize| file.sandboxes.iter().map(of).sum::<usize>();
        // several interfaces for one crossing are preceded by an NF that spreads packets
        let spreads = sum(|sandbox| sandbox.crossings.iter().filter(|crossing| crossing.ports.len() > 1).count());
        assert_eq!(host.nfs.len() + sum(|sandbox| sandbox.nfs.len()), file.nfs.len() + spreads);
        let passthrough = sum(|sandbox| sandbox.passthrough.len());
        assert_eq!(host.ports.len() + passthrough, file.ports.len() + sum(|sandbox| sandbox.ports().count()));
        for sandbox in &file.sandboxes {
            let partition = file.sandbox_side(sandbox, Path::new("/run/fuzz"), &none).expect("short socket paths");
            let sandboxed = partition.plan(&file.file, &REGISTRY);
            let sandboxed = sandboxed.unwrap_or_else(|errors| panic!("{}: {errors:?}", sandbox.name));
            assert_eq!(
                (sandboxed.nfs.len(), sandboxed.ports.len()),
                (sandbox.nfs.len(), sandbox.ports().count() + sandbox.passthrough.len())
            );
        }
    } else {
        assert!(!file.sandboxes.is_empty());
    }
    let all: Vec<usize> = (0..file.chains.len()).collect();
    // plans of a worker: for all chains, and for the last one alone
    for chains in [&all[..], &all[all.len() - 1..]] {
        let plan = file.worker(chains);
        let (nodes, hops) = (&plan.blueprint.nodes, &plan.blueprint.hops);
        let real = |target: &Target| match *target {
            Target::Hop(Hop(h)) => usize::from(h) < hops.len(),
            Target::Port(p) => match usize::from(p).checked_sub(file.ports.len()) {
                None => file.ports[usize::from(p)].sent_to,
                Some(link) => file.chains[file.links[link].chain].from == Start::Link(link),
            },
            Target::Unconnected => true,
        };
        assert_eq!(plan.entries.len(), chains.len());
        assert!(plan.entries.iter().all(|entry| real(entry) && *entry != Target::Unconnected));
        assert!(chains.iter().all(|&c| match file.chains[c].from {
            Start::Port(port) => file.ports[port].received_from,
            Start::Link(link) => file.links[link].chain == c,
        }));
        assert!(hops.iter().all(|hop| usize::from(hop.node) < nodes.len() && real(&hop.next)));
        assert!(nodes.iter().all(|node| node.edges.iter().all(real)));
        assert_eq!(plan.blueprint.find_loop(), None);
        assert_eq!(plan.nfs.len(), nodes.len());
        // an NF may have half a megabyte of state, so build only few
        if nodes.len() <= 8 {
            let build = |nf: &usize| file.nfs[*nf].factory.build(&BuildContext::default());
            match plan.nfs.iter().map(build).collect::<Result<Vec<_>, _>>() {
                Ok(built) => drop(Graph::new(&plan.blueprint, built, Arc::new(HeapPool::new(0)))),
                Err(fault) => assert!(!fault.problem.is_empty() && fault.key.is_some()),
            }
        }
    }
});
