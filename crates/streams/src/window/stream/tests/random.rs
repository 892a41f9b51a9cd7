//! Random segments, including adversarial ones.

use super::*;
use proptest::prelude::*;

/// The slow way: what every byte is, and by which segment, up to the gap that has not been filled.
struct Model {
    first: u32,
    /// By offset from the first byte: the byte, and number of the segment whose it is.
    bytes: Vec<Option<(u8, usize)>>,
    given: usize,
    segments: Vec<(u32, u32)>,
}

impl Model {
    fn new(first: u32, len: usize) -> Self {
        Model { first, bytes: vec![None; len], given: 0, segments: vec![] }
    }

    fn feed(&mut self, offset: u32, payload: &[u8], policy: Overlap) {
        let (n, segment) = (self.segments.len(), (offset, offset + payload.len() as u32));
        self.segments.push(segment);
        for (at, byte) in (offset as usize..).zip(payload) {
            if at < self.given {
                continue;
            }
            let newer = match (self.bytes[at], policy) {
                (None, _) | (_, Overlap::Last) => true,
                (Some(_), Overlap::First) => false,
                (Some((_, old)), Overlap::Linux) => {
                    let old = self.segments[old];
                    segment.0 < old.0 || (segment.0 == old.0 && segment.1 > old.1)
                }
            };
            if newer {
                self.bytes[at] = Some((*byte, n));
            }
        }
    }

    /// The bytes that can be given now.
    fn give(&mut self) -> Vec<u8> {
        let from = self.given;
        self.given = self.bytes.iter().position(Option::is_none).unwrap_or(self.bytes.len());
        self.bytes[from..self.given].iter().flatten().map(|it| it.0).collect()
    }

    fn seq(&self, offset: u32) -> u32 {
        self.first.wrapping_add(offset)
    }
}

fn policy() -> impl Strategy<Value = Overlap> {
    prop_oneof![Just(Overlap::First), Just(Overlap::Last), Just(Overlap::Linux)]
}

/// Where a segment begins, and its bytes: two or more, since one before the next is a keep-alive.
fn segment(len: u32) -> impl Strategy<Value = (u32, Vec<u8>)> {
    (0..len - 1, prop::collection::vec(any::<u8>(), 2..20)).prop_map(move |(at, mut payload)| {
        payload.truncate((len - at) as usize);
        (at, payload)
    })
}

/// Parts of a stream of `len` bytes: all of it, cut at random, and more over that, in any order.
fn shuffled(len: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    let cuts = prop::collection::vec(1..=len, 0..30);
    let more = prop::collection::vec((0..len, 1..=len), 0..30);
    (cuts, more).prop_flat_map(move |(mut cuts, more)| {
        cuts.extend([0, len]);
        cuts.sort_unstable();
        cuts.dedup();
        let parts = cuts.windows(2).map(|w| (w[0], w[1]));
        let more = more.into_iter().map(|(from, n)| (from, (from + n).min(len)));
        Just(parts.chain(more).collect::<Vec<_>>()).prop_shuffle()
    })
}

proptest! {
    #[test]
    fn a_stream_is_whole_however_it_comes(
        data in prop::collection::vec(any::<u8>(), 1..6000),
        parts in shuffled(6000),
        first in any::<u32>(),
        policy in policy(),
        fin in any::<bool>(),
    ) {
        let len = data.len();
        let mut rig = Rig::with(policy, 4096, 64 << 20);
        rig.feed(first.wrapping_sub(1), TcpFlags::SYN, b"");
        for (from, to) in parts.into_iter().map(|(from, to)| (from.min(len), to.min(len))).filter(|p| p.0 < p.1) {
            let flags = if fin && to == len { FIN } else { ACK };
            let fed = rig.feed(first.wrapping_add(from as u32), flags, &data[from..to]);
            prop_assert!(!fed.unseen);
        }
        let mut expected = vec![bytes(&data)];
        if fin {
            expected.push(Item::End(End::Finished));
        }
        prop_assert_eq!(rig.take(), expected);
        prop_assert_eq!((rig.memory.allocated(), rig.tally.conflicting, rig.tally.gaps), (0, 0, 0));
    }

    #[test]
    fn overlaps_are_those_of_the_model(
        segments in prop::collection::vec(segment(60), 1..30),
        first in prop_oneof![Just(u32::MAX - 20), any::<u32>()],
        policy in policy(),
    ) {
        let mut rig = Rig::with(policy, 100, 1 << 20);
        rig.feed(first.wrapping_sub(1), TcpFlags::SYN, b"");
        let mut model = Model::new(first, 60);
        for (offset, payload) in segments {
            model.feed(offset, &payload, policy);
            rig.data(model.seq(offset), &payload);
            let given = model.give();
            let expected = if given.is_empty() { vec![] } else { vec![bytes(&given)] };
            prop_assert_eq!(rig.take(), expected);
        }
        let end = model.bytes.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        prop_assert_eq!(rig.stream.waits(), end > model.given);
    }

    #[test]
    fn whatever_comes_no_bound_is_broken(
        segments in prop::collection::vec(
            (prop_oneof![0..20_000u32, any::<u32>()], any::<u8>(), 0..3000usize, any::<u32>(), any::<u16>()),
            0..150,
        ),
        pieces in 1..12usize,
        memory in 0..20_000usize,
        policy in policy(),
    ) {
        let mut rig = Rig::with(policy, pieces, memory);
        let filler = [0x5au8; 3000];
        for (seq, flags, len, ack, window) in segments {
            rig.now = rig.now.wrapping_add(len as u32);
            rig.hear(ack, window);
            rig.feed(seq, TcpFlags(flags), &filler[..len]);
            while rig.stream.is_lost() {
                rig.give_up(Lost::Acknowledged);
            }
            if rig.stream.is_overdue(rig.now, 5000) {
                rig.give_up(Lost::TimedOut);
            }
            prop_assert!(rig.memory.taken() <= memory);
            prop_assert!(rig.stream.pieces.len() <= pieces);
            prop_assert_eq!(rig.stream.waits(), rig.stream.holds(), "what is empty holds nothing");
        }
        rig.stream.forget_ahead(&mut rig.memory);
        prop_assert_eq!(rig.memory.allocated(), 0);
    }

    #[test]
    fn what_is_given_counts_every_number_once(
        segments in prop::collection::vec((0..400u32, 0..60usize, any::<bool>()), 0..60),
        pieces in 1..6usize,
        policy in policy(),
    ) {
        let mut rig = Rig::with(policy, pieces, 1 << 20);
        rig.feed(0, TcpFlags::SYN, b"");
        for (seq, len, fin) in segments {
            rig.feed(1 + seq, if fin { FIN } else { ACK }, &[7; 60][..len]);
        }
        while rig.stream.waits() {
            rig.give_up(Lost::Ended);
        }
        let numbers: u32 = rig.got.iter().map(|item| match item {
            Item::Bytes(bytes) => bytes.len() as u32,
            Item::Gap(n, _) => *n,
            Item::End(_) => 1,
        }).sum();
        prop_assert_eq!(numbers, rig.stream.next() - 1);
        prop_assert!(rig.got.iter().all(|item| !matches!(item, Item::Gap(0, _))));
        let ends = rig.got.iter().filter(|item| matches!(item, Item::End(_))).count();
        prop_assert!(ends == 0 || (ends == 1 && matches!(rig.got.last(), Some(Item::End(_)))));
    }
}
