//! Subscribers: the hosts or networks to which a limit applies one by one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use tables::flow::Tuple6;
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

impl Grouping {
    /// Returns the key of the subscriber of a packet in a class. Packets that are not IP are one subscriber.
    #[inline]
    pub(super) fn key(&self, class: u16, tuple: Option<&FiveTuple>) -> Tuple6 {
        let address = match (self.per, tuple) {
            (Per::All, _) | (_, None) => return Tuple6::new(0, 0, class, 0, 0),
            (Per::Source, Some(tuple)) => tuple.src,
            (Per::Destination, Some(tuple)) => tuple.dst,
        };
        match address {
            IpAddr::V4(address) => {
                let rest = u32::from(32 - self.prefix4.min(32));
                let prefix = u32::MAX.checked_shl(rest).unwrap_or(0);
                Tuple6::new((address.to_bits() & prefix).into(), 0, class, 0, 4)
            }
            IpAddr::V6(address) => {
                let rest = u32::from(128 - self.prefix6.min(128));
                let prefix = u128::MAX.checked_shl(rest).unwrap_or(0);
                Tuple6::new(address.to_bits() & prefix, 0, class, 0, 6)
            }
        }
    }
}
