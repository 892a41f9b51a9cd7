//! `my-nf`: limits the packets that each IPv4 source may send in an interval.
//!
//! This NF implements `Node` by hand, because it keeps state and uses a timer. An NF that handles
//! one packet at a time is shorter as a chain of operators. See the chapters "Operators" and
//! "Nodes by hand" of the book.
#![forbid(unsafe_code)]

use bondstone::prelude::*;
use bondstone::wire::{EtherType, Malformed, ethernet, ipv4};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The NF: its kind, its settings, and how its nodes are built.
pub struct MyNf;

/// The settings in a chain file. `nf show` prints these comments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of packets of each source in an interval.
    packets: u32,
    /// Interval in milliseconds.
    interval: u32,
    /// Maximum number of sources in an interval; packets of further ones are dropped.
    sources: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            packets: 1000,
            interval: 1000,
            sources: 65_536,
        }
    }
}

impl Nf for MyNf {
    type Settings = Settings;
    const KIND: &'static str = "my-nf";
    const ABOUT: &'static str = "Limits the packet rate of each IPv4 source.";
    const EXAMPLE: &'static str = "packets = 100\ninterval = 1000";

    /// Builds the node of one core; each core counts its own packets.
    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        // errors are reported with their location in the chain file
        if settings.interval == 0 {
            let error = Diagnostic::new("must not be 0").key("interval").value(0);
            return Err(error.remedy("write 1 or more milliseconds"));
        }
        if settings.sources > MAX_SOURCES {
            let error = Diagnostic::new("is too large").key("sources");
            let error = error.value(settings.sources);
            return Err(error.remedy(format!("write {MAX_SOURCES} or fewer")));
        }
        Ok(RateLimiter {
            packets: settings.packets,
            interval: Duration::from_millis(settings.interval.into()),
            max_sources: settings.sources as usize,
            sent: HashMap::with_capacity(settings.sources as usize),
            sources: Arc::default(),
        })
    }
}

/// Limit of the setting, which bounds the memory.
const MAX_SOURCES: u32 = 1 << 20;

/// The node of one core: its state needs no lock.
struct RateLimiter {
    packets: u32,
    interval: Duration,
    max_sources: usize,
    /// Packets of each source in this interval.
    sent: HashMap<Ipv4Addr, u32>,
    sources: Arc<Counter>,
}

named_enum! {
    /// Drop reasons and their names.
    enum DropReason {
        /// The source has sent its packets of this interval.
        TooManyPackets = "too_many_packets",
        /// The table of sources is full.
        TooManySources = "too_many_sources",
        /// The Ethernet or IPv4 header is invalid.
        Malformed = "malformed",
    }
}

impl Node for RateLimiter {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("sources".to_owned(), self.sources.clone())]
    }

    /// Processes a batch. Packets that stay in it continue along the path.
    fn process(&mut self, cx: &mut Context<'_>, _input: u8, batch: &mut Batch) {
        batch.extract_if(
            |packet| self.check(packet.data()),
            |reason, packet| cx.drop(reason, packet),
        );
        self.sources.set(self.sent.len() as u64);
    }

    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    /// Starts the next interval.
    fn on_timer(&mut self, _: &mut Context<'_>) {
        self.sent.clear();
        self.sources.set(0);
    }
}

impl RateLimiter {
    /// Counts a packet, and returns the reason if it has to be dropped.
    fn check(&mut self, frame: &[u8]) -> Option<DropReason> {
        let source = match source(frame) {
            Ok(Some(source)) => source,
            Ok(None) => return None,
            Err(_) => return Some(DropReason::Malformed),
        };
        if self.sent.len() >= self.max_sources && !self.sent.contains_key(&source) {
            return Some(DropReason::TooManySources);
        }
        let sent = self.sent.entry(source).or_default();
        if *sent >= self.packets {
            return Some(DropReason::TooManyPackets);
        }
        *sent += 1;
        None
    }
}

/// Returns the source of an IPv4 packet, or `None` for other frames.
fn source(frame: &[u8]) -> Result<Option<Ipv4Addr>, Malformed> {
    let frame = ethernet::Frame::new(frame)?;
    if frame.header().ether_type() != EtherType::IPV4 {
        return Ok(None);
    }
    let packet = ipv4::Packet::new(frame.payload())?;
    Ok(Some(packet.header().src()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Harness;
    use testkit::wire::build;

    /// A packet of host 10.0.0.`host`.
    fn from(host: u8) -> Vec<u8> {
        build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1000, 53).to_vec()
    }

    #[test]
    fn limits_packets_of_each_source_in_an_interval() {
        let mut nf = Harness::new::<MyNf>("packets = 2\ninterval = 100");
        let frames = [from(1), from(1), from(2), from(1)];
        assert_eq!(nf.feed(&frames), frames[..3]);
        assert_eq!(nf.drops(), [("too_many_packets", 1)]);
        assert_eq!(nf.counter("sources"), 2);

        nf.advance(Duration::from_millis(100));
        assert_eq!(nf.counter("sources"), 0);
        assert_eq!(nf.feed_one(&from(1)), Ok(from(1)));
    }

    #[test]
    fn limits_the_number_of_sources() {
        let mut nf = Harness::new::<MyNf>("sources = 1");
        assert!(nf.feed_one(&from(1)).is_ok());
        assert_eq!(nf.feed_one(&from(2)), Err("too_many_sources"));
    }

    #[test]
    fn forwards_other_frames_and_drops_malformed_ones() {
        let mut nf = Harness::new::<MyNf>("packets = 0");
        let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
        assert_eq!(nf.feed_one(&arp), Ok(arp));
        assert_eq!(nf.feed_one(&from(1)[..20]), Err("malformed"));
    }

    #[test]
    fn refuses_invalid_settings() {
        let error = Harness::try_new::<MyNf>("interval = 0").unwrap_err();
        assert_eq!(error.key, Some("interval"));
        assert!(Harness::try_new::<MyNf>("sources = 2000000").is_err());
        assert!(Harness::try_new::<MyNf>("packet = 5").is_err());
    }
}
