//! The thread that moves frames between the taps of representors and the rings of workers.

use super::frame_ring::{FrameReceiver, FrameSender};
use super::rate_limit::RateLimit;
use crate::cpu::set_affinity;
use dpdk::netdev::{Tap, TapRead};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Frames that are moved in one direction of a tap before it is the turn of others.
const MAX_BURST: usize = 64;
/// Interval at which taps are read again from which the rate or a full ring has kept frames: a twentieth of the burst of
/// [`RateLimit`].
const BLOCKED_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Event of the descriptor by which the thread is woken; those of taps have their number.
const WAKE: u64 = u64::MAX;

/// Counts of a tap.
#[derive(Default)]
pub(super) struct TapCounts {
    /// Frames longer than packet buffers, which were read and dropped.
    pub(super) too_long: AtomicU64,
    /// Frames of workers that the kernel did not accept.
    pub(super) send_errors: AtomicU64,
    /// True once the interface was deleted.
    pub(super) is_deleted: AtomicBool,
}

/// A tap, and the ends of its rings.
pub(super) struct ServedTap {
    pub(super) tap: Tap,
    pub(super) to_worker: FrameSender,
    pub(super) from_worker: FrameReceiver,
    pub(super) counts: Arc<TapCounts>,
    pub(super) limit: RateLimit,
    /// Length of the longest frame in bytes.
    pub(super) max_frame: usize,
    /// True while frames may wait in the tap. Its events are disabled then.
    pub(super) is_ready: bool,
}

/// Wakes the thread, if it sleeps.
pub(super) struct Wake {
    event: OwnedFd,
    is_asleep: AtomicBool,
}

impl Wake {
    /// Has the thread look for frames and commands. Takes a system call only if the thread sleeps.
    pub(super) fn notify(&self) {
        // orders the frame before the flag, as the thread orders the flag before it looks for frames
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            // ignore errors: a full counter wakes the thread, too
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

enum Command {
    Open(u64, ServedTap),
    /// Sends the frames that wait, closes the tap, and replies.
    Close(u64, Sender<()>),
}

/// The running thread, which ends when this is dropped.
pub(super) struct RepresentorThread {
    /// `None` while it ends.
    commands: Option<Sender<Command>>,
    wake: Arc<Wake>,
    next_number: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl RepresentorThread {
    /// Starts the thread on these CPUs, or on any if there are none.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub(super) fn start(cpus: Vec<usize>) -> io::Result<RepresentorThread> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, EventData::new_u64(WAKE), EventFlags::IN)?;
        let wake = Arc::new(Wake { event, is_asleep: AtomicBool::new(false) });
        let (sender, commands) = channel();
        let server = Server { epoll, wake: wake.clone(), commands, taps: BTreeMap::new(), frame: vec![] };
        let run = move || {
            if !cpus.is_empty() {
                // ignore errors: the thread then runs on any
                let _ = set_affinity(&cpus);
            }
            server.run();
        };
        let thread = std::thread::Builder::new().name("representors".to_owned()).spawn(run)?;
        Ok(RepresentorThread { commands: Some(sender), wake, next_number: AtomicU64::new(0), thread: Some(thread) })
    }

    pub(super) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Serves a tap from now on; returns its number.
    pub(super) fn open(&self, tap: ServedTap) -> u64 {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Open(number, tap));
        number
    }

    /// Sends the frames that workers have put into the ring of a tap, and closes it.
    pub(super) fn close(&self, number: u64) {
        let (reply, closed) = channel();
        self.send(Command::Close(number, reply));
        // ignore errors: the thread has ended by a panic, with all taps
        let _ = closed.recv();
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // ignore errors: as above
            let _ = commands.send(command);
        }
        self.wake.notify();
    }
}

