//! Reception of unusual buffers, sent through a ring that is not trusted.

use super::*;
use crate::Memory;
use core::ptr::NonNull;
use packet::{CaptureInfo, Mbuf, Packet, Pool};

/// RTE_MBUF_F_INDIRECT.
const INDIRECT: u64 = 1 << 62;

/// Returns the header of a packet with these bytes, to be modified; the reference ends with the buffer's next owner.
fn raw(pool: &Mempool, bytes: &[u8]) -> &'static mut Mbuf {
    let mbuf = pool.alloc_from(bytes).unwrap().into_raw();
    // SAFETY: just released by its packet, and not owned elsewhere.
    unsafe { &mut *mbuf.as_ptr() }
}

/// Returns a packet with these bytes in `segments` segments.
fn chain(pool: &Mempool, bytes: &[u8], segments: usize) -> &'static mut Mbuf {
    let mut parts = bytes.chunks(bytes.len().div_ceil(segments)).map(|part| raw(pool, part));
    let head = parts.next().unwrap();
    let mut last: *mut Mbuf = head;
    for part in parts {
        // SAFETY: the previous segment, not owned elsewhere.
        unsafe { (*last).next = part };
        last = part;
        head.nb_segs += 1;
    }
    head.pkt_len = bytes.len() as u32;
    head
}

/// Opens a ring whose buffers are validated, as those of other drivers are.
fn validated_ring(name: &str, pool: &Arc<Mempool>, eal: Eal) -> Queues {
    let mut ring = Port::open(eal, name, "").unwrap().start(&PortConfig::default(), pool).unwrap();
    assert!(ring.rx[0].trusted, "rings are trusted by default");
    ring.rx[0].trusted = false;
    ring
}

/// Sends buffers unchanged.
fn send(ring: &mut Queues, mbufs: Vec<&'static mut Mbuf>) {
    let (mut batch, n) = (Batch::new(), mbufs.len());
    for (at, mbuf) in mbufs.into_iter().enumerate() {
        // SAFETY: a free slot; the batch passes the buffers to the ring without looking at them.
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
fn segmented_and_shared_buffers_are_copied_into_one_buffer() {
    let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut ring = validated_ring("net_ring_odd", &pool, eal);
    let all: Vec<Vec<u8>> =
        [60, 600, 2048, 64, 1500, 70, 2048].into_iter().zip(1..).map(|(n, seed)| bytes(n, seed)).collect();
    let mut stamped = pool.alloc_from(&all[5]).unwrap();
    stamped.meta_mut().set_capture_info(CaptureInfo { ns: 77, truncated: 3 });
    stamped.meta_mut().set_port(5);
    // SAFETY: just released by its packet.
    let held = unsafe { &mut *stamped.into_raw().as_ptr() };
    held.refcnt = 2;
    let second: *mut Mbuf = held;
    // an indirect buffer is a header whose data lie in another buffer, to which it has the only reference
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
    // metadata are copied, too
    let meta = batch.as_slice()[5].meta();
    assert_eq!((meta.capture_info(), meta.port()), (Some(CaptureInfo { ns: 77, truncated: 3 }), 5));
    // the originals are freed except for the shared one, and the copies are ordinary packets
    assert_eq!(pool.in_use(), 8);
    batch.for_each(|p| assert!(p.trim_front(10) && p.prepend(20).is_some()));
    drop(batch);
    // SAFETY: the other reference, now the only one.
    unsafe {
        assert_eq!((*second).refcnt, 1);
        drop(Packet::from_raw(NonNull::new_unchecked(second)));
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn packets_that_cannot_be_copied_are_dropped_and_counted() {
    let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut ring = validated_ring("net_ring_long", &pool, eal);
    let (kept, long) = (bytes(100, 1), bytes(2049, 2));
    // inconsistent lengths: of the packet, number of segments, beyond the buffer
    let inconsistent = chain(&pool, &kept, 2);
    inconsistent.pkt_len += 1;
    let short = chain(&pool, &kept, 4);
    short.nb_segs = 3;
    let beyond = raw(&pool, &kept);
    beyond.data_len = beyond.buf_len;
    beyond.pkt_len = beyond.data_len.into();
    let mbufs = vec![chain(&pool, &long, 2), raw(&pool, &kept), inconsistent, short, chain(&pool, &long, 3), beyond];
    send(&mut ring, mbufs);
    let mut batch = Batch::new();
    assert_eq!(ring.rx[0].receive(&mut batch), 1);
    assert_eq!(batch.as_slice()[0].data(), kept);
    assert_eq!((ring.rx[0].too_long(), ring.rx[0].unusable(), ring.port.stats().rx_copied), (2, 3, 0));
    drop(batch);
    assert_eq!(pool.in_use(), 0);

    // no buffer to copy into
    let segmented = chain(&pool, &kept, 2);
    let all: Vec<Packet> = core::iter::from_fn(|| pool.alloc()).collect();
    send(&mut ring, vec![segmented]);
    let mut batch = Batch::new();
    assert_eq!(ring.rx[0].receive(&mut batch), 0);
    assert_eq!((ring.rx[0].too_long(), ring.rx[0].unusable()), (2, 4));
    drop(all);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn packets_left_in_a_wire_return_to_the_pool() {
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
    assert_eq!(pool.in_use(), 8, "one end is still open");
    drop(near);
    assert_eq!(pool.in_use(), 0);
}
