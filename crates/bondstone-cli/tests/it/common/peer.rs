//! The far side of a vhost port, made by hand, so that it can lie: what a process in a sandbox could do that forgets all that
//! it was built of.
//!
//! Its memory is a file, which it writes and reads; the program maps it.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Descriptors of a ring, and where its parts are in it (virtio 1.2 §2.7).
const SIZE: u64 = 256;
const AVAILABLE: u64 = 4096;
const USED: u64 = 8192;
/// Bytes of a ring; of both, and of the buffers behind them.
const RING: u64 = 16_384;
const BUFFERS: u64 = 2 * RING;
const BUFFER: u64 = 2048;
const MEMORY: u64 = 1 << 20;
/// Where this memory is, as its owner says.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000_0000;
/// Bytes before each frame: what virtio says of it.
const HEADER: u64 = 12;
/// Of virtio 1; several buffers for a frame.
const FEATURES: u64 = 1 << 32 | 1 << 15;

/// Requests of vhost-user.
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEMORY: u32 = 5;
const SET_SIZE: u32 = 8;
const SET_ADDRESSES: u32 = 9;
const SET_BASE: u32 = 10;
const SET_KICK: u32 = 12;
const SET_CALL: u32 = 13;

/// Flags of descriptors.
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;

/// Such a side, linked.
pub(crate) struct Peer {
    stream: UnixStream,
    memory: File,
    random: u64,
    sent: u16,
}

impl Peer {
    /// Links with the port that listens at a socket; `memory` becomes the file of its memory.
    pub(crate) fn link(socket: &Path, memory: &Path) -> Peer {
        let end = Instant::now() + super::LIMIT;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(e) => assert!(Instant::now() < end, "{}: {e}", socket.display()),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_read_timeout(Some(super::LIMIT)).unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(memory).unwrap();
        file.set_len(MEMORY).unwrap();
        let mut peer = Peer { stream, memory: file, random: 0x2545_f491_4f6c_dd1d, sent: 0 };
        let offered = peer.ask(GET_FEATURES);
        assert_eq!(offered & FEATURES, FEATURES, "{offered:#x}");
        peer.tell(SET_OWNER, &[], false);
        peer.tell(SET_FEATURES, &FEATURES.to_le_bytes(), false);
        peer.memory();
        // frames to here go to ring 0, those from here to ring 1
        for ring in 0..2u32 {
            peer.tell(SET_SIZE, &pair(ring, SIZE as u32), false);
            peer.tell(SET_BASE, &pair(ring, 0), false);
            let at = USER + u64::from(ring) * RING;
            let parts = [at, at + USED, at + AVAILABLE, 0].map(u64::to_le_bytes).concat();
            peer.tell(SET_ADDRESSES, &[pair(ring, 0), parts].concat(), false);
            // no wake-up needed
            let alone = (u64::from(ring) | 0x100).to_le_bytes();
            peer.tell(SET_CALL, &alone, false);
            peer.tell(SET_KICK, &alone, false);
        }
        peer
    }

    fn memory(&mut self) {
        let region = [GUEST, MEMORY, USER, 0].map(u64::to_le_bytes).concat();
        self.tell(SET_MEMORY, &[pair(1, 0), region].concat(), true);
    }

    fn tell(&mut self, request: u32, body: &[u8], memory: bool) {
        let head = [request, 1, body.len() as u32].map(u32::to_le_bytes).concat();
        let all = [head, body.to_vec()].concat();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        let open = [self.memory.as_fd()];
        if memory {
            assert!(with.push(SendAncillaryMessage::ScmRights(&open)));
        }
        // errors: a side that is lied to may hang up
        let _ = sendmsg(&self.stream, &[IoSlice::new(&all)], &mut with, SendFlags::NOSIGNAL);
    }

