//! Both sides on frames of every sort: the same must come out, byte for byte.

use crate::fixture::{CLoop, Counts, Memory};
use crate::rows::{Ports, worker};
use core::ffi::c_void;
use dpdk::Mempool;
use graph::Node;
use packet::{BURST, Pool};
use runtime::{Drain, Source};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use wire::build;

/// Two bursts of frames, good and bad.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let (a4, b4) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let (a6, b6) = (Ipv6Addr::new(0xfd, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd, 0, 0, 0, 0, 0, 0, 2));
    let mut all = vec![];
    for n in 0..8u16 {
        let ttl = [0, 1, 2, 64, 128, 255, 1, 17][n as usize];
        let payload = vec![n as u8; 3 * n as usize];
        let udp = build::udp4(a4, b4, 1000 + n, 53).ttl(ttl).payload(&payload);
        all.push(udp.clone().to_vec());
        all.push(udp.clone().vlan(5).to_vec());
        all.push(build::udp6(a6, b6, 1000 + n, 53).ttl(ttl).payload(&payload).to_vec());
        all.push(build::udp6(a6, b6, 1000 + n, 53).ttl(ttl).payload(&payload).vlan(9).to_vec());
        all.push(build::tcp4(a4, b4, 80, 2000 + n).ttl(ttl).pad_to(60).to_vec());
        // cut short, at a place that moves through the headers
        let mut cut = udp.to_vec();
        cut.truncate(5 * n as usize + 8);
        all.push(cut);
        // lengths that lie
        let mut lying = build::udp4(a4, b4, 1, 2).to_vec();
        lying[14 + n as usize % 4] ^= 0x1f;
        all.push(lying);
        all.push(vec![n as u8; 64]);
    }
    assert_eq!(all.len(), 64);
    all
}

/// Runs frames, whole bursts of them, through both; fails when anything but the same comes out.
pub(crate) fn same(
    pool: &Arc<Mempool>,
    name: &str,
    frames: &[Vec<u8>],
    nodes: Vec<Box<dyn Node>>,
    native: CLoop,
    state: *mut c_void,
) -> anyhow::Result<()> {
    assert!(frames.len().is_multiple_of(BURST), "whole bursts are received");
    let room = frames.len().next_power_of_two();
    let (from, to, theirs_to) = (Memory::new(room), Memory::new(room), Memory::new(room));
    let fill = || frames.iter().for_each(|f| from.give(pool.alloc_from(f).expect("the pool has as many packets")));
    let bytes = |to: &Memory| to.take().iter().map(|p| p.data().to_vec()).collect::<Vec<_>>();

    fill();
    let mut worker = worker(
        nodes,
        Ports::One,
        vec![Source::Other(Box::new(from.handle()))],
        vec![Drain::Other(Box::new(to.handle()))],
        pool,
    );
    for _ in 0..frames.len() / BURST {
        worker.poll();
    }
    let ours = bytes(&to);

    fill();
    let (a, b) = (from.port.as_ptr(), theirs_to.port.as_ptr());
    let mut counts = Counts::default();
    for _ in 0..frames.len() / BURST {
        // SAFETY: one thread, and all of it lives through the call; one burst goes from a to b.
        unsafe { native(a, b, 1, &mut counts, state) };
    }
    let theirs = bytes(&theirs_to);
    let first = || ours.iter().zip(&theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    anyhow::ensure!(
        ours == theirs,
        "{name}: of {} frames, {} come out of Bondstone and {} of C, and they differ from number {} on: {:02x?}, {:02x?}",
        frames.len(),
        ours.len(),
        theirs.len(),
        first(),
        ours.get(first()),
        theirs.get(first())
    );
    Ok(())
}
