//! Shared-memory rings: two processes exchange packets without a copy. Neither is protected from the other.
//!
//! The server owns the packet pool; the client maps the pool's memory at the same addresses. While the client may hold
//! a buffer, the buffer names a proxy pool in the shared region instead of its own pool; the server uses that to find
//! outstanding buffers after the client has died. The client never accesses the server's pool: a process that is killed
//! could leave the pool's lock held.

use crate::port::total_bytes;
use crate::{Mempool, Result, check};
use core::ptr::NonNull;
use dpdk_sys as sys;
use packet::{BURST, Batch, HEADROOM, Mbuf, Packet, Pool, TIMESTAMP_FLAG};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// Empty buffers on the refill ring of each queue, from which the client allocates packets.
const REFILL_TARGET: usize = 64;
/// Address of the first region: far from the addresses that the kernel, the allocator and DPDK choose.
const REGION_BASE: usize = 0x3000_0000_0000;
/// Distance between regions in bytes.
const REGION_STRIDE: usize = 1 << 26;
/// Most memory segments of a pool.
const MAX_SEGMENTS: usize = 128;
/// Most files that back these segments; the kernel passes at most 253 descriptors in a message (`SCM_MAX_FD`).
const MAX_FILES: usize = 64;
/// Most files of a message: the region, those of the pool, and one for each queue.
const MAX_SHARED: usize = MAX_FILES + RingServer::MAX_QUEUES;
/// First bytes of the message that refuses a client; the reason follows.
const REFUSAL_PREFIX: &str = "refused:";
/// Pause after `accept` has failed.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(20);
/// Interval between checks of regions that wait to be reclaimed.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The side that owns the buffers. It serves one client at a time, which connects to its socket.
pub struct RingServer {
    handle: Arc<ServerHandle>,
    queues: QueueSet,
}

/// The queues of a region; each may be claimed once, so that each ring end has one user.
struct QueueSet {
    count: usize,
    claimed: AtomicU64,
}

impl QueueSet {
    fn new(count: usize) -> Self {
        QueueSet { count, claimed: AtomicU64::new(0) }
    }

    fn claim(&self, queue: usize) {
        assert!(queue < self.count, "queue {queue} of {}", self.count);
        assert_eq!(self.claimed.fetch_or(1 << queue, Ordering::Relaxed) >> queue & 1, 0, "queue {queue} is in use");
    }
}

/// Shared by all handles of a server; dropping the last one stops its thread.
struct ServerHandle {
    state: Arc<ServerState>,
    /// Wakes the thread when written to.
    wake: UnixStream,
}

struct ServerState {
    pool: Arc<Mempool>,
    queues: usize,
    /// Packets that each queue holds, in each direction.
    depth: usize,
    /// The region of the connected client.
    current: Mutex<Option<Arc<Region>>>,
    /// Incremented whenever `current` changes.
    generation: AtomicU64,
    shutdown: AtomicBool,
}

/// The memory shared with one client.
struct Region {
    base: NonNull<sys::bs_region>,
    size: usize,
    /// Wake a client that waits for packets, by queue.
    wakes: Vec<OwnedFd>,
    /// Buffers that the client may hold.
    outstanding: AtomicUsize,
    /// Held while taking buffers from the ring of freed buffers.
    freed_lock: Mutex<()>,
}

// SAFETY: the region is designed for concurrent use by two processes; each ring end has one user.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and this is the last reference.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.state.shutdown.store(true, Ordering::Release);
        *self.state.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // errors: the thread has already ended
        let _ = self.wake.write(&[0]);
    }
}

impl RingServer {
    /// Most buffers that a client may hold: those queued, those held by its NFs, and the refill rings.
    pub const MAX_OUTSTANDING: usize = 4096;
    /// Most queues of a region.
    pub const MAX_QUEUES: usize = sys::BS_MAX_QUEUES as usize;

