//! The window node: flows, events, verdicts, memory, time.

use streams::window::{Direction, End, Lost, Settings, Verdict, WhenFull, window, window_with};
use wire::{Tcp, TcpFlags, Udp, build};

use crate::window::kit::{ACK, Bench, C, Conn, FIN, RST, Told, bytes};

fn plain() -> Settings {
    Settings::default()
}

#[test]
fn packets_pass_unchanged_and_in_order() {
    let mut bench = Bench::new(&plain());
    let mut frames = C.handshake();
    frames.extend([C.data(4, b"def"), C.data(1, b"abc"), C.data(1, b"abc"), C.there(7, FIN, b"g")]);
    frames.push(build::udp4([1, 1, 1, 1], [2, 2, 2, 2], 5, 6).payload(b"other").to_vec());
    frames.push(build::arp_request([1, 1, 1, 1], [2, 2, 2, 2]).to_vec());
    frames.push(C.data(1, b"cut short")[..50].to_vec());
    assert_eq!(bench.send(&frames), frames);
    assert_eq!(bench.told(), [bytes(b"abc"), bytes(b"def"), bytes(b"g"), Told::End(End::Finished)]);
    let counts = ["flows", "new", "midstream", "shown_bytes", "out_of_order", "retransmitted", "unreadable"];
    assert_eq!(counts.map(|name| bench.count(name)), [1, 1, 0, 7, 1, 1, 1]);
}

#[test]
fn directions_are_told_apart() {
    let mut bench = Bench::new(&plain());
    bench.send(&C.handshake());
    bench.send(&[C.data(1, b"ask"), C.back(501, ACK, b"answer"), C.data(4, b"more")]);
    let notes = bench.notes();
    let seen: Vec<_> = notes.iter().map(|n| (n.direction, n.src_port, n.offset, n.midstream)).collect();
    let (to, from) = (Direction::ToServer, Direction::ToClient);
    assert_eq!(seen, [(to, 40_000, 0, false), (from, 80, 0, false), (to, 40_000, 3, false)]);
    assert!(notes.iter().all(|n| n.number == notes[0].number));
    // who answers first did not begin
    let other = Conn { port: 7 };
    bench.send(&[other.back(500, TcpFlags::SYN_ACK, b""), other.back(501, ACK, b"hello"), other.data(1, b"x")]);
    let seen: Vec<_> = bench.notes().iter().map(|n| (n.direction, n.src_port, n.midstream)).collect();
    assert_eq!(seen, [(from, 80, false), (to, 7, true)]);
}

#[test]
fn both_ends_come_to_an_end() {
    let mut bench = Bench::new(&plain());
    bench.send(&C.handshake());
    bench.send(&[C.there(1, FIN, b"bye"), C.back(501, FIN, b"bye, bye")]);
    let ends = |notes: Vec<crate::window::kit::Note>| -> Vec<(Direction, End)> {
        let end =
            |n: crate::window::kit::Note| if let Told::End(why) = n.told { Some((n.direction, why)) } else { None };
        notes.into_iter().filter_map(end).collect()
    };
    let (to, from) = (Direction::ToServer, Direction::ToClient);
    assert_eq!(ends(bench.notes()), [(to, End::Finished), (from, End::Finished)]);
    // a reset ends both
    let other = Conn { port: 7 };
    bench.send(&other.handshake());
    bench.send(&[other.data(1, b"x"), other.back(501, RST, b"")]);
    assert_eq!(ends(bench.notes()), [(from, End::Reset), (to, End::Reset)]);
    // one that is out of place none
    let third = Conn { port: 8 };
    bench.send(&third.handshake());
    bench.send(&[third.back(505, RST, b""), third.there(0, RST, b""), third.data(1, b"x")]);
    assert_eq!(bench.told(), [bytes(b"x")]);
    // a refused connection
    let fourth = Conn { port: 9 };
    let refusal = |ack| build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, 9).seq(0).flags(RST).ack(ack).to_vec();
    bench.send(&[fourth.there(77, TcpFlags::SYN, b""), refusal(12), refusal(78)]);
    assert_eq!(ends(bench.notes()), [(to, End::Reset)]);
    assert_eq!((bench.count("resets"), bench.count("out_of_window")), (2, 3));
}

