use super::*;
use crate::flows::{FlowSettings, Flows, Transport};
use crate::size::Mix;
use crate::stack::Stack;
use proptest::prelude::*;
use wire::checksum;

/// Headers, and fields that they have.
const CASES: [(&str, &[&str]); 10] = [
    (
        "eth/ipv4/udp",
        &[
            "eth.dst",
            "eth.src",
            "ipv4.dscp",
            "ipv4.ecn",
            "ipv4.id",
            "ipv4.ttl",
            "ipv4.src",
            "ipv4.dst",
            "udp.src",
            "udp.dst",
        ],
    ),
    ("eth/ipv4/tcp", &["ipv4.src", "tcp.src", "tcp.dst", "tcp.seq", "tcp.ack", "tcp.flags", "tcp.window", "ipv4.ttl"]),
    ("eth/ipv6/udp", &["ipv6.dscp", "ipv6.ecn", "ipv6.label", "ipv6.hops", "ipv6.src", "ipv6.dst", "udp.src"]),
    ("eth/ipv6/tcp", &["ipv6.src", "tcp.seq", "tcp.flags"]),
    ("eth/vlan:7/vlan:8/ipv4/tcp", &["vlan.id", "vlan.pcp", "vlan.dei", "vlan2.id", "ipv4.dst", "tcp.dst"]),
    ("eth/mpls:16/mpls:17/ipv4/udp", &["mpls.label", "mpls2.label", "mpls.tc", "mpls2.ttl", "ipv4.src"]),
    ("eth/vlan:3/pppoe:3/ipv6/tcp", &["pppoe.session", "vlan.id", "ipv6.src", "tcp.seq"]),
    (
        "vxlan:5(eth/ipv6/tcp)",
        &["vxlan.vni", "outer.eth.dst", "eth.dst", "outer.ipv4.src", "outer.udp.src", "ipv6.dst", "tcp.src"],
    ),
    (
        "eth/vlan:3/gtpu:5(ipv4/tcp)",
        &["gtpu.teid", "outer.ipv4.dscp", "ipv4.dscp", "ipv4.src", "outer.ipv4.src", "tcp.src"],
    ),
    ("srv6@2001:db8::1-2001:db8::2,2001:db8::3(ipv4/tcp)", &["outer.ipv6.label", "ipv6.hops", "ipv4.src", "tcp.src"]),
];

fn template(stack: &str) -> Template {
    let stack: Stack = stack.parse().unwrap();
    let base = if stack.ipv6 { FlowSettings::v6() } else { FlowSettings::v4() };
    let transport = if stack.tcp { Transport::Tcp } else { Transport::Udp };
    let flows = Flows::new(FlowSettings { transport, count: 3, ..base }).unwrap();
    Template::stacked(&flows, &"300".parse::<Mix>().unwrap(), true, &stack).unwrap()
}

fn frame(template: &Template) -> Vec<u8> {
    let mut frame = vec![0; 296];
    template.fill(0, 1, Probe { sequence: 77, ..Probe::default() }, &mut frame);
    frame
}

/// Asserts that the checksums of all IP headers and of the innermost transport are right.
fn check_sums(frame: &[u8]) {
    let sections = layout::sections(frame);
    for section in &sections {
        if let Some(at) = section.ip_checksum() {
            assert!(checksum::verify(&frame[at - 10..at + 10]), "IPv4 header at {}", at - 10);
        }
    }
    let packet = &frame[sections.last().unwrap().ip_offset()..];
    let (upper, pseudo) = if packet[0] >> 4 == 4 {
        let ip = wire::ipv4::Packet::new(packet).unwrap();
        (ip.payload(), ip.pseudo())
    } else {
        let ip = wire::ipv6::Packet::new(packet).unwrap();
        (ip.payload(), ip.pseudo())
    };
    match sections.last().unwrap().transport_checksum(frame) {
        Some((_, true)) => assert!(wire::udp::Datagram::new(upper).unwrap().checksum_ok(pseudo)),
        Some((_, false)) => assert!(wire::tcp::Segment::new(upper).unwrap().checksum_ok(pseudo)),
        None => assert_eq!(packet[0] >> 4, 4, "only UDP over IPv4 has no checksum"),
    }
}

/// Sets bits of a frame one by one.
fn set_slowly(frame: &mut [u8], place: &layout::Place, value: u128) {
    for bit in 0..place.bits {
        let from_start = place.window as u32 * 8 - 1 - place.shift - bit;
        let (byte, mask) = (place.at + from_start as usize / 8, 0x80 >> (from_start % 8));
        frame[byte] = if value >> bit & 1 == 1 { frame[byte] | mask } else { frame[byte] & !mask };
    }
}

