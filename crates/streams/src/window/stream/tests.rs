//! Single cases, and random segments against a slow model.

use super::*;
use crate::window::overlap::Overlap;
use crate::window::stream_state::StreamCounts;

mod random;

/// Output of a stream; adjacent bytes are joined.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Bytes(Vec<u8>),
    Gap(u32, Lost),
    End(End),
}

fn bytes(text: &[u8]) -> Item {
    Item::Bytes(text.to_vec())
}

/// A stream with the state that it needs.
struct Rig {
    stream: Stream,
    memory: Memory,
    rules: Limits,
    tally: StreamCounts,
    now: u32,
    got: Vec<Item>,
}

const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);

impl Rig {
    fn new(overlap: Overlap) -> Self {
        Self::with(overlap, 16, 1 << 20)
    }

    fn with(overlap: Overlap, pieces: usize, memory: usize) -> Self {
        Rig {
            stream: Stream::default(),
            memory: Memory::new(memory, pieces, 0),
            rules: Limits { overlap, pieces, strict: false },
            tally: StreamCounts::default(),
            now: 0,
            got: vec![],
        }
    }

    /// Returns a stream whose SYN was seen, so that its first byte has number `first`.
    fn open(first: u32) -> Self {
        let mut rig = Self::new(Overlap::Linux);
        rig.feed(first.wrapping_sub(1), TcpFlags::SYN, b"");
        rig
    }

    fn call<R>(&mut self, f: impl FnOnce(&mut Stream, &mut Shared<'_>, &mut dyn FnMut(Chunk<'_>)) -> R) -> R {
        let Rig { stream, memory, rules, tally, now, got } = self;
        let mut out = |chunk: Chunk<'_>| match (chunk, got.last_mut()) {
            (Chunk::Bytes(new), Some(Item::Bytes(old))) => old.extend(new),
            (Chunk::Bytes(new), _) => got.push(bytes(new)),
            (Chunk::Gap(n, why), _) => got.push(Item::Gap(n, why)),
            (Chunk::End(why), _) => got.push(Item::End(why)),
        };
        f(stream, &mut Shared { rules, memory, tally, now: *now }, &mut out)
    }

    fn feed(&mut self, seq: u32, flags: TcpFlags, payload: &[u8]) -> Fed {
        let segment = Segment { seq, flags, ..Segment::default() };
        self.call(|stream, desk, out| {
            stream.feed(&segment, payload, desk, &mut |_: &mut Memory, chunk: Chunk<'_>| {
                out(chunk);
                true
            })
        })
    }

    fn data(&mut self, seq: u32, payload: &[u8]) -> Fed {
        self.feed(seq, ACK, payload)
    }

    fn give_up(&mut self, why: Lost) -> bool {
        self.call(|stream, desk, out| {
            stream.give_up(why, desk, &mut |_: &mut Memory, chunk: Chunk<'_>| {
                out(chunk);
                true
            })
        })
    }

    /// Acknowledgment of the other side, with a window.
    fn hear(&mut self, ack: u32, window: u16) {
        self.stream.process_ack(&Segment { ack, window, flags: ACK, ..Segment::default() }, 0);
    }

    fn take(&mut self) -> Vec<Item> {
        core::mem::take(&mut self.got)
    }
}

#[test]
fn bytes_in_order_are_those_of_the_packet() {
    let mut rig = Rig::open(1);
    let payload = *b"in order";
    let mut same = false;
    let segment = Segment { seq: 1, flags: ACK, ..Segment::default() };
    rig.call(|stream, desk, _| {
        stream.feed(&segment, &payload, desk, &mut |_: &mut Memory, chunk: Chunk<'_>| {
            same = matches!(chunk, Chunk::Bytes(bytes) if bytes.as_ptr() == payload.as_ptr());
            true
        })
    });
    assert!(same);
    assert_eq!((rig.memory.taken(), rig.tally), (0, StreamCounts::default()));
}

#[test]
fn what_comes_before_its_turn_waits() {
    let mut rig = Rig::open(1);
    rig.data(1, b"a");
    rig.data(4, b"d");
    rig.data(3, b"c");
    assert_eq!(rig.take(), [bytes(b"a")]);
    assert!(rig.stream.waits() && rig.stream.holds());
    rig.data(2, b"b");
    rig.data(5, b"e");
    assert_eq!(rig.take(), [bytes(b"bcde")]);
    assert!(!rig.stream.waits() && !rig.stream.holds());
    assert_eq!((rig.tally.out_of_order, rig.memory.allocated()), (2, 0));
}

