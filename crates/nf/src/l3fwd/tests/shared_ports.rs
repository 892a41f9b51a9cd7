//! Ports with several interfaces, against a router that has a port for each.

use super::*;
use testkit::proptest::prelude::*;

const BLUE: MacAddr = MacAddr([2, 0, 0, 0, 0x0b, 0]);
const RED: MacAddr = MacAddr([2, 0, 0, 0, 0x0e, 0]);

/// Returns a router with the tenants blue and red, whose interfaces have the ports `lan` and `wan`, or one each.
fn router(shared: bool) -> Harness {
    let interface = |name: &str, port: &str, address: &str, mac: &str| {
        let port = if shared { format!("port = \"{port}\", ") } else { String::new() };
        format!(
            "interface.{name}-{} = {{ {port}{address}, mac = \"{mac}\", tenant = \"{name}\" }}\n",
            if address.contains("10.0") { "lan" } else { "wan" }
        )
    };
    let tenant = |name: &str, n: &str, net: u8| {
        let (lan, wan) = (
            format!("addresses = [\"10.0.{net}.1/24\", \"2001:db8:1{net}::1/64\"]"),
            format!("addresses = [\"192.0.{net}.2/24\", \"2001:db8:2{net}::2/64\"]"),
        );
        let (own, far, gateway) =
            (format!("02:00:00:00:{n}:00"), format!("02:00:00:00:{n}:02"), format!("02:00:00:00:{n}:03"));
        format!(
            "{}{}tenant.{name} = {{ route = [{{ prefix = \"0.0.0.0/0\", via = [\"192.0.{net}.1\"] }}, \
             {{ prefix = \"::/0\", via = [\"2001:db8:2{net}::1\"] }}], \
             neighbour = {{ \"192.0.{net}.1\" = \"{gateway}\", \"2001:db8:2{net}::1\" = \"{gateway}\" }} }}\n",
            interface(name, "lan", &lan, &own),
            interface(name, "wan", &wan, &far),
        )
    };
    Harness::new::<L3fwd>(&format!("{}{}", tenant("blue", "0b", 0), tenant("red", "0e", 1)))
}

fn to(mac: MacAddr, dst: [u8; 4], ttl: u8) -> Vec<u8> {
    lan4(dst).dst_mac(mac).ttl(ttl).to_vec()
}

#[test]
fn frames_are_for_the_interface_with_their_destination() {
    let mut router = router(true);
    // ports `lan` and `wan`: outputs 1 and 2
    let frames =
        [to(BLUE, [8, 8, 8, 8], 9), to(RED, [8, 8, 8, 8], 9), to(BLUE, [8, 8, 4, 4], 9), to(HOST, [8, 8, 8, 8], 9)];
    let out = router.feed_input(0, &frames);
    let gateways: Vec<MacAddr> = out[2].iter().map(|frame| macs(frame).0).collect();
    assert_eq!(
        gateways,
        [MacAddr([2, 0, 0, 0, 0x0b, 3]), MacAddr([2, 0, 0, 0, 0x0e, 3]), MacAddr([2, 0, 0, 0, 0x0b, 3])]
    );
    assert_eq!(router.dropped("other_mac"), 1);
}

#[test]
fn a_mac_address_is_once_on_a_port() {
    let twice = "interface.a = { addresses = [\"10.0.0.1/24\"], port = \"p\", mac = \"02:00:00:00:00:01\" }\n\
         interface.b = { addresses = [\"10.0.1.1/24\"], port = \"p\", mac = \"02:00:00:00:00:01\" }\n";
    let error = HarnessBuilder::new::<L3fwd>(twice).build().err().unwrap().to_string();
    assert!(error.contains("interface b has the MAC address of another interface of its port p"), "{error}");
}

fn frame() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let own = any::<bool>();
    let dst = prop_oneof![Just([8, 8, 8, 8]), Just([10, 0, 0, 1]), Just([10, 0, 1, 77]), Just([192, 0, 0, 9])];
    let mac = |red: bool| if red { RED } else { BLUE };
    prop_oneof![
        (own, dst, 0..3u8).prop_map(move |(red, dst, ttl)| (red, to(mac(red), dst, ttl))),
        any::<bool>().prop_map(move |red| (red, lan6("2001:db8:9::9").dst_mac(mac(red)).to_vec())),
        any::<bool>().prop_map(move |red| (
            red,
            build::echo4([10, 0, u8::from(red), 5], [10, 0, u8::from(red), 1], 1, 2)
                .src_mac(HOST)
                .dst_mac(mac(red))
                .pad_to(60)
                .to_vec()
        )),
        any::<bool>().prop_map(|red| {
            let net = u8::from(red);
            (red, build::arp_request([10, 0, net, 5], [10, 0, net, 1]).pad_to(60).to_vec())
        }),
    ]
}

#[test]
fn interfaces_of_a_port_have_different_networks() {
    let settings = "interface.a = { addresses = [\"10.0.0.1/24\"], port = \"p\" }\n\
         interface.b = { addresses = [\"10.0.0.129/25\"], port = \"p\" }\n";
    let error = HarnessBuilder::new::<L3fwd>(settings).build().err().unwrap().to_string();
    assert!(error.contains("interfaces a and b of port p have networks in common"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The frames that leave are the same, apart from the ports.
    #[test]
    fn one_port_does_what_several_do(frames in prop::collection::vec(frame(), 1..40)) {
        let (mut shared, mut apart) = (router(true), router(false));
        let mut sent = [vec![], vec![]];
        let all: Vec<Vec<u8>> = frames.iter().map(|(_, frame)| frame.clone()).collect();
        sent[0].extend(shared.feed_input(0, &all).into_iter().flatten());
        for (red, frame) in &frames {
            // interfaces in the order of their names
            let out = apart.feed_input(if *red { 2 } else { 0 }, std::slice::from_ref(frame));
            sent[1].extend(out.into_iter().flatten());
        }
        sent.iter_mut().for_each(|frames| frames.sort());
        let [shared_sent, apart_sent] = sent;
        prop_assert_eq!(shared_sent, apart_sent);
        prop_assert_eq!(shared.drops(), apart.drops());
    }
}
