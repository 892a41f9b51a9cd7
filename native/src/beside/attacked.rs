//! What packets cost where half of them are hostile, beside the same without hostile ones.

use super::nat64;
use super::side::{FRAMES, Side};
use super::{Table, What};
use crate::fixture::Random;
use crate::sample::compare_costs;
use crate::{conntrack, maglev, nat};
use dpdk::Mempool;
use std::sync::Arc;
use testkit::Hostile;

/// Flows of the good packets, and how many the tables have room for: the hostile ones fill it.
const FLOWS: u32 = 4096;
const ROOM: u32 = 16_384;

struct Target {
    kind: &'static str,
    settings: String,
    /// What flow `n` begins with.
    begin: fn(u32) -> Vec<Vec<u8>>,
    /// A packet of it.
    packet: fn(u32) -> Vec<u8>,
}

fn targets() -> [Target; 4] {
    [
        Target {
            kind: nat::NAME,
            settings: format!("external = [\"203.0.113.1\"]\nsessions = {ROOM}"),
            begin: |n| vec![nat::packet(n)],
            packet: nat::packet,
        },
        Target {
            kind: nat64::NAME,
            settings: format!("external = [\"203.0.113.1\"]\nsessions = {ROOM}"),
            begin: |n| vec![nat64::packet(n)],
            packet: nat64::packet,
        },
        Target {
            kind: "firewall",
            settings: format!("{}\ntrack = {{ connections = {ROOM} }}", conntrack::RULES),
            begin: |n| conntrack::handshake(n).into(),
            packet: |n| conntrack::established(n, true),
        },
        Target {
            kind: "maglev",
            settings: maglev::How::Nat.settings(ROOM),
            begin: |n| vec![maglev::packet(n)],
            packet: maglev::packet,
        },
    ]
}

impl Target {
    fn side(&self, frames: Vec<Vec<u8>>, pool: &Arc<Mempool>) -> Side {
        Side::new(self.kind, &self.settings, (0..FLOWS).map(self.begin), frames, pool)
    }
}

pub(super) fn rows(table: &mut Table<'_>, pool: &Arc<Mempool>) {
    for target in targets() {
        let what = format!("{}, half of it hostile", target.kind);
        if !table.wanted(&what) {
            continue;
        }
        let (mut random, mut hostile) = (Random(0x00a7_7ac4), Hostile::new(7));
        let good: Vec<Vec<u8>> = (0..FRAMES).map(|_| (target.packet)(random.next() % FLOWS)).collect();
        let mut mixed = good.clone();
        for frame in &mut mixed {
            if hostile.one_in(2) {
                // of any flow: addresses are spoofed
                *frame = hostile.of(&(target.packet)(random.next() >> 8));
            }
        }
        let (mut among, mut alone) = (target.side(mixed, pool), target.side(good, pool));
        let compared = compare_costs(table.pairs, || Some(among.sample()), || Some(alone.sample()));
        table.add(
            &What { what: &what, beside: "the same without", size: FLOWS as usize, unit: "packet" },
            &compared.expect("every sample counts"),
        );
    }
}