impl Drop for RepresentorThread {
    fn drop(&mut self) {
        self.commands = None;
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            // ignore errors: the thread has ended by a panic
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Server {
    epoll: OwnedFd,
    wake: Arc<Wake>,
    commands: Receiver<Command>,
    taps: BTreeMap<u64, ServedTap>,
    /// Holds the frame that was read.
    frame: Vec<u8>,
}

/// When a tap has to be served again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// With the next event.
    OnEvent,
    /// After [`BLOCKED_INTERVAL`].
    Later,
    /// At once.
    Now,
}

impl Server {
    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while self.execute_commands() {
            let next = self.move_frames(Instant::now());
            let timeout = match next {
                Next::Now => Some(&Timespec { tv_sec: 0, tv_nsec: 0 }),
                Next::Later => Some(&BLOCKED_INTERVAL),
                Next::OnEvent => None,
            };
            if next != Next::Now {
                self.wake.is_asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                // those that arrived before the flag was set
                if !self.execute_commands() {
                    return;
                }
                if self.taps.values().any(|tap| !tap.from_worker.is_empty()) {
                    self.wake.is_asleep.store(false, Ordering::Relaxed);
                    continue;
                }
            }
            // errors: interrupted by a signal
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout);
            self.wake.is_asleep.store(false, Ordering::Relaxed);
            for event in events.drain(..) {
                match event.data.u64() {
                    // errors: it was read already
                    WAKE => drop(rustix::io::read(&self.wake.event, &mut [0; 8])),
                    number => {
                        if let Some(tap) = self.taps.get_mut(&number) {
                            tap.is_ready = true;
                        }
                    }
                }
            }
        }
    }

    /// Returns false if the thread has to end.
    fn execute_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Open(number, tap)) => {
                    self.frame.resize(self.frame.len().max(tap.max_frame + 1), 0);
                    // errors: without memory for the event, the tap is read at intervals
                    let added = epoll::add(&self.epoll, &tap.tap, EventData::new_u64(number), READABLE_ONCE);
                    self.taps.insert(number, ServedTap { is_ready: added.is_err(), ..tap });
                }
                Ok(Command::Close(number, reply)) => {
                    if let Some(mut tap) = self.taps.remove(&number) {
                        // at most as many as fit into the ring
                        while tap.send_frames() == Next::Now {}
                    }
                    // ignore errors: the caller has ended
                    let _ = reply.send(());
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn move_frames(&mut self, now: Instant) -> Next {
        let mut next = Next::OnEvent;
        for (number, tap) in &mut self.taps {
            next = next.max(tap.send_frames());
            if !tap.is_ready {
                continue;
            }
            let of_tap = tap.receive_frames(&mut self.frame[..=tap.max_frame], now);
            if of_tap == Next::OnEvent && !tap.counts.is_deleted.load(Ordering::Relaxed) {
                let enabled = epoll::modify(&self.epoll, &tap.tap, EventData::new_u64(*number), READABLE_ONCE);
                tap.is_ready = enabled.is_err();
            }
            next = next.max(if tap.is_ready { of_tap.max(Next::Later) } else { of_tap });
        }
        next
    }
}

/// A tap that is not read, because its rate is exceeded, must not wake the thread with each frame.
const READABLE_ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

impl ServedTap {
    /// Has the kernel receive frames of workers.
    fn send_frames(&mut self) -> Next {
        for _ in 0..MAX_BURST {
            match self.from_worker.take(|frame| Some(self.tap.write(frame))) {
                Some(Ok(())) => {}
                Some(Err(_)) => drop(self.counts.send_errors.fetch_add(1, Ordering::Relaxed)),
                None => return Next::OnEvent,
            }
        }
        Next::Now
    }

    /// Passes frames of the kernel to the worker. `buffer` has one byte more than the longest frame.
    fn receive_frames(&mut self, buffer: &mut [u8], now: Instant) -> Next {
        self.limit.update(now);
        for _ in 0..MAX_BURST {
            // frames that are not read wait in the kernel, which drops those above the queue length of the interface
            if !self.limit.permits() || !self.to_worker.has_room(self.max_frame) {
                return Next::Later;
            }
            match self.tap.read(buffer) {
                TapRead::Frame(len) => {
                    self.limit.take();
                    if len > self.max_frame || !self.to_worker.push(&buffer[..len]) {
                        self.counts.too_long.fetch_add(1, Ordering::Relaxed);
                    }
                }
                TapRead::Empty => return Next::OnEvent,
                TapRead::Failed => return Next::Later,
                TapRead::Deleted => {
                    self.counts.is_deleted.store(true, Ordering::Relaxed);
                    self.is_ready = false;
                    return Next::OnEvent;
                }
            }
        }
        Next::Now
    }
}