proptest! {
    #[test]
    fn fields_have_their_values_and_checksums_are_right(
        case in 0..CASES.len(), wanted: u16, first: u64, count in 1_u64..5000, n: u64, random: bool,
    ) {
        let (stack, names) = CASES[case];
        let template = template(stack);
        let before = frame(&template);
        check_sums(&before);
        let sections = layout::sections(&before);
        let (mut specs, mut expected) = (vec![], before.clone());
        for (at, name) in names.iter().enumerate().filter(|(at, _)| wanted >> at & 1 == 1) {
            let (_, place) = layout::find(&sections, name).unwrap();
            let top = if place.bits >= 64 { u64::MAX >> 1 } else { (1 << place.bits) - 1 };
            let (first, count) = (first & top, count.min(top - (first & top) + 1));
            let values = match random {
                true => Values::Random { first: first.into(), count },
                false => Values::Range { first: first.into(), step: 1, count, descending: false },
            };
            let value = values.low(n, scramble(specs.len() as u64));
            prop_assert!((first..first + count).contains(&value));
            set_slowly(&mut expected, &place, value.into());
            specs.push(FieldSpec { name: (*name).to_owned(), values });
            let _ = at;
        }
        let mut changed = before.clone();
        let fields = Fields::new(&specs, &template).unwrap();
        fields.write(n, &mut changed);
        check_sums(&changed);
        for checksum in &fields.checksums {
            expected[checksum.at..checksum.at + 2].copy_from_slice(&changed[checksum.at..checksum.at + 2]);
        }
        prop_assert_eq!(&changed, &expected);
        // from other values, as in a frame that is sent again
        fields.write(n.wrapping_add(1), &mut changed);
        fields.write(n, &mut changed);
        prop_assert_eq!(changed, expected);
    }
}

#[test]
fn every_field_is_tested() {
    let tested = |name: &str| CASES.iter().any(|(_, names)| names.iter().any(|other| layout::base(other) == name));
    let missing: Vec<_> = layout::FIELDS.iter().map(|layout| layout.name).filter(|name| !tested(name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn values_take_turns() {
    let values = |text: &str| {
        let spec: FieldSpec = text.parse().unwrap();
        (0..6).map(|n| spec.values.low(n, 0)).collect::<Vec<_>>()
    };
    assert_eq!(values("ipv4.dscp=3-5"), [3, 4, 5, 3, 4, 5]);
    assert_eq!(values("ipv4.dscp=5-3"), [5, 4, 3, 5, 4, 3]);
    assert_eq!(values("ipv4.dscp=0-5/2"), [0, 2, 4, 0, 2, 4]);
    assert_eq!(values("ipv4.dscp=46|0x1f"), [46, 31, 46, 31, 46, 31]);
    assert_eq!(values("udp.dst = 2*7 | 9"), [7, 7, 9, 7, 7, 9]);
    assert_eq!(values("ipv4.dst=10.0.0.1-10.0.0.1"), [0x0a00_0001; 6]);
    assert_eq!(values("outer.vlan2.id=7"), [7; 6]);
    assert_eq!(values("eth.src=02:00:00:00:00:ff|02:00:00:00:01:00")[..2], [0x0200_0000_00ff, 0x0200_0000_0100]);
    let spec: FieldSpec = "ipv6.dst=2001:db8::5-2001:db8::1".parse().unwrap();
    assert_eq!((spec.values.high(3), spec.values.low(3, 0)), (0x2001_0db8 << 32, 2));
    assert_eq!(FieldSpec::list("udp.src", &[1, 2]).unwrap(), "udp.src=1|2".parse().unwrap());
}

#[test]
fn random_values_fill_the_range() {
    let spec: FieldSpec = "udp.dst=random:1000-1099".parse().unwrap();
    let mut seen = [0; 100];
    (0..10_000).for_each(|n| seen[spec.values.low(n, 5) as usize - 1000] += 1);
    assert!(seen.iter().all(|times| (50..160).contains(times)), "{seen:?}");
}

#[test]
fn sources_and_destinations_are_reversed() {
    let reversed = |text: &str| text.parse::<FieldSpec>().unwrap().reversed();
    assert_eq!(reversed("outer.ipv4.src=10.0.0.1"), "outer.ipv4.dst=10.0.0.1".parse().unwrap());
    assert_eq!(reversed("udp.dst=5-9"), "udp.src=5-9".parse().unwrap());
    assert_eq!(reversed("vlan.id=5-9"), "vlan.id=5-9".parse().unwrap());
}

#[test]
fn errors_name_the_field() {
    for text in [
        "",
        "ipv4.src",
        "ipv5.src=1",
        "vlan9.id=1",
        "udp2.dst=1",
        "ipv4.dscp=",
        "ipv4.dscp=a",
        "ipv4.dscp=1-",
        "ipv4.dscp=1-5/0",
        "ipv4.dscp=random:5-1",
        "ipv4.dscp=random:1|2",
        "udp.dst=65537*1",
        "udp.dst=0*1",
        "ipv6.src=::-8000::",
        "ipv6.src=1::-0:0:0:1::",
        "ipv6.src=random:::ffff:ffff:ffff:ffff-0:0:0:1::",
    ] {
        let e = text.parse::<FieldSpec>().unwrap_err().to_string();
        assert!(e.contains(text) && e.contains("0-63"), "{e}");
    }
    let fields = |texts: &[&str], stack: &str| {
        let specs: Vec<FieldSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Fields::new(&specs, &template(stack)).map(drop).unwrap_err().to_string()
    };
    let e = fields(&["vlan.id=1"], "eth/ipv4/udp");
    assert!(e.contains("no field `vlan.id`") && e.contains("ipv4.dscp, ") && !e.contains("tcp"), "{e}");
    assert!(fields(&["outer.ipv4.src=10.0.0.1"], "eth/ipv4/udp").contains("outer.ipv4.src"));
    let e = fields(&["vlan.id=4000-4096"], "eth/vlan:7/ipv4/udp");
    assert!(e.contains("`vlan.id` has 12 bits, and 4096 has more"), "{e}");
    assert!(fields(&["udp.src=1", "udp.src=2"], "eth/ipv4/udp").contains("twice"));
    assert!(fields(&["udp.src=1"; 17], "eth/ipv4/udp").contains("17"));
}
