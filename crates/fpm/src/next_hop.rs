//! Messages about next-hop objects.

use crate::attribute::{Attribute, Attributes, Malformed, u32_at};
use crate::route::{ENCAPSULATION, Hop, MAX_HOPS, NO_HOP, TOO_MANY_HOPS};

// linux/nexthop.h
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_FDB: u16 = 11;

/// A next-hop object that is added, replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// Adds the object, or replaces the one of this number.
    Add {
        /// Number, not 0.
        id: u32,
        /// Content.
        value: NextHopValue,
    },
    /// Removes the object.
    Remove {
        /// Number, not 0.
        id: u32,
    },
}

/// Content of a next-hop object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHopValue {
    /// One next hop, of weight 1.
    Hop(Hop),
    /// Packets are dropped.
    Blackhole,
    /// 1 to [`MAX_HOPS`] objects, each with its weight, 1 or more. They may arrive after the group.
    Group(Vec<(u32, u16)>),
    /// Content that is not understood, and its name.
    Unsupported(&'static str),
}

impl NextHop {
    /// Length of `struct nlmsghdr` and `struct nhmsg` (linux/nexthop.h): u8 family, scope, protocol, reserved, u32 flags.
    pub(crate) const HEADERS: usize = 24;

    /// Parses a message of at least [`NextHop::HEADERS`] bytes.
    pub(crate) fn parse(bytes: &[u8], removes: bool) -> Result<Self, Malformed> {
        let (mut id, mut gateway, mut interface) = (0, None, 0);
        let (mut special, mut unsupported) = (None, None);
        for attribute in Attributes::new(&bytes[Self::HEADERS..], Self::HEADERS) {
            let attribute = attribute?;
            match attribute.kind {
                NHA_ID => id = attribute.u32()?,
                NHA_GROUP => special = Some(group(attribute)?),
                NHA_BLACKHOLE => special = Some(NextHopValue::Blackhole),
                NHA_OIF => interface = attribute.u32()?,
                NHA_GATEWAY => gateway = Some(attribute.address()?),
                NHA_ENCAP_TYPE => unsupported = Some(ENCAPSULATION),
                NHA_FDB => unsupported = Some("entry of a bridge"),
                _ => (),
            }
        }
        if id == 0 {
            return Err(Malformed::Missing(NHA_ID));
        }
        if removes {
            return Ok(NextHop::Remove { id });
        }
        let value = match (unsupported, special) {
            (Some(reason), _) => NextHopValue::Unsupported(reason),
            (None, Some(value)) => value,
            (None, None) if gateway.is_none() && interface == 0 => NextHopValue::Unsupported(NO_HOP),
            (None, None) => NextHopValue::Hop(Hop { gateway, interface, weight: 1 }),
        };
        Ok(NextHop::Add { id, value })
    }
}

/// Reads `NHA_GROUP`: records of `struct nexthop_grp` (linux/nexthop.h): u32 id, u8 weight less 1, u8 its high byte,
/// u16 reserved.
fn group(attribute: Attribute<'_>) -> Result<NextHopValue, Malformed> {
    let (members, rest) = attribute.value.as_chunks::<8>();
    if members.is_empty() || !rest.is_empty() {
        return Err(attribute.invalid("records of 8 bytes"));
    }
    if members.len() > MAX_HOPS {
        return Ok(NextHopValue::Unsupported(TOO_MANY_HOPS));
    }
    let member = |m: &[u8; 8]| (u32_at(m, 0), u16::from_le_bytes([m[4], m[5]]).saturating_add(1));
    Ok(NextHopValue::Group(members.iter().map(member).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RTM_NEWNEXTHOP, attribute, message};
    use crate::{Message, messages};

    /// Returns what object 7 with these attributes contains.
    fn value(attributes: &[u8]) -> Result<NextHopValue, Malformed> {
        let id = attribute(1, &7u32.to_ne_bytes());
        // struct nhmsg: IPv4, protocol 11
        let bytes = message(RTM_NEWNEXTHOP, 1, &[&[2, 0, 11, 0, 0, 0, 0, 0], &id, attributes]);
        match messages(&bytes).next().unwrap() {
            Ok(Message::NextHop(NextHop::Add { id: 7, value })) => Ok(value),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.cause),
        }
    }

    #[test]
    fn objects() {
        let interface = attribute(5, &3u32.to_ne_bytes());
        let gateway = attribute(6, &[192, 0, 2, 1]);
        let hop = Hop { gateway: Some([192, 0, 2, 1].into()), interface: 3, weight: 1 };
        // struct nexthop_grp: u32 id, u8 weight less 1, u8 its high byte, u16 reserved
        let group = [&9u32.to_ne_bytes()[..], &[255, 0, 0, 0], &5u32.to_ne_bytes(), &[1, 2, 0, 0]].concat();
        let fdb = [gateway.clone(), attribute(NHA_FDB, &[])].concat();
        let mpls = [interface.clone(), attribute(NHA_ENCAP_TYPE, &1u16.to_ne_bytes())].concat();
        for (attributes, expected) in [
            ([gateway, interface].concat(), NextHopValue::Hop(hop)),
            (attribute(4, &[]), NextHopValue::Blackhole),
            (attribute(2, &group), NextHopValue::Group(vec![(9, 256), (5, 514)])),
            (attribute(2, &[1; 8].repeat(MAX_HOPS + 1)), NextHopValue::Unsupported(TOO_MANY_HOPS)),
            (vec![], NextHopValue::Unsupported(NO_HOP)),
            (fdb, NextHopValue::Unsupported("entry of a bridge")),
            (mpls, NextHopValue::Unsupported(ENCAPSULATION)),
        ] {
            assert_eq!(value(&attributes), Ok(expected));
        }
    }

    #[test]
    fn invalid_objects_are_errors() {
        let invalid = |kind, len, expected| Malformed::Value { kind, at: 32, len, expected };
        for (attributes, expected) in [
            (attribute(2, &[0; 12]), invalid(2, 12, "records of 8 bytes")),
            (attribute(2, &[]), invalid(2, 0, "records of 8 bytes")),
            (attribute(6, &[0; 8]), invalid(6, 8, "an address of 4 or 16 bytes")),
            (attribute(1, &[0; 4]), Malformed::Missing(NHA_ID)),
        ] {
            assert_eq!(value(&attributes), Err(expected));
        }
    }
}