#[test]
fn half_open_flows_are_forgotten_sooner_and_ended_ones_too() {
    let settings = Settings { half_open: 2, idle: 16, ..plain() };
    let mut bench = Bench::new(&settings);
    bench.send(&[C.there(0, TcpFlags::SYN, b"")]);
    let (open, done) = (Conn { port: 7 }, Conn { port: 8 });
    bench.send(&open.handshake());
    bench.send(&[open.data(1, b"x")]);
    bench.send(&done.handshake());
    bench.send(&[done.there(1, FIN, b""), done.back(501, FIN, b"")]);
    bench.told();
    assert_eq!(bench.count("flows"), 3);
    bench.wait(4000);
    assert_eq!((bench.read("flows"), bench.told()), (2, vec![Told::End(End::Idle)]));
    bench.wait(8000);
    assert_eq!((bench.read("flows"), bench.told()), (1, vec![]));
    bench.wait(6000);
    assert_eq!((bench.read("flows"), bench.read("forgotten")), (0, 3));
    assert_eq!(bench.told(), [Told::End(End::Idle), Told::End(End::Idle)]);
}

#[test]
fn flows_may_begin_in_the_middle_or_may_not() {
    let mut bench = Bench::new(&plain());
    bench.send(&[C.data(900, b"mid"), C.back(5, ACK, b"dle")]);
    assert!(bench.notes().iter().all(|note| note.midstream));
    assert_eq!(bench.count("midstream"), 1);

    let mut bench = Bench::new(&Settings { midstream: false, ..plain() });
    let frames = [C.data(900, b"mid"), C.back(5, ACK, b"dle")];
    assert_eq!(bench.send(&frames), frames);
    assert_eq!((bench.told(), bench.count("not_looked_at")), (vec![], 2));
    // where one side's beginning was seen, the other's need not be
    let other = Conn { port: 7 };
    bench.send(&[other.there(0, TcpFlags::SYN, b""), other.back(5, ACK, b"x"), other.data(1, b"y")]);
    assert_eq!(bench.told(), [bytes(b"x"), bytes(b"y")]);
}

#[test]
fn ports_tell_the_server_where_no_syn_was_seen() {
    let ends = |a: u16, b: u16, seq| {
        build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], a, b).seq(seq).flags(ACK).payload(b"x").to_vec()
    };
    let answer =
        |a: u16, b: u16| build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], b, a).seq(7).flags(ACK).payload(b"y").to_vec();
    let (to, from) = (Direction::ToServer, Direction::ToClient);
    // the first packet is from port a to port b
    for (a, b, direction) in [
        (80, 40_000, from),
        (40_000, 80, to),
        (1023, 1024, from),
        (1024, 1023, to),
        (8080, 50_000, from),
        (50_000, 8080, to),
        (32_767, 32_768, from),
        // in one range: the sender of the first packet is the client
        (443, 80, to),
        (3000, 8080, to),
        (60_000, 40_000, to),
    ] {
        let mut bench = Bench::new(&plain());
        bench.send(&[ends(a, b, 1), answer(a, b), ends(a, b, 2)]);
        let other = if direction == to { from } else { to };
        let seen: Vec<_> = bench.notes().iter().map(|n| (n.direction, n.midstream)).collect();
        assert_eq!(seen, [(direction, true), (other, true), (direction, true)], "{a} to {b}");
    }
    // datagrams have no SYN
    let mut bench = Bench::of::<Udp>(&plain(), Box::new(|_| Verdict::Forward));
    bench.send(&[build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 5000).payload(b"answer").to_vec()]);
    assert_eq!(bench.notes()[0].direction, from);
    // a SYN counts whatever the ports
    let mut bench = Bench::new(&plain());
    let syn = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 20, 40_000).seq(1).flags(TcpFlags::SYN).to_vec();
    bench.send(&[syn, ends(20, 40_000, 2)]);
    assert_eq!(bench.notes()[0].direction, to);
}

