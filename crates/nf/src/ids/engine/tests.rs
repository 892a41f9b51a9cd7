mod suricata;

use super::*;
use crate::ids::rule::address::Variables;
use crate::ids::rule::parser::Parser;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::wire::{IpProtocol, TcpFlags, build};

impl Engine {
    /// Inspects a frame; `None` if it is not IP.
    pub(super) fn inspect_frame(&mut self, now: Duration, frame: &[u8], alerts: &mut Vec<Alert>) -> Option<Verdict> {
        let packet = self.decode(frame)?;
        Some(self.inspect(now, &packet, alerts))
    }
}

pub(super) fn options() -> Options {
    Options {
        prevent: false,
        checksums: true,
        midstream: false,
        flows: 1000,
        stream_bytes: usize::MAX,
        overlap: Overlap::First,
        max_alerts: 15,
    }
}

const ORDER: [Action; 4] = [Action::Pass, Action::Drop, Action::Reject, Action::Alert];

pub(super) fn engine(text: &str, options: Options) -> Engine {
    engine_in_order(text, options, &ORDER, None)
}

fn engine_in_order(text: &str, options: Options, order: &[Action], before: Option<&Engine>) -> Engine {
    let variables = Variables::from([("HOME_NET".into(), "any".into()), ("EXTERNAL_NET".into(), "any".into())]);
    let before = before.map(|before| &*before.rule_set);
    let mut parser = Parser::with_bits(variables, before.map_or_else(Default::default, |before| before.bits().clone()));
    let (rules, refused) = parser.parse("test.rules", text);
    assert!(refused.is_empty(), "{refused:?}");
    let best = multi_pattern::Engine::best();
    let rule_set = RuleSet::new(rules, parser.into_bits(), before, order, Some(best)).unwrap();
    Engine::new(Arc::new(rule_set), options).unwrap()
}

/// Alerts by packet number, from 1 on, and signature.
type Alerts = BTreeMap<(u64, u32), u64>;

pub(super) fn ethernet(record: &pcap::Record<'_>) -> Option<Vec<u8>> {
    let with = |ip: &[u8]| {
        let kind = if ip.first()? >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        Some([&[0; 12][..], &kind, ip].concat())
    };
    match record.link_type {
        pcap::LinkType::ETHERNET => Some(record.frame.to_vec()),
        pcap::LinkType::RAW | pcap::LinkType::IPV4 | pcap::LinkType::IPV6 => with(record.frame),
        pcap::LinkType::NULL | pcap::LinkType::LOOP => with(record.frame.get(4..)?),
        pcap::LinkType::LINUX_SLL => with(record.frame.get(16..)?),
        pcap::LinkType(12) => with(record.frame),
        _ => None,
    }
}

/// Passes the alerts of a capture to a function, with the number of the packet, from 1 on.
fn replay(capture: &Path, mut engine: Engine, mut report: impl FnMut(&Engine, u64, &Alert)) {
    let mut reader = pcap::Reader::open(capture).unwrap();
    let (mut new, mut number, mut now) = (vec![], 0, Duration::ZERO);
    while let Ok(Some(record)) = reader.next() {
        number += 1;
        now = Duration::from_nanos(record.timestamp_ns);
        if let Some(frame) = ethernet(&record) {
            engine.inspect_frame(now, &frame, &mut new);
        }
        new.drain(..).for_each(|alert| report(&engine, number, &alert));
    }
    engine.finish(now, &mut new);
    new.iter().for_each(|alert| report(&engine, number + 1, alert));
}

fn run(folder: &Path, options: Options, order: &[Action]) -> Alerts {
    let rules = std::fs::read_to_string(folder.join("test.rules")).unwrap();
    let mut alerts = Alerts::new();
    let engine = engine_in_order(&rules, options, order, None);
    replay(&folder.join("input.pcap"), engine, |engine, number, alert| {
        *alerts.entry((number, engine.rule(alert.rule).unwrap().sid)).or_default() += 1;
    });
    alerts
}

