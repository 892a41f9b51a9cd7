//! Packets that are held until their bytes have been seen.

use streams::window::{End, Fail, Lost, Settings, Verdict};
use wire::{TcpFlags, build};

use crate::window::kit::{ACK, Bench, C, Conn, FIN, RST, Told, bytes};

fn open() -> Settings {
    Settings { hold: true, timeout: 1000, ..Settings::default() }
}

fn closed() -> Settings {
    Settings { fail: Fail::Closed, ..open() }
}

fn started(settings: &Settings) -> Bench {
    let mut bench = Bench::new(settings);
    assert_eq!(bench.send(&C.handshake()).len(), 3);
    bench
}

#[test]
fn what_comes_early_waits_for_what_is_missing() {
    let mut bench = started(&open());
    assert_eq!(bench.payloads(&[C.data(1, b"a"), C.data(4, b"d"), C.data(3, b"c")]), [b"a"]);
    assert_eq!(bench.held(), 2);
    // acknowledgements do not wait
    assert_eq!(bench.payloads(&[C.there(5, ACK, b"")]), [b""]);
    assert_eq!(bench.payloads(&[C.data(2, b"b"), C.data(5, b"e")]), [b"b", b"d", b"c", b"e"]);
    assert_eq!(bench.told(), [bytes(b"a"), bytes(b"b"), bytes(b"c"), bytes(b"d"), bytes(b"e")]);
    assert_eq!((bench.held(), bench.count("memory_bytes")), (0, 0));
}

#[test]
fn one_of_two_gaps_is_filled() {
    let mut bench = started(&open());
    assert!(bench.send(&[C.data(5, b"e"), C.data(3, b"c"), C.there(6, FIN, b"")]).is_empty());
    assert_eq!(bench.payloads(&[C.data(1, b"ab")]), [&b"ab"[..], b"c"]);
    assert_eq!(bench.held(), 2);
    // sent once more while it is held, it is held once more
    assert!(bench.send(&[C.data(5, b"e")]).is_empty());
    assert_eq!(bench.payloads(&[C.data(4, b"d")]), [&b"d"[..], b"e", b"", b"e"]);
}

#[test]
fn packets_wait_until_their_window_is_full() {
    let settings = Settings { size: 6, increment: 4, ..open() };
    let mut bench = started(&settings);
    assert_eq!(bench.payloads(&[C.data(1, b"abc")]), [b""; 0]);
    assert_eq!(bench.payloads(&[C.data(4, b"de")]), [b"abc"]);
    assert_eq!(bench.payloads(&[C.data(6, b"fg")]), [b""; 0]);
    assert_eq!(bench.held(), 2);
    // or until time has passed
    assert!(bench.wait(900).is_empty());
    assert_eq!(bench.wait(400).len(), 2);
    let window = |old: &[u8], new: &[u8]| Told::Bytes(old.to_vec(), new.to_vec());
    assert_eq!(bench.told(), [window(b"", b"abcd"), window(b"cd", b"efg")]);
    // the end shows what there is
    assert_eq!(bench.payloads(&[C.data(8, b"h"), C.there(9, FIN, b"i")]), [b"h", b"i"]);
    assert_eq!(bench.told(), [window(b"fg", b"hi"), Told::End(End::Finished)]);
}

#[test]
fn a_verdict_is_for_held_packets_too() {
    for (verdict, passes) in [(Verdict::Drop, 0), (Verdict::Pass, 4)] {
        let mut bench = Bench::answering(&open(), move |note| match &note.told {
            Told::Bytes(_, new) if new.contains(&b'!') => verdict,
            _ => Verdict::Forward,
        });
        bench.send(&C.handshake());
        assert!(bench.send(&[C.data(2, b"!"), C.data(4, b"d"), C.back(505, ACK, b"early")]).is_empty());
        assert_eq!(bench.send(&[C.data(1, b"a")]).len(), passes, "{verdict:?}");
        assert_eq!((bench.held(), bench.drops("verdict")), (0, 4 - passes as u64));
        assert_eq!(bench.send(&[C.data(9, b"x")]).len(), passes.min(1));
    }
}