#[test]
fn retransmissions_are_left_out() {
    let mut rig = Rig::open(1);
    rig.data(1, b"abc");
    rig.data(1, b"abc");
    rig.data(2, b"bc");
    rig.data(2, b"bcde");
    assert_eq!(rig.take(), [bytes(b"abcde")]);
    assert_eq!((rig.tally.retransmitted, rig.tally.overlapping), (2, 1));
}

#[test]
fn sequence_numbers_wrap() {
    let mut rig = Rig::open(u32::MAX - 1);
    rig.data(2, b"ef");
    rig.data(u32::MAX - 1, b"ab");
    rig.data(u32::MAX, b"bcd");
    rig.data(0, b"cdef");
    rig.feed(4, FIN, b"g");
    assert_eq!(rig.take(), [bytes(b"abcdefg"), Item::End(End::Finished)]);
    assert_eq!(rig.stream.next(), 6);
}

#[test]
fn keep_alives_are_not_data() {
    for garbage in [&b""[..], b"\0", b"x"] {
        let mut rig = Rig::open(1);
        rig.data(0, garbage);
        rig.data(1, b"abc");
        rig.data(3, garbage);
        rig.data(4, b"d");
        rig.data(6, b"f");
        rig.data(4, garbage);
        assert_eq!(rig.take(), [bytes(b"abcd")], "{garbage:?}");
        assert_eq!((rig.tally.keep_alives, rig.tally.retransmitted), (3, 0), "{garbage:?}");
        // an observer in midstream may see a keep-alive first
        let mut rig = Rig::new(Overlap::Linux);
        rig.data(99, b"");
        rig.data(100, b"abc");
        assert_eq!((rig.take(), rig.tally.gaps), (vec![bytes(b"abc")], 0));
    }
}

#[test]
fn probes_of_a_closed_window_are_data_once() {
    let mut rig = Rig::open(1);
    rig.data(1, b"abc");
    rig.hear(4, 0);
    rig.data(4, b"d");
    rig.data(4, b"d");
    // Linux sends this instead
    rig.data(3, b"");
    rig.hear(5, 100);
    rig.data(4, b"def");
    assert_eq!(rig.take(), [bytes(b"abcdef")]);
    // one retransmitted byte cannot be told from a keep-alive
    assert_eq!((rig.tally.retransmitted, rig.tally.keep_alives, rig.tally.overlapping), (0, 1, 1));
}

#[test]
fn data_in_a_syn_counts_from_behind_it() {
    let mut rig = Rig::new(Overlap::Linux);
    rig.feed(6, TcpFlags::SYN, b"fast");
    rig.feed(6, TcpFlags::SYN, b"fast");
    rig.data(7, b"fast open");
    assert_eq!(rig.take(), [bytes(b"fast open")]);
    assert!(!rig.stream.is_midstream());
}

#[test]
fn a_fin_takes_a_number_and_comes_last() {
    let mut rig = Rig::open(1);
    let fed = rig.feed(4, FIN, b"d");
    assert_eq!((fed.end, fed.unseen, rig.stream.is_ended()), (5, false, false));
    rig.data(1, b"abc");
    assert_eq!(rig.take(), [bytes(b"abcd"), Item::End(End::Finished)]);
    assert_eq!((rig.stream.next(), rig.stream.given(), rig.stream.is_ended()), (6, 5, true));
    // retransmitted, and impossible bytes
    rig.feed(4, FIN, b"d");
    assert!(rig.data(6, b"more").unseen);
    assert_eq!((rig.take(), rig.tally.after_end), (vec![], 1));
    // without data
    let mut rig = Rig::open(1);
    rig.feed(1, FIN, b"");
    rig.feed(1, FIN, b"");
    assert_eq!(rig.take(), [Item::End(End::Finished)]);
}

#[test]
fn bytes_behind_an_announced_end_are_cut_off() {
    let mut rig = Rig::open(1);
    rig.feed(3, FIN, b"c");
    rig.data(2, b"bcXX");
    rig.feed(8, FIN, b"");
    rig.data(1, b"a");
    assert_eq!(rig.take(), [bytes(b"abc"), Item::End(End::Finished)]);
    assert_eq!(rig.memory.allocated(), 0);
    // also those that arrived before the FIN
    let mut rig = Rig::open(1);
    rig.data(3, b"cde");
    rig.data(7, b"g");
    rig.feed(2, FIN, b"bc");
    rig.data(1, b"a");
    assert_eq!(rig.take(), [bytes(b"abc"), Item::End(End::Finished)]);
    assert_eq!((rig.memory.allocated(), rig.tally.after_end), (0, 1));
}