    /// Listens at `socket` for a client to exchange packets of `pool` with, on `queues` queues of `depth` packets in
    /// each direction.
    ///
    /// # Errors
    /// The socket is in use, or the pool's memory is not backed by a file.
    ///
    /// # Panics
    /// If `queues` exceeds [`RingServer::MAX_QUEUES`].
    ///
    /// # Safety
    /// Only a process that uses a [`RingClient`] may connect to the socket: the client's pointers are used as they are.
    pub unsafe fn listen(socket: &Path, queues: usize, depth: usize, pool: &Arc<Mempool>) -> io::Result<RingServer> {
        assert!(queues <= Self::MAX_QUEUES, "{queues} queues exceed {}", Self::MAX_QUEUES);
        pool_segments(pool).map_err(io::Error::other)?;
        let listener = UnixListener::bind(socket)?;
        let (wake, woken) = UnixStream::pair()?;
        let state = Arc::new(ServerState {
            pool: pool.clone(),
            queues,
            depth,
            current: Mutex::default(),
            generation: AtomicU64::new(0),
            shutdown: AtomicBool::new(false),
        });
        let server = state.clone();
        std::thread::Builder::new().name("ring-server".into()).spawn(move || server.serve(&listener, &woken))?;
        Ok(RingServer { handle: Arc::new(ServerHandle { state, wake }), queues: QueueSet::new(queues) })
    }

    /// Returns both ends of a queue.
    ///
    /// # Panics
    /// If the queue does not exist or is in use.
    #[must_use]
    pub fn queue(&self, queue: usize) -> (ServerRx, ServerTx) {
        self.queues.claim(queue);
        let end =
            || ServerQueue { handle: self.handle.clone(), queue: queue as u32, generation: 0, region: None, bytes: 0 };
        (ServerRx(end()), ServerTx(end()))
    }
}

