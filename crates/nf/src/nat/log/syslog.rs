//! Syslog over UDP (RFC 5424, RFC 5426).

use super::record::{Event, Record};
use crate::export::Exporter;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;
use wire::IpProtocol;

/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;

/// Sends a message for each record until the channel is closed.
pub(super) fn run(socket: UdpSocket, name: &str, records: &Receiver<Record>, lost: Arc<AtomicU64>) {
    let mut exporter = Exporter::new(socket, None, lost);
    loop {
        match records.recv_timeout(exporter.wait()) {
            Ok(record) => exporter.send(message(name, &record).into_bytes(), 1),
            Err(RecvTimeoutError::Timeout) => exporter.advance(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => return exporter.finish(),
        }
    }
}

/// Formats a message with the event as structured data (RFC 5424 §6).
fn message(name: &str, Record { at, inside, event }: &Record) -> String {
    let (id, fields) = match event {
        Event::Block(b) => {
            let external = Ipv4Addr::from_bits(b.external);
            let fields = format!("inside=\"{inside}\" external=\"{external}\" ports=\"{}-{}\"", b.ports.0, b.ports.1);
            (if b.allocated { "BLOCK-BEGIN" } else { "BLOCK-END" }, fields)
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
            (if s.created { "SESSION-BEGIN" } else { "SESSION-END" }, fields)
        }
    };
    // 32473 is the private enterprise number for documentation (RFC 5612)
    format!("<{PRIORITY}>1 {} - bondstone {name} {id} [nat@32473 {fields}]", humantime::format_rfc3339_millis(*at))
}
