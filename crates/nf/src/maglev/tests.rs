//! Tests against a model, and of the bytes of packets.

mod general;
mod model;
mod reload;
mod saved;

use super::backends::{BackendState, PoolHandle};
use super::balancer::Balancer;
use super::config::Config;
use super::{Maglev, Settings, health};
use crate::visits::Copies;
use std::net::IpAddr;
use std::sync::Arc;
use testkit::Harness;
use wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, tcp, udp};

const VIP: [u8; 4] = [192, 0, 2, 10];
const VIP6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10];

/// Returns the settings of a service of both IP versions with a kind of forwarding and backends in 10.0.0.x or fd00::x.
fn service(forward: &str, v6: bool) -> String {
    let address = |n: u8| if v6 { format!("fd00::{n}") } else { format!("10.0.0.{n}") };
    let vip = match (forward, v6) {
        ("nat" | "l3dsr", true) => "\"tcp [2001:db8::10]:80\", \"udp [2001:db8::10]:53\"",
        ("nat" | "l3dsr", false) => "\"tcp 192.0.2.10:80\", \"udp 192.0.2.10:53\"",
        _ => "\"tcp 192.0.2.10:80\", \"udp 192.0.2.10:53\", \"tcp [2001:db8::10]:80\", \"udp [2001:db8::10]:53\"",
    };
    let dscp = if forward == "l3dsr" { "dscp = 11\n" } else { "" };
    let backends: String = (1..=5).map(|n| format!("backend.b{n} = {{ address = \"{}\" }}\n", address(n))).collect();
    format!(
        "table = 251\nsource = [\"10.9.9.9\", \"fd09::9\"]\nconnections = 100\n[service.web]\nvip = [{vip}]\n{dscp}forward = \"{forward}\"\n{backends}"
    )
}

/// Returns a load balancer, and the handle by which the test sets the states of backends.
fn balancer(settings: &str) -> (Harness, Arc<PoolHandle>) {
    let (node, shared) = node(settings, None);
    (Harness::from_node(node), shared)
}

fn node(settings: &str, before: Option<&PoolHandle>) -> (Balancer, Arc<PoolHandle>) {
    let settings: Settings = toml::from_str(settings).unwrap();
    let config = Arc::new(Config::new(&settings).unwrap());
    let shared = Arc::new(health::start(config, before.map(|pool| &*pool.0)).unwrap());
    (Balancer::new(&settings, shared.clone(), Copies::default().attach(0)).unwrap(), shared)
}

/// Contents of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Contents {
    src: IpAddr,
    dst: IpAddr,
    dscp: u8,
    protocol: IpProtocol,
    /// Ports of TCP and UDP.
    ports: (u16, u16),
    payload: Vec<u8>,
}

/// Returns the contents of a frame, after verifying its checksums.
#[track_caller]
fn contents(frame: &[u8]) -> Contents {
    let frame = ethernet::Frame::new(frame).unwrap();
    packet(frame.header().ether_type(), frame.payload())
}

#[track_caller]
fn packet(ether_type: EtherType, bytes: &[u8]) -> Contents {
    let (src, dst, dscp, protocol, upper, pseudo, whole): (IpAddr, IpAddr, _, _, _, _, _) = match ether_type {
        EtherType::IPV4 => {
            let ip = ipv4::Packet::new(bytes).unwrap();
            assert!(ip.checksum_ok());
            let h = ip.header();
            (h.src().into(), h.dst().into(), h.dscp(), h.protocol(), ip.payload(), ip.pseudo(), !h.is_fragment())
        }
        EtherType::IPV6 => {
            let ip = ipv6::Packet::new(bytes).unwrap();
            let h = ip.header();
            (h.src().into(), h.dst().into(), h.dscp(), ip.upper().0, ip.payload(), ip.pseudo(), true)
        }
        other => panic!("{other:?}"),
    };
    let mut ports = (0, 0);
    match protocol {
        IpProtocol::TCP if whole => {
            let t = tcp::Segment::new(upper).unwrap();
            assert!(t.checksum_ok(pseudo));
            ports = (t.header().src_port(), t.header().dst_port());
        }
        IpProtocol::UDP if whole => {
            let u = udp::Datagram::new(upper).unwrap();
            assert!(u.checksum_ok(pseudo));
            ports = (u.header().src_port(), u.header().dst_port());
        }
        IpProtocol::ICMPV4 => assert!(wire::checksum::verify(upper)),
        IpProtocol::ICMPV6 => assert!(pseudo.sum(upper).is_valid()),
        _ => {}
    }
    Contents { src, dst, dscp, protocol, ports, payload: upper.to_vec() }
}

