//! Counting frames and bytes.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, Counters, Exit, Named, Nf, Node, Raw, View};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `count`: counts bytes, and frames by EtherType, and changes nothing.
pub struct Count;

/// `count` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

graph::named_enum! {
    /// Counters: of bytes, and of frames by EtherType.
    enum CounterId {
        Bytes = "bytes",
        Ipv4 = "ipv4",
        Ipv6 = "ipv6",
        Arp = "arp",
        Other = "other",
    }
}

#[derive(Default)]
struct CountNode {
    counters: Counters<CounterId>,
}

impl Nf for Count {
    type Settings = Settings;
    const KIND: &'static str = "count";
    const ABOUT: &'static str =
        "Counts bytes, and frames by EtherType (IPv4, IPv6, ARP, other; also inside a VLAN tag), and changes nothing.";

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(CountNode::default())
    }
}

impl Node for CountNode {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let mut counts = [0u64; CounterId::NAMES.len()];
        batch.for_each(|packet| {
            let frame = packet.data();
            counts[CounterId::Bytes as usize] += frame.len() as u64;
            counts[ether_type(frame) as usize] += 1;
        });
        for counter in [CounterId::Bytes, CounterId::Ipv4, CounterId::Ipv6, CounterId::Arp, CounterId::Other] {
            self.counters[counter].add(counts[counter as usize]);
        }
    }

    fn is_per_packet(&self) -> bool {
        true
    }

    #[inline(always)]
    fn process_packet(&mut self, frame: View<'_, Raw>) -> Option<Exit> {
        self.counters[CounterId::Bytes].add(frame.bytes().len() as u64);
        self.counters[ether_type(frame.bytes())].add(1);
        None
    }
}

/// Returns the counter of a frame's EtherType, also inside a VLAN tag.
#[inline(always)]
fn ether_type(frame: &[u8]) -> CounterId {
    let ether_type_at = |i: usize| frame.get(i..i + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let ether_type = match ether_type_at(12) {
        Some(0x8100 | 0x88a8) => ether_type_at(16),
        outer => outer,
    };
    match ether_type {
        Some(0x0800) => CounterId::Ipv4,
        Some(0x86dd) => CounterId::Ipv6,
        Some(0x0806) => CounterId::Arp,
        _ => CounterId::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::Count;
    use testkit::Harness;

    #[test]
    fn counts_frames_by_ether_type() {
        let mut nf = Harness::new::<Count>("");
        let frame = |types: &[u16]| {
            let mut f = vec![0; 12];
            types.iter().for_each(|t| f.extend(t.to_be_bytes()));
            f.resize(60, 0);
            f
        };
        for types in [&[0x800][..], &[0x8100, 7, 0x800], &[0x86dd], &[0x806], &[0x88cc], &[0x8100, 7, 0x8100]] {
            let sent = frame(types);
            assert_eq!(nf.feed_one(&sent).unwrap(), sent);
        }
        assert_eq!(nf.feed_one(&[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(
            nf.counters(),
            [("bytes", 363), ("ipv4", 2), ("ipv6", 1), ("arp", 1), ("other", 3)].map(|(n, c)| (n.to_owned(), c))
        );
    }
}
