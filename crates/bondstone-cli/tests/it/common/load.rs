//! Packets at a fixed rate, and datagrams whose loss is counted.

use super::namespace::Namespace;
use super::{LIMIT, Scratch, Summary};
use dpdk::netdev::in_namespace;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// UDP port of the datagrams.
const PORT: u16 = 9000;
/// Time between two datagrams.
const INTERVAL: Duration = Duration::from_millis(1);
/// Time after which a datagram that has not arrived is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// Writes a capture of UDP packets of 60 bytes to an address, for a port with `timed = true` and `repeat = 0`.
pub(crate) fn capture(scratch: &Scratch, name: &str, mac: [u8; 6], to: [u8; 4], packets_per_second: u64) -> PathBuf {
    const PACKETS: u64 = 2000;
    let path = scratch.path(name);
    let mut writer = pcap::Writer::create(&path, pcap::LinkType::ETHERNET).unwrap();
    for n in 0..PACKETS {
        let frame = udp(mac, to, n as u16);
        writer.write(n * 1_000_000_000 / packets_per_second, 60, &frame).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Returns a packet of the flow `n`.
fn udp(mac: [u8; 6], to: [u8; 4], n: u16) -> Vec<u8> {
    let mut ip = [&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0][..], &[10, 7, 0, 9], &to].concat();
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let ports = [(1024 + n).to_be_bytes(), PORT.to_be_bytes()].concat();
    let udp = [&ports[..], &[0, 26, 0, 0], &[0; 18]].concat();
    [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip, &udp].concat()
}

/// Returns the packets that a router has dropped, except those that are for itself or wait for a neighbour's control
/// plane, and the packets that a port has sent.
pub(crate) fn losses(summary: &Summary, nf: &str) -> u64 {
    let usual = ["consumed", "multicast", "punt_exceeded", "inject_refused", "other_mac"];
    let drops = summary.nf(nf).0["drops"].as_object().cloned().unwrap_or_default();
    drops.iter().filter(|(reason, _)| !usual.contains(&&***reason)).filter_map(|(_, n)| n.as_u64()).sum()
}

/// Datagrams with numbers from one namespace to another, a thousand a second.
pub(crate) struct Datagrams {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    sent: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    paused: AtomicBool,
    end: AtomicBool,
}

impl Datagrams {
    /// Starts sending, to an address that the other namespace has.
    pub(crate) fn start(from: &Namespace, to: &Namespace, address: &str) -> Datagrams {
        let state = Arc::new(State::default());
        let receiver = in_namespace(Some(&to.0), || UdpSocket::bind((address, PORT))).unwrap();
        set_socket_recv_buffer_size_force(&receiver, 4 << 20).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let sender = in_namespace(Some(&from.0), || UdpSocket::bind(("0.0.0.0", 0))).unwrap();
        let address = address.to_owned();
        let (receiving, sending) = (state.clone(), state.clone());
        let threads = vec![
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while !receiving.end.load(Ordering::Relaxed) {
                    if receiver.recv(&mut buffer).is_ok() {
                        receiving.received.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }),
            std::thread::spawn(move || {
                while !sending.end.load(Ordering::Relaxed) {
                    if !sending.paused.load(Ordering::Relaxed) {
                        // the kernel has no route
                        if sender.send_to(&[0; 26], (&*address, PORT)).is_err() {
                            sending.refused.fetch_add(1, Ordering::Relaxed);
                        }
                        sending.sent.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(INTERVAL);
                }
            }),
        ];
        Datagrams { state, threads }
    }

    /// Returns the number of datagrams that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    /// Returns the number of datagrams that the kernel could not send, since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// Waits until datagrams arrive.
    #[track_caller]
    pub(crate) fn wait(&self) {
        let (deadline, before) = (Instant::now() + LIMIT, self.received());
        while self.received() < before + 10 {
            assert!(Instant::now() < deadline, "no datagram arrives");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the numbers of datagrams that were sent, and lost, since the last call.
    pub(crate) fn count(&self) -> (u64, u64) {
        let State { sent, received, paused, .. } = &*self.state;
        paused.store(true, Ordering::Relaxed);
        std::thread::sleep(10 * INTERVAL);
        let deadline = Instant::now() + LOST_AFTER;
        while sent.load(Ordering::Relaxed) != received.load(Ordering::Relaxed) && Instant::now() < deadline {
            std::thread::sleep(INTERVAL);
        }
        let (all, arrived) = (sent.swap(0, Ordering::Relaxed), received.swap(0, Ordering::Relaxed));
        paused.store(false, Ordering::Relaxed);
        (all, all.saturating_sub(arrived))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.state.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // ignore errors: the test fails with its own
            let _ = thread.join();
        }
    }
}
