//! Sending of datagrams with records over UDP, with a spool for the time in which the server cannot be reached.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Largest size of the spool in bytes, with [`OVERHEAD`].
const MAX_SPOOL: usize = 32 << 20;
/// Bytes that a datagram needs besides its content.
const OVERHEAD: usize = 64;
/// Time in which an ICMP error may report that a datagram was not delivered. Routers and hosts limit their rate of
/// errors, usually to one per second (RFC 1812 §4.3.2.8).
const IN_DOUBT: Duration = Duration::from_secs(2);
/// Time for which the first datagram after a failure is alone.
const PROBE_TIME: Duration = Duration::from_millis(200);
/// Interval of attempts to reach the server.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of checks for ICMP errors while no datagrams are sent.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Datagrams that are sent at once; more are sent a millisecond later.
const BURST: usize = 64;
/// Longest time that [`Exporter::finish`] sends spooled datagrams.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

struct Datagram {
    bytes: Vec<u8>,
    records: u64,
}

impl Datagram {
    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

/// State of the server, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    /// No error was received.
    Up,
    /// A probe was sent; without an error the server is up at this time.
    Probed(Instant),
    /// Not reachable; probed again at this time.
    Down(Instant),
}

/// Returns a datagram that is sent before the next one when a server is probed.
pub(crate) type Preamble = Box<dyn Fn(&[u8]) -> Vec<u8> + Send>;

/// Sends datagrams to a server in order. Datagrams are spooled while the server is down, and those sent shortly before
/// are repeated.
pub(crate) struct Exporter {
    socket: UdpSocket,
    preamble: Option<Preamble>,
    server: Server,
    /// Datagrams to be sent.
    spool: VecDeque<Datagram>,
    /// Datagrams sent in the last [`IN_DOUBT`], with the time.
    in_doubt: VecDeque<(Instant, Datagram)>,
    /// Size of both.
    size: usize,
    /// Number of records that were not delivered and will not be.
    lost: Arc<AtomicU64>,
}

impl Exporter {
    /// `socket` is connected to the server.
    pub(crate) fn new(socket: UdpSocket, preamble: Option<Preamble>, lost: Arc<AtomicU64>) -> Exporter {
        let server = Server::Down(Instant::now());
        Exporter { socket, preamble, server, spool: VecDeque::new(), in_doubt: VecDeque::new(), size: 0, lost }
    }

    /// Sends or spools a datagram with this number of records. If the spool is full, they are lost and counted.
    pub(crate) fn send(&mut self, bytes: Vec<u8>, records: u64) {
        let datagram = Datagram { bytes, records };
        while self.size + datagram.size() > MAX_SPOOL {
            // without an error so far, these are probably delivered
            let Some((_, sent)) = self.in_doubt.pop_front() else { return self.count_lost(&datagram) };
            self.size -= sent.size();
        }
        self.size += datagram.size();
        self.spool.push_back(datagram);
        self.advance(Instant::now());
    }

    /// Returns the time after which [`advance`](Exporter::advance) has to be called.
    pub(crate) fn wait(&self) -> Duration {
        let now = Instant::now();
        match self.server {
            Server::Up if !self.spool.is_empty() => Duration::from_millis(1),
            Server::Down(at) if !self.spool.is_empty() => at.saturating_duration_since(now).min(CHECK_INTERVAL),
            Server::Up | Server::Down(_) if self.in_doubt.is_empty() => RETRY_INTERVAL,
            _ => CHECK_INTERVAL,
        }
    }

    /// Sends what is due, and receives errors.
    pub(crate) fn advance(&mut self, now: Instant) {
        // sending reports errors, too
        if (self.spool.is_empty() || self.server != Server::Up) && self.has_error() {
            self.set_down(now);
        }
        while let Some((_, sent)) = self.in_doubt.pop_front_if(|(at, _)| now.duration_since(*at) > IN_DOUBT) {
            self.size -= sent.size();
        }
        match self.server {
            Server::Probed(until) if now >= until => self.server = Server::Up,
            Server::Down(at) if now >= at => self.probe(now),
            _ => {}
        }
        for _ in 0..BURST {
            if self.server != Server::Up || self.spool.is_empty() {
                return;
            }
            self.send_first(now);
        }
    }

    /// Returns true if an ICMP error was received.
    fn has_error(&self) -> bool {
        !matches!(self.socket.take_error(), Ok(None))
    }

    fn probe(&mut self, now: Instant) {
        let Some(first) = self.spool.front() else { return };
        let Some(preamble) = &self.preamble else {
            if self.send_first(now) {
                self.server = Server::Probed(now + PROBE_TIME);
            }
            return;
        };
        match self.socket.send(&preamble(&first.bytes)) {
            Ok(_) => self.server = Server::Probed(now + PROBE_TIME),
            Err(_) => self.set_down(now),
        }
    }

    /// Sends the first datagram of the spool; returns true if it was sent.
    fn send_first(&mut self, now: Instant) -> bool {
        let Some(first) = self.spool.pop_front() else { return false };
        match self.socket.send(&first.bytes) {
            Ok(_) => {
                self.in_doubt.push_back((now, first));
                true
            }
            Err(e) if e.raw_os_error() == Some(EMSGSIZE) => {
                self.size -= first.size();
                self.count_lost(&first);
                false
            }
            Err(e) => {
                self.spool.push_front(first);
                if e.kind() != ErrorKind::Interrupted {
                    self.set_down(now);
                }
                false
            }
        }
    }

    fn set_down(&mut self, now: Instant) {
        while let Some((_, sent)) = self.in_doubt.pop_back() {
            self.spool.push_front(sent);
        }
        self.server = Server::Down(now + RETRY_INTERVAL);
    }

