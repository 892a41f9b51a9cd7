//! A client of FPM servers that sends routes as zebra does, at any speed.

use super::LIMIT;
use dpdk::netdev::in_namespace;
use ipnet::IpNet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

/// Port of servers by default.
pub(crate) const FPM_PORT: u16 = 2620;

/// Types of messages (linux/rtnetlink.h).
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const DELETE_ROUTE: u16 = 25;
pub(crate) const NEW_NEXT_HOP: u16 = 104;

/// Lengths of the headers of frames and of netlink messages, and of `struct rtmsg`.
pub(crate) const FRAME: usize = 4;
pub(crate) const NETLINK: usize = 16;
pub(crate) const RTMSG: usize = 12;

/// Returns different ports of 127.0.0.1 at which nothing listens.
pub(crate) fn free_ports(n: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&(4 + value.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns a frame with a message about a route of the main table, with a gateway if it has one.
pub(crate) fn route(kind: u16, prefix: IpNet, gateway: Option<IpAddr>) -> Vec<u8> {
    let gateway = gateway.map_or(vec![], |gateway| attribute(5, &octets(gateway)));
    route_with(kind, prefix, &gateway)
}

/// Returns a frame with a message about a route, with further attributes.
fn route_with(kind: u16, prefix: IpNet, more: &[u8]) -> Vec<u8> {
    let family = if prefix.addr().is_ipv4() { 2 } else { 10 };
    let rtmsg = [family, prefix.prefix_len(), 0, 0, 254, 186, 0, 1, 0, 0, 0, 0];
    let body = [&rtmsg[..], &attribute(1, &octets(prefix.network())), more].concat();
    let len = (NETLINK + body.len()) as u32;
    let header = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &0x501u16.to_ne_bytes(), &[0; 8]].concat();
    [&[1, 1][..], &(len as u16 + FRAME as u16).to_be_bytes(), &header, &body].concat()
}

/// Returns a frame with a message that adds a route with several next hops of equal weight.
pub(crate) fn multipath(prefix: IpNet, gateways: &[IpAddr]) -> Vec<u8> {
    // struct rtnexthop: length, flags, the weight less 1, no interface
    let hop = |gateway: &IpAddr| {
        let gateway = attribute(5, &octets(*gateway));
        [&(8 + gateway.len() as u16).to_ne_bytes()[..], &[0; 6], &gateway].concat()
    };
    let hops: Vec<u8> = gateways.iter().flat_map(hop).collect();
    route_with(NEW_ROUTE, prefix, &attribute(9, &hops))
}

/// Returns the prefix 100.0.0.0/24, or the one that follows it after so many.
pub(crate) fn prefix(n: u32) -> IpNet {
    IpNet::new_assert(Ipv4Addr::from_bits(0x6400_0000 + (n << 8)).into(), 24)
}

/// Answer to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Offloaded,
    Failed,
}

/// A connection to a server.
pub(crate) struct FpmClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl FpmClient {
    /// Connects to a server at this port of 127.0.0.1, which may not listen yet.
    pub(crate) fn connect(port: u16) -> FpmClient {
        FpmClient::connect_in(None, port)
    }

    /// As [`connect`](Self::connect), in a namespace.
    pub(crate) fn connect_in(namespace: Option<&str>, port: u16) -> FpmClient {
        let deadline = Instant::now() + LIMIT;
        loop {
            match in_namespace(namespace, || TcpStream::connect(("127.0.0.1", port))) {
                Ok(stream) => {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(LIMIT)).unwrap();
                    return FpmClient { stream, received: vec![] };
                }
                Err(e) => assert!(Instant::now() < deadline, "port {port}: {e}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Returns the connection.
    pub(crate) fn stream(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Sends bytes; a server that has closed the connection is no error.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let _ = (&self.stream).write_all(bytes);
    }

    /// Waits for the next answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            if let Some((answer, len)) = first_answer(&self.received) {
                self.received.drain(..len);
                return answer;
            }
            let mut bytes = [0; 16 << 10];
            let n = (&self.stream).read(&mut bytes).expect("an answer in time");
            assert!(n > 0, "the server has closed the connection");
            self.received.extend_from_slice(&bytes[..n]);
        }
    }

    /// Waits until the server closes the connection.
    #[track_caller]
    pub(crate) fn closed(self) {
        let mut buffer = [0; 4096];
        loop {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return,
                Err(e) => panic!("not closed: {e}"),
            }
        }
    }

    /// Sends a route and waits for the answer.
    #[track_caller]
    pub(crate) fn install(&mut self, prefix: IpNet, gateway: [u8; 4]) -> Answer {
        self.send(&route(NEW_ROUTE, prefix, Some(gateway.into())));
        self.answer()
    }
}

/// Returns the first whole answer among received bytes, and its length.
pub(crate) fn first_answer(bytes: &[u8]) -> Option<(Answer, usize)> {
    let len = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    let frame = bytes.get(..len)?;
    let flags = u32::from_ne_bytes(*frame[FRAME + NETLINK + 8..].first_chunk()?);
    let answer = match (flags & 0x4000 != 0, flags & 0x2000_0000 != 0) {
        (true, false) => Answer::Offloaded,
        (false, true) => Answer::Failed,
        _ => panic!("flags {flags:#x} are no answer"),
    };
    Some((answer, len))
}
