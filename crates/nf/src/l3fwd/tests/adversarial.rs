//! Malformed and adversarial frames from interfaces and representors.

use super::*;
use testkit::AdversarialTraffic;
use testkit::packets;
use testkit::proptest::prelude::*;

/// Interfaces with and without representors, and one without IPv4 addresses.
const INTERFACES: &str = "\
interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\", representor = \"lan-host\" }
interface.wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:02:00\", mtu = 1300 }
interface.v6 = { addresses = [\"2001:db8:3::3/64\"], mac = \"02:00:00:00:03:00\", mtu = 68, representor = \"v6-host\" }
icmp_rate = 100000
neighbours_max = 8
neighbour_queue = 2
";

/// Returns valid frames, of which each is to be processed in another way.
fn valid() -> Vec<Vec<u8>> {
    let host: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let own: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let reply = |operation, target: [u8; 4]| arp::Repr {
        operation,
        sender_mac: HOST,
        sender_ip: [10, 0, 0, 5].into(),
        target_mac: LAN,
        target_ip: target.into(),
    };
    let arp = |repr| build::arp(repr).src_mac(HOST).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec();
    let advertisement = Neighbor::Advertisement { target: host, flags: ndp::OVERRIDE, target_mac: Some(HOST) };
    let solicitation = Neighbor::Solicitation { target: own, source_mac: Some(HOST) };
    let group = ndp::solicited_node(own);
    vec![
        lan4([8, 8, 8, 8]).to_vec(),
        lan4([8, 8, 8, 8]).payload(&[7; 1400]).to_vec(),
        lan4([10, 0, 0, 1]).to_vec(),
        lan4([10, 0, 0, 255]).ttl(1).to_vec(),
        lan4([10, 0, 0, 77]).to_vec(),
        lan4([192, 0, 2, 2]).to_vec(),
        build::echo4([10, 0, 0, 5], [10, 0, 0, 1], 1, 2).dst_mac(LAN).pad_to(60).to_vec(),
        build::udp4([10, 0, 0, 5], [10, 0, 0, 1], 49_152, 3784).ttl(255).dst_mac(LAN).pad_to(60).to_vec(),
        build::udp4([0; 4], [255; 4], 68, 67).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec(),
        lan6("2001:db8:9::9").payload(&[7; 1400]).to_vec(),
        lan6("2001:db8:1::77").to_vec(),
        lan6("2001:db8:1::1").to_vec(),
        build::echo6(host, own, 1, 2).dst_mac(LAN).to_vec(),
        build::echo6(host, own, 1, 2).fragment(0, true, 7).dst_mac(LAN).to_vec(),
        arp(reply(arp::Operation::Request, [10, 0, 0, 1])),
        arp(reply(arp::Operation::Reply, [10, 0, 0, 1])),
        advertisement.frame((HOST, LAN), host, own),
        solicitation.frame((HOST, ndp::multicast_mac(group)), host, group),
    ]
}

/// Returns a frame with the MAC addresses that a router with these interfaces accepts.
fn readdressed(mut frame: Vec<u8>, dst: MacAddr, src: MacAddr) -> Vec<u8> {
    let addresses = [dst.0, src.0].concat();
    let len = frame.len().min(addresses.len());
    frame[..len].copy_from_slice(&addresses[..len]);
    frame
}

fn frames() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let macs = [LAN, WAN, MacAddr([2, 0, 0, 0, 3, 0]), MacAddr::BROADCAST];
    let mac = || prop::sample::select(macs.to_vec());
    let damaged = (prop::sample::select(valid()), any::<u64>())
        .prop_map(|(frame, seed)| AdversarialTraffic::new(seed).next_frame(&frame));
    let frame = prop_oneof![
        2 => (damaged, mac(), mac()).prop_map(|(frame, dst, src)| readdressed(frame, dst, src)),
        1 => prop::sample::select(valid()),
        2 => (packets::malformed(packets::well_formed()), mac(), mac()).prop_map(|(frame, dst, src)| readdressed(frame, dst, src)),
        1 => (packets::well_formed(), mac(), mac()).prop_map(|(frame, dst, src)| readdressed(frame, dst, src)),
    ];
    // interfaces and representors
    prop::collection::vec((0..5usize, frame), 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // the harness checks that each packet is sent, held or dropped with a reason
    #[test]
    fn frames_of_either_side_are_sent_held_or_dropped(frames in frames(), buffers in 24..60usize) {
        let builder = HarnessBuilder::new::<L3fwd>(&format!("{INTERFACES}{DEFAULT}")).buffers(buffers);
        let mut r = builder.build().unwrap();
        let (mut received, mut sent) = (0, 0);
        for (n, (input, frame)) in frames.iter().enumerate() {
            let out = r.feed_input(*input, core::slice::from_ref(frame));
            received += 1;
            sent += out.concat().len() as u64;
            if n % 8 == 0 {
                sent += r.jump_to(Duration::from_millis(500 * n as u64)).concat().len() as u64;
            }
            // frames of a representor leave by its interface only
            let own = match input { 3 => Some(1), 4 => Some(2), _ => None };
            if let Some(own) = own {
                prop_assert!(out.iter().enumerate().all(|(output, frames)| output == own || frames.is_empty()));
            }
        }
        // waiting packets are sent or dropped when their neighbours have not answered
        sent += (1..=10).map(|n| r.jump_to(r.now() + Duration::from_secs(n)).concat().len() as u64).sum::<u64>();
        let dropped: u64 = r.drops().iter().map(|(_, n)| n).sum();
        prop_assert_eq!(r.held(), 0);
        prop_assert_eq!(received + r.created(), sent + dropped);
    }
}