impl ServerState {
    /// Serves one client at a time, and reclaims the buffers of clients that have ended.
    fn serve(&self, listener: &UnixListener, woken: &UnixStream) {
        let mut client: Option<(UnixStream, Arc<Region>)> = None;
        let mut ended: Vec<Arc<Region>> = vec![];
        loop {
            ended.retain_mut(|region| {
                let Some(only) = Arc::get_mut(region) else { return true };
                // SAFETY: the client has ended, and no handle uses the region.
                unsafe { sys::bs_region_reclaim(only.base.as_ptr(), self.pool.raw()) };
                false
            });
            let shutdown = self.shutdown.load(Ordering::Acquire);
            if shutdown && client.is_none() && ended.is_empty() {
                return;
            }
            // the end of the client is reported as POLLHUP
            let mut files: Vec<PollFd<'_>> =
                client.iter().map(|(stream, _)| PollFd::new(stream, PollFlags::empty())).collect();
            if !shutdown {
                files.extend([PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)]);
            }
            // errors: interrupted by a signal, and the loop polls again
            let _ = poll(&mut files, (!ended.is_empty()).then_some(&POLL_INTERVAL));
            let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            let (of_client, others) = ready.split_at(usize::from(client.is_some()));
            if of_client.contains(&true)
                && let Some((_, region)) = client.take()
            {
                self.publish(None);
                ended.push(region);
            }
            if others.first() != Some(&true) {
                continue;
            }
            match listener.accept().map(|(new, _)| (self.create_region(&new), new)) {
                Ok((Ok(region), new)) if client.is_none() => {
                    let region = Arc::new(region);
                    self.publish(Some(region.clone()));
                    client = Some((new, region));
                }
                // the previous client is about to end, and the new one connects again
                Ok((Ok(_), _)) => {}
                // errors: the client has ended
                Ok((Err(reason), mut new)) => drop(new.write_all(format!("{REFUSAL_PREFIX}{reason}").as_bytes())),
                // too many open files: the client waits in the backlog
                Err(_) => std::thread::sleep(ACCEPT_BACKOFF),
            }
        }
    }

    fn publish(&self, region: Option<Arc<Region>>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = region.filter(|_| !self.shutdown.load(Ordering::Acquire));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Creates a region, and sends the client the addresses and files of all shared memory.
    fn create_region(&self, client: &UnixStream) -> io::Result<Region> {
        let max_outstanding = RingServer::MAX_OUTSTANDING + self.queues * REFILL_TARGET;
        let [queues, depth, max_outstanding] = [self.queues, self.depth, max_outstanding].map(|n| n as u32);
        // SAFETY: a pure calculation.
        let size = unsafe { sys::bs_region_size(queues, depth, max_outstanding) }.next_multiple_of(1 << 12);
        let file = memfd_create("bondstone-shared-ring", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size as u64)?;
        let addresses = (0..1 << 12).map(|n| REGION_BASE + n * REGION_STRIDE);
        let base = addresses
            .map(|at| map_fixed(at, size, &file, 0))
            .find(|mapped| !matches!(mapped, Err(rustix::io::Errno::EXIST)));
        let base = base.ok_or_else(|| io::Error::other("no free address range for the region"))??;
        let wake = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wakes = (0..queues).map(|_| wake()).collect::<rustix::io::Result<_>>()?;
        let (base, outstanding) = (base.cast(), AtomicUsize::new(0));
        let region = Region { base, size, wakes, outstanding, freed_lock: Mutex::new(()) };
        // SAFETY: zeroed memory of that size, not shared yet.
        let rc = unsafe { sys::bs_region_init(region.base.as_ptr(), queues, depth, max_outstanding) };
        check(|| "creating shared-memory rings".into(), rc).map_err(io::Error::other)?;
        let segments = pool_segments(&self.pool).map_err(io::Error::other)?;
        let mut fds: Vec<i32> = segments.iter().map(|segment| segment.fd).collect();
        fds.sort_unstable();
        fds.dedup();
        let number = |fd| fds.iter().position(|other| *other == fd).unwrap_or_default() as u64 + 1;
        let own = [region.base.as_ptr() as u64, size as u64, 0, 0];
        let all = segments.iter().map(|s| [s.at as u64, s.len as u64, s.offset, number(s.fd)]);
        let message: Vec<u8> = std::iter::once(own).chain(all).flatten().flat_map(u64::to_ne_bytes).collect();
        // SAFETY: DPDK's descriptors, which stay open as long as the pool's memory.
        let pool_files = fds.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let wakes = region.wakes.iter().map(AsFd::as_fd);
        let files: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd()).chain(pool_files).chain(wakes).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SHARED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            let n = fds.len();
            return Err(io::Error::other(format!(
                "the pool is backed by {n} files; at most {} can be shared",
                MAX_SHARED - 1 - self.queues
            )));
        }
        sendmsg(client, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(region)
    }
}

/// Returns the memory segments of a pool.
fn pool_segments(pool: &Mempool) -> Result<Vec<sys::bs_segment>> {
    let mut segments = vec![sys::bs_segment { at: core::ptr::null_mut(), len: 0, offset: 0, fd: -1 }; MAX_SEGMENTS];
    // SAFETY: the pool is live, and the vector has room for MAX_SEGMENTS.
    let rc = unsafe { sys::bs_pool_segments(pool.raw(), segments.as_mut_ptr(), MAX_SEGMENTS as u32) };
    let n = check(|| "finding the files that back the packet pool".into(), rc)?;
    segments.truncate(n as usize);
    Ok(segments)
}

/// Maps a part of a file at a fixed address that must be free.
fn map_fixed(
    at: usize,
    size: usize,
    file: &OwnedFd,
    offset: u64,
) -> core::result::Result<NonNull<u8>, rustix::io::Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
    // SAFETY: FIXED_NOREPLACE never replaces a mapping.
    let mapped = unsafe { mmap(at as *mut _, size, protection, flags, file, offset)? };
    NonNull::new(mapped.cast()).filter(|mapped| mapped.as_ptr() as usize == at).ok_or(rustix::io::Errno::EXIST)
}

/// One end of a queue on the server side.
struct ServerQueue {
    handle: Arc<ServerHandle>,
    queue: u32,
    generation: u64,
    region: Option<Arc<Region>>,
    bytes: u64,
}

