//! What stands between NFs.

use graph::Diagnostic;
use serde::Serialize;
use std::ops::Range;

/// What is between an NF and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// The type system: the same process, packets handed on without a copy.
    #[default]
    Inproc,
    /// A process of its own, which packets come to and leave by shared memory.
    Process,
}

impl Isolation {
    /// All of them, by the words that a file has for them.
    pub const ALL: [(&'static str, Isolation); 2] = [("inproc", Isolation::Inproc), ("process", Isolation::Process)];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// NFs that share what is behind one wall.
#[derive(Clone, Debug)]
pub struct Wall {
    /// That of its NF, or of the first chain that is behind it.
    pub name: String,
    /// What it is made of.
    pub isolation: Isolation,
    /// The NFs behind it.
    pub nfs: Vec<String>,
    /// CPUs for them; empty: to be chosen.
    pub cores: Vec<usize>,
    /// Each CPU as a fault of the file, for when it turns out not to be there.
    pub(crate) absent: Vec<(usize, Diagnostic)>,
    /// MiB of memory that they may have, huge pages apart.
    pub memory_mib: u64,
    /// Ways through it.
    pub crossings: Vec<Crossing>,
}

/// A way through a wall: one port on each side of it.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The name of both ports.
    pub port: String,
    /// Who takes it.
    pub way: Way,
}

/// Packets that go through a wall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Those of a chain, by its number: the elements of its path between which they are behind the wall.
    Path(usize, Range<usize>),
    /// Those of an output `NF.OUTPUT` behind it, to the port of this name. They only come out.
    Edge(String, String),
}

/// A side of a wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the ports of the file are.
    Switch,
    /// Where the NFs are.
    Host,
}