#[test]
fn a_reset_is_believed_in_its_place() {
    let mut rig = Rig::open(1);
    rig.data(1, b"ab");
    rig.data(5, b"ef");
    for seq in [0, 1, 2, 4, 6, 8, 1000] {
        rig.feed(seq, TcpFlags::RST, b"");
    }
    assert_eq!((rig.take(), rig.tally.resets, rig.tally.out_of_window), (vec![bytes(b"ab")], 0, 7));
    // behind the last byte seen
    rig.feed(7, TcpFlags::RST, b"why");
    assert_eq!((rig.take(), rig.memory.allocated()), (vec![Item::End(End::Reset)], 0));
    assert!(rig.stream.is_ended() && rig.stream.is_reset());
    // it may not have reached the receiver: bytes that follow are delivered, and the end is not reported again
    rig.data(3, b"cd");
    rig.feed(5, FIN, b"");
    assert_eq!(rig.take(), [bytes(b"cd")]);
}

#[test]
fn one_who_comes_late_begins_with_what_comes() {
    let mut rig = Rig::new(Overlap::Linux);
    rig.data(500, b"abc");
    rig.data(490, b"0123456789");
    rig.data(498, b"89abcdef");
    assert_eq!(rig.take(), [bytes(b"abcdef")]);
    assert!(rig.stream.is_midstream());
    // a SYN overtaken by its data
    rig.feed(499, TcpFlags::SYN, b"");
    assert!(!rig.stream.is_midstream() && rig.take().is_empty());
    // an acknowledgment reveals the next byte
    let mut rig = Rig::new(Overlap::Linux);
    rig.data(500, b"");
    rig.data(503, b"def");
    rig.data(500, b"abc");
    assert_eq!(rig.take(), [bytes(b"abcdef")]);
}

#[test]
fn gaps_are_given_up_when_told_and_never_joined() {
    let mut rig = Rig::open(1);
    rig.data(1, b"a");
    rig.data(4, b"d");
    rig.data(8, b"h");
    rig.feed(9, FIN, b"");
    assert!(rig.give_up(Lost::TimedOut));
    assert_eq!(rig.take(), [bytes(b"a"), Item::Gap(2, Lost::TimedOut), bytes(b"d")]);
    assert!(rig.give_up(Lost::Ended));
    assert_eq!(rig.take(), [Item::Gap(3, Lost::Ended), bytes(b"h"), Item::End(End::Finished)]);
    assert_eq!((rig.tally.gaps, rig.tally.gap_bytes, rig.memory.allocated()), (2, 5, 0));
    // late bytes are old
    rig.data(2, b"bc");
    assert_eq!(rig.take(), []);
}

#[test]
fn an_acknowledgement_proves_a_gap() {
    let mut rig = Rig::open(1);
    rig.data(1, b"ab");
    rig.hear(3, 7);
    rig.data(5, b"ef");
    assert!(!rig.stream.is_lost());
    // of bytes that cannot have been sent
    rig.hear(20, 100);
    assert!(!rig.stream.is_lost());
    rig.hear(4, 100);
    assert!(!rig.stream.is_lost(), "the receiver may yet miss the byte before");
    rig.hear(7, 100);
    assert!(rig.stream.is_lost());
    rig.give_up(Lost::Acknowledged);
    assert_eq!(rig.take(), [bytes(b"ab"), Item::Gap(2, Lost::Acknowledged), bytes(b"ef")]);
    // bytes within the window may have been sent and missed
    rig.data(50, b"x");
    rig.hear(60, 100);
    assert!(rig.stream.is_lost());
}

#[test]
fn bytes_wait_in_vain_only_where_the_receiver_is_not_heard() {
    let mut rig = Rig::open(1);
    rig.now = u32::MAX - 10;
    rig.data(2, b"b");
    assert!(!rig.stream.is_overdue(rig.now, 20) && !rig.stream.is_overdue(rig.now.wrapping_add(19), 20));
    assert!(rig.stream.is_overdue(rig.now.wrapping_add(20), 20));
    rig.hear(1, 100);
    assert!(!rig.stream.is_overdue(rig.now.wrapping_add(1000), 20));
}

