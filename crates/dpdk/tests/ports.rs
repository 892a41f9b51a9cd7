//! Ports and pools without privileges or hardware.

use dpdk::{Eal, Memory, Mempool, Port, PortConfig, Queues};
use packet::{BURST, Batch, HeapPool, Pool};
use std::time::{Duration, Instant};

fn eal() -> Eal {
    Eal::start(Memory::Ordinary, &[]).unwrap()
}

#[test]
fn packets_return_to_their_pool_from_any_thread_and_from_mixed_batches() {
    let eal = eal();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut batch = Batch::new();
    assert!(pool.fill(&mut batch));
    assert_eq!(pool.in_use(), BURST);
    let half: Vec<_> = batch.drain().take(BURST / 2).collect();
    assert_eq!(pool.in_use(), BURST / 2);
    std::thread::spawn(move || drop(half)).join().unwrap();
    assert_eq!(pool.in_use(), 0);

    // packets of two pools and of the heap in one batch
    let (other, heap) = (Mempool::new(eal, 511).unwrap(), HeapPool::new(8));
    for n in 0..BURST {
        let packet = match n % 3 {
            0 => pool.alloc(),
            1 => other.alloc(),
            _ => heap.alloc().or_else(|| pool.alloc()),
        };
        batch.push(packet.unwrap()).unwrap();
    }
    drop(batch);
    assert_eq!((pool.in_use(), other.in_use(), heap.in_use()), (0, 0, 0));
}

#[test]
fn an_empty_pool_allocates_nothing() {
    let pool = Mempool::new(eal(), 63).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), pool.size());
    let mut batch = Batch::new();
    assert!(!pool.fill(&mut batch) && batch.is_empty());
}

#[test]
fn a_queue_without_a_handle_gets_one_again() {
    let eal = eal();
    let pool = Mempool::new(eal, 2047).unwrap();
    let Queues { mut rx, mut tx, port } =
        Port::open(eal, "net_ring_handles", "").unwrap().start(&PortConfig::default(), &pool).unwrap();
    assert!(port.unused_rx().is_none() && port.unused_tx().is_none());
    let mut batch = Batch::new();
    batch.push(pool.alloc_from(&[7; 60]).unwrap()).unwrap();
    assert_eq!(tx[0].send(&mut batch), 1);
    rx.clear();
    tx.clear();
    let mut again = port.unused_rx().unwrap();
    assert!(port.unused_rx().is_none() && port.unused_tx().is_some());
    assert_eq!(again.receive(&mut batch), 1);
}

#[test]
fn a_ring_preserves_packets_and_order() {
    let eal = eal();
    let pool = Mempool::new(eal, 2047).unwrap();
    let mut ring = Port::open(eal, "net_ring_order", "").unwrap().start(&PortConfig::default(), &pool).unwrap();
    let mut batch = Batch::new();
    for n in 0..BURST as u8 {
        batch.push(pool.alloc_from(&[n; 60]).unwrap()).unwrap();
    }
    assert_eq!(ring.tx[0].send(&mut batch), BURST);
    assert!(batch.is_empty());
    assert_eq!(ring.rx[0].receive(&mut batch), BURST);
    let tags: Vec<_> = batch.iter().map(|p| p.data()[59]).collect();
    assert_eq!(tags, (0..BURST as u8).collect::<Vec<_>>());

    // a full ring accepts no more, and the remaining packets stay in the batch
    let mut sent = ring.tx[0].send(&mut batch);
    loop {
        while !batch.is_full() {
            batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
        }
        match ring.tx[0].send(&mut batch) {
            BURST => sent += BURST,
            n => {
                sent += n;
                break;
            }
        }
    }
    assert_eq!(pool.in_use(), sent + batch.len());
}

#[test]
fn a_device_cannot_be_opened_twice() {
    let eal = eal();
    let first = Port::open(eal, "net_null_once", "").unwrap();
    let again = Port::open(eal, "net_null_once", "").unwrap_err();
    assert_eq!(again.errno, libc::EBUSY, "{again}");
    drop(first);
    Port::open(eal, "net_null_once", "").unwrap();
    let unknown = Port::open(eal, "net_nil0", "").unwrap_err();
    assert!(unknown.to_string().contains("net_nil0"), "{unknown}");
}

