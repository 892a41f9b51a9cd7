//! The capture of a new crate: synthetic traffic with private addresses.

use anyhow::Context;
use pcap::{LinkType, Writer};
use std::path::Path;
use wire::{TcpFlags, build};

/// Returns 31 frames: 20 packets of host 1, four of hosts 2 and 3 each, a malformed packet, an ARP request, an IPv6
/// packet.
fn frames() -> Vec<Vec<u8>> {
    let server = [10, 1, 0, 1];
    let dns = |n| build::udp4([10, 0, 0, 1], server, 5000, 53).id(n).payload(b"question").pad_to(60).to_vec();
    let web = |n| {
        let segment = build::tcp4([10, 0, 0, 2], server, 40_000, 80).flags(TcpFlags::ACK | TcpFlags::PSH);
        segment.seq(u32::from(n) * 10).id(n).payload(b"GET / HTTP").to_vec()
    };
    let ping = |n| build::echo4([10, 0, 0, 3], server, 7, n).id(n).payload(&[0x55; 32]).to_vec();
    let mut malformed = ping(4);
    // a total length beyond the frame
    malformed[16..18].copy_from_slice(&1000u16.to_be_bytes());
    let mut frames = vec![build::arp_request([10, 0, 0, 1], server).pad_to(60).to_vec()];
    frames.extend((0..20).map(dns));
    frames.extend((0..4).flat_map(|n| [web(n), ping(n)]).collect::<Vec<_>>());
    frames.push(malformed);
    let v6 = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    frames.push(build::udp6(v6(1), v6(2), 5000, 53).payload(b"question").to_vec());
    frames
}

/// Writes the capture with a gap of one millisecond between frames.
pub(super) fn write(path: &Path) -> anyhow::Result<()> {
    let result = || {
        let mut writer = Writer::create(path, LinkType::ETHERNET)?;
        for (n, frame) in frames().iter().enumerate() {
            writer.write(n as u64 * 1_000_000, 0, frame)?;
        }
        writer.finish()
    };
    result().map(drop).with_context(|| format!("cannot write {}", path.display()))
}
