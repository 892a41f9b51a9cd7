//! The protocol between FRR's zebra and a dataplane: Forwarding Plane Manager (FPM) with netlink messages.
//!
//! zebra's module `dplane_fpm_nl` connects to the dataplane by TCP, port [`PORT`], and sends its routes and next hops.
//! This crate reads the stream ([`FrameReader`]), parses the messages of a frame ([`messages`]), keeps next-hop objects
//! ([`NextHops`]), and writes answers, from which zebra learns that a route is installed ([`answer`]). It opens no
//! sockets. The peer is not trusted: every length is checked, no input causes a panic, and memory is bounded.
//!
//! ```
//! use fpm::{FrameReader, Hop, Message, Target, Verdict, answer, messages};
//!
//! // struct nlmsghdr (RTM_NEWROUTE), struct rtmsg (IPv4, /8, table 254, protocol 11), RTA_DST, RTA_GATEWAY, RTA_OIF
//! let message = [
//!     &52u32.to_ne_bytes()[..], &24u16.to_ne_bytes(), &0x501u16.to_ne_bytes(), &[0; 8],
//!     &[2, 8, 0, 0, 254, 11, 0, 1, 0, 0, 0, 0],
//!     &8u16.to_ne_bytes(), &1u16.to_ne_bytes(), &[10, 0, 0, 0],
//!     &8u16.to_ne_bytes(), &5u16.to_ne_bytes(), &[192, 0, 2, 1],
//!     &8u16.to_ne_bytes(), &4u16.to_ne_bytes(), &3u32.to_ne_bytes(),
//! ]
//! .concat();
//! let stream = [&[1, 1, 0, 56][..], &message].concat();
//!
//! let mut reader = FrameReader::new();
//! let mut answers = vec![];
//! // usually `let n = socket.read(reader.room())?`
//! reader.room()[..stream.len()].copy_from_slice(&stream);
//! reader.filled(stream.len());
//! while let Some(payload) = reader.next_frame()? {
//!     for message in messages(payload) {
//!         let Message::Route(route) = message? else { continue };
//!         assert_eq!(route.prefix, "10.0.0.0/8".parse()?);
//!         let gateway = Some([192, 0, 2, 1].into());
//!         assert_eq!(route.target, Target::Hops(vec![Hop { gateway, interface: 3, weight: 1 }]));
//!         answer(&route, Verdict::Offloaded, &mut answers);
//!     }
//! }
//! assert_eq!(answers.len(), stream.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod attribute;
mod frame;
mod message;
mod next_hop;
mod next_hops;
#[cfg(test)]
mod properties;
mod route;
#[cfg(test)]
mod testing;

pub use answer::{Verdict, answer};
pub use attribute::Malformed;
pub use frame::{FrameError, FrameReader, MAX_FRAME};
pub use message::{Message, MessageError, Messages, messages};
pub use next_hop::{NextHop, NextHopValue};
pub use next_hops::{NextHops, NextHopsFull, UnknownNextHop};
pub use route::{Hop, MAX_HOPS, Route, Target};

/// TCP port at which dataplanes wait for zebra by default.
pub const PORT: u16 = 2620;
