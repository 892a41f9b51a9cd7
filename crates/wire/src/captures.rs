//! Payloads of real captures, for tests.

use crate::{IpProtocol, Ipv4, Ipv6, Tcp, Udp, View, ethernet, vlan};
use std::path::{Path, PathBuf};

/// A UDP datagram or TCP segment: protocol, ports and payload.
pub(crate) type Payload = (IpProtocol, [u16; 2], Vec<u8>);

/// Returns the payloads of a capture of `dpi` in the shared data of the project; `None`, with a message, if it is
/// missing.
pub(crate) fn payloads(name: &str) -> Option<Vec<Payload>> {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = data.join("dpi").join(name);
    if !path.is_file() {
        eprintln!("skipped: no {} (set BONDSTONE_DATA)", path.display());
        return None;
    }
    let (mut reader, mut all) = (pcap::Reader::open(&path).unwrap(), vec![]);
    while let Some(record) = reader.next().unwrap() {
        all.extend(payload(record.frame));
    }
    Some(all)
}

fn payload(frame: &[u8]) -> Option<Payload> {
    let frame = ethernet::Frame::new(frame).ok()?;
    let (mut kind, mut rest) = (frame.header().ether_type(), frame.payload());
    while kind.is_vlan() {
        let tag = vlan::Tag::new(rest).ok()?;
        (kind, rest) = (tag.header().ether_type(), tag.payload());
    }
    let v4 = View::<Ipv4>::new(rest).ok().filter(|ip| !ip.header().is_fragment());
    let v4 = v4.map(|ip| (ip.header().protocol(), ip.payload()));
    let (protocol, upper) = v4.or_else(|| View::<Ipv6>::new(rest).ok().map(|ip| (ip.upper().0, ip.payload())))?;
    match protocol {
        IpProtocol::UDP => {
            let datagram = View::<Udp>::new(upper).ok()?;
            let header = datagram.header();
            Some((protocol, [header.src_port(), header.dst_port()], datagram.payload().to_vec()))
        }
        IpProtocol::TCP => {
            let segment = View::<Tcp>::new(upper).ok()?;
            let header = segment.header();
            Some((protocol, [header.src_port(), header.dst_port()], segment.payload().to_vec()))
        }
        _ => None,
    }
}