fn data() -> PathBuf {
    std::env::var_os("BONDSTONE_DATA").map_or_else(|| PathBuf::from("../../../shared/data"), PathBuf::from)
}

/// Returns the files in a folder in the order of their names; none if it is not there.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Cases that do not pass, with the reason.
const KNOWN: &[(&str, &str)] = &[];

#[test]
fn reports_the_alerts_of_the_reference_engine() {
    let folders: Vec<_> = files(data().join("ids")).into_iter().filter(|path| path.is_dir()).collect();
    if folders.is_empty() {
        println!("skipped: no cases in {}", data().join("ids").display());
        return;
    }
    let mut failed = vec![];
    for folder in &folders {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let expected: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("expect.json")).unwrap()).unwrap();
        let args = expected["args"].to_string();
        let mut options = options();
        options.prevent = args.contains("--simulate-ips");
        options.checksums = !args.contains("-k none");
        options.midstream = args.contains("midstream=true");
        let mut order = ORDER;
        // settings that the configuration of the case has beside its arguments
        match name.as_str() {
            "bug-8021-alert-max-verdict-01" => options.max_alerts = 6,
            "bug-4663-02" => order = [Action::Drop, Action::Pass, Action::Reject, Action::Alert],
            _ => {}
        }
        let alerts = run(folder, options, &order);
        let mut wrong = vec![];
        for (key, value) in expected["alerts"].as_object().unwrap() {
            let sum = |sid: Option<u32>| {
                alerts.iter().filter(|((_, of), _)| sid.is_none_or(|sid| sid == *of)).map(|(_, n)| *n).sum::<u64>()
            };
            match key.as_str() {
                "packets" => {
                    for entry in value.as_array().unwrap() {
                        let [packet, sid, n] = [0, 1, 2].map(|at| entry[at].as_u64().unwrap());
                        if alerts.get(&(packet, sid as u32)).copied().unwrap_or(0) != n {
                            wrong.push(format!("packet {packet}, {sid}: {n} expected"));
                        }
                    }
                }
                "*" if value.as_u64() != Some(sum(None)) => wrong.push(format!("all: {value} expected")),
                "*" => {}
                sid if value.as_u64() != Some(sum(sid.parse().ok())) => wrong.push(format!("{sid}: {value} expected")),
                _ => {}
            }
        }
        if !wrong.is_empty() {
            failed.push((name, format!("{wrong:?}, got {alerts:?}")));
        }
    }
    println!("{} of {} cases pass", folders.len() - failed.len(), folders.len());
    let known = |name: &str| KNOWN.iter().any(|(known, _)| *known == name);
    let unexpected: Vec<_> = failed.iter().filter(|(name, _)| !known(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

fn connection(server_port: u16) -> [Vec<u8>; 3] {
    let segment = |flags| build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, server_port).flags(flags);
    let answer = build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], server_port, 4000);
    [
        segment(TcpFlags::SYN).seq(99).to_vec(),
        answer.flags(TcpFlags::SYN | TcpFlags::ACK).seq(499).ack(100).to_vec(),
        segment(TcpFlags::ACK).seq(100).to_vec(),
    ]
}

#[test]
fn finds_contents_across_segments_out_of_order() {
    let rule = "alert tcp any any -> any 80 (flow:established,to_server; content:\"forbidden\"; sid:1;)";
    let mut engine = engine(rule, Options { checksums: false, ..options() });
    let mut alerts = vec![];
    let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80).flags(TcpFlags::ACK);
    let data = [(104, &b"idden"[..]), (100, b"forb"), (100, b"forb")];
    let frames = data.iter().map(|(seq, bytes)| segment.clone().seq(*seq).payload(bytes).to_vec());
    for frame in connection(80).into_iter().chain(frames) {
        assert_eq!(engine.inspect_frame(Duration::ZERO, &frame, &mut alerts), Some(Verdict::Forward));
    }
    engine.finish(Duration::ZERO, &mut alerts);
    assert_eq!(alerts.len(), 1);
}

