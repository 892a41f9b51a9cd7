//! The buffer header, field by field where `rte_mbuf` has it.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Set in `ol_flags` while `timestamp` and `cut` hold; the dynamic flag that `dpdk` registers under this number.
pub const TIMESTAMPED: u64 = 1 << 32;
/// Set in `ol_flags` while `note` holds; likewise.
pub const NOTED: u64 = 1 << 33;

/// A packet buffer's header: 128 bytes on two cache lines, every field at its offset in DPDK's `rte_mbuf` (the `dpdk`
/// crate asserts each at build time). `pool` is null for heap packets; `shinfo` then points to the pool's count.
#[repr(C, align(64))]
pub struct Mbuf {
    /// First byte of the buffer.
    pub buf_addr: *mut u8,
    /// The buffer's address as a device sees it; untouched here.
    pub buf_iova: u64,
    /// Offset of the packet's first byte from `buf_addr`.
    pub data_off: u16,
    /// References to this buffer; 1 in every [`Packet`](crate::Packet).
    pub refcnt: u16,
    /// Segments in the chain; 1 in every [`Packet`](crate::Packet).
    pub nb_segs: u16,
    /// Port that the packet came in by.
    pub port: u16,
    /// Offload and dynamic flags.
    pub ol_flags: u64,
    /// Type that the device recognised.
    pub packet_type: u32,
    /// Length in bytes over all segments.
    pub pkt_len: u32,
    /// Length in bytes of this segment.
    pub data_len: u16,
    /// Tag that the device stripped.
    pub vlan_tci: u16,
    /// Receive-side-scaling hash, valid with `RTE_MBUF_F_RX_RSS_HASH`.
    pub rss: u32,
    /// Rest of DPDK's hash union.
    pub hash_rest: u32,
    /// Outer tag that the device stripped.
    pub vlan_tci_outer: u16,
    /// Size of the buffer in bytes.
    pub buf_len: u16,
    /// Pool that it goes home to; null for a heap packet.
    pub pool: *mut c_void,
    /// Next segment.
    pub next: *mut Mbuf,
    /// Header lengths for offloads.
    pub tx_offload: u64,
    /// Shared data of an external buffer; a heap packet's owner.
    pub shinfo: *mut c_void,
    /// Bytes between this header and the buffer.
    pub priv_size: u16,
    /// IEEE 1588 flags.
    pub timesync: u16,
    /// Left to DPDK's own dynamic fields.
    pub dynfield: u32,
    /// Nanoseconds since the Unix epoch; valid with [`TIMESTAMPED`].
    pub timestamp: u64,
    /// Bytes that the capture left out at the end of the frame; valid with [`TIMESTAMPED`].
    pub cut: u32,
    /// What a node has noted: its type and 16 bytes; valid with [`NOTED`].
    pub note: [u32; 5],
}

const _: () = assert!(size_of::<Mbuf>() == 128);

/// Gives `n` buffers back to the pools that they name. None is null, none has a null pool.
pub type FreeHook = unsafe fn(*mut NonNull<Mbuf>, u32);

static FREE_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the function that frees buffers with a pool. Called once by the crate that owns such pools, before it makes any.
pub fn set_free_hook(hook: FreeHook) {
    FREE_HOOK.store(hook as *mut (), Ordering::Release);
}

/// Frees the buffers at `at .. at + n`.
///
/// # Safety
/// All are live, exclusively owned, and forgotten by the caller.
#[inline]
pub(crate) unsafe fn free(at: *mut NonNull<Mbuf>, n: u32) {
    let mut from = 0;
    for i in 0..=n {
        // SAFETY: i < n, and the caller owns these buffers.
        let heap = i < n && unsafe { (*(*at.add(i as usize)).as_ptr()).pool.is_null() };
        if i < n && !heap {
            continue;
        }
        if from < i {
            // SAFETY: the run from .. i has pools, whose owner has installed the hook (null would be a bug there).
            unsafe {
                let hook: FreeHook = core::mem::transmute(FREE_HOOK.load(Ordering::Relaxed));
                hook(at.add(from as usize), i - from);
            }
        }
        if heap {
            // SAFETY: a buffer without a pool came from the heap pool and is ours.
            unsafe { crate::heap::free(*at.add(i as usize)) }
        }
        from = i + 1;
    }
}
