//! Chains on several cores: replicated, spread, and split by an output that another chain starts with.

use crate::common::{Running, Scratch, Summary};
use pcap::{LinkType, Reader, Writer};
use std::collections::HashMap;
use std::path::Path;
use wire::build;
use wire::flow;

/// Returns up to two CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let mut all = runtime::allowed_cpus();
    all.truncate(2);
    all
}

/// Writes a capture of frames of 50 flows in both directions, each with its number in the flow, and of some non-IP
/// frames.
fn capture(path: &Path, frames: u32) {
    let mut writer = Writer::create(path, LinkType::ETHERNET).unwrap();
    for n in 0..frames {
        let flow = (n % 50) as u8;
        let (a, b) = ([10, 0, 0, flow], [10, 1, 0, flow]);
        let number = (n / 50).to_be_bytes();
        let frame = match n % 7 {
            0 => [&[2; 12][..], &[0x12, 0x34], &number, &[flow; 42]].concat(),
            1..4 => build::udp4(a, b, 1000, 53).payload(&number).pad_to(60).to_vec(),
            _ => build::udp4(b, a, 53, 1000).payload(&number).pad_to(60).to_vec(),
        };
        writer.write(u64::from(n) * 1000, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = vec![];
    while let Some(record) = reader.next().unwrap() {
        all.push(record.frame.to_vec());
    }
    all
}

/// Returns the frames of each bidirectional flow in order; non-IP frames are one flow.
fn flows(frames: &[Vec<u8>]) -> HashMap<u32, Vec<Vec<u8>>> {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    for frame in frames {
        all.entry(flow::symmetric_hash(frame)).or_default().push(frame.clone());
    }
    all
}

fn run(scratch: &Scratch, chains: &str) -> Summary {
    Running::run(&scratch.write("chain.toml", chains), &[]).end().summary(0)
}

const PORTS: &str = "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 3\n[port.out]\ndevice = \"pcap:out.pcap\"\n\
                     [nf.first]\nkind = \"count\"\n[nf.second]\nkind = \"monitor\"\n";

#[test]
fn a_chain_split_over_cores_preserves_packets_and_flow_order() {
    let _one = crate::common::alone();
    let cpus = cpus();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    for (first_cores, second_cores) in [
        (vec![first], vec![last]),
        (vec![first], vec![first]),
        (vec![first], cpus.clone()),
        (cpus.clone(), vec![last]),
        (cpus.clone(), cpus.clone()),
    ] {
        let scratch = Scratch::new();
        capture(&scratch.path("in.pcap"), 20_000);
        let chains = format!(
            "{PORTS}[[chain]]\npath = [\"in\", \"first\"]\ncores = {first_cores:?}\n\
             [[chain]]\npath = [\"first.out\", \"second\", \"out\"]\ncores = {second_cores:?}\n"
        );
        let summary = run(&scratch, &chains);
        let expected = vec![frames(&scratch.path("in.pcap")); 3].concat();
        let sent = frames(&scratch.path("out.pcap"));
        assert_eq!(sent.len(), expected.len(), "{first_cores:?} to {second_cores:?}");
        assert!(flows(&expected) == flows(&sent), "{first_cores:?} to {second_cores:?}: a flow is out of order");
        let link = summary.link("first.out");
        assert_eq!((link.number("/sent"), link.number("/received")), (60_000, 60_000));
        assert_eq!((summary.nf("second").number("/packets"), summary.number("/totals/dropped")), (60_000, 0));
        // each direction of a flow was processed on one core only
        assert_eq!(summary.nf("second").number("/counters/new"), 100, "{first_cores:?} to {second_cores:?}");
    }
}

/// ICMP errors reach the core of the connection that they are about, also behind a link.
#[test]
fn a_stateful_firewall_behind_a_link_drops_the_same_on_two_cores() {
    let _one = crate::common::alone();
    let cpus = cpus();
    let scratch = Scratch::new();
    let mut writer = Writer::create(scratch.path("in.pcap"), LinkType::ETHERNET).unwrap();
    for n in 0..60 {
        let (a, b) = ([10, 0, 0, n], [10, 1, 0, n]);
        let request = build::udp4(a, b, 1000, 53).payload(&[n; 20]).to_vec();
        let error = build::icmp4(b, a, wire::icmpv4::Repr::DestUnreachable { code: 3 });
        for frame in [error.payload(&request[14..42]).to_vec(), request].iter().rev() {
            writer.write(u64::from(n) * 1000, frame.len() as u32, frame).unwrap();
        }
    }
    writer.finish().unwrap();
    for cores in [&cpus[..1], &cpus] {
        let chains = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\n[port.out]\ndevice = \"null\"\n\
             [nf.fw]\nkind = \"firewall\"\nrules = [\"accept src 10.0.0.0/24\"]\ntrack = {{}}\n\
             [[chain]]\npath = [\"in\", \"count\"]\ncores = {:?}\n\
             [[chain]]\npath = [\"count.out\", \"fw\", \"out\"]\ncores = {cores:?}\n",
            &cpus[..1]
        );
        let summary = run(&scratch, &chains);
        assert_eq!((summary.number("/totals/sent"), summary.number("/totals/dropped")), (120, 0), "{cores:?}");
    }
}

#[test]
fn a_chain_of_three_cores_with_a_second_output() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    capture(&scratch.path("in.pcap"), 5000);
    let last = cpus().pop().unwrap();
    let chains = format!(
        "{PORTS}[port.copies]\ndevice = \"pcap:copies.pcap\"\n[nf.third]\nkind = \"tee\"\nevery = 2\n[nf.fourth]\nkind = \"count\"\n\
         [[chain]]\npath = [\"in\", \"first\"]\n\
         [[chain]]\npath = [\"first.out\", \"second\"]\ncores = [{last}]\n\
         [[chain]]\npath = [\"second.out\", \"third\", \"out\"]\n\
         [[chain]]\npath = [\"third.copy\", \"fourth\", \"copies\"]\ncores = [{last}]\n"
    );
    let summary = run(&scratch, &chains);
    let expected = vec![frames(&scratch.path("in.pcap")); 3].concat();
    assert!(flows(&expected) == flows(&frames(&scratch.path("out.pcap"))));
    assert_eq!(frames(&scratch.path("copies.pcap")).len(), expected.len() / 2);
    assert_eq!(summary.link("third.copy").number("/received"), expected.len() as u64 / 2);
    assert_eq!(summary.number("/totals/created"), expected.len() as u64 / 2);
}