#[test]
fn statistics_have_the_largest_streams_and_the_bounds() {
    let settings = Settings { flows: 100, memory: 1 << 20, ..plain() };
    let mut bench =
        Bench::answering(&settings, |note| if note.src_port == 7 { Verdict::Drop } else { Verdict::Forward });
    for port in 1..=30 {
        bench.send(&[Conn { port: 50_000 + port }.data(1, &vec![1; usize::from(port)])]);
    }
    let mid = Conn { port: 50_030 };
    bench.send(&[mid.back(1, ACK, &[2; 200]), Conn { port: 7 }.data(1, &[3; 1000])]);
    assert_eq!((bench.count("flows"), bench.read("flows_limit")), (31, 200));
    assert_eq!(bench.read("memory_limit_bytes"), 1 << 20);
    let table = bench.graph.stats().next().unwrap().1.table().unwrap();
    let rows =
        |table: &graph::StatsTable| -> Vec<Vec<String>> { table.rows().into_iter().map(|(_, row)| row).collect() };
    let expected = |n: usize| match n {
        0 => ["1000", "10.0.0.1:7", "10.0.0.2:80", "0", "drop"].map(str::to_owned),
        1 => ["230", "10.0.0.1:50030", "10.0.0.2:80", "200", "forward"].map(str::to_owned),
        n => {
            let bytes = 31 - n;
            let client = format!("10.0.0.1:{}", 50_000 + bytes);
            [bytes.to_string(), client, "10.0.0.2:80".to_owned(), "0".to_owned(), "forward".to_owned()]
        }
    };
    let expected: Vec<_> = (0..10).map(expected).collect();
    // the table is published once a second, and at the end
    bench.wait(2100);
    assert_eq!(rows(&table), expected);
    bench.finish();
    assert_eq!(rows(&table), expected);
}

#[test]
fn a_port_that_is_used_again_is_another_connection() {
    let mut bench = Bench::new(&plain());
    bench.send(&C.handshake());
    bench.send(&[C.there(1, FIN, b"one"), C.back(501, FIN, b"")]);
    let answer = build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, 40_000).seq(600).flags(TcpFlags::SYN_ACK);
    bench.send(&[C.there(7000, TcpFlags::SYN, b""), C.data(7001, b"two"), answer.clone().ack(7001).to_vec()]);
    // while it is open a SYN alone changes nothing, an answered one does
    bench.send(&[C.there(90, TcpFlags::SYN, b""), C.data(91, b"no"), C.data(7004, b"2")]);
    let finished = Told::End(End::Finished);
    assert_eq!(bench.told(), [bytes(b"one"), finished.clone(), finished, bytes(b"two"), bytes(b"2")]);
    bench.send(&[C.there(90, TcpFlags::SYN, b""), answer.seq(800).ack(91).to_vec()]);
    bench.send(&[C.data(91, b"three"), C.back(801, ACK, b"3")]);
    let (ended, told): (Vec<_>, Vec<_>) = bench.told().into_iter().partition(|t| matches!(t, Told::End(_)));
    assert_eq!(ended, [Told::End(End::Replaced), Told::End(End::Replaced)]);
    assert_eq!(told, [bytes(b"three"), bytes(b"3")]);
    assert_eq!((bench.count("new"), bench.count("flows")), (3, 1));
    // of two SYNs that one counts which is answered
    let other = Conn { port: 7 };
    bench.send(&[other.there(0, TcpFlags::SYN, b""), other.there(90, TcpFlags::SYN, b"")]);
    bench.send(&[build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, 7).flags(TcpFlags::SYN_ACK).ack(1).to_vec()]);
    bench.told();
    bench.send(&[other.data(1, b"first")]);
    assert_eq!(bench.told(), [bytes(b"first")]);
}

#[test]
fn gaps_are_given_up_by_acknowledgement_time_room_and_end() {
    let settings = Settings { timeout: 1000, flow_memory: 4096, idle: 10, ..plain() };
    let mut bench = Bench::new(&settings);
    // the receiver is heard: what it has not got will be sent again, however long that takes
    bench.send(&C.handshake());
    bench.send(&[C.data(4, b"d")]);
    bench.wait(5000);
    assert_eq!(bench.told(), []);
    bench.send(&[C.acks(3), C.acks(5)]);
    assert_eq!(bench.told(), [Told::Gap(3, Lost::Acknowledged), bytes(b"d")]);
    // it is not heard
    let alone = Conn { port: 7 };
    bench.send(&[alone.there(0, TcpFlags::SYN, b""), alone.data(3, b"c")]);
    bench.wait(900);
    assert_eq!(bench.told(), []);
    bench.wait(400);
    assert_eq!(bench.told(), [Told::Gap(2, Lost::TimedOut), bytes(b"c")]);
    // there is room for two
    bench.send(&[alone.data(5, b"e"), alone.data(7, b"g"), alone.data(9, b"i")]);
    assert_eq!(bench.told(), [Told::Gap(1, Lost::NoRoom), bytes(b"e")]);
    // and what is left at the end
    bench.wait(700);
    bench.finish();
    let ended = Told::End(End::Stopped);
    let told = [ended.clone(), ended.clone(), Told::Gap(1, Lost::Ended), bytes(b"g"), Told::Gap(1, Lost::Ended)];
    let mut all = bench.told();
    assert_eq!(all.split_off(all.len() - 2), [bytes(b"i"), ended]);
    for one in told {
        assert!(all.contains(&one), "{one:?} of {all:?}");
    }
    assert_eq!(["gaps", "gap_bytes", "memory_bytes"].map(|name| bench.read(name)), [5, 8, 0]);
}