#[test]
fn bytes_beyond_the_window_cost_nobody_his_place() {
    let mut rig = Rig::with(Overlap::Linux, 3, 1 << 20);
    rig.feed(0, TcpFlags::SYN, b"");
    assert!(rig.data(1u32.wrapping_add(FARTHEST + 1), b"x").unseen, "no window is so large");
    rig.data(1 + FARTHEST, b"x");
    assert_eq!(rig.stream.pieces.len(), 1, "nothing is known of the window");
    rig.stream.forget_ahead(&mut rig.memory);
    rig.hear(1, 1000);
    let beyond = 1000 + SLACK + 1;
    for n in 0..3 {
        assert!(!rig.data(beyond + 3 * n, b"xy").unseen, "there is room");
    }
    assert!(rig.data(beyond + 10, b"xy").unseen, "for these there is none");
    assert!(!rig.data(beyond - 2, b"x").unseen);
    assert!(!rig.data(3, b"c").unseen);
    assert!(!rig.data(5, b"e").unseen);
    assert_eq!((rig.take(), rig.tally.gaps, rig.tally.out_of_window), (vec![], 0, 5));
    // nor does a FIN count there
    rig.feed(beyond, FIN, b"");
    assert!(!rig.stream.is(ENDS));
    rig.data(1, b"abcd");
    assert_eq!(rig.take(), [bytes(b"abcde")]);
}

#[test]
fn an_old_acknowledgement_is_not_taken_for_a_window() {
    let mut rig = Rig::open(1_000_000);
    rig.hear(5, 100);
    rig.data(1_000_005, b"x");
    assert!(rig.stream.waits());
}

#[test]
fn overlaps_go_by_the_policy() {
    // "ABCDEF" at 11, then others over it, then the missing byte at 10
    let others: [(u32, &[u8]); 4] = [(11, b"abcdef"), (11, b"abcdefgh"), (13, b"cd"), (10, b"zab")];
    let expected = |policy, other: usize| -> &[u8] {
        match (policy, other) {
            (Overlap::First, 1) => b".ABCDEFgh",
            (Overlap::First, 3) => b"zABCDEF",
            (Overlap::First, _) => b".ABCDEF",
            (Overlap::Last, 0) => b".abcdef",
            (Overlap::Last, 1) => b".abcdefgh",
            (Overlap::Last, 2) => b".ABcdEF",
            (Overlap::Last, _) => b"zabCDEF",
            // starts later, or at the same byte and is not longer: the old one
            (Overlap::Linux, 0 | 2) => b".ABCDEF",
            (Overlap::Linux, 1) => b".abcdefgh",
            (Overlap::Linux, _) => b"zabCDEF",
        }
    };
    for policy in [Overlap::First, Overlap::Last, Overlap::Linux] {
        for (n, (seq, payload)) in others.iter().enumerate() {
            let mut rig = Rig::new(policy);
            rig.feed(9, TcpFlags::SYN, b"");
            rig.data(11, b"ABCDEF");
            rig.data(*seq, payload);
            if n < 3 {
                rig.data(10, b".");
            }
            assert_eq!(rig.take(), [bytes(expected(policy, n))], "{policy:?} {n}");
            assert_eq!((rig.tally.overlapping, rig.tally.conflicting), (1, 1), "{policy:?} {n}");
            assert_eq!(rig.memory.allocated(), 0);
        }
    }
}

#[test]
fn linux_trims_what_begins_later() {
    let mut rig = Rig::open(1);
    rig.data(5, b"EFGH");
    rig.data(3, b"cdef");
    rig.data(2, b"B");
    rig.data(1, b"A");
    assert_eq!(rig.take(), [bytes(b"ABcdefGH")]);
}

#[test]
fn the_same_bytes_twice_are_no_conflict() {
    let mut rig = Rig::open(1);
    rig.data(3, b"cd");
    rig.data(3, b"cd");
    rig.data(2, b"bcde");
    rig.data(1, b"ab");
    assert_eq!(rig.take(), [bytes(b"abcde")]);
    assert_eq!((rig.tally.overlapping, rig.tally.conflicting), (3, 0));
}

#[test]
fn a_full_stream_gives_its_first_gap_up() {
    let mut rig = Rig::with(Overlap::First, 3, 1 << 20);
    rig.feed(0, TcpFlags::SYN, b"");
    for seq in [3, 5, 7] {
        rig.data(seq, b"x");
    }
    assert_eq!(rig.take(), []);
    // a block holds one segment; this takes two
    let long = [b'y'; BLOCK + 1];
    assert!(!rig.data(9, &long).unseen);
    let expected = [Item::Gap(2, Lost::NoRoom), bytes(b"x"), Item::Gap(1, Lost::NoRoom), bytes(b"x")];
    assert_eq!(rig.take(), expected);
    assert_eq!(rig.stream.pieces.len(), 3);
    rig.data(6, b"f");
    rig.data(8, b"h");
    assert_eq!(rig.take(), [bytes(&[b"fxh", &long[..]].concat())]);
}

