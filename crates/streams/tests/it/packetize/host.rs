//! A host with one TCP connection of an independent stack (smoltcp).

use crate::packetize::link::Random;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use wire::checksum::{Delta, Pseudo};

/// Its way to the wire: IP packets.
pub(crate) struct Wire {
    pub(crate) received: VecDeque<Vec<u8>>,
    pub(crate) sent: VecDeque<Vec<u8>>,
    mtu: usize,
}

pub(crate) struct Rx(Vec<u8>);
pub(crate) struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Rx(packet), Tx(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut it = DeviceCapabilities::default();
        (it.medium, it.max_transmission_unit) = (Medium::Ip, self.mtu);
        it.checksum.tcp = Checksum::Both;
        it
    }
}

/// Behaviour of a host.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) data: Vec<u8>,
    /// Bytes that its application writes at a time at most, and milliseconds between writes.
    pub(crate) write: usize,
    pub(crate) pause: u64,
    /// Bytes that it reads at a time at most.
    pub(crate) read: usize,
    /// Bytes of its buffers.
    pub(crate) buffer: usize,
    pub(crate) mtu: usize,
    /// Sequence number of its SYN.
    pub(crate) isn: u32,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Task { data, write, pause, read, buffer, mtu, isn } = self;
        write!(f, "{} bytes, {:?}", data.len(), (write, pause, read, buffer, mtu, isn))
    }
}

pub(crate) struct Host {
    pub(crate) wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    task: Task,
    written: usize,
    next_write: u64,
    closed: bool,
    pub(crate) got: Vec<u8>,
    random: Random,
    /// Offset of its sequence numbers, which sets the first one.
    shift: Option<u32>,
}

impl Host {
    pub(crate) fn new(address: IpAddress, task: Task, seed: u64, stamps: bool) -> Self {
        let mut wire = Wire { received: VecDeque::new(), sent: VecDeque::new(), mtu: task.mtu };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let bits = if matches!(address, IpAddress::Ipv4(_)) { 24 } else { 64 };
        interface.update_ip_addrs(|all| all.push(IpCidr::new(address, bits)).unwrap());
        let buffer = || tcp::SocketBuffer::new(vec![0; task.buffer]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        // it learns nothing of the time, but one that goes on
        if stamps {
            socket.set_tsval_generator(Some(|| 7));
        }
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        let random = Random::new(seed);
        Host {
            wire,
            interface,
            sockets,
            handle,
            task,
            written: 0,
            next_write: 0,
            closed: false,
            got: vec![],
            random,
            shift: None,
        }
    }

    pub(crate) fn listen(&mut self, port: u16) {
        self.sockets.get_mut::<tcp::Socket<'_>>(self.handle).listen(port).unwrap();
    }

    pub(crate) fn connect(&mut self, to: IpAddress, port: u16) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        socket.connect(self.interface.context(), (to, port), 40_000).unwrap();
    }

    pub(crate) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Returns true if it has sent and read everything and its connection is closed.
    pub(crate) fn is_done(&mut self) -> bool {
        let state = self.socket().state();
        self.closed && matches!(state, tcp::State::Closed | tcp::State::TimeWait)
    }

    /// Lets it work.
    pub(crate) fn work(&mut self, now: u64) {
        let at = Instant::from_millis(now as i64);
        self.interface.poll(at, &mut self.wire, &mut self.sockets);
        let Self { sockets, handle, task, random, got, .. } = self;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*handle);
        if socket.can_recv() {
            let most = 1 + random.below(task.read as u64) as usize;
            socket
                .recv(|bytes| {
                    let n = bytes.len().min(most);
                    got.extend_from_slice(&bytes[..n]);
                    (n, ())
                })
                .unwrap();
        }
        if now >= self.next_write && socket.may_send() {
            if self.written < task.data.len() {
                let n = (1 + random.below(task.write as u64) as usize).min(task.data.len() - self.written);
                self.written += socket.send_slice(&task.data[self.written..self.written + n]).unwrap();
                self.next_write = now + random.below(task.pause + 1);
            } else if !self.closed {
                socket.close();
                self.closed = true;
            }
        }
        self.interface.poll(at, &mut self.wire, &mut self.sockets);
    }

    /// Packets that it has sent, as they stand on the wire.
    pub(crate) fn packets(&mut self) -> Vec<Vec<u8>> {
        let mut all: Vec<_> = self.wire.sent.drain(..).collect();
        for packet in &mut all {
            let Some(at) = tcp_at(packet) else { continue };
            let seq = number(packet, at + 4);
            let isn = self.task.isn;
            let shift = *self.shift.get_or_insert_with(|| isn.wrapping_sub(seq));
            renumber(packet, at, at + 4, seq.wrapping_add(shift));
        }
        all
    }

    /// Has a packet arrive.
    pub(crate) fn receive(&mut self, mut packet: Vec<u8>) {
        if let (Some(at), Some(shift)) = (tcp_at(&packet), self.shift) {
            assert!(sound(&packet, at), "a packet with a wrong checksum");
            if packet[at + 13] & 0x10 != 0 {
                let ack = number(&packet, at + 8);
                renumber(&mut packet, at, at + 8, ack.wrapping_sub(shift));
            }
        }
        self.wire.received.push_back(packet);
    }
}

fn tcp_at(packet: &[u8]) -> Option<usize> {
    match packet[0] >> 4 {
        4 => (packet[9] == 6).then_some(usize::from(packet[0] & 15) * 4),
        _ => (packet[6] == 6).then_some(40),
    }
}

fn number(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

fn renumber(packet: &mut [u8], tcp: usize, at: usize, new: u32) {
    let old = number(packet, at);
    let sum = u16::from_be_bytes([packet[tcp + 16], packet[tcp + 17]]);
    packet[at..at + 4].copy_from_slice(&new.to_be_bytes());
    let sum = Delta::ZERO.u32(old, new).apply(sum);
    packet[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

fn sound(packet: &[u8], tcp: usize) -> bool {
    let pseudo = if tcp == 40 && packet[0] >> 4 == 6 {
        wire::ipv6::Packet::new(packet).unwrap().pseudo()
    } else {
        let ip = wire::ipv4::Packet::new(packet).unwrap();
        assert!(ip.checksum_ok());
        Pseudo::v4(ip.header().src(), ip.header().dst(), wire::IpProtocol::TCP)
    };
    pseudo.sum(&packet[tcp..]).is_valid()
}
