//! Trials and searches: how a device's throughput is found.
//!
//! A [`Search`] says which trial it wants next, whoever owns ports and clock runs it, and tells what came of it; at the end
//! there is a [`Summary`] for each [`Goal`]. No search sends a packet. A [`Stand`] does: a chain in this process on wires in
//! memory, or another program, offered a load by the thread that asks; [`method`] brings the two together. [`Mlr`] is the multiple loss
//! ratio search of RFC 9971: several goals at once, short trials first, noise tolerated.
//!
//! ```
//! use bench::{Goal, Limits, Mlr, Next, Search, Trial};
//!
//! // A device that forwards 3.3 Mpps and not one packet more.
//! let device = |load_pps: f64, duration_s: f64| {
//!     let intended = (load_pps * duration_s) as u64;
//!     let received = intended.min((3.3e6 * duration_s) as u64);
//!     Trial { load_pps, duration_s, intended, sent: intended, received, lost: intended - received, ..Trial::default() }
//! };
//! let mut search = Mlr::new(vec![Goal::quick()], Limits::new(1e3, 14.88e6)?)?;
//! let summary = loop {
//!     match search.next() {
//!         Next::Measure { load_pps, duration_s } => search.tell(device(load_pps, duration_s))?,
//!         Next::Done(summary) => break summary,
//!     }
//! };
//! let found = &summary.results[0];
//! assert!(found.regular && found.lower_pps <= Some(3.3e6) && found.lower_pps > Some(3.2e6));
//! # Ok::<(), bench::SearchError>(())
//! ```
#![forbid(unsafe_code)]

pub mod bed;
mod calibrate;
mod captured;
mod clock;
pub mod dut;
mod environment;
mod found;
mod frames;
mod gaps;
pub mod generator;
pub mod goal;
mod ledger;
pub mod load;
pub mod machine;
mod measure;
pub mod method;
pub mod mlr;
mod offer;
mod offered;
pub mod profile;
mod programme;
mod replayed;
mod rig;
pub mod scenario;
pub mod search;
mod sent;
mod shape;
pub mod simulated;
mod source;
mod stand;
mod station;
mod tally;
mod trace;
pub mod trial;
mod when;
mod wired;

pub use bed::{Ask, Bed, BedError, Second, Seen, StreamSeen, Way};
pub use calibrate::{calibrate, loopback};
pub use captured::Captured;
pub use clock::{Clock, ClockError};
pub use environment::{Steal, environment};
pub use frames::frames;
pub use generator::{Foreign, Generator};
pub use goal::{Goal, GoalError};
pub use machine::Machine;
pub use measure::{document, limits};
pub use method::{Findings, Method, Step};
pub use mlr::Mlr;
pub use offer::flow_settings;
pub use offered::{CannotSend, Offered};
pub use profile::Profile;
pub use rig::{Rig, RigError};
pub use scenario::Scenario;
pub use search::{
    Bisect, GoalResult, LimitedBy, Limits, Next, Remark, Search, SearchError, SearchKind, Summary, Verified,
};
pub use sent::Sent;
pub use shape::Shape;
pub use source::Load;
pub use stand::{Offering, Stand};
pub use trace::Trace;
pub use trial::{BadTrial, PollGaps, Trial};
pub use wired::{DEPTH, Wired};