impl ServerQueue {
    /// Switches to the region of the client that is connected now.
    #[inline(always)]
    fn refresh(&mut self) {
        let state = &self.handle.state;
        let generation = state.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.region = state.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
    }
}

/// The sending end of a queue on the server side.
pub struct ServerTx(ServerQueue);

impl ServerTx {
    /// Releases the region of a client that has ended, so that it can be reclaimed although nothing is sent.
    pub fn release_stale_region(&mut self) {
        self.0.refresh();
    }
}

/// The receiving end of a queue on the server side.
pub struct ServerRx(ServerQueue);

impl ServerTx {
    /// Sends packets from the front of the batch while there is room; returns their number. Packets of other pools are
    /// copied.
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        self.0.refresh();
        let ServerQueue { handle, queue, region: Some(region), bytes: all, .. } = &mut self.0 else { return 0 };
        let (raw, pool, queue) = (region.base.as_ptr(), &handle.state.pool, *queue);
        region.reclaim_freed(pool);
        // SAFETY: the region is mapped, and this is the only sender of the queue.
        let room = unsafe { sys::bs_server_room(raw, queue) } as usize;
        let outstanding = region.outstanding.load(Ordering::Relaxed);
        let room = room.min(RingServer::MAX_OUTSTANDING.saturating_sub(outstanding));
        let own = pool.raw().cast();
        // SAFETY: as above.
        let proxy = unsafe { sys::bs_region_proxy_pool(raw) }.cast();
        let (mut n, mut bytes) = (0, 0);
        for packet in batch.as_mut_slice().iter_mut().take(room) {
            if header(packet).pool != own {
                let Some(copy) = copy_into(packet, pool.alloc()) else { break };
                *packet = copy;
            }
            bytes += packet.len() as u64;
            let header = header(packet);
            header.pool = proxy;
            header.ol_flags &= TIMESTAMP_FLAG;
            n += 1;
        }
        // counted before the client can return them
        region.outstanding.fetch_add(n, Ordering::Relaxed);
        // SAFETY: the first n are packets, which the client owns from now on and the batch forgets; the ring has room.
        unsafe {
            let sent = sys::bs_server_send(raw, queue, batch.buffers().cast(), n as u32) as usize;
            debug_assert_eq!(sent, n);
            batch.forget_front(n);
        }
        if n != 0 {
            region.wake(queue);
        }
        *all += bytes;
        n
    }

    /// Returns the bytes sent so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl ServerRx {
    /// Appends received packets to the batch until it is full; returns their number.
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        self.0.refresh();
        let ServerQueue { handle, queue, region: Some(region), bytes, .. } = &mut self.0 else { return 0 };
        let (raw, pool, queue, have) = (region.base.as_ptr(), &handle.state.pool, *queue, batch.len());
        // SAFETY: the slots behind `have` are free; the client is trusted to send packets. This is the only receiver of
        // the queue.
        let n = unsafe {
            let at = batch.buffers().add(have);
            let n = sys::bs_server_receive(raw, queue, at.cast(), (BURST - have) as u32) as usize;
            batch.set_len(have + n);
            n
        };
        restore_pool(&mut batch.as_mut_slice()[have..], pool);
        if n > 0 {
            region.outstanding.fetch_sub(n, Ordering::Relaxed);
        }
        // SAFETY: as above.
        let available = unsafe { sys::bs_server_refill_count(raw, queue) } as usize;
        if available < REFILL_TARGET / 2 {
            region.refill(queue, REFILL_TARGET - available, pool);
        }
        *bytes += total_bytes(&batch.as_slice()[have..]);
        n
    }

    /// Returns the bytes received so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Region {
    /// Wakes the client if it waits for packets of the queue.
    #[inline(always)]
    fn wake(&self, queue: u32) {
        // SAFETY: the region is mapped.
        if unsafe { sys::bs_server_has_to_wake(self.base.as_ptr(), queue) } != 0
            && let Some(wake) = self.wakes.get(queue as usize)
        {
            // errors: it has been woken many times and has not read any
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the buffers that the client has freed to the pool.
    fn reclaim_freed(&self, pool: &Mempool) {
        // SAFETY: the region is mapped.
        if unsafe { sys::bs_server_has_freed(self.base.as_ptr()) } == 0 {
            return;
        }
        let _lock = match self.freed_lock.try_lock() {
            Ok(lock) => lock,
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut batch = Batch::new();
        loop {
            // SAFETY: the batch is empty, and the lock makes this the only consumer of the ring.
            unsafe {
                let n = sys::bs_server_take_freed(self.base.as_ptr(), batch.buffers().cast(), BURST as u32) as usize;
                if n == 0 {
                    return;
                }
                batch.set_len(n);
                self.outstanding.fetch_sub(n, Ordering::Relaxed);
            }
            restore_pool(batch.as_mut_slice(), pool);
            batch.clear();
        }
    }

    #[cold]
    fn refill(&self, queue: u32, n: usize, pool: &Mempool) {
        // SAFETY: the region is mapped.
        let proxy = unsafe { sys::bs_region_proxy_pool(self.base.as_ptr()) }.cast();
        for mut packet in (0..n).map_while(|_| pool.alloc()) {
            header(&mut packet).pool = proxy;
            let mut raw = packet.into_raw();
            self.outstanding.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the client owns the buffer from now on; the ring has room, and this is its only producer.
            unsafe { sys::bs_server_refill(self.base.as_ptr(), queue, (&raw mut raw).cast(), 1) };
        }
    }
}

/// Returns the buffer header of a packet.
fn header(packet: &mut Packet) -> &mut Mbuf {
    // SAFETY: a packet is a pointer to its header, and the header's only owner.
    unsafe { (*(&raw mut *packet).cast::<NonNull<Mbuf>>()).as_mut() }
}

/// Makes received packets name the pool that they belong to.
#[inline(always)]
fn restore_pool(packets: &mut [Packet], pool: &Mempool) {
    packets.iter_mut().for_each(|packet| header(packet).pool = pool.raw().cast());
}

/// Copies a packet's bytes and timestamp into an empty buffer.
#[cold]
fn copy_into(packet: &Packet, empty: Option<Packet>) -> Option<Packet> {
    let mut copy = empty?;
    copy.append(packet.len())?.copy_from_slice(packet.data());
    if let Some(stamp) = packet.meta().capture_info() {
        copy.meta_mut().set_capture_info(stamp);
    }
    Some(copy)
}

/// The side that uses the buffers of a [`RingServer`], for the life of the process.
pub struct RingClient {
    base: NonNull<sys::bs_region>,
    /// Never dropped: the kernel closes it when the process ends, which tells the server that the client holds no
    /// buffers.
    _server: ManuallyDrop<UnixStream>,
    /// Become readable when packets arrive for which the process waits, by queue.
    wakes: Vec<OwnedFd>,
    queues: QueueSet,
}

// SAFETY: as for `Region`; each end of a queue has one user.
unsafe impl Send for RingClient {}
// SAFETY: as above.
unsafe impl Sync for RingClient {}

impl RingClient {
    /// Connects to a server and maps its memory. The EAL must have been started by
    /// [`Eal::start_ring_client`](crate::Eal::start_ring_client).
    ///
    /// # Errors
    /// No server listens there, the server is another program, or its addresses are in use in this process.
    ///
    /// # Safety
    /// The process that listens at the socket must use a [`RingServer`]: its pointers are used as they are.
    pub unsafe fn connect(socket: &Path) -> io::Result<Arc<RingClient>> {
        const WORDS: usize = 4;
        let server = UnixStream::connect(socket)?;
        let mut bytes = vec![0; (MAX_SEGMENTS + 1) * WORDS * 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SHARED))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&server, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        if let Some(reason) = bytes[..received.bytes].strip_prefix(REFUSAL_PREFIX.as_bytes()) {
            return Err(io::Error::other(String::from_utf8_lossy(reason).into_owned()));
        }
        let words: Vec<u64> = bytes[..received.bytes]
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let mut region = None;
        for segment in words.chunks_exact(WORDS) {
            let &[at, len, offset, file] = segment else { continue };
            let file = files.get(file as usize).ok_or_else(|| io::Error::other("the server sent too few files"))?;
            let mapped = map_fixed(at as usize, len as usize, file, offset).map_err(|e| {
                io::Error::other(format!("{len} bytes of the server's memory cannot be mapped at {at:#x}: {e}"))
            })?;
            region.get_or_insert((mapped, len as usize));
        }
        let (base, size) = region.ok_or_else(|| io::Error::other("the server closed the connection"))?;
        let base = base.cast();
        // SAFETY: the first segment is the region, of that size.
        if unsafe { sys::bs_region_compatible(base.as_ptr(), size) } == 0 {
            return Err(io::Error::other("the server is another program, or another version of this one"));
        }
        // SAFETY: as above.
        let queues = unsafe { sys::bs_region_queues(base.as_ptr()) } as usize;
        let wakes = files.split_off(files.len().saturating_sub(queues));
        Ok(Arc::new(RingClient { base, _server: ManuallyDrop::new(server), wakes, queues: QueueSet::new(queues) }))
    }

    /// Returns both ends of a queue.
    ///
    /// # Panics
    /// If the queue does not exist or is in use.
    #[must_use]
    pub fn queue(self: &Arc<Self>, queue: usize) -> (ClientRx, ClientTx) {
        self.queues.claim(queue);
        let queue = queue as u32;
        (ClientRx { client: self.clone(), queue, bytes: 0 }, ClientTx { client: self.clone(), queue, bytes: 0 })
    }
}

/// The receiving end of a queue on the client side.
pub struct ClientRx {
    client: Arc<RingClient>,
    queue: u32,
    bytes: u64,
}

/// The sending end of a queue on the client side.
pub struct ClientTx {
    client: Arc<RingClient>,
    queue: u32,
    bytes: u64,
}

impl ClientRx {
    /// Appends received packets to the batch until it is full; returns their number.
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        let have = batch.len();
        // SAFETY: the slots behind `have` are free; received packets belong to this process until it sends or frees
        // them. This is the only receiver of the queue.
        let n = unsafe {
            let at = batch.buffers().add(have);
            let region = self.client.base.as_ptr();
            let n = sys::bs_client_receive(region, self.queue, at.cast(), (BURST - have) as u32) as usize;
            batch.set_len(have + n);
            n
        };
        self.bytes += total_bytes(&batch.as_slice()[have..]);
        n
    }

    /// Returns the bytes received so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl ClientRx {
    /// Returns a file that becomes readable when packets arrive after [`enable_rx_interrupt`](Self::enable_rx_interrupt).
    #[must_use]
    pub fn rx_interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.client.wakes.get(self.queue as usize).map(AsFd::as_fd)
    }

    /// Switches interrupts on until one is raised, or off. Packets that arrived before raise none.
    pub fn enable_rx_interrupt(&mut self, on: bool) {
        // SAFETY: the region stays mapped.
        unsafe { sys::bs_client_set_waiting(self.client.base.as_ptr(), self.queue, on.into()) };
    }
}

