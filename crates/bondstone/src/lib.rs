//! Everything that a network function (NF) is written with, under one name.
//!
//! ```
//! use bondstone::prelude::*;
//!
//! /// Counts packets and passes them on.
//! struct Counting;
//!
//! impl Nf for Counting {
//!     type Settings = NoSettings;
//!     const KIND: &'static str = "counting";
//!     const ABOUT: &'static str = "Counts packets and passes them on.";
//!     fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
//!         Ok(frame().parse::<Ethernet>().compose())
//!     }
//! }
//! ```
//!
//! With the feature `program`, which is on by default, [`main`] is the whole command line with a registry of your own:
//!
//! ```no_run
//! # #[cfg(feature = "program")]
//! fn main() -> std::process::ExitCode {
//!     bondstone::main(bondstone::nf::registry() /* .with::<MyNf>() */)
//! }
//! # #[cfg(not(feature = "program"))]
//! # fn main() {}
//! ```
//!
//! The feature `measure` adds the commands that measure, with a database and reports.
#![forbid(unsafe_code)]

#[cfg(doctest)]
mod book;

#[cfg(feature = "program")]
pub use bondstone_cli::{Memory, main};
#[cfg(feature = "program")]
pub use nf;
pub use {diagnostics, graph, packet, streams, tables, wire};

/// The types and traits that most NFs need: `use bondstone::prelude::*`.
pub mod prelude {
    pub use diagnostics::Diagnostic;
    pub use graph::{BuildContext, Counter, Context, HoldQueue, Nf, NoSettings, Node, Operator, Registry, Spread, frame};
    pub use packet::{Batch, Packet};
    pub use wire::{Ethernet, Ipv4, Ipv6, Tcp, Udp};
}
