//! Header stacks as tshark dissects them.

use super::{settings, stack};
use crate::flows::Transport;
use crate::template::Template;
use crate::{FrameSize, Mix, Probe, flows::Flows};
use pcap::{LinkType, Writer};
use std::process::Command;

/// Front, protocols of the frame, and the values of `FIELDS` that the front sets.
const DISSECTED: [(&str, &str, &str); 7] = [
    ("", "eth:ethertype:ip:udp:data", ""),
    ("/vlan:9/vlan:7", "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ip:udp:data", "ieee8021ad.id=9 vlan.id=7"),
    ("/vlan:7/mpls:16/mpls:17", "eth:ethertype:vlan:ethertype:mpls:ip:udp:data", "vlan.id=7 mpls.label=16,17"),
    ("/pppoe:9", "eth:ethertype:pppoes:ppp:ip:udp:data", "pppoe.session_id=0x0009"),
    ("vxlan:5@192.0.2.7-192.0.2.8", "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:udp:data", "vxlan.vni=5"),
    ("gtpu:5@192.0.2.7-192.0.2.8", "eth:ethertype:ip:udp:gtp:ip:udp:data", "gtp.teid=0x00000005"),
    (
        "srv6@2001:db8::1-2001:db8::2,2001:db8::3",
        "eth:ethertype:ipv6:ipv6.routing:ip:udp:data",
        "ipv6.routing.segleft=1 ipv6.routing.srh.addr=2001:db8::3,2001:db8::2",
    ),
];
const FIELDS: [&str; 8] = [
    "ieee8021ad.id",
    "vlan.id",
    "mpls.label",
    "pppoe.session_id",
    "vxlan.vni",
    "gtp.teid",
    "ipv6.routing.segleft",
    "ipv6.routing.srh.addr",
];

#[test]
fn tshark_finds_the_same_headers_and_no_error() {
    let file = std::env::temp_dir().join(format!("bondstone-stacks-{}.pcap", std::process::id()));
    let mut writer = Writer::create(&file, LinkType::ETHERNET).unwrap();
    for (n, (front, ..)) in DISSECTED.iter().enumerate() {
        let flows = Flows::new(settings(true, Transport::Udp, 1)).unwrap();
        let mix = Mix::fixed(FrameSize::new(300).unwrap());
        let template = Template::stacked(&flows, &mix, true, &stack(front, "", true, Transport::Udp)).unwrap();
        let mut frame = [0; 296];
        assert_eq!(template.fill(0, 0, Probe::default(), &mut frame), 296);
        writer.write(n as u64, 296, &frame).unwrap();
    }
    writer.finish().unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(["-T", "fields", "-E", "separator=;", "-e", "frame.protocols", "-e", "_ws.expert.message"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = command.output();
    std::fs::remove_file(&file).unwrap();
    let Ok(output) = output else {
        println!("skipped: tshark is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), DISSECTED.len(), "{text}");
    for (line, (front, protocols, expected)) in text.lines().zip(DISSECTED) {
        let mut cells = line.split(';');
        assert_eq!((cells.next(), cells.next()), (Some(protocols), Some("")), "{front}: {line}");
        let set: Vec<_> = FIELDS.iter().zip(cells).filter(|(_, value)| !value.is_empty()).collect();
        let set: Vec<_> = set.iter().map(|(field, value)| format!("{field}={value}")).collect();
        assert_eq!(set.join(" "), expected, "{front}");
    }
}
