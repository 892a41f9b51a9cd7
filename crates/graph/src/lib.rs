//! What a network function (NF) is written in.
//!
//! An [`Nf`] names itself, its settings, inputs and outputs, and builds a [`Node`], which processes batches. Most nodes are
//! chains of operators: [`frame`] begins one, [`parse`](Operator::parse), [`transform`](Operator::transform),
//! [`filter`](Operator::filter), [`group_by`](Operator::group_by) and the others extend it, [`compose`](Operator::compose)
//! makes it a node. Operators are fused by the compiler into one loop over the batch; between nodes there is one dynamic
//! call per batch. A [`Graph`] runs nodes along chains, and every packet ends as sent or dropped with a reason.
//!
//! ```
//! use graph::{Graph, Nf, Node, Operator, frame};
//! use wire::{Ethernet, Ipv4};
//!
//! /// Drops what has crossed too many routers.
//! struct HopGuard;
//! #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(default, deny_unknown_fields)]
//! struct Settings {
//!     /// Smallest time to live that may pass.
//!     least: u8,
//! }
//! impl Nf for HopGuard {
//!     type Settings = Settings;
//!     const KIND: &'static str = "hop-guard";
//!     const ABOUT: &'static str = "Drops packets whose time to live is below a bound.";
//!     fn build(settings: &Settings, _: &graph::BuildContext) -> Result<impl Node + 'static, diagnostics::Diagnostic> {
//!         let least = settings.least;
//!         Ok(frame()
//!             .parse::<Ethernet>()
//!             .parse::<Ipv4>()
//!             .filter("too_far", move |ip| ip.header().ttl() >= least)
//!             .compose())
//!     }
//! }
//! ```
//!
//! Headers come in order; asking for one before what carries it does not compile:
//! ```compile_fail,E0277
//! use graph::{Operator, frame};
//! frame().parse::<wire::Ethernet>().parse::<wire::Tcp>();
//! ```
//! Nor does keeping a header beyond its packet's turn:
//! ```compile_fail
//! use graph::{Operator, frame};
//! let mut kept = None;
//! frame().parse::<wire::Ethernet>().transform(move |v| kept = Some(v.header()));
//! ```
#![forbid(unsafe_code)]

mod board;
pub mod caught;
mod context;
mod graph;
mod nf;
mod ops;
pub mod state;
mod stats;
mod timers;
mod view;

pub use board::{StatsTable, Row};
pub use context::{Context, HoldQueue, PathId};
pub use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Panicked, Ready, Running, Sink, Target};
pub use nf::{BuildContext, Common, Either, Factory, Kind, Lane, Nf, NoSettings, Node, Registry, Spread};
pub use ops::{
    Branches, Composed, Count, Deparse, Divert, Exit, Filter, GroupBy, Operator, Parse, ParseIf, Reasons, Reject,
    Shuffle, ShuffleTo, Start, Transform, frame,
};
pub use state::{Bounded, PerCore, Strict};
pub use stats::{Counter, NodeStats};
pub use timers::{Fired, NoRoom, TimerId, Timers};
pub use view::{Has, Here, Layered, On, Over, Raw, Stack, There, View};