/// Returns the inner packet of a tunnel's packet.
#[track_caller]
fn decapsulate(outer: &Contents) -> (EtherType, Vec<u8>) {
    match outer.protocol {
        IpProtocol::IPV4 => (EtherType::IPV4, outer.payload.clone()),
        IpProtocol::IPV6 => (EtherType::IPV6, outer.payload.clone()),
        IpProtocol::GRE => {
            assert_eq!(outer.payload[..2], [0, 0]);
            let inner = EtherType(u16::from_be_bytes([outer.payload[2], outer.payload[3]]));
            (inner, outer.payload[4..].to_vec())
        }
        other => panic!("{other}"),
    }
}

#[track_caller]
fn rejects(settings: &str, message: &str) {
    let error = Harness::try_new::<Maglev>(settings).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn rejects_invalid_settings() {
    let web = |what: &str| format!("source = [\"10.9.9.9\"]\n[service.web]\n{what}");
    let b = "backend.b.address = \"10.0.0.1\"";
    rejects("table = 65536", "not a prime number");
    rejects("idle = 0", "out of range");
    rejects("mtu = 100", "smaller");
    rejects("source = [\"10.0.0.1\", \"10.0.0.2\"]", "not a source");
    rejects("source = [\"224.0.0.1\"]", "not a source");
    rejects("connections = 0", "flow table");
    rejects(&web(&format!("vip = []\nforward = \"gre\"\n{b}")), "no virtual address");
    rejects(&web("vip = [\"tcp 192.0.2.10:80\"]\nforward = \"gre\"\nbackend = {}"), "no virtual address or no backend");
    for bad in ["tcp 192.0.2.10", "sctp 192.0.2.10:80", "tcp 0.0.0.0:80", "udp 192.0.2.10:0", "tcp [ff02::1]:1", "x"] {
        rejects(&web(&format!("vip = [{bad:?}]\nforward = \"gre\"\n{b}")), "not a virtual address");
    }
    let vip = "vip = [\"tcp 192.0.2.10:80\"]";
    rejects(
        &web(&format!("vip = [\"tcp 192.0.2.10:80\", \"tcp 192.0.2.10:80\"]\nforward = \"gre\"\n{b}")),
        "duplicate",
    );
    rejects(&web(&format!("{vip}\nforward = \"l3dsr\"\n{b}")), "dscp = 0");
    rejects(&web(&format!("{vip}\nforward = \"gre\"\ndscp = 3\n{b}")), "dscp = 3");
    rejects(&web(&format!("{vip}\nforward = \"gre\"\nbackend.b = {{ address = \"fd00::1\" }}")), "cannot be reached");
    rejects(&web(&format!("{vip}\nforward = \"nat\"\nbackend.b = {{ address = \"fd00::1\" }}")), "cannot be reached");
    rejects(&web(&format!("{vip}\nforward = \"nat\"\nbackend.b = {{ address = \"255.255.255.255\" }}")), "cannot");
    rejects(&web(&format!("{vip}\nforward = \"gre\"\nbackend.b = {{ address = \"10.0.0.1\", port = 8 }}")), "a port");
    rejects(
        &web(&format!("{vip}\nforward = \"gre\"\nbackend.b = {{ address = \"10.0.0.1\", weight = 257 }}")),
        "weight",
    );
    rejects(&web(&format!("{vip}\nforward = \"gre\"\nhealth.interval = 0\n{b}")), "health checks");
    rejects(&web(&format!("{vip}\nforward = \"gre\"\nhealth.path = \"a b\"\n{b}")), "invalid path");
    let two = "vip = [\"tcp 192.0.2.10:80\", \"tcp 192.0.2.11:80\"]\nforward = \"nat\"";
    rejects(&web(&format!("{two}\n{b}")), "two virtual addresses");
}
