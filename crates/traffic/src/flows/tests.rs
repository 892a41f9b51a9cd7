use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn range(text: &str) -> AddressRange {
    text.parse().unwrap()
}

/// `len` addresses from `first` on.
fn span(first: &str, len: u32) -> AddressRange {
    let first: IpAddr = first.parse().unwrap();
    let last = match first {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() + len - 1).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() + u128::from(len) - 1).into()),
    };
    AddressRange::new(first, last).unwrap()
}

fn tuples(flows: &Flows) -> Vec<FiveTuple> {
    (0..flows.count()).map(|flow| flows.tuple(flow).unwrap()).collect()
}

#[test]
fn defaults_stay_in_the_test_ranges() {
    let flows = Flows::new(FlowSettings { count: 200_000, ..FlowSettings::v4() }).unwrap();
    for flow in tuples(&flows) {
        assert!((range("198.18.0.0/16").first()..=range("198.18.0.0/16").last()).contains(&flow.src));
        assert!((range("198.19.0.0/16").first()..=range("198.19.0.0/16").last()).contains(&flow.dst));
        assert!(flow.src_port >= 1024 && flow.dst_port == 50_000);
    }
    let net = range("2001:2::/48");
    let flows = Flows::new(FlowSettings { count: 1000, ..FlowSettings::v6() }).unwrap();
    for flow in tuples(&flows) {
        assert!((net.first()..=net.last()).contains(&flow.src) && (net.first()..=net.last()).contains(&flow.dst));
    }
    assert_eq!(flows.tuple(1000), None);
}

#[test]
fn every_prefix_of_a_table_gets_its_turn() {
    let dst: Vec<_> = (0..=255_u8).map(|net| range(&format!("10.{net}.0.0/16"))).collect();
    let flows = Flows::new(FlowSettings { count: 1024, dst: dst.clone(), ..FlowSettings::v4() }).unwrap();
    let tuples = tuples(&flows);
    for (i, prefix) in dst.iter().enumerate() {
        let inside = tuples.iter().filter(|flow| (prefix.first()..=prefix.last()).contains(&flow.dst)).count();
        assert_eq!(inside, 4, "prefix {i}");
    }
    let hosts: HashSet<_> = tuples.iter().map(|flow| flow.dst).collect();
    assert!(hosts.len() > 1000, "addresses all over the prefixes, {} different", hosts.len());
}

#[test]
fn refusals() {
    let v4 = FlowSettings::v4;
    assert_eq!(Flows::new(FlowSettings { count: 0, ..v4() }).unwrap_err(), FlowError::Count(0));
    assert_eq!(Flows::new(FlowSettings { count: MAX_FLOWS + 1, ..v4() }).unwrap_err(), FlowError::Count(MAX_FLOWS + 1));
    let few = FlowSettings {
        count: 13,
        src: range("10.0.0.1-10.0.0.2"),
        dst: vec![range("10.0.1.1")],
        src_ports: 1..=3,
        dst_ports: 5..=6,
        ..v4()
    };
    assert_eq!(Flows::new(few.clone()).unwrap_err(), FlowError::Distinct { count: 13, possible: 12 });
    assert!(Flows::new(FlowSettings { count: 12, ..few.clone() }).is_ok());
    assert_eq!(Flows::new(FlowSettings { dst: vec![], ..v4() }).unwrap_err(), FlowError::Destinations(0));
    let mixed = FlowSettings { dst: vec![range("10.0.0.1"), range("::1")], ..v4() };
    assert!(matches!(Flows::new(mixed).unwrap_err(), FlowError::Version { .. }));
    #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
    let backwards = FlowSettings { src_ports: 5..=4, ..v4() };
    assert!(matches!(Flows::new(backwards).unwrap_err(), FlowError::Ports { which: "source", .. }));
    let zero = FlowSettings { dst_ports: 0..=4, ..v4() };
    assert!(matches!(Flows::new(zero).unwrap_err(), FlowError::Ports { which: "destination", .. }));
    let order = FlowSettings { order: Order::Zipf { exponent: f64::NAN }, ..v4() };
    assert!(matches!(Flows::new(order).unwrap_err(), FlowError::Order(_)));
}

#[test]
fn destination_addresses_of_frames_take_turns_as_destinations_do() {
    let dst_macs: Vec<MacAddr> = (0..3).map(|n| MacAddr([2, 0, 0, 0, 2, n])).collect();
    let dst: Vec<AddressRange> = (0..3).map(|n| AddressRange::prefix([10, n, 0, 0].into(), 16).unwrap()).collect();
    let flows = Flows::new(FlowSettings { count: 10, dst, dst_macs: dst_macs.clone(), ..FlowSettings::v4() }).unwrap();
    for flow in 0..10 {
        let (src, dst) = flows.macs(flow).unwrap();
        assert_eq!((src, dst), (flows.settings().src_mac, dst_macs[flow as usize % 3]));
        let IpAddr::V4(address) = flows.tuple(flow).unwrap().dst else { panic!("IPv6") };
        assert_eq!(address.octets()[1], dst.0[5]);
        assert_eq!(flows.reversed().macs(flow), Some((dst, src)));
    }
}

