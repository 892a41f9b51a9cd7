//! Verification that both sides produce the same packets.

use crate::fixture::{Counts, Memory};
use crate::pair::{Pair, Ports, worker};
use core::ffi::c_void;
use dpdk::Mempool;
use packet::{BURST, Pool};
use runtime::{RxPort, TxPort};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use wire::build;

/// Returns two bursts of valid and malformed frames.
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
        // truncated, in a different header each time
        let mut cut = udp.to_vec();
        cut.truncate(5 * n as usize + 8);
        all.push(cut);
        // invalid lengths
        let mut invalid = build::udp4(a4, b4, 1, 2).to_vec();
        invalid[14 + n as usize % 4] ^= 0x1f;
        all.push(invalid);
        all.push(vec![n as u8; 64]);
    }
    assert_eq!(all.len(), 64);
    all
}

/// Processes whole bursts of frames on both sides, and fails if the packets they send differ.
pub(crate) fn same_output(
    pool: &Arc<Mempool>,
    pair: &Pair,
    frames: &[Vec<u8>],
    state: *mut c_void,
) -> anyhow::Result<()> {
    assert!(frames.len().is_multiple_of(BURST), "whole bursts are received");
    let room = frames.len().next_power_of_two();
    let (from, to, baseline_to) = (Memory::new(room), Memory::new(room), Memory::new(room));
    let fill = || frames.iter().for_each(|f| from.push(pool.alloc_from(f).expect("the pool has enough buffers")));
    let bytes = |to: &Memory| to.take().iter().map(|p| p.data().to_vec()).collect::<Vec<_>>();

    fill();
    let mut worker = worker(
        pair.graph(),
        Ports::One,
        vec![RxPort::Other(Box::new(from.handle()))],
        vec![TxPort::Other(Box::new(to.handle()))],
        pool,
    );
    for _ in 0..frames.len() / BURST {
        worker.poll();
    }
    let ours = bytes(&to);

    fill();
    let (a, b) = (from.port.as_ptr(), baseline_to.port.as_ptr());
    let mut counts = Counts::default();
    for _ in 0..frames.len() / BURST {
        // SAFETY: one thread; ports, counts and state outlive the call, which takes one burst from a to b.
        unsafe { (pair.native)(a, b, 1, &mut counts, state) };
    }
    let baseline = bytes(&baseline_to);
    let first = || ours.iter().zip(&baseline).position(|(a, b)| a != b).unwrap_or(ours.len().min(baseline.len()));
    anyhow::ensure!(
        ours == baseline,
        "{}: of {} frames Bondstone sends {} and C {}; the first difference is frame {}: {:02x?}, {:02x?}",
        pair.name,
        frames.len(),
        ours.len(),
        baseline.len(),
        first(),
        ours.get(first()),
        baseline.get(first())
    );
    Ok(())
}
