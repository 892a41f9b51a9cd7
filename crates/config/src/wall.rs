//! What stands between NFs.

use diagnostics::Diagnostic;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What is between an NF and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// The type system: the same process, packets handed on without a copy.
    #[default]
    Inproc,
    /// A process of its own, which packets come to and leave by shared memory.
    Process,
    /// A container, which packets come to in the same way; it may be one that others have made.
    Container,
    /// A virtual machine with a kernel of its own.
    Vm,
}

impl Isolation {
    /// All of them, by the words that a file has for them.
    pub const ALL: [(&'static str, Isolation); 4] = [
        ("inproc", Isolation::Inproc),
        ("process", Isolation::Process),
        ("container", Isolation::Container),
        ("vm", Isolation::Vm),
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Whether packets leave the process for it.
    #[must_use]
    pub fn is_wall(self) -> bool {
        self != Isolation::Inproc
    }
}

/// What a wall's process does while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// It looks again, and keeps its CPU busy.
    Poll,
    /// It sleeps, and is woken by who sends to it.
    Sleep,
}

/// By what packets go through a wall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// vhost-user: this side copies, and believes nothing that it is told.
    #[default]
    Vhost,
    /// memif: both sides copy, and believe each other.
    Memif,
    /// memif: this side copies, to and from the other's own memory.
    MemifZeroCopy,
    /// Rings in memory that both have: nobody copies.
    Rings,
}

impl Transport {
    /// All of them, by the words that a file has for them.
    pub const ALL: [(&'static str, Transport); 4] = [
        ("vhost", Transport::Vhost),
        ("memif", Transport::Memif),
        ("memif-zero-copy", Transport::MemifZeroCopy),
        ("rings", Transport::Rings),
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Whether what is behind the wall is believed.
    #[must_use]
    pub fn trusts(self) -> bool {
        self != Transport::Vhost
    }

    /// Whether its sockets are memif's, whose driver wants to write where they are.
    #[must_use]
    pub fn is_memif(self) -> bool {
        matches!(self, Transport::Memif | Transport::MemifZeroCopy)
    }
}

/// How packets are spread over the interfaces of a wall and their queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Both directions of a flow by the same one.
    #[default]
    Flow,
    /// Burst by burst, whatever is in them.
    RoundRobin,
}

impl Over {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Over::Flow => "flow",
            Over::RoundRobin => "round-robin",
        }
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
    /// What it does while nothing comes; none: what its CPU asks for.
    pub idle: Option<Idle>,
    /// By what packets go through it.
    pub transport: Transport,
    /// Interfaces for each chain that leads through it.
    pub interfaces: usize,
    /// Queues in each direction of each of these.
    pub queues: usize,
    /// How its packets are spread over these.
    pub spread: Over,
    /// Ways through it, and chains that are behind it as a whole.
    pub crossings: Vec<Crossing>,
    /// Ports that are opened behind it: devices that are handed to what is there.
    pub own: Vec<String>,
}

impl Wall {
    /// Interfaces of a VM at the most, with ports of its own: each takes a slot of its bus.
    pub const MOST_SLOTS: usize = 28;
    /// Packets that may wait in each queue, a power of two: those that come while whoever takes them is away from its CPU for a
    /// moment.
    pub const QUEUE: usize = 1024;

    /// Interfaces that a chain may have.
    pub const MOST_INTERFACES: usize = 8;
    /// Queues that an interface may have, each a port on both sides: as many as DPDK's driver of them takes.
    pub const MOST_QUEUES: usize = 8;
    /// Queues of all interfaces of a chain: as many ports as `spread` takes.
    pub const MOST_SPREAD: usize = 30;

    /// The ports of all ways through it, in order.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.crossings.iter().flat_map(|crossing| &crossing.ports).map(String::as_str)
    }

    /// The interfaces of all ways through it, in order: the port of each of their queues. An interface is called as its first.
    pub fn interfaces(&self) -> impl Iterator<Item = &[String]> {
        self.crossings.iter().flat_map(|crossing| crossing.ports.chunks(self.queues))
    }

    /// The addresses of all its interfaces where it is a VM, as the guest has them: first the ways through it, then its own ports.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, String)> {
        let all = self.interfaces().filter_map(<[String]>::first).chain(&self.own);
        all.enumerate().map(|(n, port)| (port.as_str(), Wall::address(n)))
    }

    /// The slot of a VM's bus where the interface of that number is.
    #[must_use]
    pub fn slot(interface: usize) -> usize {
        // the first two are the bridge and whatever a machine has there
        interface + 2
    }

    /// Its address, as the guest has it.
    #[must_use]
    pub fn address(interface: usize) -> String {
        format!("0000:00:{:02x}.0", Self::slot(interface))
    }
}

/// A way through a wall: as many ports on each side of it as a wall has queues for a chain; none for a chain that is behind it
/// as a whole.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The names of the ports, the same on both sides.
    pub ports: Vec<String>,
    /// What spreads packets over them, where there are several.
    pub(crate) spread: String,
    /// Who takes it.
    pub way: Way,
}

impl Crossing {
    /// What a path on this side of the wall ends with.
    pub(crate) fn entered(&self) -> String {
        if self.spread.is_empty() { self.ports.concat() } else { format!("{}:in", self.spread) }
    }

    /// Whether a port of it, or what spreads over them, has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.spread == name || self.ports.iter().any(|port| port == name)
    }
}

/// Packets that go through a wall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Those of a chain, by its number: the elements of its path between which they are behind the wall. Where these begin with
    /// the first, which is a port behind it, they only come out; where they end with the last, they only go in.
    Path(usize, Range<usize>),
    /// Those of an output `NF.OUTPUT` behind it, to the port of this name. They only come out.
    Edge(String, String),
    /// Both for an interface of an NF: in goes a chain whose path ends behind the wall, out comes what the interface sends.
    Interface(usize, Range<usize>, String, String),
}

impl Way {
    /// The chain whose packets go in by it, and the elements of its path behind the wall.
    pub(crate) fn inwards(&self) -> Option<(usize, &Range<usize>)> {
        match self {
            Way::Path(n, run) | Way::Interface(n, run, ..) => Some((*n, run)),
            Way::Edge(..) => None,
        }
    }

    /// The output that leads out by it, and to which port.
    pub(crate) fn outwards(&self) -> Option<(&str, &str)> {
        match self {
            Way::Edge(from, to) | Way::Interface(.., from, to) => Some((from, to)),
            Way::Path(..) => None,
        }
    }
}

/// A side of a wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Where the ports of the file are.
    Switch,
    /// Where the NFs are.
    Host,
}