#[test]
fn time_lets_them_go_or_drops_them() {
    let frames = [C.data(3, b"c"), C.data(5, b"e")];
    let mut bench = started(&open());
    assert!(bench.send(&frames).is_empty() && bench.wait(900).is_empty());
    assert_eq!(bench.wait(400), frames);
    assert_eq!(bench.told(), [Told::Gap(2, Lost::TimedOut), bytes(b"c"), Told::Gap(1, Lost::TimedOut), bytes(b"e"),]);

    let mut bench = started(&closed());
    assert!(bench.send(&frames).is_empty() && bench.wait(1300).is_empty());
    assert_eq!((bench.told(), bench.drops("hold_timeout"), bench.held()), (vec![], 2, 0));
    // they are sent again, and nothing is missing
    assert_eq!(bench.payloads(&[C.data(1, b"ab"), frames[0].clone()]), [&b"ab"[..], b"c"]);
    assert_eq!(bench.told(), [bytes(b"ab"), bytes(b"c")]);
    // a FIN that came early waits in vain as well
    assert!(bench.send(&[C.there(8, FIN, b"")]).is_empty() && bench.wait(1300).is_empty());
    assert_eq!(bench.payloads(&[C.data(4, b"dxyz and more")]), [b"dxyz and more"]);
}

#[test]
fn the_queue_is_bounded() {
    let frames: Vec<_> = (0..4).map(|n| C.data(3 + 2 * n, b"x")).collect();
    let other = Conn { port: 7 };
    let settings = Settings { flow_held: 2, held: 3, ..open() };
    let mut bench = started(&settings);
    assert_eq!(bench.send(&frames), frames[2..]);
    bench.send(&other.handshake());
    let more = [other.data(3, b"x"), other.data(5, b"x")];
    assert_eq!(bench.send(&more), more[1..]);
    assert_eq!(bench.held(), 3);

    let mut bench = started(&Settings { fail: Fail::Closed, ..settings });
    assert!(bench.send(&frames).is_empty());
    assert_eq!((bench.held(), bench.drops("hold_full")), (2, 2));
    // what was dropped was not seen
    assert_eq!(bench.payloads(&[C.data(1, b"ab"), C.data(4, b"d")]), [&b"ab"[..], b"x", b"d", b"x"]);
    assert_eq!(bench.told(), [bytes(b"ab"), bytes(b"x"), bytes(b"d"), bytes(b"x")]);
    // what only waits for a window to be full is shown instead of dropped
    let settings = Settings { size: 100, increment: 100, flow_held: 1, ..closed() };
    let mut bench = started(&settings);
    assert_eq!(bench.payloads(&[C.data(1, b"a"), C.data(2, b"b"), C.data(3, b"c")]), [b"a", b"b"]);
    assert_eq!(bench.told(), [bytes(b"ab")]);
}

#[test]
fn what_cannot_be_seen_goes_or_does_not() {
    let syn_of_another = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 40_000, 80).seq(777).payload(b"data").to_vec();
    let fragment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(b"part").fragment(0, true).to_vec();
    let alone = Conn { port: 9 };
    let unseen = [
        C.data(2 + (1 << 30), b"far"),
        syn_of_another,
        fragment,
        C.there(1, RST, b"said in a reset"),
        alone.data(5, b"midstream"),
    ];
    let settings = Settings { midstream: false, ..open() };
    let mut bench = started(&settings);
    assert_eq!(bench.send(&unseen), unseen);
    let mut bench = started(&Settings { fail: Fail::Closed, ..settings });
    assert!(bench.send(&unseen).is_empty());
    assert_eq!(bench.drops("unseen"), 5);
    // of other protocols nothing is said
    let udp = build::udp4([1, 1, 1, 1], [2, 2, 2, 2], 3, 4).to_vec();
    assert_eq!(bench.send(std::slice::from_ref(&udp)), [udp]);
}

#[test]
fn no_gap_is_given_up_for_room_where_nothing_may_pass_unseen() {
    let settings = Settings { flow_memory: 4096, flow_held: 8, ..open() };
    let frames: Vec<_> = (0..4).map(|n| C.data(3 + 2 * n, b"x")).collect();
    let mut bench = started(&settings);
    assert_eq!(bench.send(&frames).len(), 2);
    assert_eq!(bench.count("gaps"), 2);
    let mut bench = started(&Settings { fail: Fail::Closed, ..settings });
    assert!(bench.send(&frames).is_empty());
    assert_eq!((bench.count("gaps"), bench.drops("unseen"), bench.held()), (0, 2, 2));
    assert_eq!(bench.send(&[C.data(1, b"abxdx")]).len(), 3);
}

