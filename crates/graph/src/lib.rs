//! Network functions (NFs) as graphs of typed packet operators.
//!
//! | to | use |
//! |---|---|
//! | define an NF: its kind, settings, inputs and outputs | [`Nf`], [`BuildContext`] |
//! | process packets with parsed headers | a chain of [`Operator`]s, started by [`frame`]; closures get a [`View`] |
//! | process batches by hand: several outputs, held packets, timers | [`Node`], [`Context`], [`HoldQueue`], [`HoldSlab`] |
//! | name drop reasons, outputs and counters | [`named_enum!`], [`Counters`] |
//! | keep state of one core or share it between cores | [`PerCore`], [`Bounded`], [`Strict`] (see [`state`]) |
//! | schedule timeouts | [`Timers`] |
//! | limit rates | [`Operator::meter`], [`TokenBucket`], [`Rate`] |
//! | publish counters and tables | [`Counter`], [`StatsTable`], [`NodeStats`] |
//! | make NFs available in chain files | [`Registry`] |
//! | run nodes | [`Graph`], planned by a [`Blueprint`] |
//! | see each packet | [`Observer`] |
//!
//! An [`Nf`] builds one [`Node`] for each core. The compiler fuses the operators of a node into one loop over the
//! batch; a [`Graph`] makes one dynamic call per node and batch. Every packet ends as sent, held, or dropped with a
//! reason.
//!
//! ```
//! use diagnostics::Diagnostic;
//! use graph::{BuildContext, Nf, Node, Operator, frame};
//! use wire::{Ethernet, Ipv4};
//!
//! /// Drops packets that have crossed too many routers.
//! struct TtlGuard;
//!
//! #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(default, deny_unknown_fields)]
//! struct Settings {
//!     /// Smallest accepted time to live.
//!     min_ttl: u8,
//! }
//!
//! impl Nf for TtlGuard {
//!     type Settings = Settings;
//!     const KIND: &'static str = "ttl-guard";
//!     const ABOUT: &'static str = "Drops packets whose time to live is below a limit.";
//!     fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
//!         let min_ttl = settings.min_ttl;
//!         Ok(frame()
//!             .parse::<Ethernet>()
//!             .parse::<Ipv4>()
//!             .filter("ttl_too_small", move |ip| ip.header().ttl() >= min_ttl)
//!             .compose())
//!     }
//! }
//! ```
//!
//! Headers are parsed in order. A chain that parses a header before the one that carries it does not compile:
//! ```compile_fail,E0277
//! use graph::{Operator, frame};
//! frame().parse::<wire::Ethernet>().parse::<wire::Tcp>();
//! ```
//! A header cannot be kept beyond the call of the closure:
//! ```compile_fail
//! use graph::{Operator, frame};
//! let mut kept = None;
//! frame().parse::<wire::Ethernet>().transform(move |v| kept = Some(v.header()));
//! ```
#![forbid(unsafe_code)]

mod context;
mod exit;
mod graph;
mod headers;
mod hop;
mod named_enum;
mod nf;
mod node;
mod node_slot;
mod observer;
mod operator_trace;
mod ops;
pub mod panics;
mod rate;
mod registry;
mod saved_state;
mod segment;
mod setting_files;
pub mod state;
mod stats;
mod timers;

pub use context::{Context, HoldQueue, HoldSlab};
pub use exit::Exit;
pub use graph::{Blueprint, Graph, HopPlan, NewNode, NodePanic, NodePlan, Origin, PreparedNode, Replacement, Sink};
pub use headers::{HasHeader, HeaderStack, Innermost, Layer, NextHeader, NonEmptyStack, Outer, Raw, View};
pub use hop::{CurrentHop, Hop, PathId, Target};
pub use named_enum::{Counters, Named, Numbered};
pub use nf::{
    BuildContext, ControlPlane, Frr, Nf, NoSettings, Representor, RouteServer, SharedState, Spread, SteerFn, Steering,
    TakeOver,
};
pub use node::{Either, Node, Side};
pub use observer::{Observer, Point};
pub use operator_trace::{OperatorResult, OperatorStep, OperatorTrace};
pub use ops::{
    Branches, Composed, Count, Deparse, DropIf, EmitIf, Filter, GroupBy, Meter, MeterSettings, MeterTable, Operator,
    OperatorNames, Parse, ParseIf, Shuffle, ShuffleTo, Start, TokenBucket, Transform, frame,
};
pub use rate::{InvalidRate, Rate};
pub use registry::{Factory, NfKind, Registry};
pub use saved_state::{InvalidState, StateReader, StateWriter};
pub use segment::{InA, InB, Segment, SegmentBuilder, Whole};
pub use setting_files::{FileVersion, SettingFile, SettingFiles};
pub use state::{Bounded, PerCore, Strict};
pub use stats::{BoundedTable, CommonDrop, Counter, NodeStats, Row, StatsTable};
pub use timers::{FiredTimer, TimerId, Timers, TimersFull};
