//! TCP streams, inspected and rewritten: every packet is accounted for, memory stays within its limits, and nothing is
//! held in the end, whatever segments arrive and when.
#![no_main]

use bondstone_fuzz::FuzzedFrame;
use diagnostics::Diagnostic;
use graph::{Blueprint, CommonDrop, Graph, Hop, HopPlan, Named, Node, NodePlan, NodeStats, Sink, Target};
use libfuzzer_sys::arbitrary::{Arbitrary as _, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::sync::Arc;
use std::time::Duration;
use streams::packetize::{self, packetize};
use streams::window::{self, Event, Verdict, window};
use wire::{Tcp, TcpFlags, build};

/// Largest number of packets that are created for a received one: 64 retransmissions, 64 new ones per direction, and
/// replies.
const MAX_CREATED: u64 = 3 * 64 + 8;

struct Count(u64);

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0 += batch.drain().count() as u64;
    }
}

/// Returns a window that holds packets, or a rewriting node controlled by the payload.
fn node(u: &mut Unstructured<'_>) -> Result<Box<dyn Node>> {
    let short = u.arbitrary()?;
    if u.arbitrary()? {
        let settings = window::Settings {
            size: u.int_in_range(0..=64)?,
            increment: 0,
            timeout: 50,
            hold: u.arbitrary()?,
            flows: 8,
            memory: if short { 8 << 10 } else { 1 << 20 },
            flow_memory: 4 << 10,
            idle: 30,
            ..window::Settings::default()
        };
        let callback = |_: &window::Flow<'_>, event: Event<'_>| match event {
            Event::Window(window) if window.bytes().contains(&0xee) => Verdict::Drop,
            _ => Verdict::Forward,
        };
        return Ok(Box::new(window::<Tcp, _>(&settings, callback).expect("valid settings")));
    }
    let settings = packetize::Settings {
        checksums: false,
        growth: 2,
        timeout: 50,
        withheld: 64,
        flows: 8,
        buffer: 16 << 10,
        memory: if short { 64 << 10 } else { 1 << 20 },
        idle: 30,
        half_open: 5,
        ..packetize::Settings::default()
    };
    let made: Result<_, Diagnostic> = packetize(&settings, |_, bytes, more, out| {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                // withhold, lengthen, delete, expand excessively
                0xf0 if more => return at,
                0xf1 => out.extend([1, 2]),
                0xf2 => {}
                0xf3 => out.resize(out.len() + 50_000, 3),
                byte => out.push(*byte),
            }
        }
        bytes.len()
    });
    Ok(Box::new(made.expect("valid settings")))
}

/// Returns a segment of one of two connections, with sequence numbers close to the expected ones, or any frame.
fn frame(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if u.ratio(1, 8)? {
        return FuzzedFrame::arbitrary(u).map(|made| made.bytes);
    }
    let (flow, back): (bool, bool) = u.arbitrary()?;
    let flags = *u.choose(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x19, 0x14, 0x04])?;
    let (seq, ack): (i16, i16) = u.arbitrary()?;
    let window = *u.choose(&[0, 1, 500, 60_000])?;
    let len = u.int_in_range(0..=60)?.min(u.len());
    let (src, dst) = if back { (2, 1) } else { (1, 2) };
    let ports = if back { (80, 40_000) } else { (40_000, 80) };
    let near = |n: i16| 0u32.wrapping_add_signed(i32::from(n) / 16);
    let segment = build::tcp4([10, 0, flow.into(), src], [10, 0, flow.into(), dst], ports.0, ports.1);
    let segment = segment.flags(TcpFlags(flags)).seq(near(seq)).ack(near(ack)).window(window);
    Ok(segment.payload(u.bytes(len)?).to_vec())
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "streams".to_owned(), edges: (0..3).map(Target::Port).collect() }],
        hops: (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), fail_open: false }).collect(),
    };
    let pool = Arc::new(HeapPool::new(u.int_in_range(BURST..=256)?));
    let mut graph = Graph::new(&blueprint, vec![node(u)?], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut out, mut now) = (Count(0), 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u8>()?);
        graph.run_timers(Duration::from_millis(now), &mut out);
        let mut batch = Batch::new();
        let made = stats.created.get();
        for _ in 0..u.int_in_range(1..=8)? {
            let frame = frame(u)?;
            if let Some(packet) = pool.alloc_from(&frame) {
                batch.push(packet).expect("a burst");
            }
        }
        let received = batch.len() as u64;
        graph.run::<false>(Target::Hop(Hop(u.int_in_range(0..=1)?)), &mut batch, &mut out);
        assert!(
            stats.created.get() - made <= MAX_CREATED * received,
            "{} packets of {received}",
            stats.created.get() - made
        );
        check(&stats, &out, &pool);
    }
    for _ in 0..500 {
        now += 400;
        graph.run_timers(Duration::from_millis(now), &mut out);
    }
    check(&stats, &out, &pool);
    assert_eq!(pool.in_use(), 0, "packets are held");
    for (name, count) in stats.counters() {
        let left = ["flows", "memory_bytes", "connections", "waiting"].contains(&&*name);
        assert!(!left || count.get() == 0, "{name}: {}", count.get());
    }
    Ok(())
}

fn check(stats: &NodeStats, out: &Count, pool: &HeapPool) {
    let held = stats.held.get();
    assert_eq!(stats.packets.get() + stats.created.get(), out.0 + held + stats.dropped(), "accounting");
    assert_eq!(pool.in_use() as u64, held, "a packet was leaked");
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
    }
}

fuzz_target!(|bytes: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(bytes));
});