#[test]
fn ends_leave_nothing_behind() {
    let early = |conn: Conn| vec![conn.data(3, b"c"), conn.back(503, ACK, b"c")];
    // a reset
    for (settings, passes) in [(open(), 2), (closed(), 0)] {
        let mut bench = started(&settings);
        assert!(bench.send(&early(C)).is_empty());
        let reset = C.there(1, RST, b"");
        let out = bench.send(std::slice::from_ref(&reset));
        assert_eq!((out[0].clone(), out.len(), bench.held()), (reset, 1 + passes, 0));
        assert_eq!(bench.drops("hold_timeout"), 2 - passes as u64);
    }
    // another connection, a flow forgotten, one that made way for another
    for (settings, passes) in [(open(), 2), (closed(), 0)] {
        let mut bench = started(&Settings { timeout: 100_000, ..settings.clone() });
        bench.send(&early(C));
        bench.send(&[C.there(90, TcpFlags::SYN, b"")]);
        let answer = build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, 40_000).flags(TcpFlags::SYN_ACK).ack(91);
        assert_eq!((bench.send(&[answer.to_vec()]).len(), bench.held()), (1 + passes, 0));

        let mut bench = started(&Settings { timeout: 100_000, idle: 2, ..settings.clone() });
        bench.send(&early(C));
        assert_eq!((bench.wait(4000).len(), bench.held(), bench.read("flows")), (passes, 0, 0));

        let mut bench = started(&Settings { timeout: 100_000, flows: 1, ..settings.clone() });
        bench.send(&early(C));
        bench.wait(100);
        let other = Conn { port: 7 };
        assert_eq!((bench.send(&[other.there(0, TcpFlags::SYN, b"")]).len(), bench.held()), (1 + passes, 0));

        // the node's end: what it holds goes with it
        let mut bench = started(&settings);
        bench.send(&early(C));
        bench.finish();
        assert_eq!(bench.held(), 2);
    }
}

#[test]
fn a_stream_that_gives_way_loses_its_memory_and_not_its_place() {
    let settings = Settings { memory: 4096, flow_memory: 2048, timeout: 60_000, ..closed() };
    let mut bench = started(&settings);
    assert!(bench.send(&[C.data(3, b"c")]).is_empty());
    for port in 1..4 {
        bench.wait(200);
        let conn = Conn { port };
        bench.send(&conn.handshake());
        assert!(bench.send(&[conn.data(3, b"c")]).is_empty());
    }
    assert_eq!((bench.held(), bench.drops("hold_timeout"), bench.count("evicted")), (2, 2, 2));
    assert_eq!(bench.payloads(&[C.data(1, b"ab"), C.data(3, b"c")]), [&b"ab"[..], b"c"]);
    assert_eq!(bench.told(), [bytes(b"ab"), bytes(b"c")]);
}

#[test]
fn a_packet_leaves_the_way_it_was_going() {
    let mut bench = Bench::of::<wire::Tcp>(&open(), Box::new(|_| Verdict::Forward));
    let ports = |out: Vec<(u16, Vec<u8>)>| out.into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    assert_eq!(ports(bench.by(0, &[C.there(0, TcpFlags::SYN, b"")])), [0]);
    assert_eq!(ports(bench.by(1, &[C.back(500, TcpFlags::SYN_ACK, b"")])), [1]);
    assert!(bench.by(0, &[C.data(3, b"c"), C.data(5, b"e")]).is_empty());
    // what shows that a gap cannot be filled comes the other way
    let out = bench.by(1, &[C.acks(6), C.back(501, ACK, b"x")]);
    assert_eq!(ports(out), [1, 1, 0, 0]);
    assert_eq!(bench.held(), 0);
    // and in time
    assert!(bench.by(0, &[C.data(10, b"c")]).is_empty());
    assert!(bench.by(1, &[C.back(510, ACK, b"y")]).is_empty());
    assert_eq!(ports(bench.wait_by(1300)), [0, 1]);
}

#[test]
fn more_than_a_batch_is_let_go_in_order() {
    let mut bench = started(&open());
    let frames: Vec<_> = (1..=60u8).map(|n| C.data(1 + u32::from(n), &[n])).collect();
    assert!(bench.send(&frames).is_empty());
    let filler = [C.data(1, b"\0"), C.data(62, &[61])];
    let expected: Vec<Vec<u8>> = (0..=61u8).map(|n| vec![n]).collect();
    assert_eq!(bench.payloads(&filler), expected);
}
