//! What is told of blocks and sessions: syslog over UDP (RFC 5424, RFC 5426), by a thread of its own.

use super::ports::BlockEvent;
use super::sessions::SessionEvent;
use graph::Counter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::SystemTime;
use wire::IpProtocol;

/// Events that wait at most; more are lost, and counted.
const ROOM: usize = 16_384;
/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;

#[derive(Clone, Copy)]
enum Event {
    Block(BlockEvent),
    Session(SessionEvent),
}

/// What happened when, to whom inside.
struct Entry {
    at: SystemTime,
    inside: IpAddr,
    event: Event,
}

/// The data path's end: it never waits.
pub(crate) struct Log {
    to: SyncSender<Entry>,
    lost: Arc<Counter>,
}

impl Log {
    /// Begins to tell `to`. The thread ends with the log.
    ///
    /// # Errors
    /// There is no socket, or no thread.
    pub(crate) fn new(name: &str, to: SocketAddr, lost: Arc<Counter>) -> std::io::Result<Log> {
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        let (sender, events) = sync_channel(ROOM);
        let name = name.to_owned();
        std::thread::Builder::new().name("nat-log".into()).spawn(move || tell(&socket, &name, &events))?;
        Ok(Log { to: sender, lost })
    }

    fn event(&self, inside: IpAddr, event: Event) {
        match self.to.try_send(Entry { at: SystemTime::now(), inside, event }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.lost.add(1),
        }
    }

    /// A block of the subscriber with this address.
    pub(crate) fn block(&self, inside: IpAddr, event: BlockEvent) {
        self.event(inside, Event::Block(event));
    }

    /// A session of the subscriber with this address.
    pub(crate) fn session(&self, inside: IpAddr, event: SessionEvent) {
        self.event(inside, Event::Session(event));
    }
}

fn tell(socket: &UdpSocket, name: &str, events: &Receiver<Entry>) {
    while let Ok(entry) = events.recv() {
        // nobody listens, or the network is full: the next may get through
        let _ = socket.send(line(name, &entry).as_bytes());
    }
}

/// One message (RFC 5424 §6), the event as structured data.
fn line(name: &str, Entry { at, inside, event }: &Entry) -> String {
    let (id, fields) = match event {
        Event::Block(b) => {
            let external = Ipv4Addr::from_bits(b.external);
            let fields = format!("inside=\"{inside}\" external=\"{external}\" ports=\"{}-{}\"", b.ports.0, b.ports.1);
            (if b.begins { "BLOCK-BEGIN" } else { "BLOCK-END" }, fields)
        }
        Event::Session(s) => {
            let protocol = match IpProtocol(s.flow.protocol) {
                IpProtocol::TCP => "tcp",
                IpProtocol::UDP => "udp",
                _ => "icmp",
            };
            let end = |address: u32, port: u16| SocketAddr::from((Ipv4Addr::from_bits(address), port));
            let fields = format!(
                "protocol=\"{protocol}\" inside=\"{}\" external=\"{}\" outside=\"{}\"",
                SocketAddr::from((*inside, s.flow.src_port)),
                end(s.external.0, s.external.1),
                end(s.flow.dst, s.flow.dst_port)
            );
            (if s.begins { "SESSION-BEGIN" } else { "SESSION-END" }, fields)
        }
    };
    // 32473 is the number for examples and documents (RFC 5612)
    format!("<{PRIORITY}>1 {} - bondstone {name} {id} [nat@32473 {fields}]", humantime::format_rfc3339_millis(*at))
}