#[test]
fn windows_slide_over_segments() {
    let mut bench = Bench::new(&Settings { size: 4, increment: 2, timeout: 1000, ..plain() });
    bench.send(&C.handshake());
    bench.send(&[C.data(1, b"abc"), C.data(4, b"d"), C.data(6, b"fghi"), C.data(5, b"e")]);
    let window = |old: &[u8], new: &[u8]| Told::Bytes(old.to_vec(), new.to_vec());
    let all = [window(b"", b"ab"), window(b"ab", b"cd"), window(b"cd", b"ef"), window(b"ef", b"gh")];
    assert_eq!(bench.told(), all);
    // what does not fill a window is shown in time, and the next one goes on from there
    bench.wait(1300);
    assert_eq!(bench.told(), [window(b"gh", b"i")]);
    bench.send(&[C.data(10, b"jk")]);
    assert_eq!(bench.told(), [window(b"hi", b"jk")]);
    // no window goes over a gap, nor beyond the end
    bench.send(&[C.data(12, b"l"), C.data(15, b"op"), C.acks(17), C.there(17, FIN, b"q")]);
    let end = Told::End(End::Finished);
    let rest = [window(b"jk", b"l"), Told::Gap(2, Lost::Acknowledged), bytes(b"op"), window(b"op", b"q"), end];
    assert_eq!(bench.told(), rest);
    assert_eq!(bench.count("memory_bytes"), 0);
}

#[test]
fn verdicts_are_for_the_flow() {
    let word = |word: &'static [u8], verdict| {
        Bench::answering(&plain(), move |note| match &note.told {
            Told::Bytes(_, new) if new.windows(word.len()).any(|w| w == word) => verdict,
            _ => Verdict::Forward,
        })
    };
    let other = Conn { port: 7 };
    let frames = [
        C.data(1, b"some"),
        C.data(9, b"early"),
        C.data(5, b"evil"),
        C.data(14, b"late"),
        C.back(501, ACK, b"answer"),
        other.data(1, b"good"),
    ];
    let mut bench = word(b"evil", Verdict::Drop);
    assert_eq!(bench.send(&frames), [frames[0].clone(), frames[1].clone(), frames[5].clone()]);
    assert_eq!(bench.told(), [bytes(b"some"), bytes(b"evil"), bytes(b"good")]);
    assert_eq!((bench.drops("verdict"), bench.count("memory_bytes")), (3, 0));
    // nor does a SYN free it, nor the end that came with the bytes
    let third = Conn { port: 8 };
    assert!(bench.send(&[third.there(1, FIN, b"evil"), third.back(501, ACK, b"answer")]).is_empty());
    assert_eq!(bench.told(), [bytes(b"evil")]);
    assert!(bench.send(&[C.there(70, TcpFlags::SYN, b"")]).is_empty());

    let mut bench = word(b"evil", Verdict::Pass);
    assert_eq!(bench.send(&frames), frames);
    assert_eq!(bench.told(), [bytes(b"some"), bytes(b"evil"), bytes(b"good")]);
    assert_eq!(bench.count("memory_bytes"), 0);
    // the next connection is looked at again
    bench.send(&[C.there(70, TcpFlags::SYN, b""), C.data(71, b"new")]);
    assert_eq!(bench.told(), [bytes(b"new")]);
}