/// Returns the rules that alert in prevent mode for a text in segments of `len` bytes.
fn sids_of_segments(rules: &str, text: &[u8], len: usize) -> Vec<u32> {
    let mut engine = engine(rules, Options { prevent: true, checksums: false, ..options() });
    let mut alerts = vec![];
    let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80).flags(TcpFlags::ACK);
    let data = text.chunks(len).enumerate();
    let frames = data.map(|(n, bytes)| segment.clone().seq(100 + (n * len) as u32).payload(bytes).to_vec());
    for frame in connection(80).into_iter().chain(frames) {
        engine.inspect_frame(Duration::ZERO, &frame, &mut alerts);
    }
    engine.finish(Duration::ZERO, &mut alerts);
    alerts.iter().map(|alert| engine.rule(alert.rule).unwrap().sid).collect()
}

/// Numbers and Base64 behind a content may be in other segments.
#[test]
fn reads_behind_contents_in_segments_of_any_length() {
    let rules = "alert tcp any any -> any 80 (content:\"LEN=\"; byte_test:1,>,0x40,0,relative; sid:1;)\n\
                 alert tcp any any -> any 80 (content:\"LEN=\"; byte_extract:1,0,n,relative; sid:2;)\n\
                 alert tcp any any -> any 80 (content:\"LEN=\"; byte_jump:1,1,relative,string,dec; sid:3;)\n\
                 alert tcp any any -> any 80 (content:\"d=\"; base64_decode:relative; base64_data; content:\"foo\"; sid:4;)";
    let text = b"a LEN=Z1 d=Zm9v and more";
    for len in 1..=text.len() {
        let mut sids = sids_of_segments(rules, text, len);
        sids.sort_unstable();
        assert_eq!(sids, [1, 2, 3, 4], "segments of {len} bytes");
    }
}

/// However small the segments are, a content is found in prevent mode, once for each time that it is there.
#[test]
fn finds_contents_in_segments_of_any_length() {
    let rule = "alert tcp any any -> any 80 (content:\"forbidden\"; sid:1;)\n\
                alert tcp any any -> any 80 (content:\"forb\"; content:\"den\"; distance:2; within:3; sid:2;)\n\
                alert tcp any any -> any 80 (content:\"den\"; content:\"forb\"; sid:3;)";
    let text = b"GET forbidden or not, forbidden.";
    for len in 1..=text.len() {
        let sids = sids_of_segments(rule, text, len);
        let count = |sid| sids.iter().filter(|other| **other == sid).count();
        // a chunk with both is one match
        let [first, second] = [4, 22].map(|at| (at + 8) / len);
        let expected = if first == second { 1 } else { 2 };
        assert_eq!((count(1), count(2)), (expected, expected), "segments of {len} bytes");
        assert!(count(3) >= 1, "segments of {len} bytes");
    }
}

#[test]
fn counts_state_without_room() {
    let rules = "alert udp any any -> any 1 (threshold:type both, track by_src, count 2, seconds 60; sid:1;)\n\
                 alert udp any any -> any 2 (xbits:set,x,track ip_src; sid:2;)";
    let mut engine = engine(rules, Options { checksums: false, ..options() });
    for port in [1, 2] {
        for n in 0..=65_536_u32 {
            let frame = build::udp4((0x0a00_0000 + n).to_be_bytes(), [192, 0, 2, 1], 4000, port).to_vec();
            engine.inspect_frame(Duration::ZERO, &frame, &mut vec![]);
        }
        assert_eq!(engine.state_refused(), u64::from(port));
    }
}

/// Between its alerts, `backoff` drops as well.
#[test]
fn backoff_drops_from_its_count_on() {
    let rule =
        "drop udp any any -> any any (threshold:type backoff, track by_flow, count 2, multiplier 2; dsize:1; sid:1;)";
    let mut engine = engine(rule, Options { prevent: true, checksums: false, ..options() });
    let mut alerts = vec![];
    let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 53).payload(b"x").to_vec();
    let verdicts: Vec<_> =
        (0..5).map(|n| engine.inspect_frame(Duration::from_secs(n), &frame, &mut alerts).unwrap()).collect();
    assert_eq!(verdicts, [Verdict::Forward, Verdict::Drop, Verdict::Drop, Verdict::Drop, Verdict::Drop]);
    assert_eq!(alerts.len(), 2);
}