#[test]
fn a_list_is_taken_as_it_is() {
    let flow = |n: u8| Flow {
        src_mac: MacAddr([2, 0, 0, 0, 1, n]),
        dst_mac: MacAddr([2, 0, 0, 0, 2, 0]),
        tuple: FiveTuple::v4([10, 0, 0, n].into(), [10, 0, 1, 0].into(), 7, u16::from(n), IpProtocol::TCP),
    };
    let list: Vec<Flow> = (0..5).map(flow).collect();
    let flows = Flows::listed(&list, FlowSettings::v6()).unwrap();
    assert_eq!((flows.count(), flows.is_ipv4(), flows.settings().transport), (5, true, Transport::Tcp));
    for (n, flow) in list.iter().enumerate() {
        assert_eq!(flows.tuple(n as u32), Some(flow.tuple));
        assert_eq!(flows.macs(n as u32), Some((flow.src_mac, flow.dst_mac)));
    }
    assert_eq!((flows.tuple(5), flows.macs(5)), (None, None));
    let alike = Flows::listed(&[list[3]; 2], FlowSettings::v4()).unwrap();
    assert!(alike.fronts().is_none());
    assert_eq!(alike.macs(1), Some((list[3].src_mac, list[3].dst_mac)));
    assert_eq!(Flows::listed(&[], FlowSettings::v4()).unwrap_err(), FlowError::Count(0));
    let mut mixed = list.clone();
    mixed[2].tuple.protocol = IpProtocol::UDP;
    let why = Flows::listed(&mixed, FlowSettings::v4()).unwrap_err();
    assert_eq!(why, FlowError::Mixed { flow: 2, protocol: "TCP", version: "IPv4" });
    assert_eq!(why.to_string(), "flow 2 of the list is not like the first: all have to be TCP over IPv4");
}

#[test]
fn ten_million_flows() {
    let flows = Flows::new(FlowSettings { count: 10_000_000, ..FlowSettings::v4() }).unwrap();
    assert!(flows.tuple(9_999_999).is_some() && flows.tuple(10_000_000).is_none());
    assert_eq!(size_of::<V4>(), 16);
    assert_eq!(size_of::<V6>(), 38);
}

proptest! {
    #[test]
    fn flows_differ(
        dst in 1_u32..50, src in 1_u32..50, src_ports in 1_u16..50, dst_ports in 1_u16..10, count in 1_u32..3000,
        v4: bool,
    ) {
        let (from, to) = if v4 { ("10.0.0.250", "11.0.0.9") } else { ("2001:2::fff0", "2001:3::7") };
        let settings = FlowSettings {
            count,
            src: span(from, src),
            dst: vec![span(to, dst)],
            src_ports: 1..=src_ports,
            dst_ports: 9..=8 + dst_ports,
            ..FlowSettings::v4()
        };
        let possible = u128::from(dst * src) * u128::from(src_ports * dst_ports);
        match Flows::new(settings.clone()) {
            Ok(flows) => {
                let all = tuples(&flows);
                prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), count as usize);
                for flow in all {
                    prop_assert!(flow.src >= settings.src.first() && flow.src <= settings.src.last());
                    prop_assert!(flow.dst >= settings.dst[0].first() && flow.dst <= settings.dst[0].last());
                    prop_assert!(settings.src_ports.contains(&flow.src_port));
                    prop_assert!(settings.dst_ports.contains(&flow.dst_port));
                }
            }
            Err(why) => prop_assert_eq!(why, FlowError::Distinct { count, possible }),
        }
    }
}

#[test]
fn the_other_side_has_everything_swapped() {
    let v4 = FlowSettings { count: 300, order: Order::Zipf { exponent: 1.1 }, ..FlowSettings::v4() };
    let v6 = FlowSettings { count: 300, transport: Transport::Tcp, ..FlowSettings::v6() };
    let listed = crate::nfpa::Name::Gateway(300).flows(crate::nfpa::Direction::Forward, 1).unwrap();
    for flows in [Flows::new(v4).unwrap(), Flows::new(v6).unwrap(), listed] {
        let back = flows.reversed();
        let list: Vec<Flow> = (0..flows.count())
            .map(|flow| {
                let (tuple, (src_mac, dst_mac)) = (flows.tuple(flow).unwrap(), flows.macs(flow).unwrap());
                let (src, dst) = (tuple.dst, tuple.src);
                let (src_port, dst_port) = (tuple.dst_port, tuple.src_port);
                let tuple = FiveTuple { src, dst, src_port, dst_port, ..tuple };
                Flow { src_mac: dst_mac, dst_mac: src_mac, tuple }
            })
            .collect();
        let expected = Flows::listed(&list, flows.settings().clone()).unwrap();
        assert_eq!(tuples(&back), tuples(&expected));
        // frames, and with them all checksums, are those of flows made so
        let mix: crate::Mix = "128:1,594:1".parse().unwrap();
        let template = |flows: &Flows| crate::Template::new(flows, &mix, true).unwrap();
        let (back, expected) = (template(&back), template(&expected));
        let frame = |template: &crate::Template, flow| {
            let mut frame = vec![0; 2000];
            let probe = crate::Probe { stream: 1, sequence: 7, stamp: 9 };
            let len = template.fill(1, flow, probe, &mut frame);
            frame.truncate(len);
            frame
        };
        assert!((0..flows.count()).all(|flow| frame(&back, flow) == frame(&expected, flow)));
        assert_eq!(tuples(&flows.reversed().reversed()), tuples(&flows));
    }
}

#[test]
fn the_first_flows_of_a_set_are_a_set() {
    for order in [Order::RoundRobin, Order::Zipf { exponent: 1.0 }] {
        let all = Flows::new(FlowSettings { count: 100, order, ..FlowSettings::v4() }).unwrap();
        let few = all.first(10).unwrap();
        assert_eq!((few.count(), few.tuple(9)), (10, all.tuple(9)));
        let mut picker = few.picker(0, 1);
        assert!((0..1000).all(|_| picker.next_flow() < 10));
        assert_eq!(all.first(0).unwrap_err(), FlowError::Count(0));
        assert_eq!(all.first(101).unwrap_err(), FlowError::Count(101));
    }
}