#[test]
fn without_memory_what_comes_early_is_left() {
    let mut rig = Rig::with(Overlap::First, 4, 4 * size_of::<Piece>() + BLOCK);
    rig.feed(0, TcpFlags::SYN, b"");
    assert!(!rig.data(3, b"c").unseen);
    assert!(rig.data(5, b"e").unseen);
    rig.data(1, b"ab");
    assert_eq!((rig.take(), rig.tally.over_budget, rig.memory.allocated()), (vec![bytes(b"abc")], 1, 0));
    // not even for a list
    let mut rig = Rig::with(Overlap::First, 4, 10);
    rig.data(1, b"a");
    assert!(rig.data(3, b"c").unseen);
    rig.data(2, b"b");
    assert_eq!((rig.take(), rig.tally.over_budget), (vec![bytes(b"ab")], 1));
}

#[test]
fn where_it_is_strict_a_segment_is_kept_whole_or_not_at_all() {
    let mut rig = Rig::with(Overlap::First, 3, 1 << 20);
    rig.rules.strict = true;
    rig.feed(0, TcpFlags::SYN, b"");
    assert!(!rig.data(3, b"cd").unseen && !rig.data(6, b"fg").unseen);
    // it would take two
    assert!(rig.data(5, b"efgh").unseen);
    assert!(!rig.data(5, b"e").unseen);
    assert!(rig.data(9, b"i").unseen, "there is no room, and no gap is given up");
    rig.data(1, b"ab");
    assert_eq!((rig.take(), rig.tally.over_budget, rig.tally.gaps), (vec![bytes(b"abcdefg")], 2, 0));
}

#[test]
fn who_wants_no_more_gets_no_more() {
    for wanted in 0..4 {
        let mut rig = Rig::open(1);
        rig.data(2, b"b");
        rig.data(4, b"d");
        let mut calls = 0;
        let segment = Segment { seq: 1, flags: ACK, ..Segment::default() };
        rig.call(|stream, desk, _| {
            let mut out = |_: &mut Memory, _: Chunk<'_>| {
                calls += 1;
                calls <= wanted
            };
            stream.feed(&segment, b"a", desk, &mut out);
            stream.forget_ahead(desk.memory);
        });
        assert_eq!((calls, rig.memory.allocated()), (2.min(wanted + 1), 0));
    }
}

#[test]
fn a_syn_begins_anew_where_it_may() {
    let syn = |seq| Segment { seq, flags: TcpFlags::SYN, ..Segment::default() };
    let answer = |seq, ack| Segment { seq, ack, flags: TcpFlags::SYN_ACK, ..Segment::default() };
    let (mut own, mut peer) = (Rig::open(1), Rig::open(101));
    assert_eq!(own.stream.restarts(&syn(0), &peer.stream), Restart::None, "the same once more");
    assert_eq!(own.stream.restarts(&syn(50), &Stream::default()), Restart::Both, "the receiver was never seen");
    // both sides were seen: only an answer proves the new connection
    assert_eq!(own.stream.restarts(&syn(50), &peer.stream), Restart::None);
    own.feed(50, TcpFlags::SYN, b"");
    assert_eq!(own.stream.next(), 1);
    assert_eq!(peer.stream.restarts(&answer(700, 52), &own.stream), Restart::None);
    assert_eq!(peer.stream.restarts(&answer(700, 51), &own.stream), Restart::Answered);
    assert_eq!(own.stream.asked(), 51);
    // after the end there is no doubt
    own.feed(1, FIN, b"");
    assert_eq!(own.stream.restarts(&syn(50), &peer.stream), Restart::Both);
    peer.feed(101, TcpFlags::RST, b"");
    assert_eq!(Stream::default().restarts(&syn(50), &peer.stream), Restart::Both);
    // one seen in midstream is replaced by the answer to another
    let mut middle = Rig::new(Overlap::Linux);
    middle.data(9000, b"x");
    assert_eq!(middle.stream.restarts(&answer(700, 1), &Rig::open(1).stream), Restart::Own);
    let mut reset = syn(50);
    reset.flags |= TcpFlags::RST;
    assert_eq!(own.stream.restarts(&reset, &peer.stream), Restart::None);
}