#[test]
fn drops_the_rest_of_a_flow_in_prevent_mode() {
    let rule = "drop udp any any -> any 53 (content:\"bad\"; sid:1;)\ndrop ip 10.0.0.9 any -> any any (sid:2;)";
    let mut engine = engine(rule, Options { prevent: true, checksums: false, ..options() });
    let mut alerts = vec![];
    let mut inspect = |host: u8, payload: &[u8]| {
        let frame = build::udp4([10, 0, 0, host], [10, 0, 0, 2], 4000, 53).payload(payload).to_vec();
        engine.inspect_frame(Duration::ZERO, &frame, &mut alerts).unwrap()
    };
    assert_eq!(inspect(1, b"a bad one"), Verdict::Drop);
    assert_eq!(inspect(1, b"a good one"), Verdict::Forward);
    assert_eq!([inspect(9, b"x"), inspect(9, b"x")], [Verdict::Drop; 2]);
    assert_eq!(alerts.len(), 2);
}

/// Rules whose patterns are in other segments than the rest of their options, and rules for packets only.
const SPANNING: &str = "\
    alert tcp any any -> any 80 (flow:to_server; content:\"abcd\"; content:\"ba\"; sid:1;)\n\
    alert tcp any any -> any 80 (content:\"aab\"; content:\"bb\"; distance:1; within:9; sid:2;)\n\
    alert tcp any 80 -> any any (flow:to_client; content:\"CAB\"; nocase; content:\"d\"; sid:3;)\n\
    alert tcp any any -> any any (content:\"bc\"; offset:1; depth:4; sid:4;)\n\
    alert tcp any any -> any any (content:\"dd\"; dsize:<9; sid:5;)\n\
    alert tcp-pkt any any -> any any (content:\"da\"; sid:6;)\n\
    alert ip any any -> any any (content:\"ddcb\"; flowbits:set,seen; sid:7;)\n\
    alert tcp any any -> any any (content:\"a\"; flowbits:isset,seen; sid:8;)\n\
    alert tcp any any -> any any (pcre:\"/c[ab]{2}d/\"; sid:9;)\n\
    alert tcp any any -> any any (content:!\"abab\"; content:\"cdc\"; sid:10;)\n\
    alert udp any any -> any any (content:\"a\"; sid:11;)\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Patterns that were found in earlier chunks of a stream are not searched for again.
    #[test]
    fn the_search_leaves_out_no_rule_that_matches(
        prevent: bool,
        segments in proptest::collection::vec((any::<bool>(), "[abcdA-D]{1,12}", 0u32..8, 0usize..40), 1..60),
    ) {
        let options = Options { prevent, checksums: false, ..options() };
        let mut engines = [engine(SPANNING, options.clone()), engine(SPANNING, options)];
        engines[1].without_search = true;
        let mut frames = connection(80).to_vec();
        let (mut next, mut held) = ([100u32, 500], None);
        for (to_client, text, order, repeat) in &segments {
            let text = text.repeat(1 + repeat * usize::from(*order == 0));
            let [seq, ack] = if *to_client { [next[1], next[0]] } else { next };
            next[usize::from(*to_client)] += text.len() as u32;
            let segment = if *to_client {
                build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, 4000)
            } else {
                build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80)
            };
            let frame = segment.flags(TcpFlags::ACK).seq(seq).ack(ack).payload(text.as_bytes()).to_vec();
            // some segments arrive behind the next one
            if *order == 1 && held.is_none() {
                held = Some(frame);
            } else {
                frames.push(frame);
                frames.extend(held.take());
            }
        }
        let found = engines.each_mut().map(|engine| {
            let (mut alerts, mut all) = (vec![], vec![]);
            for (n, frame) in frames.iter().enumerate() {
                engine.inspect_frame(Duration::ZERO, frame, &mut alerts);
                all.extend(alerts.drain(..).map(|alert| (n, alert.rule)));
            }
            engine.finish(Duration::ZERO, &mut alerts);
            all.extend(alerts.drain(..).map(|alert| (frames.len(), alert.rule)));
            all
        });
        prop_assert_eq!(&found[0], &found[1]);
    }
}