impl ClientTx {
    /// Sends packets from the front of the batch while there is room; returns their number. Packets that the client
    /// allocated from another pool are copied.
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        let raw = self.client.base.as_ptr();
        // SAFETY: the region stays mapped.
        let (proxy, room) = unsafe { (sys::bs_region_proxy_pool(raw).cast(), sys::bs_client_room(raw, self.queue)) };
        let mut n = 0;
        for packet in batch.as_mut_slice().iter_mut().take(room as usize) {
            if header(packet).pool != proxy {
                let Some(copy) = copy_into(packet, self.take_refill()) else { break };
                *packet = copy;
            }
            self.bytes += packet.len() as u64;
            header(packet).ol_flags &= TIMESTAMP_FLAG;
            n += 1;
        }
        // SAFETY: the first n are packets, which the server owns from now on and the batch forgets; the ring has room,
        // as this is the only sender of the queue.
        unsafe {
            let sent = sys::bs_client_send(raw, self.queue, batch.buffers().cast(), n as u32) as usize;
            debug_assert_eq!(sent, n);
            batch.forget_front(n);
        }
        n
    }

    /// Takes an empty buffer from the refill ring.
    fn take_refill(&self) -> Option<Packet> {
        // SAFETY: an unused, direct, single-segment buffer that belongs to this process from now on.
        unsafe {
            let raw = NonNull::new(sys::bs_client_alloc(self.client.base.as_ptr(), self.queue).cast::<Mbuf>())?;
            debug_assert_eq!(usize::from((*raw.as_ptr()).data_off), HEADROOM);
            Some(Packet::from_raw(raw))
        }
    }

    /// Returns the bytes sent so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Eal, Memory};
    use std::time::Instant;

    #[track_caller]
    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < end, "waiting for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn burst(pool: &Mempool) -> Batch {
        let mut batch = Batch::new();
        assert!(pool.fill(&mut batch));
        batch
    }

    /// The client maps nothing and ends with the packets that it was sent.
    #[test]
    fn buffers_of_a_dead_client_are_reclaimed() {
        let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
        let pool = Mempool::new(eal, (1 << 14) - 1).unwrap();
        let folder = std::env::temp_dir().join(format!("bondstone-ring-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("socket");
        // SAFETY: the client of this test sends nothing.
        let server = unsafe { RingServer::listen(&socket, 2, 1024, &pool) }.unwrap();
        let mut queues = [server.queue(0), server.queue(1)];
        drop(server);
        let mut batch = burst(&pool);
        assert_eq!(queues[0].1.send(&mut batch), 0, "no client");
        for round in 0..3 {
            let client = UnixStream::connect(&socket).unwrap();
            let mut received = Batch::new();
            wait_for("a region", || queues[0].0.receive(&mut received) == 0 && queues[0].1.send(&mut batch) != 0);
            let mut sent = BURST - batch.len();
            for _ in 0..1000 {
                if batch.is_empty() {
                    batch = burst(&pool);
                }
                sent += queues[0].1.send(&mut batch);
            }
            assert_eq!(sent, 1024, "round {round}");
            assert!(pool.in_use() >= sent + batch.len(), "round {round}");
            drop(client);
            wait_for("all buffers to be reclaimed", || {
                for (rx, tx) in &mut queues {
                    assert_eq!(rx.receive(&mut received), 0);
                    tx.release_stale_region();
                }
                pool.in_use() == batch.len()
            });
            batch = burst(&pool);
        }
        let client = UnixStream::connect(&socket).unwrap();
        wait_for("a region", || queues[0].1.send(&mut batch) != 0);
        drop((queues, batch));
        assert_ne!(pool.in_use(), 0, "the client may still hold buffers");
        drop(client);
        wait_for("all buffers to be reclaimed", || pool.in_use() == 0);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn packets_of_other_pools_are_copied() {
        let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
        let [pool, other] = [(1 << 13) - 1, (1 << 10) - 1].map(|size| Mempool::new(eal, size).unwrap());
        let folder = std::env::temp_dir().join(format!("bondstone-ring-copies-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        // SAFETY: as above.
        let server = unsafe { RingServer::listen(&folder.join("socket"), 1, 64, &pool) }.unwrap();
        let (_rx, mut tx) = server.queue(0);
        let _client = UnixStream::connect(folder.join("socket")).unwrap();
        let mut batch = Batch::new();
        batch.push(other.alloc_from(&[7; 60]).unwrap()).unwrap();
        wait_for("a region", || tx.send(&mut batch) != 0);
        assert_eq!((other.in_use(), pool.in_use(), tx.bytes()), (0, 1, 60));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
