//! Rings that pass packets from one core to another, in bursts.

use crate::occupancy::Occupancy;
use packet::{BURST, Batch, Packet};
use rtrb::{Consumer, Producer};

/// Packets in the ring from each core to each core.
pub(super) const RING_SIZE: usize = 1024;

/// Moves as many packets as fit from the batch into the ring; the others stay in the batch, or go to `rest`. Returns
/// the number of bytes moved.
pub(super) fn push_burst(ring: &mut Producer<Packet>, batch: &mut Batch, rest: Option<&mut Batch>) -> u64 {
    if batch.is_empty() {
        return 0;
    }
    let n = ring.slots().min(batch.len());
    let mut bytes = 0;
    let mut packets = batch.drain();
    if let Ok(chunk) = ring.write_chunk_uninit(n) {
        chunk.fill_from_iter(packets.by_ref().take(n).inspect(|p| bytes += p.len() as u64));
    }
    let mut left = Batch::new();
    let rest = rest.unwrap_or(&mut left);
    for packet in packets {
        rest.push(packet).expect("at most a batch");
    }
    if !left.is_empty() {
        *batch = left;
    }
    bytes
}

/// Returns the packets in the ring.
pub(super) fn occupancy(ring: &Consumer<Packet>) -> Occupancy {
    Occupancy { used: ring.slots() as u64, capacity: RING_SIZE as u64 }
}

/// Moves packets of another core from the ring to the batch and returns their number.
pub(super) fn pop_burst(ring: &mut Consumer<Packet>, batch: &mut Batch) -> usize {
    let n = ring.slots().min(BURST - batch.len());
    let Ok(chunk) = ring.read_chunk(n) else { return 0 };
    for packet in chunk {
        batch.push(packet).expect("the batch is not full");
    }
    batch.set_unread();
    n
}
