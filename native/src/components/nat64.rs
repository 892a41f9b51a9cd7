//! NAT64, which has no C baseline, compared with NAT44.

use super::nf_loop::{FRAMES, NfLoop};
use super::table::{ComponentTable, Measurement};
use crate::fixture::Random;
use crate::nfs::nat44;
use crate::sample::compare_costs;
use dpdk::Mempool;
use std::sync::Arc;
use wire::build;

pub(super) const NAME: &str = "nat64";
/// Numbers of sessions.
const FLOWS: [u32; 3] = [1, 10_000, 1_000_000];

/// Returns the packet of [`nat44`]'s session number `flow` as an IPv6-only host sends it.
pub(super) fn packet(flow: u32) -> Vec<u8> {
    let old = nat44::packet(flow);
    let of = |prefix: [u8; 4], at: usize| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&prefix);
        address[12..].copy_from_slice(&old[at..at + 4]);
        address
    };
    let port = |at: usize| u16::from_be_bytes([old[at], old[at + 1]]);
    let frame = build::udp6(of([0x20, 1, 0xd, 0xb8], 26), of([0, 0x64, 0xff, 0x9b], 30), port(34), port(36));
    frame.ttl(255).payload(b"a question").to_vec()
}

pub(super) fn rows(table: &mut ComponentTable<'_>, pool: &Arc<Mempool>) {
    if !table.is_selected(NAME) {
        return;
    }
    for flows in FLOWS {
        let settings = "external = [\"203.0.113.0/26\"]\nsessions = 1048576\nsubscribers = 65536";
        let nf_loop = |kind, packet: fn(u32) -> Vec<u8>| {
            let mut random = Random(0x0040_0640);
            let frames = (0..FRAMES).map(|_| packet(random.next() % flows)).collect();
            NfLoop::new(kind, settings, (0..flows).map(|n| vec![packet(n)]), frames, pool)
        };
        let (mut six, mut four) = (nf_loop(NAME, packet), nf_loop(nat44::NAME, nat44::packet));
        let compared = compare_costs(table.pairs, || Some(six.sample()), || Some(four.sample()));
        let measurement = Measurement { name: NAME, baseline: "nat44", size: flows as usize, unit: "packet" };
        table.add(&measurement, &compared.expect("every sample is valid"));
    }
}