/// Beyond a number of hits, the history is searched again.
#[test]
fn many_hits_in_a_stream_are_not_lost() {
    let mut rules: String = (0..400)
        .map(|n| format!("alert tcp any any -> any 80 (content:\"w{n:03}\"; content:\"end\"; sid:{};)\n", n + 1))
        .collect();
    rules += "alert tcp any any -> any 80 (content:\"end\"; sid:1000;)\n";
    let mut engine = engine(&rules, Options { prevent: true, checksums: false, max_alerts: 1000, ..options() });
    let mut alerts = vec![];
    let text: String = (0..400).map(|n| format!("w{n:03}")).collect::<String>() + "....end";
    let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80).flags(TcpFlags::ACK);
    let data = text.as_bytes().chunks(100).enumerate();
    let frames = data.map(|(n, bytes)| segment.clone().seq(100 + (n * 100) as u32).payload(bytes).to_vec());
    for frame in connection(80).into_iter().chain(frames) {
        engine.inspect_frame(Duration::ZERO, &frame, &mut alerts);
    }
    engine.finish(Duration::ZERO, &mut alerts);
    let mut sids: Vec<_> = alerts.iter().map(|alert| engine.rule(alert.rule).unwrap().sid).collect();
    sids.sort_unstable();
    assert_eq!(sids, (1..=400).chain([1000]).collect::<Vec<_>>());
}

#[test]
fn numbers_of_bits_and_rules_survive_replacements() {
    let first = engine_in_order(
        "alert ip any any -> any any (flowbits:set,a; sid:1;)\nalert ip any any -> any any (flowbits:set,b; sid:2;)",
        options(),
        &ORDER,
        None,
    );
    let second =
        engine_in_order("alert ip any any -> any any (flowbits:set,b; sid:2;)", options(), &ORDER, Some(&first));
    let third = engine_in_order(
        "alert ip any any -> any any (flowbits:set,c; sid:3;)\nalert ip any any -> any any (flowbits:set,b; sid:2;)\n\
         alert ip any any -> any any (flowbits:set,a; sid:1;)",
        options(),
        &ORDER,
        Some(&second),
    );
    let numbers = |engine: &Engine| -> BTreeMap<u32, (u32, u32)> {
        engine.rule_set.rules().iter().map(|rule| (rule.sid, (rule.id, rule.states[0].bits[0]))).collect()
    };
    let [first, second, third] = [&first, &second, &third].map(numbers);
    assert_eq!((first[&2], second[&2]), (second[&2], third[&2]));
    // numbers that were forgotten are not used again
    let all = BTreeMap::from_iter([first[&1], first[&2], third[&1], third[&3]]);
    assert_eq!(all.len(), 4);
    assert_eq!(all.into_values().collect::<std::collections::BTreeSet<_>>().len(), 4);
}

const FORBIDDEN: &str = "alert tcp any any -> any 80 (flow:established,to_server; content:\"forbidden\"; sid:1;)\n\
                         alert udp any any -> any any (content:\"forbidden\"; sid:2;)";

/// Returns a segment from the client of [`connection`].
fn segment(flags: TcpFlags, seq: u32, payload: &[u8]) -> Vec<u8> {
    build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 80).flags(flags).seq(seq).ack(500).payload(payload).to_vec()
}

