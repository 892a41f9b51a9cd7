#[path = "../../examples/ids/generator.rs"]
mod generator;

use super::Ids;
use generator::Random;
use std::time::Duration;
use testkit::wire::{TcpFlags, build};
use testkit::{Harness, HarnessBuilder};

fn builder(rules: &str, settings: &str) -> HarnessBuilder {
    HarnessBuilder::new::<Ids>(&format!("inline = ['''{rules}''']\n{settings}"))
}

/// A connection whose client sends text in segments.
struct Client {
    port: u16,
    next: u32,
}

impl Client {
    fn connect(nf: &mut Harness, port: u16) -> Self {
        let segment = |flags| build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], port, 80).flags(flags);
        let answer = build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, port);
        let frames = [
            segment(TcpFlags::SYN).seq(99).to_vec(),
            answer.flags(TcpFlags::SYN | TcpFlags::ACK).seq(499).ack(100).to_vec(),
            segment(TcpFlags::ACK).seq(100).ack(500).to_vec(),
        ];
        assert_eq!(nf.feed(&frames), frames);
        Client { port, next: 100 }
    }

    /// Sends a segment and returns true if it passes.
    fn send(&mut self, nf: &mut Harness, text: &str) -> bool {
        let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], self.port, 80).flags(TcpFlags::ACK);
        let frame = segment.seq(self.next).ack(500).payload(text.as_bytes()).to_vec();
        self.next += text.len() as u32;
        nf.feed(&[&frame]) == [frame]
    }

    fn close(self, nf: &mut Harness) {
        let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], self.port, 80);
        nf.feed(&[segment.flags(TcpFlags::RST).seq(self.next).to_vec()]);
    }
}

const FIRST: &str = "\
    alert tcp any any -> any 80 (content:\"login\"; flowbits:set,login; flowbits:noalert; sid:1;)\n\
    alert tcp any any -> any 80 (content:\"hello\"; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)";
const SECOND: &str = "\
    alert tcp any any -> any 80 (content:\"hello\"; threshold:type limit, track by_src, count 1, seconds 60; sid:2;)\n\
    alert tcp any any -> any 80 (content:\"secret\"; sid:3;)\n\
    alert tcp any any -> any 80 (content:\"now\"; flowbits:isset,unknown; sid:4;)\n\
    alert tcp any any -> any 80 (content:\"now\"; flowbits:isset,login; sid:5;)";

#[test]
fn a_reload_keeps_streams_bits_and_thresholds() {
    for matcher in ["auto", "aho_corasick"] {
        let settings = format!("mode = \"prevent\"\nmatcher = \"{matcher}\"");
        let before = builder(FIRST, &settings);
        let mut nf = before.clone().build().unwrap();
        let (mut a, mut b) = (Client::connect(&mut nf, 4000), Client::connect(&mut nf, 4001));
        assert!(a.send(&mut nf, "login and hello, this is a sec"));
        assert!(b.send(&mut nf, "hello, this is a se"));
        nf.advance(Duration::from_millis(100));
        assert_eq!((nf.counter("alerts"), nf.counter("flows")), (1, 2));
        // also in a smaller table
        builder(SECOND, &format!("{settings}\nflows = 16")).reload(&before, &mut nf).unwrap();
        nf.advance(Duration::from_millis(100));
        assert_eq!((nf.counter("alerts"), nf.counter("flows")), (0, 2));
        // 3: the content spans the reload; 5: the bit has the same name; 2: the threshold is still exceeded
        assert!(a.send(&mut nf, "ret and now hello"));
        assert_eq!(nf.counter("alerts"), 2, "{matcher}");
        assert!(b.send(&mut nf, "cret and now hello"));
        assert_eq!(nf.counter("alerts"), 3, "{matcher}");
        nf.advance(Duration::from_secs(61));
        assert!(b.send(&mut nf, " hello"));
        assert_eq!(nf.counter("alerts"), 4, "{matcher}");
        assert_eq!(nf.drops(), []);
        a.close(&mut nf);
        b.close(&mut nf);
        nf.advance(Duration::from_millis(100));
        assert_eq!(nf.counter("flows"), 2);
    }
}

/// Packets pass, or are dropped by a rule, while rules are replaced again and again.
#[test]
fn reloads_lose_no_packet() {
    let rules = |n: usize| format!("drop tcp any any -> any 80 (content:\"word{n}.\"; sid:{};)", n + 1);
    let mut before = builder(&rules(0), "mode = \"prevent\"");
    let mut nf = before.clone().build().unwrap();
    let mut clients: Vec<_> = (0..8).map(|n| Client::connect(&mut nf, 4000 + n)).collect();
    let (mut passed, mut sent) = (0, 0);
    for n in 1..=8 {
        for client in &mut clients {
            passed += u64::from(client.send(&mut nf, "text wo"));
        }
        let after = builder(&rules(n), "mode = \"prevent\"");
        after.clone().reload(&before, &mut nf).unwrap();
        before = after;
        for (of, client) in clients.iter_mut().enumerate() {
            // that of one client is what the present rule drops
            passed += u64::from(client.send(&mut nf, &format!("rd{}.", of + 1)));
            sent += 2;
        }
    }
    let dropped = nf.drops().iter().map(|(_, n)| n).sum::<u64>();
    assert_eq!(passed + dropped, sent);
    // client `of` is dropped from reload `of` on: its second segment then, and both afterwards
    assert_eq!(dropped, (1..=8).map(|of| 1 + 2 * (8 - of)).sum::<u64>());
}

#[test]
fn copies_share_rules() {
    let copies = builder(FIRST, "").build_copies(3).unwrap();
    assert_eq!(copies.iter().map(|nf| nf.counter("rules")).collect::<Vec<_>>(), [2, 0, 0]);
}

#[test]
fn an_engine_that_is_not_installed_is_named() {
    match (multi_pattern::hyperscan_version(), builder(FIRST, "matcher = \"hyperscan\"").build()) {
        (Ok(_), Ok(nf)) => assert_eq!(nf.counter("hyperscan"), 1),
        (Err(_), Err(e)) => {
            assert!(e.to_string().contains("libhyperscan5") || format!("{e:?}").contains("libhyperscan5"))
        }
        (version, _) => panic!("{version:?}"),
    }
    assert_eq!(builder(FIRST, "matcher = \"aho_corasick\"").build().unwrap().counter("hyperscan"), 0);
}

/// Rules with the options of public rule sets are accepted, and both engines find the same.
#[test]
fn engines_agree_about_generated_rules() {
    let rules = generator::rules(7, 3000);
    let contents: Vec<_> = rules.split("content:\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let counters = ["auto", "aho_corasick"].map(|matcher| {
        let settings = format!("matcher = \"{matcher}\"\nalerts_per_packet = 255");
        let mut nf = builder(&rules, &settings).build().unwrap();
        assert_eq!((nf.counter("rules"), nf.counter("refused_rules")), (3000, 0));
        let mut random = Random::new(3);
        for port in 1..20 {
            let mut client = Client::connect(&mut nf, port);
            for _ in 0..20 {
                let mut text = random.text(20, 400);
                let content = contents[random.below(contents.len() as u64) as usize];
                text.extend(content.chars().filter(|c| *c != '|'));
                assert!(client.send(&mut nf, &text));
            }
            client.close(&mut nf);
        }
        nf.counters()
    });
    let alerts = |counters: &[(String, u64)]| counters.iter().find(|(name, _)| name == "alerts").map_or(0, |(_, n)| *n);
    assert_eq!(alerts(&counters[0]), alerts(&counters[1]));
    assert!(alerts(&counters[0]) > 20, "{counters:?}");
}
