//! The bench on which a network function is tested and measured. It needs neither DPDK nor rights.
//!
//! A [`Bench`] has one NF on it: [`feed`](Bench::feed) it frames, look at what comes out, at the drops by reason, at
//! its counters and its table; let time pass with [`wake`](Bench::wake) and [`advance`](Bench::advance). After every
//! call it has seen that no packet is missing: `received + created = sent + held + dropped`, and the pool has back what
//! it lent.
//!
//! ```
//! use diagnostics::Diagnostic;
//! use graph::{BuildContext, Nf, Node, Operator, frame};
//! use testkit::Bench;
//! use wire::{Ethernet, Ipv4, build};
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
//!     fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
//!         let least = settings.least;
//!         let ipv4 = frame().parse::<Ethernet>().parse_if::<Ipv4>();
//!         Ok(ipv4.filter("too_far", move |ip| ip.header().ttl() >= least).compose())
//!     }
//! }
//!
//! let near = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(60).to_vec();
//! let far = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(3).to_vec();
//!
//! let mut guard = Bench::of::<HopGuard>("least = 10"); // the settings, as they stand in a chain file
//! assert_eq!(guard.one(&near), Ok(near.clone()));
//! assert_eq!(guard.one(&far), Err("too_far"));
//! assert_eq!(guard.feed(&[&near, &far, &near]), [near.clone(), near.clone()]);
//! assert_eq!(guard.drops(), [("too_far", 2)]);
//! assert!(Bench::try_of::<HopGuard>("least = 256").is_err());
//! ```
//!
//! [`Bench::node`] takes a chain of operators as it is, without an NF around it. [`capture`] reads and writes captures and
//! tells what differs, [`packets`] makes random packets, well formed and not, for property tests, [`Cycles`] counts what a
//! packet costs, [`Hostile`] makes frames that nobody should send.
#![forbid(unsafe_code)]

mod bench;
pub mod capture;
mod cycles;
mod hostile;
#[cfg(feature = "proptest")]
pub mod packets;
mod setup;

pub use bench::Bench;
pub use cycles::{Cost, Costs, Cycles};
pub use hostile::Hostile;
pub use setup::Setup;

pub use pcap;
#[cfg(feature = "proptest")]
pub use proptest;
pub use wire;

/// Frames, without frame check sequence.
pub type Frames = Vec<Vec<u8>>;
