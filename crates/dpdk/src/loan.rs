//! Packets lent to another process as they are, over rings in memory that both have: no copy, and nothing that keeps one from
//! the memory of the other.
//!
//! The process that lends has the pool, whose memory the borrower maps at the same addresses. Whatever is lent names a pool of
//! the loan's own in the place of its own, by which the lender finds it when the borrower is no more. The borrower takes nothing
//! out of the pool and puts nothing into it: a process can be killed at any moment, and would leave the pool's lock behind.

use crate::port::total;
use crate::{Mempool, Result, check};
use core::ptr::NonNull;
use dpdk_sys as sys;
use packet::{BURST, Batch, HEADROOM, Mbuf, Packet, Pool, TIMESTAMPED};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Empty buffers that the borrower has at hand on each lane, for packets of its own.
const SPARES: usize = 64;
/// Where loans are, one after the other: far from whatever the kernel, the allocator and DPDK choose by themselves.
const LOANS: usize = 0x3000_0000_0000;
const LOAN: usize = 1 << 26;
/// Pieces of memory that a pool's packets are in, at the most.
const PIECES: usize = 128;
/// Files that these are in, at the most.
const FILES: usize = 64;
/// What a borrower is told instead, before the reason.
const REFUSED: &str = "refused:";
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(20);
/// How often what is to be reclaimed is looked after.
const OFTEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Lends packets to one process at a time, which links to its socket.
pub struct Lender {
    life: Arc<Life>,
    lanes: Lanes,
}

/// Lanes that somebody has, of which each end has one user.
struct Lanes {
    all: usize,
    taken: AtomicU64,
}

impl Lanes {
    fn new(all: usize) -> Self {
        Lanes { all, taken: AtomicU64::new(0) }
    }

    fn take(&self, lane: usize) {
        assert!(lane < self.all, "lane {lane} of {}", self.all);
        assert_eq!(self.taken.fetch_or(1 << lane, Ordering::Relaxed) >> lane & 1, 0, "lane {lane} is somebody's");
    }
}

/// What all handles of a lender have.
struct Life {
    inner: Arc<Inner>,
    /// Wakes the thread.
    bell: UnixStream,
}

struct Inner {
    pool: Arc<Mempool>,
    lanes: usize,
    /// Packets that may wait on each lane, each way.
    queue: usize,
    /// What there is now, and a number that changes with it.
    now: Mutex<Option<Arc<Loan>>>,
    turn: AtomicU64,
    ended: AtomicBool,
}

/// What one process has been lent.
struct Loan {
    at: NonNull<sys::bs_loan>,
    size: usize,
    /// Packets that are lent.
    lent: AtomicUsize,
    /// Held by who takes out what the borrower has freed.
    home: Mutex<()>,
}

// SAFETY: what it points to is shared between processes, and made for that; each ring end has one user.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nobody has it any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.size) };
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.inner.ended.store(true, Ordering::Release);
        *self.inner.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // errors: the thread has ended
        let _ = self.bell.write(&[0]);
    }
}

impl Lender {
    /// Packets that are lent to one process at the most: those on its lanes, those that its NFs have, and 64 empty ones for each lane.
    pub const MOST: usize = 4096;
    /// Lanes at the most.
    pub const LANES: usize = sys::BS_LOAN_LANES as usize;

    /// Listens at a socket for a process to lend packets of `pool` to, on so many lanes with `queue` packets each way.
    ///
    /// # Errors
    /// Somebody has the socket, or the pool's memory is in no file.
    pub fn listen(socket: &Path, lanes: usize, queue: usize, pool: &Arc<Mempool>) -> io::Result<Lender> {
        assert!(lanes <= Self::LANES, "a wall has as many ways at the most");
        pieces(pool).map_err(io::Error::other)?;
        let listener = UnixListener::bind(socket)?;
        let (bell, heard) = UnixStream::pair()?;
        let (turn, now, ended) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
        let inner = Arc::new(Inner { pool: pool.clone(), lanes, queue, now, turn, ended });
        let lends = inner.clone();
        std::thread::Builder::new().name("lender".into()).spawn(move || lends.serve(&listener, &heard))?;
        Ok(Lender { life: Arc::new(Life { inner, bell }), lanes: Lanes::new(lanes) })
    }

