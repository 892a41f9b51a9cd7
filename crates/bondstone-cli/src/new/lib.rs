//! `my-nf`: lets each IPv4 source send so many packets in an interval, and no more.
//!
//! A node by hand: it keeps state and is woken by time. An NF that looks at one packet at a time
//! is shorter as a chain of operators; the book has both: "Operators", "Nodes by hand".
#![forbid(unsafe_code)]

use bondstone::prelude::*;
use bondstone::wire::{EtherType, Malformed, ethernet, ipv4};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The kind of NF: what a chain file names, and how it is built.
pub struct MyNf;

/// What a chain file may set. These comments are the help of `nf show`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Packets that each source may send in an interval.
    packets: u32,
    /// Milliseconds after which counting begins anew.
    interval: u32,
    /// Sources that are known at a time; packets of further ones are dropped.
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
    const ABOUT: &'static str = "Limits the packets of each IPv4 source; other frames pass.";
    const EXAMPLE: &'static str = "packets = 100\ninterval = 1000";

    /// Builds the copy for one core; each core counts for itself.
    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        // what makes no sense is refused, with the place in the chain file
        if settings.interval == 0 {
            let fault = Diagnostic::new("is no interval").key("interval").value(0);
            return Err(fault.remedy("write 1 or more milliseconds"));
        }
        if settings.sources > MOST_SOURCES {
            let fault = Diagnostic::new("are too many sources").key("sources");
            let fault = fault.value(settings.sources);
            return Err(fault.remedy(format!("write {MOST_SOURCES} or fewer")));
        }
        Ok(Limiting {
            packets: settings.packets,
            interval: Duration::from_millis(settings.interval.into()),
            most: settings.sources as usize,
            sent: HashMap::with_capacity(settings.sources as usize),
            sources: Arc::default(),
        })
    }
}

/// Memory is bounded: what comes from outside never decides how much there is.
const MOST_SOURCES: u32 = 1 << 20;

/// One copy of it, on one core: its state needs no lock.
struct Limiting {
    packets: u32,
    interval: Duration,
    most: usize,
    /// Packets of each source in this interval.
    sent: HashMap<Ipv4Addr, u32>,
    sources: Arc<Counter>,
}

/// Why a packet is dropped; the numbers are places in [`Node::drops`].
#[derive(Clone, Copy)]
enum Reason {
    TooManyPackets = 0,
    TooManySources = 1,
    Malformed = 2,
}

impl Node for Limiting {
    fn drops(&self) -> &[&'static str] {
        &["too_many_packets", "too_many_sources", "malformed"]
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("sources".to_owned(), self.sources.clone())]
    }

    /// What is left in the batch goes on.
    fn process(&mut self, cx: &mut Context<'_>, _input: u8, batch: &mut Batch) {
        batch.extract_if(
            |packet| self.judge(packet.data()),
            |reason, packet| cx.drop(reason as u8, packet),
        );
        self.sources.set(self.sent.len() as u64);
    }

    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    /// An interval is over.
    fn on_timer(&mut self, _: &mut Context<'_>) {
        self.sent.clear();
        self.sources.set(0);
    }
}

impl Limiting {
    /// Counts a packet; says why it is dropped, if it is.
    fn judge(&mut self, frame: &[u8]) -> Option<Reason> {
        let source = match source(frame) {
            Ok(Some(source)) => source,
            Ok(None) => return None,
            Err(_) => return Some(Reason::Malformed),
        };
        if self.sent.len() >= self.most && !self.sent.contains_key(&source) {
            return Some(Reason::TooManySources);
        }
        let sent = self.sent.entry(source).or_default();
        if *sent >= self.packets {
            return Some(Reason::TooManyPackets);
        }
        *sent += 1;
        None
    }
}

/// Who has sent an IPv4 packet; none for other frames.
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
    use testkit::Bench;
    use wire::build;

    /// A packet of host 10.0.0.`host`.
    fn from(host: u8) -> Vec<u8> {
        build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1000, 53).to_vec()
    }

    #[test]
    fn each_source_may_send_so_many_packets_in_an_interval() {
        let mut nf = Bench::of::<MyNf>("packets = 2\ninterval = 100");
        let frames = [from(1), from(1), from(2), from(1)];
        assert_eq!(nf.feed(&frames), frames[..3]);
        assert_eq!(nf.drops(), [("too_many_packets", 1)]);
        assert_eq!(nf.counter("sources"), 2);

        nf.advance(Duration::from_millis(100));
        assert_eq!(nf.counter("sources"), 0);
        assert_eq!(nf.one(&from(1)), Ok(from(1)));
    }

    #[test]
    fn further_sources_are_dropped() {
        let mut nf = Bench::of::<MyNf>("sources = 1");
        assert!(nf.one(&from(1)).is_ok());
        assert_eq!(nf.one(&from(2)), Err("too_many_sources"));
    }

    #[test]
    fn other_frames_pass_and_malformed_ones_do_not() {
        let mut nf = Bench::of::<MyNf>("packets = 0");
        let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
        assert_eq!(nf.one(&arp), Ok(arp));
        assert_eq!(nf.one(&from(1)[..20]), Err("malformed"));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fault = Bench::try_of::<MyNf>("interval = 0").unwrap_err();
        assert_eq!(fault.key, Some("interval"));
        assert!(Bench::try_of::<MyNf>("sources = 2000000").is_err());
        assert!(Bench::try_of::<MyNf>("packet = 5").is_err());
    }
}
