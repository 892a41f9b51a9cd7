//! Syslog over UDP (RFC 5424, RFC 5426).

use super::record::{Event, Record};
use super::udp::send;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::Receiver;
use wire::IpProtocol;

/// Facility local0, severity informational.
const PRIORITY: u8 = 16 * 8 + 6;

/// Sends a message for each record until the channel is closed.
pub(super) fn run(socket: &UdpSocket, name: &str, records: &Receiver<Record>) {
    while let Ok(record) = records.recv() {
        send(socket, message(name, &record).as_bytes());
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
