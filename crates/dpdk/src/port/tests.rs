//! What comes in a form that no packet has: hand-made buffers, through a ring that is not trusted.

use super::*;
use crate::Memory;
use core::ptr::NonNull;
use packet::{Mbuf, Packet, Pool, Stamp};

/// RTE_MBUF_F_INDIRECT.
const INDIRECT: u64 = 1 << 62;

/// A packet of these bytes whose header is about to be changed; the reference ends with the buffer's next owner.
fn raw(pool: &Mempool, bytes: &[u8]) -> &'static mut Mbuf {
    let mbuf = pool.alloc_from(bytes).unwrap().into_raw();
    // SAFETY: just given up, and nobody else has it.
    unsafe { &mut *mbuf.as_ptr() }
}

/// These bytes in so many segments.
fn chain(pool: &Mempool, bytes: &[u8], segments: usize) -> &'static mut Mbuf {
    let mut parts = bytes.chunks(bytes.len().div_ceil(segments)).map(|part| raw(pool, part));
    let head = parts.next().unwrap();
    let mut last: *mut Mbuf = head;
    for part in parts {
        // SAFETY: the segment before, which nobody else has.
        unsafe { (*last).next = part };
        last = part;
        head.nb_segs += 1;
    }
    head.pkt_len = bytes.len() as u32;
    head
}

/// A ring whose buffers are looked at, as those of any other driver.
fn looked_at(name: &str, pool: &Arc<Mempool>, eal: Eal) -> Queues {
    let mut ring = Port::open(eal, name, "").unwrap().start(&PortConfig::default(), pool).unwrap();
    assert!(ring.rx[0].plain, "a ring hands on what it was given");
    ring.rx[0].plain = false;
    ring
}

/// Sends buffers as they are.
fn send(ring: &mut Queues, mbufs: Vec<&'static mut Mbuf>) {
    let (mut batch, n) = (Batch::new(), mbufs.len());
    for (at, mbuf) in mbufs.into_iter().enumerate() {
        // SAFETY: a free slot; the batch hands the buffers on to the ring, whatever form they have.
        unsafe {
            batch.buffers().add(at).write(NonNull::from(mbuf));
            batch.set_len(at + 1);
        }
    }
    assert_eq!(ring.tx[0].send(&mut batch), n);
}

fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|at| (at * 7) as u8 ^ seed).collect()
}

#[test]
fn what_comes_in_segments_or_borrowed_is_copied_into_one_buffer() {
    let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut ring = looked_at("net_ring_odd", &pool, eal);
    let all: Vec<Vec<u8>> =
        [60, 600, 2048, 64, 1500, 70, 2048].into_iter().zip(1..).map(|(n, seed)| bytes(n, seed)).collect();
    let mut stamped = pool.alloc_from(&all[5]).unwrap();
    stamped.meta_mut().set_stamp(Stamp { ns: 77, cut: 3 });
    stamped.meta_mut().set_port(5);
    // SAFETY: just given up.
    let held = unsafe { &mut *stamped.into_raw().as_ptr() };
    held.refcnt = 2;
    let second: *mut Mbuf = held;
    // an indirect buffer is a header whose bytes stand in another, which it alone holds
    let (owner, indirect) = (raw(&pool, &all[4]), raw(&pool, &[]));
    indirect.buf_addr = owner.buf_addr;
    indirect.buf_iova = owner.buf_iova;
    indirect.data_len = owner.data_len;
    indirect.pkt_len = owner.pkt_len;
    indirect.ol_flags |= INDIRECT;
    let mbufs = vec![
        raw(&pool, &all[0]),
        chain(&pool, &all[1], 3),
        chain(&pool, &all[2], 16),
        raw(&pool, &all[3]),
        indirect,
        held,
        raw(&pool, &all[6]),
    ];
    send(&mut ring, mbufs);
    let mut batch = Batch::new();
    assert_eq!(ring.rx[0].receive(&mut batch), 7);
    let got: Vec<&[u8]> = batch.iter().map(Packet::data).collect();
    assert_eq!(got, all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!((ring.rx[0].too_long(), ring.rx[0].unusable(), ring.port.stats().rx_copied), (0, 0, 4));
    assert_eq!(ring.rx[0].bytes(), all.iter().map(|b| b.len() as u64).sum::<u64>());
    // what is known of a packet goes with the copy
    let meta = batch.as_slice()[5].meta();
    assert_eq!((meta.stamp(), meta.port()), (Some(Stamp { ns: 77, cut: 3 }), 5));
    // nothing of the originals is left but what its other holder has, and each packet can grow and go home
    assert_eq!(pool.in_use(), 8);
    batch.for_each(|p| assert!(p.trim_front(10) && p.prepend(20).is_some()));
    drop(batch);
    // SAFETY: the other holder's reference, now the only one.
    unsafe {
        assert_eq!((*second).refcnt, 1);
        drop(Packet::from_raw(NonNull::new_unchecked(second)));
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_has_no_place_in_a_buffer_is_dropped_and_counted() {
    let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut ring = looked_at("net_ring_long", &pool, eal);
    let (kept, long) = (bytes(100, 1), bytes(2049, 2));
    // lengths that lie: over all segments, of the number of segments, beyond the buffer
    let lying = chain(&pool, &kept, 2);
    lying.pkt_len += 1;
    let short = chain(&pool, &kept, 4);
    short.nb_segs = 3;
    let beyond = raw(&pool, &kept);
    beyond.data_len = beyond.buf_len;
    beyond.pkt_len = beyond.data_len.into();
    let mbufs = vec![chain(&pool, &long, 2), raw(&pool, &kept), lying, short, chain(&pool, &long, 3), beyond];
    send(&mut ring, mbufs);
    let mut batch = Batch::new();
    assert_eq!(ring.rx[0].receive(&mut batch), 1);
    assert_eq!(batch.as_slice()[0].data(), kept);
    assert_eq!((ring.rx[0].too_long(), ring.rx[0].unusable(), ring.port.stats().rx_copied), (2, 3, 0));
    drop(batch);
    assert_eq!(pool.in_use(), 0);

    // nothing to copy into
    let segmented = chain(&pool, &kept, 2);
    let rest: Vec<Packet> = core::iter::from_fn(|| pool.alloc()).collect();
    send(&mut ring, vec![segmented]);
    let mut batch = Batch::new();
    assert_eq!(ring.rx[0].receive(&mut batch), 0);
    assert_eq!((ring.rx[0].too_long(), ring.rx[0].unusable()), (2, 4));
    drop(rest);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_nobody_takes_from_a_wire_goes_home() {
    let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
    let pool = Mempool::new(eal, 511).unwrap();
    let (near, far) = Port::wire(eal, 64).unwrap();
    let mut near = near.start(&PortConfig::default(), &pool).unwrap();
    let mut far = far.start(&PortConfig::default(), &pool).unwrap();
    for (ring, n) in [(&mut near, 5), (&mut far, 3)] {
        let mbufs = (0..n).map(|_| raw(&pool, &bytes(60, n))).collect();
        send(ring, mbufs);
    }
    drop(far);
    assert_eq!(pool.in_use(), 8, "one end is still there");
    drop(near);
    assert_eq!(pool.in_use(), 0);
}
