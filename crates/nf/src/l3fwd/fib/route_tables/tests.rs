//! Comparison of the tables of two VRFs with a linear scan.

use super::*;
use core::array;
use packet::BURST;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Insert(IpNet, u32),
    Remove(IpAddr),
    Hosts(IpNet, Vec<u32>),
}

/// Overlapping networks, some of them single addresses.
fn net() -> impl Strategy<Value = IpNet> {
    let four =
        (0u32..64, 24u8..=32).prop_map(|(n, len)| IpNet::new_assert(Ipv4Addr::from_bits(0x0a00_0000 | n).into(), len));
    let six =
        (0u128..64, 120u8..=128).prop_map(|(n, len)| IpNet::new_assert(Ipv6Addr::from_bits(1 << 124 | n).into(), len));
    prop_oneof![four, six].prop_map(|net| net.trunc())
}

fn step() -> impl Strategy<Value = Step> {
    // one value in four does not fit into an entry of 48 bits
    let value = prop_oneof![3 => 1u32..=65_534, 1 => 65_535u32..200_000];
    let hosts = net().prop_filter("few", |net| net.max_prefix_len() - net.prefix_len() <= 4);
    prop_oneof![
        4 => (net(), value).prop_map(|(net, value)| Step::Insert(net, value)),
        2 => net().prop_map(|net| Step::Remove(net.addr())),
        1 => (hosts, prop::collection::vec(1u32..=65_534, 1..4)).prop_map(|(net, values)| Step::Hosts(net, values)),
    ]
}

#[test]
fn routes_that_the_exact_match_table_has_no_room_for_are_in_the_other() {
    let hosts = HostRoutes::new([1, 1]).unwrap();
    let mut writers = [0, 1].map(|vrf| Writer::new(Some(hosts.of(vrf))).unwrap());
    let addresses: Vec<IpAddr> = (0..2000u32).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).into()).collect();
    let value = |vrf: usize, n: usize| (1 + 2 * n + vrf) as u32;
    for (n, address) in addresses.iter().enumerate() {
        for (vrf, writer) in writers.iter_mut().enumerate() {
            writer.insert(IpNet::from(*address), value(vrf, n)).unwrap();
        }
    }
    assert!(hosts.len().unwrap() < 4000);
    for (n, address) in addresses.iter().enumerate() {
        for (vrf, writer) in writers.iter_mut().enumerate() {
            assert_eq!(writer.host_route(*address), Some(value(vrf, n)));
            writer.remove(*address);
            assert_eq!(writer.host_route(*address), None);
        }
    }
}

proptest! {
    #[test]
    fn finds_the_longest_prefix_of_every_address(exact in any::<bool>(),
                                             steps in prop::collection::vec((0..2usize, step()), 1..60)) {
        let hosts = exact.then(|| HostRoutes::new([512, 512]).unwrap());
        let mut writers = [0, 1].map(|vrf| Writer::new(hosts.as_ref().map(|hosts| hosts.of(vrf))).unwrap());
        let mut reader = Readers::new(writers.iter().map(Writer::readers), hosts.as_ref());
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for (vrf, step) in steps {
            let (tables, model) = (&mut writers[vrf], &mut models[vrf]);
            match step {
                Step::Insert(net, value) => {
                    tables.insert(net, value).unwrap();
                    model.insert(net, value);
                }
                Step::Remove(address) => {
                    tables.remove(address);
                    model.remove(&IpNet::from(address));
                }
                Step::Hosts(net, values) => {
                    let count = 1u64 << (net.max_prefix_len() - net.prefix_len());
                    tables.insert_hosts(net, count, &values, |_| {}).unwrap();
                    for n in 0..count {
                        let address = match net.addr() {
                            IpAddr::V4(a) => IpAddr::from(Ipv4Addr::from_bits(a.to_bits() + n as u32)),
                            IpAddr::V6(a) => IpAddr::from(Ipv6Addr::from_bits(a.to_bits() + u128::from(n))),
                        };
                        model.insert(IpNet::from(address), values[n as usize % values.len()]);
                    }
                }
            }
            let longest_in = |vrf: usize, address: IpAddr| {
                let model: &BTreeMap<IpNet, u32> = &models[vrf];
                let holding = model.iter().filter(|(net, _)| net.contains(&address));
                holding.max_by_key(|(net, _)| net.prefix_len()).map(|(_, value)| *value)
            };
            let (tables, longest) = (&writers[vrf], |address| longest_in(vrf, address));
            for from in [0, 32, 64] {
                let four: [u32; BURST] = array::from_fn(|n| 0x0a00_0000 + from + n as u32);
                let six: [u128; BURST] = array::from_fn(|n| (1 << 124) + u128::from(from) + n as u128);
                let mut values = [0; BURST];
                reader.look_up4(vrf, &four, &mut values);
                let model4 = four.map(|a| longest(Ipv4Addr::from_bits(a).into()));
                prop_assert_eq!(values, model4.map(|value| value.unwrap_or(0)));
                prop_assert_eq!(four.map(|a| tables.longest(Ipv4Addr::from_bits(a).into())), model4);
                reader.look_up6(vrf, &six[..7], &mut values[..7]);
                for (n, value) in values[..7].iter().enumerate() {
                    let address = Ipv6Addr::from_bits(six[n]).into();
                    prop_assert_eq!(Some(*value).filter(|value| *value != 0), longest(address));
                    prop_assert_eq!(tables.host_route(address), models[vrf].get(&IpNet::from(address)).copied());
                }
                let vrfs: [u8; BURST] = array::from_fn(|n| (n as u8 + from as u8) / 3 % 2);
                let in_vrfs = |n: usize, address: IpAddr| longest_in(vrfs[n].into(), address).unwrap_or(0);
                reader.look_up4_in_vrfs(&vrfs, &four, &mut values);
                prop_assert_eq!(values, array::from_fn(|n| in_vrfs(n, Ipv4Addr::from_bits(four[n]).into())));
                reader.look_up6_in_vrfs(&vrfs, &six, &mut values[..9]);
                for (n, value) in values[..9].iter().enumerate() {
                    prop_assert_eq!(*value, in_vrfs(n, Ipv6Addr::from_bits(six[n]).into()));
                }
            }
        }
    }
}
