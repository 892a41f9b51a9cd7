//! The headers of a frame, as named fields.

use etherparse::{LaxPacketHeaders, LinkExtHeader, LinkHeader, NetHeaders, TransportHeader};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;

/// The fields of all headers of a frame, by layer.
pub(super) struct Headers {
    layers: Vec<Layer>,
}

struct Layer {
    name: &'static str,
    fields: Vec<(&'static str, String)>,
}

impl Headers {
    /// Parses the headers of a frame that may be cut.
    pub(super) fn of_hex(hex: &str) -> Option<Headers> {
        let digits = hex.as_bytes().chunks_exact(2);
        let bytes: Option<Vec<u8>> =
            digits.map(|two| u8::from_str_radix(core::str::from_utf8(two).ok()?, 16).ok()).collect();
        let bytes = bytes?;
        let Ok(parsed) = LaxPacketHeaders::from_ethernet(&bytes) else {
            return Some(Headers { layers: vec![] });
        };
        let mut layers = vec![];
        if let Some(LinkHeader::Ethernet2(eth)) = &parsed.link {
            let fields = vec![("src", MacAddr(eth.source).to_string()), ("dst", MacAddr(eth.destination).to_string())];
            layers.push(Layer { name: "eth", fields });
        }
        for ext in &parsed.link_exts {
            if let LinkExtHeader::Vlan(vlan) = ext {
                let fields = vec![("id", vlan.vlan_id.value().to_string()), ("priority", vlan.pcp.value().to_string())];
                layers.push(Layer { name: "vlan", fields });
            }
        }
        layers.extend(parsed.net.as_ref().and_then(net));
        layers.extend(parsed.transport.as_ref().and_then(transport));
        Some(Headers { layers })
    }

    /// Returns lines with the layers, or with the fields that are different from those before.
    pub(super) fn differences(&self, before: Option<&Headers>, len: Option<usize>) -> Vec<String> {
        let whole = |layer: &Layer| {
            let fields: Vec<String> = layer.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            format!("{} {}", layer.name, fields.join(" "))
        };
        let names = |headers: &Headers| headers.layers.iter().map(|layer| layer.name).collect::<Vec<_>>();
        let Some(before) = before.filter(|before| names(before) == names(self)) else {
            let len = len.map(|len| format!("{len} bytes"));
            return len.into_iter().chain(self.layers.iter().map(whole)).collect();
        };
        let changed = self.layers.iter().zip(&before.layers).flat_map(|(now, before)| {
            now.fields
                .iter()
                .zip(&before.fields)
                .filter(|(now, before)| now.1 != before.1)
                .map(|((name, value), (_, old))| format!("{} {name} {old} -> {value}", now.name))
        });
        changed.collect()
    }
}

fn net(net: &NetHeaders) -> Option<Layer> {
    Some(match net {
        NetHeaders::Ipv4(ip, _) => {
            let mut fields = vec![
                ("src", Ipv4Addr::from(ip.source).to_string()),
                ("dst", Ipv4Addr::from(ip.destination).to_string()),
                ("ttl", ip.time_to_live.to_string()),
                ("protocol", ip.protocol.0.to_string()),
                ("dscp", ip.dscp.value().to_string()),
                ("id", ip.identification.to_string()),
            ];
            if ip.more_fragments || ip.fragment_offset.value() != 0 {
                fields.push(("fragment at", (usize::from(ip.fragment_offset.value()) * 8).to_string()));
            }
            Layer { name: "ipv4", fields }
        }
        NetHeaders::Ipv6(ip, _) => {
            let fields = vec![
                ("src", Ipv6Addr::from(ip.source).to_string()),
                ("dst", Ipv6Addr::from(ip.destination).to_string()),
                ("hop limit", ip.hop_limit.to_string()),
                ("next header", ip.next_header.0.to_string()),
            ];
            Layer { name: "ipv6", fields }
        }
        NetHeaders::Arp(arp) => {
            let arp = arp.try_eth_ipv4().ok()?;
            let operation = match arp.operation.0 {
                1 => "request".to_owned(),
                2 => "reply".to_owned(),
                other => other.to_string(),
            };
            let fields = vec![
                ("operation", operation),
                ("sender", format!("{} {}", Ipv4Addr::from(arp.sender_ipv4), MacAddr(arp.sender_mac))),
                ("target", format!("{} {}", Ipv4Addr::from(arp.target_ipv4), MacAddr(arp.target_mac))),
            ];
            Layer { name: "arp", fields }
        }
    })
}

fn transport(transport: &TransportHeader) -> Option<Layer> {
    let ports =
        |name, src: u16, dst: u16| Layer { name, fields: vec![("src", src.to_string()), ("dst", dst.to_string())] };
    let kind = |name, bytes: &[u8]| {
        let [kind, code, _, _, id @ ..] = bytes.first_chunk::<6>()?;
        let fields =
            vec![("type", kind.to_string()), ("code", code.to_string()), ("id", u16::from_be_bytes(*id).to_string())];
        Some(Layer { name, fields })
    };
    match transport {
        TransportHeader::Udp(udp) => Some(ports("udp", udp.source_port, udp.destination_port)),
        TransportHeader::Tcp(tcp) => {
            let mut layer = ports("tcp", tcp.source_port, tcp.destination_port);
            let flags = [(tcp.syn, "SYN"), (tcp.fin, "FIN"), (tcp.rst, "RST"), (tcp.psh, "PSH"), (tcp.ack, "ACK")];
            let flags: Vec<&str> = flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
            layer.fields.push(("flags", flags.join("+")));
            layer.fields.push(("seq", tcp.sequence_number.to_string()));
            Some(layer)
        }
        TransportHeader::Icmpv4(icmp) => kind("icmp", &icmp.to_bytes()),
        TransportHeader::Icmpv6(icmp) => kind("icmpv6", &icmp.to_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ttl: u8, port: u16) -> String {
        let mut bytes = vec![];
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], ttl).udp(7, port).write(&mut bytes, &[0; 18]).unwrap();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn first_all_headers_are_shown_and_then_those_that_change() {
        let (before, after) = (Headers::of_hex(&frame(64, 53)).unwrap(), Headers::of_hex(&frame(63, 54)).unwrap());
        let all = before.differences(None, Some(60));
        assert_eq!(all[..2], ["60 bytes", "eth src 02:00:00:00:00:01 dst 02:00:00:00:00:02"]);
        assert_eq!(all[2], "ipv4 src 192.0.2.1 dst 192.0.2.2 ttl 64 protocol 17 dscp 0 id 0");
        assert_eq!(all[3], "udp src 7 dst 53");
        assert_eq!(after.differences(Some(&before), Some(60)), ["ipv4 ttl 64 -> 63", "udp dst 53 -> 54"]);
        assert!(before.differences(Some(&before), None).is_empty());
    }

    #[test]
    fn frames_may_be_cut_and_damaged() {
        for len in 0..60 {
            assert!(Headers::of_hex(&frame(64, 53)[..2 * len]).is_some());
        }
        assert!(Headers::of_hex("zz").is_none());
    }
}