    fn ask(&mut self, request: u32) -> u64 {
        self.tell(request, &[], false);
        let mut answer = [0; 20];
        self.stream.read_exact(&mut answer).unwrap();
        u64::from_le_bytes(*answer.last_chunk().unwrap())
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    fn descriptor(&self, ring: u64, n: u64, address: u64, len: u32, flags: u16, next: u16) {
        let bytes =
            [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        self.put(ring * RING + (n % SIZE) * 16, &bytes);
    }

    fn offer(&self, ring: u64, n: u64, descriptor: u16) {
        self.put(ring * RING + AVAILABLE + 4 + 2 * (n % SIZE), &descriptor.to_le_bytes());
    }

    fn offered(&self, ring: u64, n: u16) {
        self.put(ring * RING + AVAILABLE + 2, &n.to_le_bytes());
    }

    /// Sends a frame as it should.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let n = u64::from(self.sent) % SIZE;
        let at = BUFFERS + n * BUFFER;
        self.put(at, &[0; HEADER as usize]);
        self.put(at + HEADER, frame);
        self.descriptor(1, n, GUEST + at, frame.len() as u32 + HEADER as u32, 0, 0);
        self.offer(1, n, n as u16);
        self.sent = self.sent.wrapping_add(1);
        self.offered(1, self.sent);
    }

    /// Truncates its memory while others map it.
    pub(crate) fn shrink(&self) {
        self.memory.set_len(0).unwrap();
    }

    /// Frames that have been taken.
    pub(crate) fn taken(&self) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, RING + USED + 2).unwrap();
        u16::from_le_bytes(bytes)
    }

    fn number(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn one_of(&mut self, all: &[u64]) -> u64 {
        all[(self.number() % all.len() as u64) as usize]
    }

    /// Lies once, about something.
    pub(crate) fn lie(&mut self) {
        let (any, ring, n) = (self.number(), self.number() % 2, self.number());
        match self.number() % 16 {
            // buffers that are elsewhere, nowhere, too long, in circles
            0..=7 => {
                let end = GUEST + MEMORY;
                let address =
                    self.one_of(&[GUEST + BUFFERS, end - 1, end - 64, end, 0, u64::MAX, u64::MAX - 15, any, GUEST]);
                let len = self.one_of(&[0, 1, HEADER, 64, 2048, 65_536, u64::from(u32::MAX), any]);
                let flags = self.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, any]);
                let next = self.one_of(&[n % SIZE, (n + 1) % SIZE, SIZE, 65_535, any]);
                self.descriptor(ring, n, address, len as u32, flags as u16, next as u16);
            }
            8 | 9 => self.offer(ring, n, self.random as u16),
            // more than there are, fewer than there were
            10 | 11 => {
                let by = self.one_of(&[1, 32, SIZE, SIZE + 1, 40_000, 65_535, any]);
                self.sent = self.sent.wrapping_add(by as u16);
                self.offered(ring, self.sent);
            }
            // what is not its to write
            12 => self.put(ring * RING + USED + any % 2052, &n.to_le_bytes()),
            13 => self.put(any % (MEMORY - 8), &n.to_le_bytes()),
            // a chain of all descriptors that ends where it begins
            14 => {
                for at in 0..SIZE {
                    let flags = NEXT | if ring == 0 { WRITABLE } else { 0 };
                    self.descriptor(ring, at, GUEST + BUFFERS, 64, flags, ((at + 1) % SIZE) as u16);
                }
            }
            // rings elsewhere, sizes that are none
            _ => {
                let request = self.one_of(&[SET_SIZE.into(), SET_BASE.into(), SET_ADDRESSES.into(), any % 40]) as u32;
                let body = [any, n, any ^ n, n >> 7, any >> 5].map(u64::to_le_bytes).concat();
                let len = self.one_of(&[0, 4, 8, 16, 40]) as usize;
                if any.is_multiple_of(64) {
                    self.tell(request, &body[..len], any.is_multiple_of(128));
                }
            }
        }
    }
}

fn pair(a: u32, b: u32) -> Vec<u8> {
    [a, b].map(u32::to_le_bytes).concat()
}
