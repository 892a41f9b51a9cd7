//! Messages of zebra over FPM, recorded, and changed so that other routers can use them.

use super::fpm_client::{DELETE_ROUTE, FRAME, NETLINK, NEW_NEXT_HOP, RTMSG};
use ipnet::IpNet;
use std::io::{ErrorKind, Read as _};
use std::net::{Ipv6Addr, TcpListener};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Length of `struct nhmsg`.
const NHMSG: usize = 8;
/// Time without a message after which a recording is complete.
const QUIET: Duration = Duration::from_secs(5);

/// The frames of a connection of zebra.
pub(crate) struct Recording {
    bytes: Vec<u8>,
    /// Prefixes of the routes that are added, and where their frames are.
    pub(crate) routes: Vec<(IpNet, Range<usize>)>,
}

impl Recording {
    /// Records the connection of a zebra until it has sent at least so many routes, and nothing more for a time.
    #[track_caller]
    pub(crate) fn new(listener: &TcpListener, routes: usize, limit: Duration) -> Recording {
        let deadline = Instant::now() + limit;
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(QUIET)).unwrap();
        let mut recording = Recording { bytes: vec![], routes: vec![] };
        let (mut at, mut received) = (0, vec![0; 1 << 20]);
        loop {
            match stream.read(&mut received) {
                Ok(0) => panic!("zebra has closed the connection after {} routes", recording.routes.len()),
                Ok(n) => recording.bytes.extend_from_slice(&received[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock && recording.routes.len() >= routes => return recording,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            while let Some(len) = recording.bytes.get(at + 2..at + FRAME) {
                let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
                if at + len > recording.bytes.len() {
                    break;
                }
                if let Some(Ok(fpm::Message::Route(route))) =
                    fpm::messages(&recording.bytes[at + FRAME..at + len]).next()
                    && !route.removes
                {
                    recording.routes.push((route.prefix, at..at + len));
                }
                at += len;
            }
            assert!(Instant::now() < deadline, "{} of {routes} routes", recording.routes.len());
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Passes the frames for tenant `n` to `each`, in parts of about 64 KiB.
    pub(crate) fn replay(&self, n: u8, mut each: impl FnMut(&[u8])) {
        let (mut at, mut part) = (0, Vec::with_capacity(128 << 10));
        while let Some(len) = self.bytes.get(at + 2..at + FRAME) {
            let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
            append(&self.bytes[at..at + len], n, &mut part);
            at += len;
            if part.len() > 64 << 10 || at == self.bytes.len() {
                each(&part);
                part.clear();
            }
        }
    }

    /// Appends the frame of a route for tenant `n`, or one that withdraws the route.
    pub(crate) fn route(&self, frame: &Range<usize>, n: u8, withdraws: bool, out: &mut Vec<u8>) {
        let start = out.len();
        append(&self.bytes[frame.clone()], n, out);
        if withdraws {
            out[start + FRAME + 4..start + FRAME + 6].copy_from_slice(&DELETE_ROUTE.to_ne_bytes());
        }
    }
}

/// Appends a frame in which interfaces are left to the server, and next hops in 10.2.0.0/16 and fd02::/16 and link-local
/// addresses are those of tenant `n`, 10.2.`n`.2 and fd02:`n`::2.
fn append(frame: &[u8], n: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(frame);
    let mut message = start + FRAME;
    while message + NETLINK <= out.len() {
        let len = u32::from_ne_bytes(*out[message..].first_chunk().unwrap()) as usize;
        // numbers of the attributes for interface and gateway
        let (mut at, interface, gateway) = match u16::from_ne_bytes([out[message + 4], out[message + 5]]) {
            NEW_NEXT_HOP => (message + NETLINK + NHMSG, 5, 6),
            _ => (message + NETLINK + RTMSG, 4, 5),
        };
        while at + 4 <= message + len {
            let [len, kind] = [at, at + 2].map(|at| u16::from_ne_bytes([out[at], out[at + 1]]));
            let value = &mut out[at + 4..at + usize::from(len).max(4)];
            match (kind, value) {
                (kind, value) if kind == interface => value.fill(0),
                (kind, [10, 2, of, host]) if kind == gateway => (*of, *host) = (n, 2),
                (kind, value @ ([0xfd, 0x02, ..] | [0xfe, 0x80, ..])) if kind == gateway => {
                    value.copy_from_slice(&Ipv6Addr::new(0xfd02, n.into(), 0, 0, 0, 0, 0, 2).octets());
                }
                _ => {}
            }
            at += usize::from(len).max(4).next_multiple_of(4);
        }
        message += len.max(NETLINK).next_multiple_of(4);
    }
}
