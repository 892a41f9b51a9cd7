//! A client of the FPM server that writes messages as zebra does, and others.

use super::LIMIT;
use dpdk::netdev::in_namespace;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Flags of answers.
pub(crate) const OFFLOADED: u32 = 0x4000;
pub(crate) const FAILED: u32 = 0x2000_0000;

pub(crate) struct FpmClient {
    pub(crate) stream: TcpStream,
    /// What has been read of the next answer.
    rest: Vec<u8>,
}

/// Returns the frame of a route to a network of 24 bits, by a gateway.
pub(crate) fn route(prefix: [u8; 3], gateway: [u8; 4]) -> Vec<u8> {
    let attribute = |kind: u8, value: [u8; 4]| [&[8, 0, kind, 0][..], &value].concat();
    let body = [
        // struct rtmsg: IPv4, 24 bits, the main table, BGP, unicast
        vec![2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0],
        attribute(1, [prefix[0], prefix[1], prefix[2], 0]),
        attribute(5, gateway),
    ]
    .concat();
    // struct nlmsghdr: length, RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
    let header = [&(16 + body.len() as u32).to_ne_bytes()[..], &24u16.to_ne_bytes(), &0x501u16.to_ne_bytes(), &[0; 8]];
    frame(&[header.concat(), body].concat())
}

/// Returns a frame with a payload.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    [&[1, 1][..], &(4 + payload.len() as u16).to_be_bytes(), payload].concat()
}

impl FpmClient {
    /// Connects to the server of a namespace.
    #[track_caller]
    pub(crate) fn connect(namespace: &str) -> FpmClient {
        let deadline = Instant::now() + LIMIT;
        loop {
            match in_namespace(Some(namespace), || TcpStream::connect("127.0.0.1:2620")) {
                Ok(stream) => {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(LIMIT)).unwrap();
                    return FpmClient { stream, rest: vec![] };
                }
                Err(e) => assert!(Instant::now() < deadline, "{namespace}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends bytes; a server that has closed the connection is no error.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Returns the flags of the next answers.
    #[track_caller]
    pub(crate) fn answers(&mut self, n: usize) -> Vec<u32> {
        let mut flags = vec![];
        let mut buffer = [0; 4096];
        while flags.len() < n {
            if let Some(len) = self.rest.get(2..4).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]])))
                && self.rest.len() >= len
            {
                flags.push(u32::from_ne_bytes(self.rest[28..32].try_into().unwrap()));
                self.rest.drain(..len);
                continue;
            }
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "closed after {} of {n} answers", flags.len());
            self.rest.extend(&buffer[..read]);
        }
        flags
    }

    /// Installs a route; returns the flags of the answer, and the time that it took.
    #[track_caller]
    pub(crate) fn install(&mut self, prefix: [u8; 3], gateway: [u8; 4]) -> (u32, Duration) {
        let start = Instant::now();
        self.send(&route(prefix, gateway));
        (self.answers(1)[0], start.elapsed())
    }

    /// Waits until the server closes the connection.
    #[track_caller]
    pub(crate) fn closed(mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return,
                Err(e) => panic!("not closed: {e}"),
            }
        }
    }
}
