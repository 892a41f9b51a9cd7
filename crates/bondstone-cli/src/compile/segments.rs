//! The segments of a chain file.

use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{Segment, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The segments of a chain file, and the NFs that are in none.
pub(super) struct Segments<'a> {
    /// Indices of the NFs of each segment, in the order of the path.
    pub(super) segments: Vec<Vec<usize>>,
    /// Names of the other NFs, by the reason.
    pub(super) others: BTreeMap<&'static str, Vec<&'a str>>,
    nfs: Vec<CompiledNf>,
}

/// The properties of an NF that the code of a segment depends on.
struct CompiledNf {
    /// Name of its type in `bondstone::nf`.
    type_name: &'static str,
    is_per_packet: bool,
    sides: Vec<Side>,
}

impl<'a> Segments<'a> {
    /// Finds the segments of a file.
    ///
    /// # Errors
    /// NFs that reject their settings, and NFs that are not part of Bondstone.
    pub(super) fn find(file: &'a ChainFile) -> Result<Segments<'a>, Diagnostics> {
        let nfs = (0..file.nfs.len()).map(|nf| compiled(file, nf));
        let (nfs, errors): (Vec<_>, Vec<_>) = nfs.partition(Result::is_ok);
        if !errors.is_empty() {
            return Err(Diagnostics(errors.into_iter().filter_map(Result::err).collect()));
        }
        let nfs: Vec<CompiledNf> = nfs.into_iter().flatten().collect();
        let plan = file.worker(&(0..file.chains.len()).collect::<Vec<_>>());
        let nf_of_node = |node: u16| plan.nfs[usize::from(node)];
        let sandbox_of = |nf: usize| file.sandboxes.iter().position(|s| s.nfs.contains(&file.nfs[nf].name));
        let mut segments: Vec<Vec<usize>> = vec![];
        for run in plan.blueprint.straight_runs(|node| nfs[nf_of_node(node)].is_per_packet) {
            let run: Vec<_> = run.iter().map(|hop| nf_of_node(plan.blueprint.hops[usize::from(hop.0)].node)).collect();
            let in_one_process = run.chunk_by(|a, b| sandbox_of(*a) == sandbox_of(*b));
            let parts = in_one_process.flat_map(|part| part.chunks(Segment::MAX_LEN));
            segments.extend(parts.filter(|part| part.len() > 1).map(<[usize]>::to_vec));
        }
        let compiled: BTreeSet<usize> = segments.iter().flatten().copied().collect();
        let mut others: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for nf in plan.nfs.iter().filter(|nf| !compiled.contains(nf)) {
            let reason = match nfs[*nf].is_per_packet {
                true => "have no neighbour in their process that processes packet by packet",
                false => "process whole batches",
            };
            others.entry(reason).or_default().push(&file.nfs[*nf].name);
        }
        Ok(Segments { segments, others, nfs })
    }

    /// Returns calls of `Registry::with_segment`, one for each sequence of types.
    pub(super) fn code(&self) -> String {
        let mut code: Vec<String> = vec![];
        for segment in &self.segments {
            let mut call = String::from("\n        .with_segment(\n            Segment::builder()\n");
            for nf in segment {
                let CompiledNf { type_name, sides, .. } = &self.nfs[*nf];
                let sides = sides.iter().rev().fold("graph::Whole".to_owned(), |inner, side| match side {
                    Side::A => format!("graph::InA({inner})"),
                    Side::B => format!("graph::InB({inner})"),
                });
                // errors: none, it is a String
                let _ = writeln!(call, "                .node(nf::{type_name}::build, {sides})");
            }
            call += "                .build(),\n        )";
            if !code.contains(&call) {
                code.push(call);
            }
        }
        code.concat()
    }
}

/// Builds an NF to find its types.
fn compiled(file: &ChainFile, nf: usize) -> Result<CompiledNf, Diagnostic> {
    let config = &file.nfs[nf];
    let shipped = nf::registry().get(config.kind.name).is_some_and(|kind| kind.about == config.kind.about);
    let Some(type_name) = nf::type_name(config.kind.name).filter(|_| shipped) else {
        let error = Diagnostic::new("is no NF of Bondstone, so that a generated program would not contain it");
        let error =
            error.value(config.kind.name).remedy("add segments to the registry of your own program: graph::Segment");
        return Err(file.locate(nf, error));
    };
    let node = file.build_checked(nf)?;
    Ok(CompiledNf { type_name, is_per_packet: node.is_per_packet(), sides: node.sides() })
}
