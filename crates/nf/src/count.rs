//! Counting what passes.

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Nf, Node};
use packet::Batch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `count`: counts bytes and kinds of frames, and changes nothing.
pub struct Count;

/// `count` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

/// What frames are told apart by, in the order of the counters behind `bytes`.
const KINDS: [&str; 4] = ["ipv4", "ipv6", "arp", "other"];

#[derive(Default)]
struct Counting {
    bytes: Arc<Counter>,
    kinds: [Arc<Counter>; KINDS.len()],
}

impl Nf for Count {
    type Settings = Settings;
    const KIND: &'static str = "count";
    const ABOUT: &'static str = "Counts bytes, and frames by what they carry (IPv4, IPv6, ARP, other; behind one VLAN tag too), and changes nothing.";

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(Counting::default())
    }
}

impl Node for Counting {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        Counter::named(std::iter::once(("bytes", &self.bytes)).chain(KINDS.iter().copied().zip(&self.kinds)))
    }

    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let (mut bytes, mut kinds) = (0, [0u64; KINDS.len()]);
        batch.for_each(|packet| {
            let frame = packet.data();
            bytes += frame.len() as u64;
            let at = |i: usize| frame.get(i..i + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
            let kind = match at(12) {
                Some(0x8100 | 0x88a8) => at(16),
                outer => outer,
            };
            kinds[match kind {
                Some(0x0800) => 0,
                Some(0x86dd) => 1,
                Some(0x0806) => 2,
                _ => 3,
            }] += 1;
        });
        self.bytes.add(bytes);
        for (count, n) in self.kinds.iter().zip(kinds) {
            count.add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Count;
    use testkit::Bench;

    #[test]
    fn tells_frames_apart() {
        let mut nf = Bench::of::<Count>("");
        let frame = |types: &[u16]| {
            let mut f = vec![0; 12];
            types.iter().for_each(|t| f.extend(t.to_be_bytes()));
            f.resize(60, 0);
            f
        };
        for types in [&[0x800][..], &[0x8100, 7, 0x800], &[0x86dd], &[0x806], &[0x88cc], &[0x8100, 7, 0x8100]] {
            let sent = frame(types);
            assert_eq!(nf.one(&sent).unwrap(), sent);
        }
        assert_eq!(nf.one(&[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(
            nf.counters(),
            [("bytes", 363), ("ipv4", 2), ("ipv6", 1), ("arp", 1), ("other", 3)].map(|(n, c)| (n.to_owned(), c))
        );
    }
}
