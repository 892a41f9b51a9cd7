//! Allocating buffers on the heap, and freeing buffers of any pool.

use crate::mbuf::Mbuf;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Bytes that a new packet keeps free before its data, DPDK's `RTE_PKTMBUF_HEADROOM`.
pub const HEADROOM: usize = 128;

/// Length in bytes, without FCS, of the longest frame in a buffer of the usual size.
pub const MAX_FRAME: usize = 2048;

/// Length in bytes, without FCS, of the longest frame in a buffer of the largest size: 16,000 with FCS, the letter `j` of
/// RFC 6985 §4.
pub const MAX_JUMBO_FRAME: usize = 15_996;

/// Returns the bytes after the headroom of buffers for frames of up to `max_frame` bytes: [`MAX_FRAME`], or more.
#[must_use]
pub const fn data_room(max_frame: usize) -> usize {
    /// The ring of a packet socket, whose frames have this size, keeps so many bytes before each.
    const PACKET_SOCKET: usize = 66;
    // four of its frames fill whole pages, and NICs use multiples of 128 bytes
    if max_frame <= MAX_FRAME { MAX_FRAME } else { (max_frame + PACKET_SOCKET).next_multiple_of(1024) }
}

const LAYOUT: Layout = match Layout::from_size_align(size_of::<Mbuf>() + HEADROOM + MAX_FRAME, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a constant"),
};

/// Frees `n` buffers to the pools that they refer to. No pointer and no pool is null.
pub type FreeHook = unsafe fn(*mut NonNull<Mbuf>, u32);

static FREE_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the function that frees buffers of pools. The crate that owns such pools calls it once before it creates
/// any.
///
/// # Safety
/// The function must return each buffer to the pool that it names.
pub unsafe fn set_free_hook(hook: FreeHook) {
    FREE_HOOK.store(hook as *mut (), Ordering::Release);
}

/// Allocates a buffer on the heap. Its `shinfo` holds a reference to the counter of its pool.
pub(crate) fn alloc_heap(in_use: &Arc<AtomicUsize>) -> NonNull<Mbuf> {
    // SAFETY: LAYOUT has a size; the result is checked; zeros are a valid Mbuf; the buffer follows the header.
    unsafe {
        let raw = alloc_zeroed(LAYOUT);
        let Some(mbuf) = NonNull::new(raw.cast::<Mbuf>()) else { std::alloc::handle_alloc_error(LAYOUT) };
        let m = &mut *mbuf.as_ptr();
        m.buf_addr = raw.add(size_of::<Mbuf>());
        m.buf_len = (HEADROOM + MAX_FRAME) as u16;
        m.data_off = HEADROOM as u16;
        m.refcnt = 1;
        m.nb_segs = 1;
        m.shinfo = Arc::into_raw(in_use.clone()).cast_mut().cast();
        mbuf
    }
}

/// Frees a heap buffer.
///
/// # Safety
/// `mbuf` was returned by [`alloc_heap`] and is not used any more.
#[cold]
unsafe fn free_heap(mbuf: NonNull<Mbuf>) {
    // SAFETY: by contract, the buffer is live and exclusive; shinfo was set from Arc::into_raw in alloc_heap.
    unsafe {
        let in_use = Arc::from_raw((*mbuf.as_ptr()).shinfo.cast::<AtomicUsize>());
        in_use.fetch_sub(1, Ordering::AcqRel);
        dealloc(mbuf.as_ptr().cast(), LAYOUT);
    }
}

/// Frees the buffers at `at .. at + n`, runs of pool buffers with one call of the hook.
///
/// # Safety
/// All buffers are live and owned by the caller, which does not use them any more.
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
            // SAFETY: the buffers from .. i have pools, whose owner has installed the hook before it created them.
            unsafe {
                let hook: FreeHook = core::mem::transmute(FREE_HOOK.load(Ordering::Relaxed));
                hook(at.add(from as usize), i - from);
            }
        }
        if heap {
            // SAFETY: a buffer without a pool was returned by alloc_heap, and the caller owns it.
            unsafe { free_heap(*at.add(i as usize)) }
        }
        from = i + 1;
    }
}