#[test]
fn the_stream_idle_longest_gives_way() {
    let settings = Settings { memory: 12_000, flow_memory: 4096, timeout: 60_000, ..plain() };
    let early = |port, byte: &[u8]| Conn { port }.data(3, byte);
    let syn = |port| Conn { port }.there(0, TcpFlags::SYN, b"");
    let mut bench = Bench::new(&settings);
    for port in 1..=6 {
        bench.send(&[syn(port), early(port, &[port as u8])]);
        bench.wait(200);
    }
    // the first comes again, so the second has been idle longest
    bench.send(&[Conn { port: 1 }.data(5, b"x")]);
    bench.wait(200);
    bench.told();
    for port in 7..20 {
        bench.send(&[syn(port), early(port, &[port as u8])]);
        bench.wait(200);
        assert!(bench.read("memory_bytes") <= 12_000);
    }
    let evicted: Vec<_> = bench
        .notes()
        .into_iter()
        .filter(|note| note.told == Told::End(End::Evicted))
        .map(|note| note.src_port)
        .collect();
    assert_eq!(evicted[..7], [2, 3, 4, 5, 6, 1, 7]);
    assert!(evicted[6..].is_sorted() && evicted.len() > 10, "{evicted:?}");
    assert_eq!(bench.read("evicted"), evicted.len() as u64);
    // a stream that gave way begins again in the middle
    bench.send(&[Conn { port: 3 }.data(1, b"again")]);
    let note = bench.notes().pop().unwrap();
    assert_eq!((note.told, note.midstream, note.offset), (bytes(b"again"), true, 0));
}

#[test]
fn or_what_is_new_is_not_reassembled() {
    let settings = Settings { memory: 8192, flow_memory: 4096, full: WhenFull::Pass, flows: 64, ..plain() };
    let mut bench = Bench::new(&settings);
    for port in 1..=20 {
        let conn = Conn { port };
        bench.send(&[conn.there(0, TcpFlags::SYN, b""), conn.data(3, b"early")]);
        assert!(bench.count("memory_bytes") <= 8192);
    }
    assert!(bench.read("over_budget") > 10);
    assert_eq!((bench.read("evicted"), bench.told()), (0, vec![]));
    // what comes in order is shown all the same
    bench.send(&[Conn { port: 20 }.data(1, b"in order")]);
    assert_eq!(bench.told(), [bytes(b"in order")]);
    // and flows beyond those there may be pass
    let frames: Vec<_> = (100..400).map(|port| Conn { port }.data(1, b"x")).collect();
    assert_eq!(bench.send(&frames), frames);
    assert!(bench.count("flows") <= 64);
    assert_eq!(bench.read("refused") + bench.told().len() as u64, 300);
}

#[test]
fn flows_give_way_to_others() {
    // in so small a table every flow may take the place of every other
    let settings = Settings { flows: 8, ..plain() };
    let mut bench = Bench::new(&settings);
    for port in 1..=200 {
        bench.send(&[Conn { port }.data(1, b"x")]);
        bench.wait(20);
    }
    let (bytes_told, ends): (Vec<_>, Vec<_>) = bench.told().into_iter().partition(|told| *told == bytes(b"x"));
    assert_eq!(bytes_told.len(), 200);
    assert!(ends.iter().all(|told| *told == Told::End(End::Evicted)));
    assert!(bench.read("flows") <= 8);
    assert_eq!(bench.read("flows") + bench.read("evicted"), 200);
    assert_eq!(ends.len() as u64, bench.read("evicted"));
    bench.finish();
    assert_eq!(bench.told().len() as u64, 200 - ends.len() as u64);
}

#[test]
fn datagrams_are_shown_whole() {
    let mut bench = Bench::of::<Udp>(&Settings { idle: 2, ..plain() }, Box::new(|_| Verdict::Forward));
    let there = |payload: &[u8]| build::udp4([1, 1, 1, 1], [2, 2, 2, 2], 5, 53).payload(payload).to_vec();
    let back = |payload: &[u8]| build::udp4([2, 2, 2, 2], [1, 1, 1, 1], 53, 5).payload(payload).to_vec();
    let frames = [there(b"one"), back(b"two"), there(b""), there(b"three"), C.data(1, b"tcp")];
    assert_eq!(bench.send(&frames), frames);
    let notes = bench.notes();
    assert_eq!(
        notes.iter().map(|n| n.told.clone()).collect::<Vec<_>>(),
        [b"one", b"two", &b""[..], b"three"].map(bytes)
    );
    assert_eq!(notes.iter().map(|n| n.offset).collect::<Vec<_>>(), [0, 0, 3, 3]);
    assert_eq!(notes[1].direction, Direction::ToClient);
    assert!(notes.iter().all(|n| !n.midstream));
    bench.wait(4000);
    assert_eq!(bench.told(), [Told::End(End::Idle), Told::End(End::Idle)]);
    // or slide like a stream
    let settings = Settings { size: 4, increment: 4, ..plain() };
    let mut bench = Bench::of::<Udp>(&settings, Box::new(|_| Verdict::Forward));
    bench.send(&[there(b"abc"), there(b"de"), there(b"fgh")]);
    assert_eq!(bench.told(), [bytes(b"abcd"), bytes(b"efgh")]);
}

