//! The translation between IPv6 and IPv4, for which there is no fair baseline in C, beside that of IPv4 alone.

use super::side::{FRAMES, Side};
use super::{Table, What};
use crate::fixture::Random;
use crate::nat;
use crate::sample::compare_costs;
use dpdk::Mempool;
use std::sync::Arc;
use wire::build;

pub(super) const NAME: &str = "nat64";
/// Sessions of either.
const FLOWS: [u32; 3] = [1, 10_000, 1_000_000];

/// The packet of [`nat`]'s session number `flow`, as a host with IPv6 alone sends it.
pub(super) fn packet(flow: u32) -> Vec<u8> {
    let old = nat::packet(flow);
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

pub(super) fn rows(table: &mut Table<'_>, pool: &Arc<Mempool>) {
    const WHAT: &str = "nat64";
    if !table.wanted(WHAT) {
        return;
    }
    for flows in FLOWS {
        let settings = "external = [\"203.0.113.0/26\"]\nsessions = 1048576\nsubscribers = 65536";
        let side = |kind, packet: fn(u32) -> Vec<u8>| {
            let mut random = Random(0x0040_0640);
            let frames = (0..FRAMES).map(|_| packet(random.next() % flows)).collect();
            Side::new(kind, settings, (0..flows).map(|n| vec![packet(n)]), frames, pool)
        };
        let (mut six, mut four) = (side(NAME, packet), side(nat::NAME, nat::packet));
        let compared = compare_costs(table.pairs, || Some(six.sample()), || Some(four.sample()));
        let what = What { what: WHAT, beside: "nat44", size: flows as usize, unit: "packet" };
        table.add(&what, &compared.expect("every sample counts"));
    }
}