#[test]
fn heap_packets_are_not_passed_to_a_driver() {
    let eal = eal();
    let (pool, heap) = (Mempool::new(eal, 511).unwrap(), HeapPool::new(8));
    let mut null = Port::open(eal, "net_null_heap", "").unwrap().start(&PortConfig::default(), &pool).unwrap();
    let mut batch = Batch::new();
    batch.push(heap.alloc_from(&[1; 60]).unwrap()).unwrap();
    batch.push(pool.alloc_from(&[2; 60]).unwrap()).unwrap();
    assert_eq!(null.tx[0].send(&mut batch), 1);
    assert_eq!((batch.len(), heap.in_use(), pool.in_use()), (0, 0, 0));
}

#[test]
fn a_pool_is_reused_once_all_its_packets_are_returned() {
    let eal = eal();
    // no other test uses a pool of this size
    let pool = Mempool::new(eal, 4095).unwrap();
    let late = pool.alloc().unwrap();
    drop(pool);
    let other = Mempool::new(eal, 4095).unwrap();
    assert_eq!((other.in_use(), other.alloc().is_some()), (0, true));
    drop((late, other));
    // 24 GiB if pools were not reused
    for _ in 0..2500 {
        assert_eq!(Mempool::new(eal, 4095).unwrap().in_use(), 0);
    }
}

/// Length of a frame that exceeds a buffer, so that drivers receive it in two segments.
const LONG: usize = 2100;

/// Sends long and short frames from one port to another; returns the lengths received and the number dropped as too
/// long.
fn transfer(pool: &Mempool, mut from: Queues, mut to: Queues) -> (Vec<usize>, u64) {
    let began = Instant::now();
    let check_timeout = |what: &str| assert!(began.elapsed() < Duration::from_secs(60), "{what}");
    let mut batch = Batch::new();
    while !(from.port.link_up() && to.port.link_up()) {
        check_timeout("no link");
        std::thread::sleep(Duration::from_millis(5));
    }
    for n in 0..16 {
        let mut packet = pool.alloc_from(&[n; 60]).unwrap();
        if n % 4 == 3 {
            packet.append(2048 - 60).unwrap().fill(n);
            packet.prepend(LONG - 2048).unwrap().fill(n);
        }
        batch.push(packet).unwrap();
    }
    while !batch.is_empty() {
        check_timeout("not all packets are sent");
        from.tx[0].send(&mut batch);
    }
    let mut lengths = vec![];
    while lengths.len() + (to.rx[0].too_long() as usize) < 16 {
        check_timeout("not all packets are received");
        // polling also returns sent packets to the pool
        from.tx[0].send(&mut Batch::new());
        to.rx[0].receive(&mut batch);
        lengths.extend(batch.iter().map(packet::Packet::len));
        batch.clear();
    }
    (lengths, to.rx[0].too_long())
}

#[test]
fn segmented_packets_are_received_whole_or_dropped() {
    let eal = eal();
    let pool = Mempool::new(eal, 8191).unwrap();
    let folder = std::env::temp_dir().join(format!("bondstone-ports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let open = |name: &str, arguments: &str| {
        let config = PortConfig { descriptors: 256, ..PortConfig::default() };
        Port::open(eal, name, arguments).unwrap().start(&config, &pool).unwrap()
    };
    let (memif, vhost) = (folder.join("memif"), folder.join("vhost"));
    let (memif, vhost) = (memif.display(), vhost.display());
    let server = open("net_memif_long_a", &format!("role=server,socket-abstract=no,socket={memif}"));
    let client = open("net_memif_long_b", &format!("role=client,socket-abstract=no,socket={memif}"));
    let (lengths, too_long) = transfer(&pool, client, server);
    assert_eq!((lengths, too_long), (vec![60; 12], 4));
    let switch = open("net_vhost_long", &format!("iface={vhost}"));
    let user = open("net_virtio_user_long", &format!("path={vhost},queues=1,mrg_rxbuf=1"));
    let (lengths, too_long) = transfer(&pool, user, switch);
    assert_eq!((lengths, too_long), (vec![60; 12], 4));
    std::fs::remove_dir_all(&folder).unwrap();
}
