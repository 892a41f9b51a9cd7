//! What is told of blocks and sessions, by a thread of its own: syslog over UDP (RFC 5424, RFC 5426), or IPFIX.

use super::ipfix::{self, Kind};
use super::ports::BlockEvent;
use super::sessions::SessionEvent;
use super::settings::Config;
use diagnostics::Diagnostic;
use graph::{BuildContext, Counter};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;
use wire::IpProtocol;

/// Events that wait at most; more are lost, and counted.
const ROOM: usize = 16_384;
/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;

/// To whom it is told, and in which form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Syslog(SocketAddr),
    Ipfix(SocketAddr),
}

impl To {
    /// Reads one as it is written: "192.0.2.1:514", "ipfix://192.0.2.1:4739".
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.strip_prefix("ipfix://") {
            Some(address) => address.parse().ok().map(To::Ipfix),
            None => text.parse().ok().map(To::Syslog),
        }
    }

    pub(crate) fn address(self) -> SocketAddr {
        match self {
            To::Syslog(address) | To::Ipfix(address) => address,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Event {
    Block(BlockEvent),
    Session(SessionEvent),
}

/// What happened when, to whom inside.
pub(super) struct Entry {
    pub(super) at: SystemTime,
    pub(super) inside: IpAddr,
    pub(super) event: Event,
}

/// The data path's end: it never waits.
pub(crate) struct Log {
    /// There until the log is dropped.
    to: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
    lost: Arc<Counter>,
}

impl Drop for Log {
    /// What is still to be told is told: NFs are dropped where nothing waits.
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Log {
    /// Begins to tell what the copy `copy` of the NF `name` does. The thread ends with the log.
    ///
    /// # Errors
    /// There is no socket, or no thread.
    fn new(name: &str, copy: usize, to: To, kind: Kind, lost: Arc<Counter>) -> std::io::Result<Log> {
        let any: SocketAddr = match to.address() {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to.address())?;
        let (sender, events) = sync_channel(ROOM);
        let name = name.to_owned();
        let run = move || match to {
            To::Syslog(_) => tell(&socket, &name, &events),
            // domain 0 would be no domain (RFC 7011 §3.1)
            To::Ipfix(_) => ipfix::tell(&socket, kind, copy as u32 + 1, &events),
        };
        let thread = std::thread::Builder::new().name("nat-log".into()).spawn(run)?;
        Ok(Log { to: Some(sender), thread: Some(thread), lost })
    }

    /// The log of one copy, if its settings want one.
    ///
    /// # Errors
    /// It cannot begin.
    pub(crate) fn of(
        config: &Config,
        cx: &BuildContext,
        kind: Kind,
        lost: &Arc<Counter>,
    ) -> Result<Option<Log>, Diagnostic> {
        let begin = |to: To| {
            Log::new(&cx.name, cx.copy.0, to, kind, lost.clone()).map_err(|e| {
                let d = Diagnostic::new(format!("cannot be told: {e}")).key("log").value(to.address());
                d.remedy("name the address and port of a server that this machine has a route to")
            })
        };
        config.log.map(begin).transpose()
    }

    fn event(&self, inside: IpAddr, event: Event) {
        let Some(to) = &self.to else { return };
        match to.try_send(Entry { at: SystemTime::now(), inside, event }) {
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
        send(socket, line(name, &entry).as_bytes());
    }
}

/// Sends a datagram. What came back of the one before ends the first try: nobody listened then.
pub(super) fn send(socket: &UdpSocket, datagram: &[u8]) {
    // nobody listens, or the network is full: the next may get through
    let _ = socket.send(datagram).or_else(|_| socket.send(datagram));
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