    fn count_lost(&self, datagram: &Datagram) {
        self.lost.fetch_add(datagram.records, Ordering::Relaxed);
    }

    /// Sends all spooled datagrams, if the server is up or a last probe shows that it is; the others are lost and
    /// counted.
    pub(crate) fn finish(mut self) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        self.advance(Instant::now());
        if matches!(self.server, Server::Down(_)) {
            self.server = Server::Down(Instant::now());
            self.advance(Instant::now());
        }
        let mut last_sent = Instant::now();
        while !matches!(self.server, Server::Down(_)) && Instant::now() < deadline {
            if !self.spool.is_empty() {
                last_sent = Instant::now();
            } else if last_sent.elapsed() > PROBE_TIME || self.in_doubt.is_empty() {
                break;
            }
            sleep(Duration::from_millis(1));
            self.advance(Instant::now());
        }
        self.spool.iter().for_each(|datagram| self.count_lost(datagram));
    }
}

/// "Message too long": sending it again would fail again.
const EMSGSIZE: i32 = 90;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    struct Setup {
        exporter: Exporter,
        lost: Arc<AtomicU64>,
        address: SocketAddr,
        /// Time of the test, which runs ahead of the real one.
        now: Instant,
    }

    impl Setup {
        /// Returns an exporter to a server, and the server.
        fn new() -> (Setup, UdpSocket) {
            let server = UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(address).unwrap();
            let lost = Arc::<AtomicU64>::default();
            (Setup { exporter: Exporter::new(socket, None, lost.clone()), lost, address, now: Instant::now() }, server)
        }

        fn send(&mut self, numbers: std::ops::Range<u16>) {
            numbers.for_each(|n| self.exporter.send(n.to_be_bytes().to_vec(), 1));
        }

        /// Advances as if this time had passed in steps of 50 ms.
        fn pass(&mut self, time: Duration) {
            for _ in 0..time.as_millis() / 50 {
                self.now += Duration::from_millis(50);
                self.exporter.advance(self.now);
            }
        }

        fn lost(&self) -> u64 {
            self.lost.load(Ordering::Relaxed)
        }
    }

    fn received(server: &UdpSocket) -> Vec<u16> {
        server.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2];
        let mut numbers = vec![];
        while server.recv(&mut buffer).is_ok() {
            numbers.push(u16::from_be_bytes(buffer));
        }
        numbers
    }

    #[test]
    fn sends_all_records_to_a_server_in_order() {
        let (mut setup, server) = Setup::new();
        setup.send(0..100);
        setup.pass(Duration::from_secs(1));
        setup.send(100..110);
        setup.exporter.finish();
        assert_eq!(received(&server), (0..110).collect::<Vec<_>>());
        assert_eq!(setup.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn counts_records_that_a_closed_server_did_not_receive() {
        let (mut setup, server) = Setup::new();
        drop(server);
        setup.send(0..100);
        setup.pass(Duration::from_secs(5));
        setup.send(100..150);
        assert_eq!(setup.lost(), 0);
        setup.exporter.finish();
        assert_eq!(setup.lost.load(Ordering::Relaxed), 150);
    }

    #[test]
    fn spools_records_until_the_server_is_up_and_repeats_those_in_doubt() {
        let (mut setup, server) = Setup::new();
        setup.send(0..5);
        setup.pass(Duration::from_secs(1));
        assert_eq!(received(&server), (0..5).collect::<Vec<_>>());
        drop(server);
        setup.send(5..50);
        setup.pass(Duration::from_secs(3));
        let server = UdpSocket::bind(setup.address).unwrap();
        setup.pass(Duration::from_secs(3));
        // those sent shortly before the failure are repeated
        assert_eq!(received(&server), (0..50).collect::<Vec<_>>());
        setup.send(50..60);
        setup.exporter.finish();
        assert_eq!(received(&server), (50..60).collect::<Vec<_>>());
        assert_eq!(setup.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_spool_loses_and_counts_new_records() {
        let (mut setup, server) = Setup::new();
        drop(server);
        let size = 60_000;
        let capacity = (MAX_SPOOL / (size + OVERHEAD)) as u64;
        (0..capacity + 7).for_each(|_| setup.exporter.send(vec![0; size], 3));
        assert_eq!((setup.lost(), setup.exporter.spool.len() as u64), (3 * 7, capacity));
        setup.exporter.finish();
        assert_eq!(setup.lost.load(Ordering::Relaxed), 3 * (capacity + 7));
    }

    #[test]
    fn a_datagram_that_is_too_long_is_lost_and_others_are_sent() {
        let (mut setup, server) = Setup::new();
        setup.exporter.send(vec![0; 70_000], 2);
        setup.send(0..5);
        setup.pass(Duration::from_secs(2));
        setup.exporter.finish();
        assert_eq!((received(&server), setup.lost.load(Ordering::Relaxed)), ((0..5).collect(), 2));
    }

    #[test]
    fn a_server_gets_the_preamble_whenever_it_is_probed() {
        let (mut setup, server) = Setup::new();
        setup.exporter.preamble = Some(Box::new(|next| vec![0xff, next[1]]));
        setup.send(3..5);
        setup.pass(Duration::from_secs(1));
        assert_eq!(received(&server), [0xff03, 3, 4]);
        drop(server);
        setup.send(5..7);
        setup.pass(Duration::from_secs(3));
        let server = UdpSocket::bind(setup.address).unwrap();
        setup.pass(Duration::from_secs(3));
        assert_eq!(received(&server), [0xff03, 3, 4, 5, 6]);
    }
}
