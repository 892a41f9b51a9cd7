//! Subscribers: the hosts or networks to which a limit applies one by one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use tables::flow::{FlowKey, Seed};
use wire::flow::FiveTuple;

/// Packets that share a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Per {
    /// All packets.
    #[default]
    All,
    /// Packets with source addresses of one network.
    Source,
    /// Packets with destination addresses of one network.
    Destination,
}

/// Addresses that are one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grouping {
    pub(super) per: Per,
    /// Prefix length of IPv4, 0 to 32.
    pub(super) prefix4: u8,
    /// Prefix length of IPv6, 0 to 128.
    pub(super) prefix6: u8,
}

/// Key of a subscriber of a class, 17 bytes packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SubscriberKey {
    /// Upper and lower half of the network of its addresses.
    network: [u64; 2],
    /// Class, below 64, and 0 without an address, 1 for IPv4, 2 for IPv6 in the lowest two bits.
    class_and_version: u8,
}

impl SubscriberKey {
    #[inline(always)]
    fn new(network: u128, class: u8, version: u8) -> Self {
        SubscriberKey { network: [(network >> 64) as u64, network as u64], class_and_version: class << 2 | version }
    }

    /// Returns the number of the class.
    pub(super) fn class(&self) -> u8 {
        self.class_and_version >> 2
    }
}

impl FlowKey for SubscriberKey {
    type Packed = ([[u8; 8]; 2], u8);

    #[inline(always)]
    fn flow_hash(&self, seed: &Seed) -> u64 {
        seed.mix(self.class_and_version.into(), self.network[0], self.network[1])
    }

    fn pack(&self) -> Self::Packed {
        (self.network.map(u64::to_ne_bytes), self.class_and_version)
    }

    fn unpack((network, class_and_version): &Self::Packed) -> Self {
        SubscriberKey { network: network.map(u64::from_ne_bytes), class_and_version: *class_and_version }
    }

    #[inline(always)]
    fn is(&self, ([high, low], class_and_version): &Self::Packed) -> bool {
        let network = (self.network[0] ^ u64::from_ne_bytes(*high)) | (self.network[1] ^ u64::from_ne_bytes(*low));
        network | u64::from(self.class_and_version ^ class_and_version) == 0
    }
}

impl Grouping {
    /// Returns the key of the subscriber of a packet in a class. Packets that are not IP are one subscriber.
    #[inline(always)]
    pub(super) fn key(&self, class: u8, tuple: Option<&FiveTuple>) -> SubscriberKey {
        let address = match (self.per, tuple) {
            (Per::All, _) | (_, None) => return SubscriberKey::new(0, class, 0),
            (Per::Source, Some(tuple)) => tuple.src,
            (Per::Destination, Some(tuple)) => tuple.dst,
        };
        match address {
            IpAddr::V4(address) => {
                let rest = u32::from(32 - self.prefix4.min(32));
                let prefix = u32::MAX.checked_shl(rest).unwrap_or(0);
                SubscriberKey::new((address.to_bits() & prefix).into(), class, 1)
            }
            IpAddr::V6(address) => {
                let rest = u32::from(128 - self.prefix6.min(128));
                let prefix = u128::MAX.checked_shl(rest).unwrap_or(0);
                SubscriberKey::new(address.to_bits() & prefix, class, 2)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_those_of_network_and_class(
            class in 0..64_u8,
            other in 0..64_u8,
            prefix4 in 0..=32_u8,
            prefix6 in 0..=128_u8,
            hosts in any::<[u128; 2]>(),
            is_v6 in any::<bool>(),
        ) {
            let grouping = Grouping { per: Per::Source, prefix4, prefix6 };
            let tuple = |host: u128| {
                let ports = (1, 2, wire::IpProtocol::UDP);
                match is_v6 {
                    true => FiveTuple::v6(host.into(), 0.into(), ports.0, ports.1, ports.2),
                    false => FiveTuple::v4((host as u32).into(), 0.into(), ports.0, ports.1, ports.2),
                }
            };
            let key = |class, host| grouping.key(class, Some(&tuple(host)));
            let network = |host: u128| match is_v6 {
                true => host.checked_shr(128 - u32::from(prefix6)).unwrap_or(0),
                false => u128::from(host as u32).checked_shr(32 - u32::from(prefix4)).unwrap_or(0),
            };
            let is_same = class == other && network(hosts[0]) == network(hosts[1]);
            prop_assert_eq!(key(class, hosts[0]) == key(other, hosts[1]), is_same);
            prop_assert_eq!(key(class, hosts[0]).is(&key(other, hosts[1]).pack()), is_same);
            prop_assert_eq!(SubscriberKey::unpack(&key(class, hosts[0]).pack()), key(class, hosts[0]));
            prop_assert_eq!(key(class, hosts[0]).class(), class);
            prop_assert_ne!(key(class, hosts[0]), grouping.key(class, None));
        }
    }
}
