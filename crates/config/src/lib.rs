//! The chain file: ports, NFs, chains, edges and sandboxes.
//!
//! ```toml
//! bondstone = 1                                # version of the format
//!
//! [port.lan]
//! device = "tap:lan0"                          # KIND:TARGET[,driver arguments]; see Device
//! [port.wan]
//! device = "0000:01:00.0"
//!
//! [port.log]
//! device = "pcap:copies.pcap"
//!
//! [nf.guard]                                   # an NF: kind and settings
//! kind = "ttl"
//!
//! [nf.probe]
//! kind = "tee"
//!
//! [[chain]]
//! path = ["lan", "guard", "probe", "wan"]      # port, NFs (`nf:input` for another input than the first), port
//! cores = [1]                                  # a copy of the chain runs on each; chosen by default
//!                                              # a path may also begin with "NF.OUTPUT" of another path's last NF:
//!                                              # its packets are distributed over the cores of this chain
//!
//! [[edge]]
//! from = "probe.copy"                          # an output that the path does not follow
//! to = "log"                                   # an NF (`nf:input`) or a port
//! ```
//!
//! [`ChainFile::read`] parses a file, checks everything that does not depend on the machine, and reports up to 100
//! errors with line, value and remedy. A file with sandboxes is then split into a typed [`Partition`] for each side; a
//! file with several hosts is read as one plan for each ([`Hosts`]).
#![forbid(unsafe_code)]

mod changes;
mod check;
mod copies;
mod device;
mod file;
mod hosts;
mod partition;
mod plan;
mod reader;
mod renamed;
mod sandbox;
mod source;
mod virtual_function;

pub use changes::{Changed, ChangedNf, Changes, NfChange};
pub use copies::COPY_PARAMETERS;
pub use device::{Device, full_pci_address};
pub use file::{Clock, Shuffle, Traffic};
pub use hosts::{Host, HostLink, Hosts};
pub use partition::{Partition, unused_name};
pub use plan::{Chain, ChainFile, Link, NfConfig, Port, ServiceClass, Spreading, Start, WorkerPlan};
pub use reader::Reader;
pub use sandbox::{Crossing, CrossingKind, Idle, Isolation, Sandbox, Side, SpreadBy, Transport};
pub use source::{MAX_ERRORS, Source, nearest, read};
pub use virtual_function::VirtualFunction;

/// Settings of an NF with their spans in the file.
pub type Settings<'a> = toml::Spanned<toml::de::DeTable<'a>>;

/// Parses the settings of an NF without the rest of a file.
///
/// # Errors
/// The text is not TOML.
pub fn settings(text: &str) -> Result<Settings<'_>, toml::de::Error> {
    toml::de::DeTable::parse(text)
}
