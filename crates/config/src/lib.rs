//! The chain file: ports, network functions, chains and edges.
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
//! [nf.guard]                                   # an NF: its kind, then its settings
//! kind = "ttl"
//!
//! [nf.probe]
//! kind = "tee"
//!
//! [[chain]]
//! path = ["lan", "guard", "probe", "wan"]      # port, NFs (`nf:input` for another input than the first), port
//! cores = [1]                                  # one copy of the chain on each; chosen when left out
//!                                              # a path may also begin with "NF.OUTPUT" of an NF with which another
//!                                              # ends: its packets are shuffled over this chain's cores
//!
//! [[edge]]
//! from = "probe.copy"                          # any output but the one along the path
//! to = "log"                                   # an NF (`nf:input`) or a port
//! ```
//!
//! [`ChainFile::read`] reads and checks all that does not depend on the machine, and reports every fault it finds (the
//! first hundred of a file that has more) with line, value and remedy.
#![forbid(unsafe_code)]

mod check;
mod device;
mod file;
mod function;
mod locate;
mod plan;
mod split;
mod wall;

pub use device::{Device, whole_address};
pub use file::{Shuffle, Traffic};
pub use function::Function;
pub use locate::{Source, nearest, read};
pub use plan::{Chain, ChainFile, Class, Link, NfUse, Port, Rate, Start, WorkerPlan};
pub use split::Part;
pub use wall::{Crossing, Idle, Isolation, Over, Side, Transport, Wall, Way};

/// The settings of one NF, as read from a file, each with its place.
pub type Settings<'a> = toml::Spanned<toml::de::DeTable<'a>>;

/// Reads settings alone, as they stand below `kind` in a file.
///
/// # Errors
/// When the text is not TOML.
pub fn settings(text: &str) -> Result<Settings<'_>, toml::de::Error> {
    toml::de::DeTable::parse(text)
}