/// Returns the numbers of the rules that match frames in prevent mode.
fn matched(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u32> {
    let mut engine = engine(FORBIDDEN, Options { prevent: true, checksums: false, ..options() });
    let mut alerts = vec![];
    for frame in frames {
        engine.inspect_frame(Duration::ZERO, &frame, &mut alerts);
    }
    alerts.iter().map(|alert| engine.rule(alert.rule).unwrap().sid).collect()
}

fn content() -> [Vec<u8>; 2] {
    [segment(TcpFlags::ACK, 100, b"forb"), segment(TcpFlags::ACK, 104, b"idden")]
}

#[test]
fn packets_in_tunnels_have_flows_of_their_own() {
    let inner = segment(TcpFlags::ACK, 100, b"xxxxxxxxx");
    let tunnel = build::ipv4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol(4)).payload(&inner[14..]).to_vec();
    assert_eq!(matched(connection(80).into_iter().chain([tunnel]).chain(content())), [1]);
}

/// A receiver ignores a reset and a FIN with these sequence numbers, and acknowledges the SYN only.
#[test]
fn forged_ends_do_not_end_a_connection() {
    let far = 100 + (1 << 30);
    let forged = [
        segment(TcpFlags::RST, far, b""),
        segment(TcpFlags::FIN | TcpFlags::ACK, far, b""),
        segment(TcpFlags::SYN, far, b""),
    ];
    assert_eq!(matched(connection(80).into_iter().chain(forged).chain(content())), [1]);
}

#[test]
fn the_first_byte_follows_the_acknowledged_one_of_several_syns() {
    let other = segment(TcpFlags::SYN, 1 << 30, b"");
    assert_eq!(matched([other].into_iter().chain(connection(80)).chain(content())), [1]);
}

#[test]
fn datagrams_in_tunnels_are_reassembled() {
    let (src, dst) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let whole = build::udp4(src, dst, 1, 2).payload(b"0123forbidden").to_vec();
    let (first, last) = whole[34..].split_at(16);
    let fragments = [(0, true, first), (16, false, last)].map(|(offset, more, bytes)| {
        let inner = build::ipv4(src, dst, IpProtocol(17)).id(7).fragment(offset, more).payload(bytes).to_vec();
        build::ipv4(src, dst, IpProtocol(4)).payload(&inner[14..]).to_vec()
    });
    assert_eq!(matched(fragments), [2]);
}

/// Returns for each rule the numbers of the frames, from 1 on, that it matches.
fn matched_frames(rules: &str, frames: &[(u64, Vec<u8>)]) -> BTreeMap<u32, Vec<usize>> {
    let mut engine = engine(rules, Options { checksums: false, ..options() });
    let mut found = BTreeMap::<u32, Vec<usize>>::new();
    for ((at, frame), n) in frames.iter().zip(1..) {
        let mut alerts = vec![];
        engine.inspect_frame(Duration::from_secs(*at), frame, &mut alerts);
        for alert in alerts {
            found.entry(engine.rule(alert.rule).unwrap().sid).or_default().push(n);
        }
    }
    found
}

