//! Ports and pools as any user has them: no root, no devices.

use dpdk::{Eal, Memory, Mempool, Port, PortConfig};
use packet::{BURST, Batch, HeapPool, Pool};

fn eal() -> Eal {
    Eal::start(Memory::Ordinary, &[]).unwrap()
}

#[test]
fn packets_go_home_from_any_thread_and_in_any_company() {
    let eal = eal();
    let pool = Mempool::new(eal, 511).unwrap();
    let mut batch = Batch::new();
    assert!(pool.fill(&mut batch));
    assert_eq!(pool.in_use(), BURST);
    let half: Vec<_> = batch.drain().take(BURST / 2).collect();
    assert_eq!(pool.in_use(), BURST / 2);
    std::thread::spawn(move || drop(half)).join().unwrap();
    assert_eq!(pool.in_use(), 0);

    // two pools and the heap in one batch
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
fn an_empty_pool_says_so() {
    let pool = Mempool::new(eal(), 63).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), pool.size());
    let mut batch = Batch::new();
    assert!(!pool.fill(&mut batch) && batch.is_empty());
}

#[test]
fn what_is_sent_to_a_ring_comes_back_whole_and_in_order() {
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

    // a full ring takes no more, and what it does not take stays
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
fn a_device_opens_once() {
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
fn heap_packets_do_not_reach_a_driver() {
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
fn a_pool_is_handed_out_again_once_all_its_packets_are_home() {
    let eal = eal();
    // no other test asks for as many
    let pool = Mempool::new(eal, 4095).unwrap();
    let late = pool.alloc().unwrap();
    drop(pool);
    let other = Mempool::new(eal, 4095).unwrap();
    assert_eq!((other.in_use(), other.alloc().is_some()), (0, true));
    drop((late, other));
    // 24 GiB, were they all kept apart
    for _ in 0..2500 {
        assert_eq!(Mempool::new(eal, 4095).unwrap().in_use(), 0);
    }
}
