//! Sandboxes and how packets cross their boundaries.

use diagnostics::Diagnostic;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Isolation of an NF from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In the main process, isolated by Rust's type system; packets are not copied.
    #[default]
    Inproc,
    /// A process; packets pass through shared memory.
    Process,
    /// A container; packets pass through shared memory.
    Container,
    /// A virtual machine.
    Vm,
}

impl Isolation {
    /// All values with their names in the chain file.
    pub const ALL: [(&'static str, Isolation); 4] = [
        ("inproc", Isolation::Inproc),
        ("process", Isolation::Process),
        ("container", Isolation::Container),
        ("vm", Isolation::Vm),
    ];

    /// Returns the name in the chain file.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Returns true if packets leave the main process.
    #[must_use]
    pub fn is_sandbox(self) -> bool {
        self != Isolation::Inproc
    }
}

/// Behaviour of workers while no packets arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// They poll.
    #[default]
    Poll,
    /// They sleep until the sender wakes them, or for short times if it cannot.
    Sleep,
}

/// Transport of packets across a sandbox boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// vhost-user: the host side copies and validates all descriptors.
    #[default]
    Vhost,
    /// memif: both sides copy and trust each other.
    Memif,
    /// memif: the host side copies to and from the memory of the sandbox; both sides trust each other.
    MemifZeroCopy,
    /// Shared-memory rings without copies; both sides trust each other.
    Rings,
}

impl Transport {
    /// All values with their names in the chain file.
    pub const ALL: [(&'static str, Transport); 4] = [
        ("vhost", Transport::Vhost),
        ("memif", Transport::Memif),
        ("memif-zero-copy", Transport::MemifZeroCopy),
        ("rings", Transport::Rings),
    ];

    /// Returns the name in the chain file.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Returns true if the host side trusts the sandbox.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        self != Transport::Vhost
    }

    /// Returns true for memif, whose driver writes to the folder of the socket.
    #[must_use]
    pub fn is_memif(self) -> bool {
        matches!(self, Transport::Memif | Transport::MemifZeroCopy)
    }
}

/// Distribution of packets over the interfaces and queues of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadBy {
    /// By flow; both directions of a flow use the same queue.
    #[default]
    Flow,
    /// Burst by burst, in turn.
    RoundRobin,
}

impl SpreadBy {
    /// Returns the name in the chain file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SpreadBy::Flow => "flow",
            SpreadBy::RoundRobin => "round-robin",
        }
    }
}

/// A sandbox and the NFs in it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Name: that of its NF, or of the first chain that is in it.
    pub name: String,
    /// Kind of isolation.
    pub isolation: Isolation,
    /// Names of its NFs.
    pub nfs: Vec<String>,
    /// CPUs; empty: chosen at the start.
    pub cores: Vec<usize>,
    /// Error for each CPU, for CPUs that do not exist.
    pub(crate) cpu_errors: Vec<(usize, Diagnostic)>,
    /// Memory limit in MiB, without huge pages.
    pub memory_mib: u64,
    /// Behaviour while idle; by default it sleeps if it shares a CPU.
    pub idle: Option<Idle>,
    /// Transport.
    pub transport: Transport,
    /// Interfaces of each crossing.
    pub interfaces: usize,
    /// Queues of each interface in each direction.
    pub queues: usize,
    /// Distribution of packets over interfaces and queues.
    pub spread: SpreadBy,
    /// Crossings, and chains that are entirely in the sandbox.
    pub crossings: Vec<Crossing>,
    /// Ports whose devices are passed through to the sandbox.
    pub passthrough: Vec<String>,
    /// Number of the process in a run; 0 for those with which the run starts.
    pub generation: u32,
}

impl Sandbox {
    /// Maximum number of interfaces of a VM, including passthrough ports: each occupies a slot of the PCI bus.
    pub const MAX_SLOTS: usize = 28;
    /// Packets that each queue holds, a power of two: enough for the time for which the receiver may be preempted.
    pub const QUEUE_SIZE: usize = 1024;

    /// Maximum number of interfaces of a crossing.
    pub const MAX_INTERFACES: usize = 8;
    /// Maximum number of queues of an interface (a limit of DPDK's vhost driver). Each queue is a port on both sides.
    pub const MAX_QUEUES: usize = 8;
    /// Maximum number of queues of a crossing: the maximum number of ports of the NF `spread`.
    pub const MAX_SPREAD_PORTS: usize = 30;