#[test]
fn ipv6_is_no_different() {
    let mut bench = Bench::new(&plain());
    let [a, b] = [[0x2001u16, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001u16, 0xdb8, 0, 0, 0, 0, 0, 2]];
    let there = |seq, payload: &[u8]| build::tcp6(a, b, 9, 80).seq(seq).flags(ACK).payload(payload).to_vec();
    let frames = [there(1, b"abc"), there(7, b"ghi"), there(4, b"def")];
    assert_eq!(bench.send(&frames), frames);
    assert_eq!(bench.told(), [bytes(b"abc"), bytes(b"def"), bytes(b"ghi")]);
}

#[test]
fn a_state_is_kept_for_each_flow() {
    use streams::window::{Event, Flow, Inspect};
    struct Sum(std::sync::mpsc::Sender<(u16, usize)>);
    impl Inspect for Sum {
        type State = usize;
        fn inspect(&mut self, flow: &Flow<'_>, bytes: &mut usize, event: Event<'_>) -> Verdict {
            match event {
                Event::Window(window) => *bytes += window.bytes().len(),
                Event::End(End::Finished) => self.0.send((flow.tuple().src_port, *bytes)).unwrap(),
                _ => {}
            }
            Verdict::Forward
        }
    }
    let (tx, rx) = std::sync::mpsc::channel();
    let node = window_with::<Tcp, _>(&plain(), Sum(tx)).unwrap();
    let blueprint = graph::Blueprint {
        nodes: vec![graph::NodePlan { name: "sum".into(), edges: vec![graph::Target::Unconnected] }],
        hops: vec![graph::HopPlan { node: 0, input: 0, next: graph::Target::Port(0), fail_open: false }],
    };
    let pool = std::sync::Arc::new(packet::HeapPool::new(100));
    let mut graph = graph::Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
    let mut batch = packet::Batch::new();
    let d = Conn { port: 7 };
    let frames = [
        C.there(0, TcpFlags::SYN, b""),
        d.there(0, TcpFlags::SYN, b""),
        C.data(1, b"abc"),
        d.data(1, b"ab"),
        C.back(501, ACK, b"de"),
        C.there(4, FIN, b""),
        d.there(3, FIN, b""),
        // the port is used again: nothing is left of the state before
        d.there(99, TcpFlags::SYN, b""),
        d.there(100, FIN, b"x"),
    ];
    for frame in frames {
        batch.push(packet::Pool::alloc_from(&*pool, &frame).unwrap()).unwrap();
    }
    graph.run::<false>(graph::Target::Hop(graph::Hop(0)), &mut batch, &mut crate::window::kit::Out::default());
    drop(graph);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [(40_000, 5), (7, 2), (7, 1)]);
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let wrong = |settings: &Settings| window::<Tcp, _>(settings, |_, _| Verdict::Forward).err().unwrap().key.unwrap();
    assert_eq!(wrong(&Settings { size: (1 << 20) + 1, ..plain() }), "size");
    assert_eq!(wrong(&Settings { size: 4, increment: 5, ..plain() }), "increment");
    assert_eq!(wrong(&Settings { timeout: 0, ..plain() }), "timeout");
    assert_eq!(wrong(&Settings { idle: 0, ..plain() }), "idle");
    assert_eq!(wrong(&Settings { half_open: 0, ..plain() }), "half_open");
    assert_eq!(wrong(&Settings { flows: 0, ..plain() }), "flows");
    assert_eq!(wrong(&Settings { flow_memory: 10, ..plain() }), "flow_memory");
    assert_eq!(wrong(&Settings { memory: 10, ..plain() }), "memory");
    assert_eq!(wrong(&Settings { hold: true, held: 0, ..plain() }), "held");
    assert_eq!(wrong(&Settings { hold: true, flow_held: 0, ..plain() }), "flow_held");
    assert!(plain().check().is_ok());
}
