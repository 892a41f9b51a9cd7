//! Cost of packets of which half are adversarial, compared with the cost without adversarial packets.

use super::nat64;
use super::nf_loop::{FRAMES, NfLoop};
use super::table::{ComponentTable, Measurement};
use crate::fixture::Random;
use crate::nfs::{conntrack, maglev, nat44};
use crate::sample::compare_costs;
use dpdk::Mempool;
use std::sync::Arc;
use testkit::AdversarialTraffic;

/// Flows of the valid packets.
const FLOWS: u32 = 4096;
/// Capacity of the tables, which adversarial packets fill.
const CAPACITY: u32 = 16_384;

/// An NF and its valid packets.
struct NfTraffic {
    kind: &'static str,
    settings: String,
    /// First packets of flow `n`.
    begin: fn(u32) -> Vec<Vec<u8>>,
    /// Packet of flow `n`.
    packet: fn(u32) -> Vec<u8>,
}

fn nfs() -> [NfTraffic; 4] {
    [
        NfTraffic {
            kind: nat44::NAME,
            settings: format!("external = [\"203.0.113.1\"]\nsessions = {CAPACITY}"),
            begin: |n| vec![nat44::packet(n)],
            packet: nat44::packet,
        },
        NfTraffic {
            kind: nat64::NAME,
            settings: format!("external = [\"203.0.113.1\"]\nsessions = {CAPACITY}"),
            begin: |n| vec![nat64::packet(n)],
            packet: nat64::packet,
        },
        NfTraffic {
            kind: "firewall",
            settings: format!("{}\ntrack = {{ connections = {CAPACITY} }}", conntrack::RULES),
            begin: |n| conntrack::handshake(n).into(),
            packet: |n| conntrack::established(n, true),
        },
        NfTraffic {
            kind: "maglev",
            settings: maglev::Forward::Nat.settings(CAPACITY),
            begin: |n| vec![maglev::packet(n)],
            packet: maglev::packet,
        },
    ]
}

impl NfTraffic {
    fn nf_loop(&self, frames: Vec<Vec<u8>>, pool: &Arc<Mempool>) -> NfLoop {
        NfLoop::new(self.kind, &self.settings, (0..FLOWS).map(self.begin), frames, pool)
    }
}

pub(super) fn rows(table: &mut ComponentTable<'_>, pool: &Arc<Mempool>) {
    for nf in nfs() {
        let name = format!("{}, half adversarial", nf.kind);
        if !table.is_selected(&name) {
            continue;
        }
        let (mut random, mut adversarial) = (Random(0x00a7_7ac4), AdversarialTraffic::new(7));
        let valid: Vec<Vec<u8>> = (0..FRAMES).map(|_| (nf.packet)(random.next() % FLOWS)).collect();
        let mut mixed = valid.clone();
        for frame in &mut mixed {
            if adversarial.one_in(2) {
                // of any flow, as addresses are spoofed
                *frame = adversarial.next_frame(&(nf.packet)(random.next() >> 8));
            }
        }
        let (mut mixed, mut valid) = (nf.nf_loop(mixed, pool), nf.nf_loop(valid, pool));
        let compared = compare_costs(table.pairs, || Some(mixed.sample()), || Some(valid.sample()));
        table.add(
            &Measurement { name: &name, baseline: "without adversarial", size: FLOWS as usize, unit: "packet" },
            &compared.expect("every sample is valid"),
        );
    }
}
