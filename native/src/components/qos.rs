//! NFs that classify, meter, shape and schedule, and the monitor with export, compared with a counter.

use super::nf_loop::{FRAMES, NfLoop};
use super::table::{ComponentTable, Measurement};
use crate::fixture::Random;
use crate::sample::compare_costs;
use dpdk::Mempool;
use std::sync::Arc;
use wire::{TcpFlags, build};

/// Numbers of flows or subscribers.
const FLOWS: [u32; 4] = [1, 10_000, 65_536, 1_000_000];

/// An NF, and the first packets of a flow, by which it is known.
struct Nf {
    name: &'static str,
    kind: &'static str,
    settings: &'static str,
    begin: fn(u32) -> Vec<Vec<u8>>,
    packet: fn(u32) -> Vec<u8>,
}

fn udp(flow: u32) -> Vec<u8> {
    let frame = build::udp4((0x0a00_0000 + flow).to_be_bytes(), [192, 0, 2, 1], 1000, 53);
    frame.ttl(255).payload(b"a question").pad_to(60).to_vec()
}

fn ssh(flow: u32, payload: &[u8]) -> Vec<u8> {
    let frame = build::tcp4((0x0a00_0000 + flow).to_be_bytes(), [192, 0, 2, 1], 40_000, 22);
    frame.flags(TcpFlags::ACK).seq(1).payload(payload).pad_to(60).to_vec()
}

fn nfs() -> [Nf; 7] {
    let nf = |name, kind, settings| Nf { name, kind, settings, begin: |n| vec![udp(n)], packet: udp };
    [
        Nf {
            begin: |n| vec![ssh(n, b"SSH-2.0-a\r\n")],
            packet: |n| ssh(n, b""),
            ..nf("dpi, known flows", "dpi", "flows = 1048576\nmark = { unknown = 1 }")
        },
        nf(
            "police, per source",
            "police",
            "subscribers = 1048576\nclasses = [{ name = \"all\", per = \"source\", cir = \"1 kbps\", cbs = 4000000000 }]",
        ),
        nf("shape, one class", "shape", "classes = [{ name = \"all\", rate = \"1 Tbps\", burst = 4000000 }]"),
        nf("schedule, tail drop", "schedule", TAIL_DROP),
        nf("schedule, fq_codel", "schedule", "per = \"source\"\nsubscribers = 1048576"),
        nf("monitor without export", "monitor", "flows = 1048576\nidle = 600"),
        nf(
            "monitor with export",
            "monitor",
            "flows = 1048576\nidle = 600\nexport = { to = \"127.0.0.1:9\", active = 600 }",
        ),
    ]
}

const TAIL_DROP: &str = "per = \"source\"\nsubscribers = 1048576\n\
    classes = [{ name = \"all\", queue = { discipline = \"tail_drop\" } }]";

pub(super) fn rows(table: &mut ComponentTable<'_>, pool: &Arc<Mempool>) {
    for nf in nfs() {
        if !table.is_selected(nf.name) {
            continue;
        }
        for flows in FLOWS {
            let nf_loop = |kind, settings| {
                let mut random = Random(0x0071_6f73);
                let frames = (0..FRAMES).map(|_| (nf.packet)(random.next() % flows)).collect();
                NfLoop::new(kind, settings, (0..flows).map(nf.begin), frames, pool)
            };
            let (mut ours, mut counter) = (nf_loop(nf.kind, nf.settings), nf_loop("count", ""));
            let compared = compare_costs(table.pairs, || Some(ours.sample()), || Some(counter.sample()));
            let measurement = Measurement { name: nf.name, baseline: "count", size: flows as usize, unit: "packet" };
            table.add(&measurement, &compared.expect("every sample is valid"));
        }
    }
}
