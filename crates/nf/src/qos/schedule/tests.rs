use super::*;
use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Harness, HarnessBuilder, packets};

/// Returns a frame to a subscriber; the port selects the class.
fn frame(host: u8, port: u16, len: usize) -> Vec<u8> {
    build::udp4([10, 9, 0, 1], [10, 0, 0, host], 1000, port).ecn(1).pad_to(len).to_vec()
}

fn bytes(frames: &[Vec<u8>], is_counted: impl Fn(&[u8]) -> bool) -> usize {
    frames.iter().filter(|frame| is_counted(frame)).map(Vec::len).sum()
}

fn host(frame: &[u8]) -> u8 {
    frame[33]
}

fn port(frame: &[u8]) -> u8 {
    frame[37]
}

const LONG: &str = "queue = { discipline = \"tail_drop\", packets = 100000, bytes = 1000000000 }";

/// Queues frames and advances the time in steps of 20 µs; returns the frames sent.
fn run(nf: &mut Harness, steps: usize, queued: &[(usize, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut sent = vec![];
    queued.iter().for_each(|(n, frame)| sent.extend(nf.feed(&vec![frame; *n])));
    for _ in 0..steps {
        sent.extend(nf.jump_to(nf.now() + Duration::from_micros(20)).remove(0));
    }
    sent
}

#[test]
fn the_port_sends_at_its_rate() {
    for (rate, bits, steps) in [("100 Mbps", 1e8, 500), ("9 Gbps", 9e9, 100)] {
        let mut nf = Harness::new::<Schedule>(&format!("rate = \"{rate}\"\nclasses = [{{ name = \"all\", {LONG} }}]"));
        let sent = bytes(&run(&mut nf, steps, &[(4000, frame(1, 1, 700))]), |_| true) as f64;
        let expected = bits / 8.0 * steps as f64 / 50_000.0;
        assert!((sent - expected).abs() <= expected / 100.0 + 1400.0, "{rate}: {sent} bytes instead of {expected}");
    }
}

#[test]
fn subscribers_share_the_rate_up_to_their_limits() {
    let settings = format!(
        "rate = \"100 Mbps\"\nper = \"destination\"\nsubscriber_rate = \"40 Mbps\"\nsubscriber_burst = 1500\n\
         classes = [{{ name = \"all\", {LONG} }}]"
    );
    // two subscribers are limited to 40 Mbit/s each, although 100 Mbit/s are free
    let mut nf = Harness::new::<Schedule>(&settings);
    let sent = run(&mut nf, 5000, &[(520, frame(1, 1, 1000)), (2560, frame(2, 1, 200))]);
    for subscriber in [1, 2] {
        let own = bytes(&sent, |frame| host(frame) == subscriber) as f64;
        assert!((own - 500_000.0).abs() <= 5000.0 + 2500.0, "{subscriber}: {own}");
    }
    // five subscribers share 100 Mbit/s in equal parts, whatever the size of their packets
    let mut nf = Harness::new::<Schedule>(&settings);
    let queued = |host: u8| (1300 / usize::from(host) + 10, frame(host, 1, 200 * usize::from(host)));
    let sent = run(&mut nf, 5000, &[1, 2, 3, 4, 5].map(queued));
    for subscriber in 1..=5 {
        let own = bytes(&sent, |frame| host(frame) == subscriber) as f64;
        assert!((own - 250_000.0).abs() <= 2500.0 + 3000.0, "{subscriber}: {own}");
    }
}

#[test]
fn priorities_are_strict_and_weights_are_shares() {
    let settings = format!(
        "rate = \"100 Mbps\"\nclasses = [{{ name = \"first\", match = [{{ dst_port = 1 }}], {LONG} }}, \
         {{ name = \"three\", match = [{{ dst_port = 2 }}], priority = 1, weight = 3, {LONG} }}, \
         {{ name = \"one\", match = [{{ dst_port = 3 }}], priority = 1, {LONG} }}, \
         {{ name = \"last\", priority = 2, {LONG} }}]"
    );
    let mut nf = Harness::new::<Schedule>(&settings);
    let sent = run(&mut nf, 2500, &[(1500, frame(1, 1, 500)), (100, frame(1, 2, 500))]);
    assert_eq!(bytes(&sent, |frame| port(frame) != 1), 0, "the first class takes all");
    let mut nf = Harness::new::<Schedule>(&settings);
    let queued = [(2000, frame(1, 2, 300)), (200, frame(1, 3, 1400)), (9, frame(1, 4, 500))];
    let sent = run(&mut nf, 2500, &queued);
    let [three, one, last] = [2, 3, 4].map(|class| bytes(&sent, |frame| port(frame) == class));
    assert_eq!(last, 0);
    // deficit round robin: shares are exact to a turn and a packet of each
    let turns: f64 = three as f64 / (3.0 * 1514.0) - one as f64 / 1514.0;
    assert!(turns.abs() <= 3.0, "{three} {one}");
    assert_eq!(nf.counter("three_sent") * 300, three as u64);
}

#[test]
fn codel_and_fq_codel_bound_the_delay_and_mark() {
    for discipline in ["codel", "fq_codel"] {
        let settings = format!(
            "rate = \"10 Mbps\"\nclasses = [{{ name = \"all\", queue = {{ discipline = \"{discipline}\" }} }}]"
        );
        let mut nf = Harness::new::<Schedule>(&settings);
        // 12 Mbit/s of packets that are capable of ECN
        for _ in 0..500 {
            nf.feed(&vec![frame(1, 1, 1500); 2]);
            nf.advance(Duration::from_millis(2));
        }
        assert!(nf.counter("ecn_marked") > 5, "{discipline}");
        // and of packets that are not
        let mut nf = Harness::new::<Schedule>(&settings);
        let plain = build::udp4([10, 9, 0, 1], [10, 0, 0, 1], 1, 1).pad_to(1500).to_vec();
        for _ in 0..2500 {
            nf.feed(&vec![plain.clone(); 2]);
            nf.advance(Duration::from_millis(2));
        }
        assert!(nf.dropped("codel") > 50, "{discipline}");
    }
}

#[test]
fn red_drops_before_the_queue_is_full() {
    let mut nf = Harness::new::<Schedule>(
        "rate = \"10 Mbps\"\nclasses = [{ name = \"all\", queue = { discipline = \"red\", ecn = false, weight = 4 } }]",
    );
    for _ in 0..1000 {
        nf.feed(&vec![frame(1, 1, 1500); 2]);
        nf.advance(Duration::from_millis(2));
    }
    assert!(nf.dropped("red") > 100 && nf.dropped("queue_full") == 0, "{:?}", nf.drops());
    assert!((50..200).contains(&nf.held()), "{}", nf.held());
}

#[test]
fn memory_is_bounded_and_idle_subscribers_are_removed() {
    let mut nf = Harness::new::<Schedule>(
        "rate = \"8 Mbps\"\nper = \"destination\"\nsubscribers = 3\npackets = 20\n\
         classes = [{ name = \"all\", queue = { packets = 10 } }]",
    );
    let frames: Vec<_> = (1..=4).map(|host| frame(host, 1, 1000)).collect();
    nf.feed(&frames);
    assert_eq!((nf.dropped("subscribers_full"), nf.held()), (1, 2));
    nf.feed(&vec![frame(1, 1, 1000); 20]);
    assert!(nf.dropped("queue_full") > 0);
    nf.feed(&(0..60).map(|n| frame(2 + n % 2, 1, 1000)).collect::<Vec<_>>());
    assert!(nf.held() <= 20 && nf.dropped("buffer_full") > 0);
    assert_eq!(nf.occupancy("packets").1, 20);
    nf.advance(Duration::from_millis(100));
    assert_eq!((nf.held(), nf.occupancy("subscribers")), (0, (3, 3)));
    nf.advance(Duration::from_secs(2));
    assert_eq!((nf.occupancy("subscribers").0, nf.counter("subscribers")), (0, 0));
    assert_eq!(nf.feed(&frames[3..]).len(), 1, "there is room again");
}

#[test]
fn a_full_buffer_costs_those_subscribers_that_fill_it() {
    let settings = format!(
        "rate = \"80 Mbps\"\nper = \"destination\"\npackets = 1000\nquantum = 1000\n\
         classes = [{{ name = \"other\", match = [{{ dst_port = 9 }}], priority = 1, {LONG} }}, {{ name = \"all\", {LONG} }}]"
    );
    let mut nf = Harness::new::<Schedule>(&settings);
    let (mut sent, mut fed) = (vec![], 0);
    for round in 0..2000_u64 {
        // two subscribers send far more than they may, in bursts, the first one in two classes; twenty send 2 Mbit/s each
        sent.extend(nf.feed(&vec![frame(1, 1 + 8 * (round % 2) as u16, 1000); 40]));
        sent.extend(nf.feed(&vec![frame(2, 1, 1000); 40]));
        if round % 4 == 0 {
            sent.extend(nf.feed(&(3..23).map(|host| frame(host, 1, 1000)).collect::<Vec<_>>()));
            fed += 1;
        }
        assert!(nf.held() <= 1000);
        sent.extend(nf.jump_to(nf.now() + Duration::from_millis(1)).remove(0));
    }
    let count = |subscriber| sent.iter().filter(|frame| host(frame) == subscriber).count();
    // all but those that wait at the end
    for subscriber in 3..23 {
        assert!(count(subscriber) + 2 >= fed, "{subscriber}: {} of {fed}", count(subscriber));
    }
    let (first, second) = (count(1) as f64, count(2) as f64);
    assert!((first / second - 1.0).abs() < 0.01, "{first} {second}");
    let sent = sent.len() as u64;
    assert!((sent as f64 - 20_000.0).abs() < 50.0, "{sent} packets in 2 s");
    assert_eq!(nf.drops(), [("buffer_full", 160_000 + 20 * fed as u64 - sent - nf.held())]);
}

#[test]
fn a_reload_keeps_packets_of_unchanged_classes() {
    let settings = |rate: &str, weight: u16, last: &str| {
        format!(
            "rate = \"{rate}\"\nper = \"destination\"\nsubscriber_rate = \"4 Mbps\"\nsubscriber_burst = 0\n\
             classes = [{{ name = \"one\", match = [{{ dst_port = 1 }}], weight = {weight} }}, \
             {{ name = \"{last}\", queue = {{ discipline = \"tail_drop\" }} }}]"
        )
    };
    let builder = |rate: &str, weight, last: &str| HarnessBuilder::new::<Schedule>(&settings(rate, weight, last));
    let first = builder("8 Mbps", 1, "rest");
    let mut nf = first.clone().build().unwrap();
    let frames: Vec<_> = (0..40).map(|n| frame(1 + n % 2, 1 + u16::from(n / 20), 1000)).collect();
    let mut sent = nf.feed(&frames);
    sent.extend(nf.advance(Duration::from_millis(5)).remove(0));
    let held = nf.held();
    assert_eq!(held as usize + sent.len(), 40);
    // other rates and weights: every packet is sent, at the new rate
    let second = builder("2 Mbps", 7, "rest");
    second.clone().reload(&first, &mut nf).unwrap();
    assert_eq!(nf.held(), held);
    let now = nf.advance(Duration::from_millis(20)).remove(0);
    assert!((4..=6).contains(&now.len()), "{}", now.len());
    sent.extend(now);
    nf.feed(&frames[..2]);
    sent.extend(nf.advance(Duration::from_secs(1)).remove(0));
    assert_eq!((sent.len(), nf.held(), nf.drops()), (42, 0, vec![]));
    for port in [1, 2] {
        let own: Vec<_> = sent.iter().filter(|frame| frame[37] == port).collect();
        assert_eq!(own.len(), if port == 1 { 22 } else { 20 });
    }
    // another class: packets are dropped and counted
    nf.feed(&frames);
    let held = nf.held();
    let third = builder("2 Mbps", 7, "others");
    third.clone().reload(&second, &mut nf).unwrap();
    assert_eq!(nf.feed(&frames[..1]).len(), 1, "the new scheduler is empty");
    nf.advance(Duration::from_millis(2));
    assert_eq!((nf.held(), nf.dropped("reload")), (0, held));
}

#[test]
fn packets_of_replaced_classes_are_counted_as_queued() {
    let builder = |name: &str| {
        let settings = format!("rate = \"8 kbps\"\nclasses = [{{ name = \"{name}\", {LONG} }}]");
        HarnessBuilder::new::<Schedule>(&settings).buffers(4096)
    };
    let first = builder("a");
    let mut nf = first.clone().build().unwrap();
    nf.feed(&vec![frame(1, 1, 100); 3000]);
    builder("b").reload(&first, &mut nf).unwrap();
    nf.jump_to(nf.now() + Duration::from_micros(20));
    assert!(nf.held() > 500, "{}", nf.held());
    assert_eq!(nf.counter("queued"), nf.held());
}

#[test]
fn has_room_for_many_subscribers() {
    let settings = "rate = \"10 Gbps\"\nper = \"destination\"\nprefix4 = 32\nsubscriber_rate = \"1 Mbps\"\n\
                    subscriber_burst = 1000\npackets = 300000";
    let mut nf = HarnessBuilder::new::<Schedule>(settings).buffers(150_000).build().unwrap();
    let frames: Vec<_> = (0..65_536_u32)
        .map(|n| build::udp4([10, 9, 0, 1], (0x0a00_0000 + n).to_be_bytes(), 1, 2).pad_to(1000).to_vec())
        .collect();
    let mut sent = nf.feed(&frames).len();
    sent += nf.feed(&frames).len();
    assert_eq!(nf.occupancy("subscribers"), (0, 65_536));
    sent += nf.advance(Duration::from_millis(200))[0].len();
    assert_eq!((sent, nf.occupancy("subscribers").0, nf.drops()), (131_072, 65_536, vec![]));
}

#[test]
fn many_subscribers_have_equal_shares() {
    const SUBSCRIBERS: u32 = 65_536;
    let settings = "rate = \"20 Gbps\"\nper = \"destination\"\npackets = 110000\nquantum = 1000";
    let mut nf = HarnessBuilder::new::<Schedule>(settings).buffers(110_000).build().unwrap();
    // long packets for one half of the subscribers, short ones for the other
    let frame = |n: u32| {
        let len = if n.is_multiple_of(2) { 1000 } else { 500 };
        build::udp4([10, 9, 0, 1], (0x0a00_0000 + n).to_be_bytes(), 1, 2).pad_to(len).to_vec()
    };
    let mut bytes = vec![0_usize; SUBSCRIBERS as usize];
    let mut count = |frames: Vec<Vec<u8>>| {
        for frame in frames {
            bytes[usize::from(frame[31]) << 16 | usize::from(frame[32]) << 8 | usize::from(frame[33])] += frame.len();
        }
    };
    let all: Vec<_> = (0..SUBSCRIBERS).map(frame).collect();
    let short: Vec<_> = (0..SUBSCRIBERS).filter(|n| n % 2 == 1).map(frame).collect();
    count(nf.feed(&all));
    count(nf.feed(&short));
    // a turn takes 400 ns, and a round 26 ms
    for _ in 0..20 {
        count(nf.jump_to(nf.now() + Duration::from_micros(200)).remove(0));
    }
    let waiting = nf.held();
    assert!(waiting > 80_000, "{waiting}");
    assert!(bytes.iter().all(|bytes| *bytes <= 1000), "a second turn begins before the first of all has ended");
    let served = bytes.iter().filter(|bytes| **bytes == 1000).count() as f64;
    let sent: usize = bytes.iter().sum();
    assert!((sent as f64 - 1000.0 * served).abs() <= 2000.0, "{sent} bytes of {served}");
    assert_eq!(sent / 10_000, 10_000_000 / 10_000, "4 ms at 20 Gbit/s");
}

#[test]
fn packets_leave_by_the_path_they_arrived_on() {
    let mut nf = HarnessBuilder::new::<Schedule>("rate = \"8 Mbps\"").paths(2).build().unwrap();
    let sent: Vec<_> = (0..2).map(|input| nf.feed_input(input, &vec![frame(1, input as u16, 100); 2])).collect();
    assert_eq!((sent[0][0].len(), sent[1][1].len()), (1, 0));
    let later = nf.advance(Duration::from_millis(1));
    assert_eq!((later[0].len(), later[1].len()), (1, 2));
}

#[test]
fn rejects_invalid_settings() {
    for settings in [
        "rate = \"1 Mpps\"",
        "prefix4 = 33",
        "overhead = 65",
        "quantum = 1",
        "subscribers = 0",
        "packets = 0",
        "classes = [{ name = \"a\", weight = 0 }]",
        "classes = [{ name = \"a\", queue = { packets = 0 } }]",
        "classes = [{ name = \"a\", queue = { target = 0 } }]",
        "classes = [{ name = \"a\", queue = { min = 150 } }]",
        "classes = [{ name = \"a\", queue = { probability = 0 } }]",
        "classes = [{ name = \"a\", queue = { weight = 17 } }]",
    ] {
        let error = Harness::try_new::<Schedule>(settings).expect_err(settings);
        assert!(error.key.is_some() && error.remedy.is_some(), "{settings}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn accounts_for_arbitrary_packets(
        frames in packets::mixed(60),
        times in proptest::collection::vec(0..200_000_u64, 12),
        disciplines in proptest::collection::vec(0..4_usize, 3),
        limited in any::<bool>(),
    ) {
        let queue = |at: usize| {
            let name = ["tail_drop", "red", "codel", "fq_codel"][disciplines[at]];
            format!("queue = {{ discipline = \"{name}\", packets = 30, bytes = 9000, min = 5, max = 10, weight = 1 }}")
        };
        let mut nf = Harness::new::<Schedule>(&format!(
            "rate = \"1 Mbps\"\nper = \"source\"\nsubscribers = 20\npackets = 150\n{}\
             classes = [{{ name = \"udp\", match = [{{ protocol = \"udp\" }}], {} }}, \
             {{ name = \"tcp\", match = [{{ protocol = \"tcp\" }}], priority = 1, weight = 7, {} }}, \
             {{ name = \"rest\", priority = 1, {} }}]",
            if limited { "subscriber_rate = \"100 kbps\"\n" } else { "" },
            queue(0), queue(1), queue(2),
        ));
        for after in times {
            nf.feed(&frames);
            prop_assert!(nf.held() <= 150);
            nf.jump_to(nf.now() + Duration::from_micros(after));
        }
        nf.jump_to(nf.now() + Duration::from_secs(1000));
        prop_assert_eq!(nf.held(), 0);
    }
}