#[test]
fn counts_and_compares_properties_of_flows() {
    let there = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 9).payload(b"x").to_vec();
    let back = build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 9, 4000).payload(b"x").to_vec();
    let rules = "alert udp any any -> any 9 (flowint:n,+,2; noalert; sid:1;)\n\
                 alert udp any any -> any 9 (flowint:n,==,4; sid:2;)\n\
                 alert udp any any -> any 9 (flowint:n,>,m; flowint:m,=,4; sid:3;)\n\
                 alert udp any any -> any 9 (flowint:m,notset; sid:4;)\n\
                 alert udp any any -> any 9 (flowint:x,>=,0; sid:5;)\n\
                 alert udp any 9 -> any any (flowint:n,-,1; flowint:n,!=,7; sid:6;)\n\
                 alert udp any any -> any any (flow.pkts:toserver,2; sid:7;)\n\
                 alert udp any any -> any any (flow.pkts:either,>3; sid:8;)\n\
                 alert udp any any -> any any (flow.bytes_toclient:{len}; sid:9;)\n\
                 alert udp any any -> any any (flow.age:>=3; sid:10;)\n\
                 alert udp any any -> any 9 (hostbits:set,a; hostbits:isnotset,a,src; sid:11;)\n\
                 alert udp any 9 -> any any (hostbits:isset,a,dst; sid:12;)\n\
                 alert udp any any -> any any (dsize:1; threshold:type backoff, track by_flow, count 1, multiplier 2; sid:13;)";
    let rules = rules.replace("{len}", &back.len().to_string());
    let frames =
        [(0, &there), (1, &there), (2, &back), (3, &there), (4, &there)].map(|(at, frame)| (at, frame.clone()));
    let found = matched_frames(&rules, &frames);
    let expected: [(u32, &[usize]); 11] = [
        (2, &[2]),
        (3, &[1, 4, 5]),
        (4, &[]),
        (6, &[3]),
        (7, &[2, 3]),
        (8, &[5]),
        (9, &[3, 4, 5]),
        (10, &[4, 5]),
        (11, &[1]),
        (12, &[3]),
        (13, &[1, 2, 4]),
    ];
    for (sid, frames) in expected {
        assert_eq!(found.get(&sid).map_or(&[][..], |frames| frames), frames, "{sid}");
    }
    assert!(!found.contains_key(&5));
}

#[test]
fn compares_the_size_of_streams() {
    let rules = "alert tcp any any -> any any (stream_size:client,=,1; sid:1;)\n\
                 alert tcp any any -> any any (stream_size:both,>,0; sid:2;)\n\
                 alert tcp any any -> any any (stream_size:either,>=,5; sid:3;)";
    let data = segment(TcpFlags::ACK, 100, b"forb");
    let frames: Vec<_> = connection(80).into_iter().chain([data]).map(|frame| (0, frame)).collect();
    let found = matched_frames(rules, &frames);
    assert_eq!(found, BTreeMap::from([(1, vec![1, 2, 3]), (2, vec![2, 3, 4]), (3, vec![4])]));
}

#[test]
fn rules_with_ports_and_protocols_only_match_once_per_direction() {
    let rules = "alert udp any any -> any 9 (sid:1;)\n\
                 alert ip any any -> any any (ip_proto:17; sid:2;)\n\
                 alert udp any any <> any 9 (xbits:set,x,track ip_src; xbits:isnotset,x,track ip_dst; sid:3;)\n\
                 alert udp any any -> any 9 (flowbits:unset,x; sid:4;)\n\
                 alert udp any any -> any 9 (flow:to_server; sid:5;)";
    let there = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 4000, 9).payload(b"x").to_vec();
    let back = build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 9, 4000).payload(b"x").to_vec();
    let frames = [&there, &there, &back, &back].map(|frame| (0, frame.clone()));
    let expected: [(u32, &[usize]); 5] = [(1, &[1]), (2, &[1, 3]), (3, &[1]), (4, &[1, 2]), (5, &[1, 2])];
    assert_eq!(matched_frames(rules, &frames), BTreeMap::from(expected.map(|(sid, n)| (sid, n.to_vec()))));
}

#[test]
fn connections_are_established_behind_the_handshake() {
    let rules = "alert tcp any any -> any any (flow:established; sid:1;)\n\
                 alert tcp any any -> any any (flow:not_established; sid:2;)\n\
                 alert tcp-stream any any -> any any (content:\"lost\"; sid:3;)\n\
                 alert tcp any any -> any any (flow:only_stream; content:\"lost\"; sid:4;)";
    let data = segment(TcpFlags::ACK, 100, b"forb");
    let frames: Vec<_> = connection(80).into_iter().chain([data]).map(|frame| (0, frame)).collect();
    assert_eq!(matched_frames(rules, &frames), BTreeMap::from([(1, vec![4]), (2, vec![1, 2, 3])]));
    let alone = [(0, segment(TcpFlags::ACK, 100, b"lost"))];
    assert_eq!(matched_frames(rules, &alone), BTreeMap::from([(2, vec![1]), (3, vec![1])]));
}
