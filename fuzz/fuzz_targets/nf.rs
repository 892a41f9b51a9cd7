//! The shipped NFs, one or two in a chain: every packet is accounted for, and contents change only where they should.
#![no_main]

use bondstone_fuzz::FuzzedFrame;
use graph::{
    Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NfKind, Node, NodePlan, NodeStats, Sink, Target,
};
use libfuzzer_sys::arbitrary::{Arbitrary as _, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::sync::{Arc, LazyLock};
use wire::{EtherType, ethernet, ipv4};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

/// Collects port and bytes of packets. The path ends at port 0; other outputs of NF `n` lead to port `n + 1`.
struct Collect(Vec<(u16, Vec<u8>)>);

impl Sink for Collect {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0.extend(batch.drain().map(|packet| (port, packet.data().to_vec())));
    }
}

impl Collect {
    fn by(&self, port: usize) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(by, _)| usize::from(*by) == port).map(|(_, bytes)| &bytes[..])
    }
}

/// Chooses a kind, with the settings of its example, the defaults, or fuzzed integers; returns it with its number of
/// outputs. NFs that hold or create packets have targets of their own.
fn choose_nf(u: &mut Unstructured<'_>) -> Result<(&'static NfKind, usize, Option<Box<dyn Node>>)> {
    let kinds: Vec<_> = REGISTRY.iter().filter(|k| !["l3fwd", "impair", "substitute"].contains(&k.name)).collect();
    let kind = *u.choose(&kinds)?;
    let mut text = if u.arbitrary()? { kind.example.to_owned() } else { String::new() };
    if text.is_empty() {
        let schema = kind.schema();
        for (name, setting) in schema["properties"].as_object().into_iter().flatten() {
            if setting["type"] == "integer" && u.arbitrary()? {
                text += &format!("{name} = {}\n", u.int_in_range(0..=40)?);
            }
        }
    }
    let settings = kind.parse(config::settings(&text).expect("a table")).expect("settings according to the schema");
    let outputs = kind.outputs.len() + settings.interfaces().len();
    Ok((kind, outputs, settings.build(&BuildContext::default()).ok()))
}

/// Reads frames from the rest of the input: a capture, or fuzzed frames.
fn frames(u: &mut Unstructured<'_>) -> Vec<FuzzedFrame> {
    let mut made = vec![];
    if let Some(Ok(mut reader)) = u.peek_bytes(u.len()).map(pcap::Reader::new) {
        while let (true, Ok(Some(record))) = (made.len() < 4 * BURST, reader.next()) {
            made.push(FuzzedFrame { bytes: record.frame[..record.frame.len().min(2048)].to_vec(), well_formed: false });
        }
        return made;
    }
    while made.len() < 2 * BURST && !u.is_empty() {
        made.extend(FuzzedFrame::arbitrary(u));
    }
    made
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let (burst, spare, two_nfs) = (u.int_in_range(1..=BURST)?, u.int_in_range(0..=64)?, u.arbitrary()?);
    let mut chosen = vec![choose_nf(u)?];
    if two_nfs && !chosen[0].0.outputs.is_empty() {
        chosen.push(choose_nf(u)?);
    }
    let (mut blueprint, mut nodes) = (Blueprint::default(), vec![]);
    for (n, (kind, outputs, node)) in chosen.iter_mut().enumerate() {
        let Some(node) = node.take() else { return Ok(()) };
        nodes.push(node);
        let edges = vec![Target::Port(n as u16 + 1); (*outputs).max(1)];
        blueprint.nodes.push(NodePlan { name: kind.name.to_owned(), edges });
        let next = if kind.outputs.is_empty() { Target::Unconnected } else { Target::Port(0) };
        blueprint.hops.push(HopPlan { node: n as u16, input: 0, next, fail_open: false });
    }
    if nodes.len() == 2 {
        blueprint.hops[0].next = Target::Hop(Hop(1));
    }
    let frames = frames(u);
    let pool = Arc::new(HeapPool::new(burst + spare));
    let mut graph = Graph::new(&blueprint, nodes, pool.clone());
    let stats: Vec<_> = graph.stats().map(|(_, stats)| stats.clone()).collect();
    let held = || stats.iter().map(|stats| stats.held.get()).sum::<u64>();
    let (mut out, mut received) = (Collect(vec![]), 0);
    for frames in frames.chunks(burst) {
        let mut batch = Batch::new();
        for frame in frames {
            match pool.alloc_from(&frame.bytes) {
                Some(packet) => batch.push(packet).expect("a burst"),
                None => assert_ne!(held(), 0, "the pool has room for a burst"),
            }
        }
        received += batch.len() as u64;
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
        assert!(batch.is_empty());
        assert_eq!(pool.in_use() as u64, held(), "a packet was leaked");
    }
    check_accounting(&stats, received, &out);
    if let [(kind, ..)] = chosen[..] {
        check_contents(kind.name, &stats[0], &frames, &out);
    }
    Ok(())
}

/// Checks that each NF emitted or dropped every packet, for a reason of its own.
fn check_accounting(stats: &[Arc<NodeStats>], mut received: u64, out: &Collect) {
    for (n, node) in stats.iter().enumerate() {
        assert_eq!(node.packets.get(), received);
        for (reason, count) in node.reasons.iter().zip(&node.drops) {
            assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
        }
        let through = stats.get(n + 1).map_or_else(|| out.by(0).count() as u64, |next| next.packets.get());
        let aside = out.by(n + 1).count() as u64;
        assert_eq!(received + node.created.get(), through + aside + node.held.get() + node.dropped(), "accounting");
        received = through;
    }
}

/// Checks what each kind may change.
fn check_contents(kind: &str, stats: &NodeStats, frames: &[FuzzedFrame], out: &Collect) {
    let mut sent = out.by(0);
    let well_formed = frames.iter().all(|frame| frame.well_formed);
    match kind {
        "count" | "tee" => assert!(sent.eq(frames.iter().map(|f| &f.bytes[..]))),
        "drop" => assert!(out.0.is_empty()),
        "cells" | "l2fwd" | "ttl" => {
            // these NFs write only headers, before byte 34
            let writes = if kind == "cells" { 0 } else { 34 };
            let same = |was: &FuzzedFrame, now: &[u8]| {
                was.bytes.len() == now.len() && was.bytes.get(writes..) == now.get(writes..)
            };
            let mut before = frames.iter();
            assert!(sent.all(|now| before.any(|was| same(was, now))), "packets keep their order, length and payload");
        }
        _ => {}
    }
    if kind == "ttl" && well_formed {
        let ip = |frame| ethernet::Frame::new(frame).ok().filter(|e| e.header().ether_type() == EtherType::IPV4);
        for frame in out.by(0).filter_map(ip) {
            let packet = ipv4::Packet::new(frame.payload()).expect("a well-formed packet");
            assert!(packet.header().ttl() != 0 && packet.checksum_ok());
        }
    }
    if well_formed && matches!(kind, "l2fwd" | "ttl") {
        assert!(stats.reasons.iter().zip(&stats.drops).all(|(r, n)| *r == "ttl_expired" || n.get() == 0));
    }
}

fuzz_target!(|bytes: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(bytes));
});
