//! The chain file: faults have a place and nothing a terminal would obey; a file without faults makes a graph.
#![no_main]

use config::{ChainFile, Start, Wall};
use diagnostics::Diagnostic;
use graph::{BuildContext, Graph, Hop, Target};
use libfuzzer_sys::fuzz_target;
use packet::HeapPool;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

fn placed(fault: &Diagnostic, text: &str) {
    let line = fault.line.expect("a fault has a line");
    assert!((1..=text.matches('\n').count() + 1).contains(&line), "{fault:?}");
    let length = text.split('\n').nth(line - 1).unwrap_or_default().chars().count();
    assert!((1..=length + 1).contains(&fault.column.expect("and a column")), "{fault:?}");
    assert!(!fault.problem.trim().is_empty(), "{fault:?}");
    assert!(!fault.to_string().chars().any(|c| c.is_control() && c != '\n'), "{fault:?}");
}

fuzz_target!(|text: &str| {
    let file = match ChainFile::parse(text, Path::new("fuzz.toml"), &REGISTRY) {
        Ok(file) => file,
        Err(faults) => {
            assert!(!faults.is_empty());
            return faults.iter().for_each(|fault| placed(fault, text));
        }
    };
    file.warnings.iter().for_each(|warning| placed(warning, text));
    // what is on either side of its walls is right as well, but for names and ports that are one too many
    let none = BTreeMap::new();
    if let Ok(switch) = file.switch(Path::new("/run/fuzz"), &[0], &none, &REGISTRY) {
        let sum = |of: fn(&Wall) -> usize| file.walls.iter().map(of).sum::<usize>();
        // several interfaces of a way have an NF before them
        let spreads = sum(|wall| wall.crossings.iter().filter(|crossing| crossing.ports.len() > 1).count());
        assert_eq!(switch.nfs.len() + sum(|wall| wall.nfs.len()), file.nfs.len() + spreads);
        let own = sum(|wall| wall.own.len());
        assert_eq!(switch.ports.len() + own, file.ports.len() + sum(|wall| wall.ports().count()));
        for wall in &file.walls {
            let host = file.host(wall, Path::new("/run/fuzz"), &none).read(&file.file, &REGISTRY);
            let host = host.unwrap_or_else(|faults| panic!("{}: {faults:?}", wall.name));
            assert_eq!((host.nfs.len(), host.ports.len()), (wall.nfs.len(), wall.ports().count() + wall.own.len()));
        }
    } else {
        assert!(!file.walls.is_empty());
    }
    let all: Vec<usize> = (0..file.chains.len()).collect();
    // what one worker runs: all chains, and the last alone
    for chains in [&all[..], &all[all.len() - 1..]] {
        let plan = file.worker(chains);
        let (nodes, hops) = (&plan.blueprint.nodes, &plan.blueprint.hops);
        let real = |target: &Target| match *target {
            Target::Hop(Hop(h)) => usize::from(h) < hops.len(),
            Target::Port(p) => match usize::from(p).checked_sub(file.ports.len()) {
                None => file.ports[usize::from(p)].sent_to,
                Some(link) => file.chains[file.links[link].chain].from == Start::Link(link),
            },
            Target::Nowhere => true,
        };
        assert_eq!(plan.entries.len(), chains.len());
        assert!(plan.entries.iter().all(|entry| real(entry) && *entry != Target::Nowhere));
        assert!(chains.iter().all(|&c| match file.chains[c].from {
            Start::Port(port) => file.ports[port].received_from,
            Start::Link(link) => file.links[link].chain == c,
        }));
        assert!(hops.iter().all(|hop| usize::from(hop.node) < nodes.len() && real(&hop.next)));
        assert!(nodes.iter().all(|node| node.edges.iter().all(real)));
        assert_eq!(plan.blueprint.find_loop(), None);
        assert_eq!(plan.nfs.len(), nodes.len());
        // an NF may have half a megabyte of state
        if nodes.len() <= 8 {
            let build = |nf: &usize| file.nfs[*nf].factory.build(&BuildContext::default());
            match plan.nfs.iter().map(build).collect::<Result<Vec<_>, _>>() {
                Ok(built) => drop(Graph::new(&plan.blueprint, built, Arc::new(HeapPool::new(0)))),
                Err(fault) => assert!(!fault.problem.is_empty() && fault.key.is_some()),
            }
        }
    }
});
