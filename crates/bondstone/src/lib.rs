//! The API for authors of network functions (NFs), re-exported from the crates of Bondstone.
//!
//! ```
//! use bondstone::prelude::*;
//!
//! /// Forwards Ethernet frames.
//! struct Forwarder;
//!
//! impl Nf for Forwarder {
//!     type Settings = NoSettings;
//!     const KIND: &'static str = "forwarder";
//!     const ABOUT: &'static str = "Forwards Ethernet frames.";
//!     fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
//!         Ok(frame().parse::<Ethernet>().compose())
//!     }
//! }
//! ```
//!
//! With the feature `program`, enabled by default, [`main`] runs the command line with a registry of NFs:
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
//! The feature `measure` adds the measurement commands `bench`, `reproduce`, `results` and `trend`.
#![forbid(unsafe_code)]

#[cfg(doctest)]
mod book;

#[cfg(feature = "program")]
pub use bondstone_cli::{Memory, main};
#[cfg(feature = "program")]
pub use nf;
/// Log messages: their macros, such as `tracing::warn!`.
pub use tracing;
pub use {diagnostics, graph, packet, streams, tables, wire};

/// Types and traits that most NFs use: `use bondstone::prelude::*`.
pub mod prelude {
    pub use diagnostics::Diagnostic;
    pub use graph::{
        BuildContext, Context, Counter, Counters, HoldQueue, Named, Nf, NoSettings, Node, Operator, Registry, Spread,
        frame, named_enum,
    };
    pub use packet::{Batch, Packet};
    pub use wire::{Ethernet, Ipv4, Ipv6, Tcp, Udp};
}