    /// Returns the folder with the files of its process, below the folder of the run. No sandbox can have its name.
    #[must_use]
    pub fn folder(&self, run: &Path) -> PathBuf {
        if self.generation == 0 { run.to_owned() } else { run.join(format!(".{}", self.generation)) }
    }

    /// Gives the ports of all crossings, and the NFs in front of them, new names.
    pub fn rename_ports(&mut self, mut name: impl FnMut() -> String) {
        for crossing in &mut self.crossings {
            crossing.ports.iter_mut().for_each(|port| *port = name());
            if !crossing.spread_nf.is_empty() {
                crossing.spread_nf = name();
            }
        }
    }

    /// Takes the names of the ports of a sandbox that has the same crossings, and its process.
    pub fn continue_process(&mut self, running: &Sandbox) {
        self.generation = running.generation;
        for (crossing, running) in self.crossings.iter_mut().zip(&running.crossings) {
            crossing.ports.clone_from(&running.ports);
            crossing.spread_nf.clone_from(&running.spread_nf);
        }
    }

    /// Returns the names on the host side: those of all ports, and of the NFs in front of them.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        let spreading = self.crossings.iter().map(|crossing| &*crossing.spread_nf).filter(|name| !name.is_empty());
        self.ports().chain(spreading)
    }

    /// Returns the ports of all crossings, in order.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.crossings.iter().flat_map(|crossing| &crossing.ports).map(String::as_str)
    }

    /// Returns the ports of each interface, one for each queue, in order. The first port names the interface.
    pub fn interfaces(&self) -> impl Iterator<Item = &[String]> {
        self.crossings.iter().flat_map(|crossing| crossing.ports.chunks(self.queues))
    }

    /// Returns the PCI addresses in a guest of all interfaces: first the crossings, then the passthrough ports.
    pub fn guest_addresses(&self) -> impl Iterator<Item = (&str, String)> {
        let all = self.interfaces().filter_map(<[String]>::first).chain(&self.passthrough);
        all.enumerate().map(|(n, port)| (port.as_str(), Sandbox::pci_address(n)))
    }

    /// Returns the PCI slot of an interface of a VM.
    #[must_use]
    pub fn pci_slot(interface: usize) -> usize {
        // the first two are the host bridge and a device of the machine type
        interface + 2
    }

    /// Returns the PCI address of an interface in the guest.
    #[must_use]
    pub fn pci_address(interface: usize) -> String {
        format!("0000:00:{:02x}.0", Self::pci_slot(interface))
    }
}

/// A crossing of a sandbox boundary: as many ports on each side as a crossing has queues; none for a chain that is
/// entirely in the sandbox.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// Names of the ports, the same on both sides.
    pub ports: Vec<String>,
    /// Name of the NF that distributes packets over several ports; else empty.
    pub(crate) spread_nf: String,
    /// Packets that cross.
    pub kind: CrossingKind,
}

impl Crossing {
    /// Returns the last element of the path on the host side that enters the sandbox.
    pub(crate) fn host_path_end(&self) -> String {
        if self.spread_nf.is_empty() { self.ports.concat() } else { format!("{}:in", self.spread_nf) }
    }

    /// Returns true if one of its ports or its spreading NF has this name.
    pub(crate) fn uses_name(&self, name: &str) -> bool {
        self.spread_nf == name || self.ports.iter().any(|port| port == name)
    }
}

/// The packets of a crossing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrossingKind {
    /// Those of a chain: its index and the range of path elements in the sandbox. Packets only leave if the range
    /// begins with the first element, a passthrough port; they only enter if it ends with the last.
    Path(usize, Range<usize>),
    /// Those of the output `NF.OUTPUT`, to the port of this name. They only leave.
    Output(String, String),
    /// Those of an interface of an NF: a chain enters, the output of the interface leaves.
    Interface(usize, Range<usize>, String, String),
}

impl CrossingKind {
    /// Returns the chain that enters, and the range of its path elements in the sandbox.
    pub(crate) fn inbound(&self) -> Option<(usize, &Range<usize>)> {
        match self {
            CrossingKind::Path(n, run) | CrossingKind::Interface(n, run, ..) => Some((*n, run)),
            CrossingKind::Output(..) => None,
        }
    }

    /// Returns the output that leaves and the port that it leads to.
    pub(crate) fn outbound(&self) -> Option<(&str, &str)> {
        match self {
            CrossingKind::Output(from, to) | CrossingKind::Interface(.., from, to) => Some((from, to)),
            CrossingKind::Path(..) => None,
        }
    }
}

/// A side of a sandbox boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The main process.
    Host,
    /// The sandbox.
    Sandboxed,
}