    /// Both ends of a lane.
    ///
    /// # Panics
    /// There is no such lane, or somebody has it.
    #[must_use]
    pub fn lane(&self, lane: usize) -> (Returned, Lending) {
        self.lanes.take(lane);
        let side = || Lane { life: self.life.clone(), lane: lane as u32, turn: 0, loan: None, bytes: 0 };
        (Returned(side()), Lending(side()))
    }
}

impl Inner {
    /// Has a process at a time, and takes back what those had that are no more.
    fn serve(&self, listener: &UnixListener, bell: &UnixStream) {
        let mut peer: Option<(UnixStream, Arc<Loan>)> = None;
        let mut gone: Vec<Arc<Loan>> = vec![];
        loop {
            gone.retain_mut(|loan| {
                let Some(only) = Arc::get_mut(loan) else { return true };
                // SAFETY: the borrower is no more, and no handle has it.
                unsafe { sys::bs_loan_reclaim(only.at.as_ptr(), self.pool.raw()) };
                false
            });
            let ended = self.ended.load(Ordering::Acquire);
            if ended && peer.is_none() && gone.is_empty() {
                return;
            }
            // its end
            let mut files: Vec<PollFd<'_>> =
                peer.iter().map(|(peer, _)| PollFd::new(peer, PollFlags::empty())).collect();
            if !ended {
                files.extend([PollFd::new(listener, PollFlags::IN), PollFd::new(bell, PollFlags::IN)]);
            }
            // errors: a signal, after which it looks just the same
            let _ = poll(&mut files, (!gone.is_empty()).then_some(&OFTEN));
            let happened: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            let (of_peer, others) = happened.split_at(usize::from(peer.is_some()));
            if of_peer.contains(&true)
                && let Some((_, loan)) = peer.take()
            {
                self.publish(None);
                gone.push(loan);
            }
            if others.first() != Some(&true) {
                continue;
            }
            match listener.accept().map(|(new, _)| (self.lend(&new), new)) {
                Ok((Ok(loan), new)) if peer.is_none() => {
                    let loan = Arc::new(loan);
                    self.publish(Some(loan.clone()));
                    peer = Some((new, loan));
                }
                // who was there first is about to go, and the other comes again
                Ok((Ok(_), _)) => {}
                // errors: it is no more
                Ok((Err(why), mut new)) => drop(new.write_all(format!("{REFUSED}{why}").as_bytes())),
                // too many files: the other waits
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn publish(&self, loan: Option<Arc<Loan>>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = loan.filter(|_| !self.ended.load(Ordering::Acquire));
        self.turn.fetch_add(1, Ordering::Release);
    }

    /// Makes a loan and tells the borrower where it is and in what files.
    fn lend(&self, to: &UnixStream) -> io::Result<Loan> {
        let most = Lender::MOST + self.lanes * SPARES;
        let [lanes, queue, most] = [self.lanes, self.queue, most].map(|n| n as u32);
        // SAFETY: a plain calculation.
        let size = unsafe { sys::bs_loan_size(lanes, queue, most) }.next_multiple_of(1 << 12);
        let file = memfd_create("bondstone-loan", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size as u64)?;
        let places = (0..1 << 12).map(|n| LOANS + n * LOAN);
        let at =
            places.map(|at| map(at, size, &file, 0)).find(|mapped| !matches!(mapped, Err(rustix::io::Errno::EXIST)));
        let at = at.ok_or_else(|| io::Error::other("there is no room left"))??;
        let loan = Loan { at: at.cast(), size, lent: AtomicUsize::new(0), home: Mutex::new(()) };
        // SAFETY: it is zeroed memory of that size, which nobody else has yet.
        let rc = unsafe { sys::bs_loan_make(loan.at.as_ptr(), lanes, queue, most) };
        check(|| "making rings".into(), rc).map_err(io::Error::other)?;
        let pieces = pieces(&self.pool).map_err(io::Error::other)?;
        let mut fds: Vec<i32> = pieces.iter().map(|piece| piece.fd).collect();
        fds.sort_unstable();
        fds.dedup();
        let number = |fd| fds.iter().position(|other| *other == fd).unwrap_or_default() as u64 + 1;
        let own = [loan.at.as_ptr() as u64, size as u64, 0, 0];
        let all = pieces.iter().map(|piece| [piece.at as u64, piece.len as u64, piece.offset, number(piece.fd)]);
        let words: Vec<u8> = std::iter::once(own).chain(all).flatten().flat_map(u64::to_ne_bytes).collect();
        // SAFETY: DPDK's own, which stay open with the pool's memory.
        let theirs = fds.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let files: Vec<BorrowedFd<'_>> = std::iter::once(file.as_fd()).chain(theirs).collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        if !with.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other(format!("the pool is in {} files, and {FILES} can be shared", files.len())));
        }
        sendmsg(to, &[IoSlice::new(&words)], &mut with, SendFlags::NOSIGNAL)?;
        Ok(loan)
    }
}

/// The pieces of memory that a pool's packets are in.
fn pieces(pool: &Mempool) -> Result<Vec<sys::bs_piece>> {
    let mut pieces = vec![sys::bs_piece { at: core::ptr::null_mut(), len: 0, offset: 0, fd: -1 }; PIECES];
    // SAFETY: the pool is live, and there is room for so many.
    let rc = unsafe { sys::bs_pool_pieces(pool.raw(), pieces.as_mut_ptr(), PIECES as u32) };
    let n = check(|| "finding the files that packets are in".into(), rc)?;
    pieces.truncate(n as usize);
    Ok(pieces)
}

/// Maps part of a file at an address, at which nothing else is.
fn map(at: usize, size: usize, file: &OwnedFd, offset: u64) -> core::result::Result<NonNull<u8>, rustix::io::Errno> {
    let (rights, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
    // SAFETY: nothing that is there is replaced.
    let mapped = unsafe { mmap(at as *mut _, size, rights, how, file, offset)? };
    NonNull::new(mapped.cast()).filter(|mapped| mapped.as_ptr() as usize == at).ok_or(rustix::io::Errno::EXIST)
}

/// One end of a lane on the lender's side.
struct Lane {
    life: Arc<Life>,
    lane: u32,
    turn: u64,
    loan: Option<Arc<Loan>>,
    bytes: u64,
}

impl Lane {
    /// Takes up the loan that there is now.
    #[inline(always)]
    fn look(&mut self) {
        let inner = &self.life.inner;
        let turn = inner.turn.load(Ordering::Acquire);
        if turn != self.turn {
            self.turn = turn;
            self.loan = inner.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
    }
}

/// Where packets are lent.
pub struct Lending(Lane);

impl Lending {
    /// Lets go of what is lent to nobody any more, which waits to be taken back; for who sends nothing for long.
    pub fn tend(&mut self) {
        self.0.look();
    }
}

/// Where they come back.
pub struct Returned(Lane);

impl Lending {
    /// Lends from the front of the batch as many as there is room for; how many. Packets of other pools are copied.
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        self.0.look();
        let Lane { life, lane, loan: Some(loan), bytes: all, .. } = &mut self.0 else { return 0 };
        let (raw, pool, lane) = (loan.at.as_ptr(), &life.inner.pool, *lane);
        loan.take_freed(pool);
        // SAFETY: the loan is live, and this is the lane's only sender.
        let room = unsafe { sys::bs_loan_room(raw, lane) } as usize;
        let lent = loan.lent.load(Ordering::Relaxed);
        let room = room.min(Lender::MOST.saturating_sub(lent));
        let own = pool.raw().cast();
        // SAFETY: as above.
        let stand = unsafe { sys::bs_loan_stand(raw) }.cast();
        let (mut n, mut bytes) = (0, 0);
        for packet in batch.as_mut_slice().iter_mut().take(room) {
            if header(packet).pool != own {
                let Some(copy) = copied(packet, pool.alloc()) else { break };
                *packet = copy;
            }
            bytes += packet.len() as u64;
            let header = header(packet);
            header.pool = stand;
            header.ol_flags &= TIMESTAMPED;
            n += 1;
        }
        // before anybody can give them back
        loan.lent.fetch_add(n, Ordering::Relaxed);
        // SAFETY: the first n are packets, which are lent from now on and forgotten here; there is room for them.
        unsafe {
            let sent = sys::bs_loan_lend(raw, lane, batch.buffers().cast(), n as u32) as usize;
            debug_assert_eq!(sent, n);
            batch.forget_front(n);
        }
        *all += bytes;
        n
    }

    /// Bytes lent so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Returned {
    /// Adds what has come back to the batch, up to its room; how many.
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        self.0.look();
        let Lane { life, lane, loan: Some(loan), bytes, .. } = &mut self.0 else { return 0 };
        let (raw, pool, lane, have) = (loan.at.as_ptr(), &life.inner.pool, *lane, batch.len());
        // SAFETY: the slots behind `have` are free; the borrower is trusted to give back packets. This is the lane's only receiver.
        let n = unsafe {
            let at = batch.buffers().add(have);
            let n = sys::bs_loan_take_back(raw, lane, at.cast(), (BURST - have) as u32) as usize;
            batch.set_len(have + n);
            n
        };
        come_home(&mut batch.as_mut_slice()[have..], pool);
        if n > 0 {
            loan.lent.fetch_sub(n, Ordering::Relaxed);
        }
        // SAFETY: as above.
        let spares = unsafe { sys::bs_loan_spares(raw, lane) } as usize;
        if spares < SPARES / 2 {
            loan.lend_spares(lane, SPARES - spares, pool);
        }
        *bytes += total(&batch.as_slice()[have..]);
        n
    }

    /// Bytes that have come back so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Loan {
    /// Puts what the borrower has freed back into the pool.
    fn take_freed(&self, pool: &Mempool) {
        // SAFETY: the loan is live.
        if unsafe { sys::bs_loan_freed(self.at.as_ptr()) } == 0 {
            return;
        }
        let _only = match self.home.try_lock() {
            Ok(only) => only,
            Err(TryLockError::Poisoned(only)) => only.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut batch = Batch::new();
        loop {
            // SAFETY: the batch is empty, and nobody else takes from that ring while the lock is held.
            unsafe {
                let n = sys::bs_loan_take_freed(self.at.as_ptr(), batch.buffers().cast(), BURST as u32) as usize;
                if n == 0 {
                    return;
                }
                batch.set_len(n);
                self.lent.fetch_sub(n, Ordering::Relaxed);
            }
            come_home(batch.as_mut_slice(), pool);
            batch.clear();
        }
    }

    #[cold]
    fn lend_spares(&self, lane: u32, n: usize, pool: &Mempool) {
        // SAFETY: the loan is live.
        let stand = unsafe { sys::bs_loan_stand(self.at.as_ptr()) }.cast();
        for mut packet in (0..n).map_while(|_| pool.alloc()) {
            header(&mut packet).pool = stand;
            let mut raw = packet.into_raw();
            self.lent.fetch_add(1, Ordering::Relaxed);
            // SAFETY: it is lent from now on; there is room, and this is the lane's only user of that end.
            unsafe { sys::bs_loan_lend_spare(self.at.as_ptr(), lane, (&raw mut raw).cast(), 1) };
        }
    }
}

/// The buffer header of a packet.
fn header(packet: &mut Packet) -> &mut Mbuf {
    // SAFETY: a packet is a pointer to its header and its only owner.
    unsafe { (*(&raw mut *packet).cast::<NonNull<Mbuf>>()).as_mut() }
}

/// Has packets that were lent name the pool that they are of.
#[inline(always)]
fn come_home(packets: &mut [Packet], pool: &Mempool) {
    packets.iter_mut().for_each(|packet| header(packet).pool = pool.raw().cast());
}

/// A packet's bytes, and when it was captured, in an empty one.
#[cold]
fn copied(packet: &Packet, empty: Option<Packet>) -> Option<Packet> {
    let mut copy = empty?;
    copy.append(packet.len())?.copy_from_slice(packet.data());
    if let Some(stamp) = packet.meta().stamp() {
        copy.meta_mut().set_stamp(stamp);
    }
    Some(copy)
}

/// What a process is lent, for as long as it lives.
pub struct Borrower {
    at: NonNull<sys::bs_loan>,
    /// Which the kernel closes with this process, and with nothing before it: that tells the lender that nobody has anything any more.
    _to: ManuallyDrop<UnixStream>,
    lanes: Lanes,
}

// SAFETY: as of a loan; its lanes have one user for each end.
unsafe impl Send for Borrower {}
// SAFETY: as above.
unsafe impl Sync for Borrower {}

impl Borrower {
    /// Links to a lender, and maps what it lends. The EAL has to have been started by [`Eal::start_apart`](crate::Eal::start_apart).
    ///
    /// # Errors
    /// Nobody lends there, the lender is another program than this, or something is where its memory would have to be.
    pub fn link(socket: &Path) -> io::Result<Arc<Borrower>> {
        const WORDS: usize = 4;
        let to = UnixStream::connect(socket)?;
        let mut bytes = vec![0; (PIECES + 1) * WORDS * 8];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut with = RecvAncillaryBuffer::new(&mut room);
        let told = recvmsg(&to, &mut [IoSliceMut::new(&mut bytes)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
        let files: Vec<OwnedFd> = with
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        if let Some(why) = bytes[..told.bytes].strip_prefix(REFUSED.as_bytes()) {
            return Err(io::Error::other(String::from_utf8_lossy(why).into_owned()));
        }
        let words: Vec<u64> = bytes[..told.bytes]
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        let mut own = None;
        for piece in words.chunks_exact(WORDS) {
            let &[at, len, offset, file] = piece else { continue };
            let file = files.get(file as usize).ok_or_else(|| io::Error::other("a file is missing"))?;
            let mapped = map(at as usize, len as usize, file, offset)
                .map_err(|e| io::Error::other(format!("{len} bytes of the lender's memory at {at:#x}: {e}")))?;
            own.get_or_insert((mapped, len as usize));
        }
        let (at, size) = own.ok_or_else(|| io::Error::other("the lender said nothing"))?;
        let at = at.cast();
        // SAFETY: the first piece is the loan, of that size.
        if unsafe { sys::bs_loan_fits(at.as_ptr(), size) } == 0 {
            return Err(io::Error::other("the lender is another program than this"));
        }
        // SAFETY: as above.
        let lanes = Lanes::new(unsafe { sys::bs_loan_lanes(at.as_ptr()) } as usize);
        Ok(Arc::new(Borrower { at, _to: ManuallyDrop::new(to), lanes }))
    }

    /// Both ends of a lane.
    ///
    /// # Panics
    /// There is no such lane, or somebody has it.
    #[must_use]
    pub fn lane(self: &Arc<Self>, lane: usize) -> (Borrowed, Returning) {
        self.lanes.take(lane);
        let lane = lane as u32;
        (Borrowed { from: self.clone(), lane, bytes: 0 }, Returning { to: self.clone(), lane, bytes: 0 })
    }
}

/// Where packets come that are lent.
pub struct Borrowed {
    from: Arc<Borrower>,
    lane: u32,
    bytes: u64,
}

/// Where packets are given back.
pub struct Returning {
    to: Arc<Borrower>,
    lane: u32,
    bytes: u64,
}

impl Borrowed {
    /// Adds what is lent to the batch, up to its room; how many.
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        let have = batch.len();
        // SAFETY: the slots behind `have` are free; what is lent are packets, which are this process's until it gives them back or
        // frees them. This is the lane's only receiver.
        let n = unsafe {
            let at = batch.buffers().add(have);
            let n = sys::bs_loan_borrow(self.from.at.as_ptr(), self.lane, at.cast(), (BURST - have) as u32) as usize;
            batch.set_len(have + n);
            n
        };
        self.bytes += total(&batch.as_slice()[have..]);
        n
    }

    /// Bytes borrowed so far, without FCS.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Returning {
    /// Gives back from the front of the batch as many as there is room for; how many. Packets of this process's own are copied.
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        let raw = self.to.at.as_ptr();
        // SAFETY: the loan is mapped for good.
        let (stand, room) = unsafe { (sys::bs_loan_stand(raw).cast(), sys::bs_loan_room_back(raw, self.lane)) };
        let mut n = 0;
        for packet in batch.as_mut_slice().iter_mut().take(room as usize) {
            if header(packet).pool != stand {
                let Some(copy) = copied(packet, self.spare()) else { break };
                *packet = copy;
            }
            self.bytes += packet.len() as u64;
            header(packet).ol_flags &= TIMESTAMPED;
            n += 1;
        }
        // SAFETY: the first n are packets, which are the lender's from now on and forgotten here; there is room for them, as this is
        // the lane's only sender.
        unsafe {
            let sent = sys::bs_loan_give_back(raw, self.lane, batch.buffers().cast(), n as u32) as usize;
            debug_assert_eq!(sent, n);
            batch.forget_front(n);
        }
        n
    }

    /// An empty packet of the lender's.
    fn spare(&self) -> Option<Packet> {
        // SAFETY: an unused buffer, direct, single and this process's from now on.
        unsafe {
            let raw = NonNull::new(sys::bs_loan_spare(self.to.at.as_ptr(), self.lane).cast::<Mbuf>())?;
            debug_assert_eq!(usize::from((*raw.as_ptr()).data_off), HEADROOM);
            Some(Packet::from_raw(raw))
        }
    }

    /// Bytes given back so far, without FCS.
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
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < end, "waiting for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn burst(pool: &Mempool) -> Batch {
        let mut batch = Batch::new();
        assert!(pool.fill(&mut batch));
        batch
    }

    /// A borrower that maps nothing: it takes what it is lent with it when it goes.
    #[test]
    fn what_was_lent_to_who_is_no_more_comes_home() {
        let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
        let pool = Mempool::new(eal, (1 << 14) - 1).unwrap();
        let folder = std::env::temp_dir().join(format!("bondstone-loan-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("socket");
        let lender = Lender::listen(&socket, 2, 1024, &pool).unwrap();
        let mut lanes = [lender.lane(0), lender.lane(1)];
        drop(lender);
        let mut batch = burst(&pool);
        assert_eq!(lanes[0].1.send(&mut batch), 0, "nobody is there");
        for turn in 0..3 {
            let peer = UnixStream::connect(&socket).unwrap();
            let mut came = Batch::new();
            until("a loan", || lanes[0].0.receive(&mut came) == 0 && lanes[0].1.send(&mut batch) != 0);
            let mut lent = BURST - batch.len();
            for _ in 0..1000 {
                if batch.is_empty() {
                    batch = burst(&pool);
                }
                lent += lanes[0].1.send(&mut batch);
            }
            assert_eq!(lent, 1024, "turn {turn}");
            assert!(pool.in_use() >= lent + batch.len(), "turn {turn}");
            drop(peer);
            until("all to come home", || {
                for (from, to) in &mut lanes {
                    assert_eq!(from.receive(&mut came), 0);
                    to.tend();
                }
                pool.in_use() == batch.len()
            });
            batch = burst(&pool);
        }
        let peer = UnixStream::connect(&socket).unwrap();
        until("a loan", || lanes[0].1.send(&mut batch) != 0);
        drop((lanes, batch));
        assert_ne!(pool.in_use(), 0, "who is there may still have them");
        drop(peer);
        until("all to come home", || pool.in_use() == 0);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn packets_of_others_are_copied() {
        let eal = Eal::start(Memory::Ordinary, &[]).unwrap();
        let [pool, other] = [(1 << 13) - 1, (1 << 10) - 1].map(|size| Mempool::new(eal, size).unwrap());
        let folder = std::env::temp_dir().join(format!("bondstone-loan-copies-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let lender = Lender::listen(&folder.join("socket"), 1, 64, &pool).unwrap();
        let (_from, mut to) = lender.lane(0);
        let _peer = UnixStream::connect(folder.join("socket")).unwrap();
        let mut batch = Batch::new();
        batch.push(other.alloc_from(&[7; 60]).unwrap()).unwrap();
        until("a loan", || to.send(&mut batch) != 0);
        assert_eq!((other.in_use(), pool.in_use(), to.bytes()), (0, 1, 60));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
