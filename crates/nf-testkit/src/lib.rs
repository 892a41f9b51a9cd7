//! Test harness, traffic generators and cycle measurements for network functions. Needs neither DPDK nor privileges.
//!
//! | to | use |
//! |---|---|
//! | test an NF or a node: frames in, frames and drops out, timers | [`Harness`], [`HarnessBuilder`] |
//! | generate random frames, valid or malformed, for property tests | [`packets`] |
//! | generate adversarial traffic: floods, forged ICMP errors, overlapping fragments | [`AdversarialTraffic`] |
//! | compare results with captures | [`capture`] |
//! | measure cycles per packet | [`CycleMeter`] |
//!
//! After every call, the harness checks that no packet is missing: `received + created = sent + held + dropped`, and
//! all other buffers are back in the pool.
//!
//! ```
//! use diagnostics::Diagnostic;
//! use graph::{BuildContext, Nf, Node, Operator, frame};
//! use testkit::Harness;
//! use wire::{Ethernet, Ipv4, build};
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
//!         let ipv4 = frame().parse::<Ethernet>().parse_if::<Ipv4>();
//!         Ok(ipv4.filter("ttl_too_small", move |ip| ip.header().ttl() >= min_ttl).compose())
//!     }
//! }
//!
//! let packet = |ttl| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(ttl).to_vec();
//! let (near, far) = (packet(60), packet(3));
//!
//! let mut guard = Harness::new::<TtlGuard>("min_ttl = 10"); // settings as in a chain file
//! assert_eq!(guard.feed_one(&near), Ok(near.clone()));
//! assert_eq!(guard.feed_one(&far), Err("ttl_too_small"));
//! assert_eq!(guard.feed(&[&near, &far, &near]), [near.clone(), near.clone()]);
//! assert_eq!(guard.drops(), [("ttl_too_small", 2)]);
//! assert!(Harness::try_new::<TtlGuard>("min_ttl = 256").is_err());
//! ```
#![forbid(unsafe_code)]

mod adversarial;
mod builder;
pub mod capture;
mod cycles;
mod damage;
mod harness;
#[cfg(feature = "proptest")]
pub mod packets;

pub use adversarial::AdversarialTraffic;
pub use builder::HarnessBuilder;
pub use cycles::{Cost, Costs, CycleMeter};
pub use damage::Damage;
pub use harness::Harness;

pub use pcap;
#[cfg(feature = "proptest")]
pub use proptest;
pub use wire;

/// Ethernet frames without frame check sequence.
pub type Frames = Vec<Vec<u8>>;
