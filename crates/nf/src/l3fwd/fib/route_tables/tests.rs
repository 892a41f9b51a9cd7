//! Comparison of the tables with a linear scan.

use super::*;
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

proptest! {
    #[test]
    fn finds_the_longest_prefix_of_every_address(table in prop_oneof![Just(HostTable::Lpm), Just(HostTable::Exact)],
                                             steps in prop::collection::vec(step(), 1..60)) {
        let mut tables = Writer::new(table, [256, 256]).unwrap();
        let mut reader = tables.reader();
        let mut model = BTreeMap::new();
        for step in steps {
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
            let longest = |address: IpAddr| {
                let holding = model.iter().filter(|(net, _)| net.contains(&address));
                holding.max_by_key(|(net, _)| net.prefix_len()).map(|(_, value)| *value)
            };
            for from in [0, 32, 64] {
                let four: [u32; BURST] = array::from_fn(|n| 0x0a00_0000 + from + n as u32);
                let six: [u128; BURST] = array::from_fn(|n| (1 << 124) + u128::from(from) + n as u128);
                let mut values = [0; BURST];
                reader.look_up4(&four, &mut values);
                let model4 = four.map(|a| longest(Ipv4Addr::from_bits(a).into()));
                prop_assert_eq!(values, model4.map(|value| value.unwrap_or(0)));
                prop_assert_eq!(four.map(|a| tables.longest(Ipv4Addr::from_bits(a).into())), model4);
                reader.look_up6(&six[..7], &mut values[..7]);
                for (n, value) in values[..7].iter().enumerate() {
                    let address = Ipv6Addr::from_bits(six[n]).into();
                    prop_assert_eq!(Some(*value).filter(|value| *value != 0), longest(address));
                    prop_assert_eq!(tables.host_route(address), model.get(&IpNet::from(address)).copied());
                }
            }
        }
    }
}
