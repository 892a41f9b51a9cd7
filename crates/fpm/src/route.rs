//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::attribute::{AF_INET, AF_INET6, Attribute, Attributes, Malformed, aligned, u16_at, u32_at};

/// Most next hops of a route or a group. Routes with more are [`Target::Unsupported`].
pub const MAX_HOPS: usize = 256;
pub(crate) const TOO_MANY_HOPS: &str = "more than 256 next hops";
pub(crate) const ENCAPSULATION: &str = "encapsulation (MPLS, SRv6 or VXLAN)";
pub(crate) const NO_HOP: &str = "no gateway and no interface";

// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_NH_ID: u16 = 30;
const RTNH_F_DEAD: u8 = 1;

// linux/netlink.h
const NLM_F_MULTI: u16 = 2;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_APPEND: u16 = 0x800;

/// A route that is added, replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<'a> {
    /// True for `RTM_DELROUTE`: the route of this table and prefix is removed.
    pub removes: bool,
    /// True for `NLM_F_REPLACE`. zebra has one route per table and prefix, so a route replaces an earlier one in any case.
    pub replaces: bool,
    /// True for `NLM_F_APPEND`, and for `NLM_F_MULTI` of a dump: the route is behind others of its prefix and metric.
    pub appends: bool,
    /// True if the route is for packets of one TOS or source only; its target is [`Target::Unsupported`].
    pub is_conditional: bool,
    /// Routing table: 254 is the main table, those of VRFs have other numbers.
    pub table: u32,
    /// Destination, without bits beyond the length.
    pub prefix: IpNet,
    /// Origin (`RTPROT_*`): 2 for connected and kernel routes, 186 BGP, 196 static routes of FRR.
    pub protocol: u8,
    /// Metric (`RTA_PRIORITY`), 0 if absent. zebra sends 20 for all routes.
    pub metric: u32,
    /// Treatment of the packets. zebra sends no hops of a route that it removes, the kernel sends those that it removes: IPv6
    /// routes may keep others.
    pub target: Target,
    /// The message, at least of the length of its headers.
    pub(crate) bytes: &'a [u8],
}

/// Treatment of the packets of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Dropped, and reported by ICMP destination unreachable.
    Unreachable,
    /// Dropped, and reported by ICMP administratively prohibited.
    Prohibit,
    /// Dropped.
    Blackhole,
    /// Sent to one of these next hops, of which there are 1 to [`MAX_HOPS`].
    Hops(Vec<Hop>),
    /// Sent as the next-hop object of this number describes; [`NextHops::resolve`](crate::NextHops::resolve).
    Object(u32),
    /// A treatment that is not understood, and its name.
    Unsupported(&'static str),
}

/// A next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The next router; of either family, for both families of routes. `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Number of the interface (`ifindex`) in zebra's namespace, 0 if absent.
    pub interface: u32,
    /// Share of the packets, relative to the other next hops, 1 or more.
    pub weight: u16,
}

impl<'a> Route<'a> {
    /// Length of `struct nlmsghdr` and `struct rtmsg`.
    pub(crate) const HEADERS: usize = 28;

    /// Parses a message of at least [`Route::HEADERS`] bytes with these flags, `nlmsg_flags`; returns `None` if it is not
    /// about a route of these families, or removes a route that is never supported.
    ///
    /// `struct rtmsg` (linux/rtnetlink.h): u8 family, dst_len, src_len, tos, table, protocol, scope, type, u32 flags.
    pub(crate) fn parse(bytes: &'a [u8], removes: bool, flags: u16) -> Result<Option<Self>, Malformed> {
        let (headers, attributes) = bytes.split_at(Self::HEADERS);
        let [family, len, source_len, tos, table, protocol, _scope, kind] = headers[16..24] else { return Ok(None) };
        let v4 = match family {
            AF_INET => true,
            AF_INET6 => false,
            _ => return Ok(None),
        };
        let mut found = RouteAttributes { table: table.into(), removes, ..Default::default() };
        for attribute in Attributes::new(attributes, Self::HEADERS) {
            found.read(attribute?, v4)?;
        }
        let selects_more = match (source_len, tos) {
            (0, 0) => None,
            (0, _) => Some("selected by a TOS"),
            _ => Some("selected by a source address"),
        };
        // such a route is never installed, and the one without the condition must stay
        if removes && selects_more.is_some() {
            return Ok(None);
        }
        let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let address = match found.destination {
            None if len > 0 => return Err(Malformed::Missing(RTA_DST)),
            address => address.unwrap_or(any),
        };
        let prefix = IpNet::new(address, len)
            .map_err(|_| Malformed::PrefixLength { len, max: if v4 { 32 } else { 128 } })?
            .trunc();
        let (table, metric) = (found.table, found.metric);
        let target = match (selects_more, kind) {
            (Some(unsupported), _) => Target::Unsupported(unsupported),
            (None, 0) if removes => Target::Hops(vec![]),
            (None, kind) => found.target(kind),
        };
        let (replaces, appends) = (flags & NLM_F_REPLACE != 0, flags & (NLM_F_APPEND | NLM_F_MULTI) != 0);
        let is_conditional = selects_more.is_some();
        Ok(Some(Route { removes, replaces, appends, is_conditional, table, prefix, protocol, metric, target, bytes }))
    }
}

#[derive(Default)]
struct RouteAttributes {
    removes: bool,
    table: u32,
    metric: u32,
    destination: Option<IpAddr>,
    object: u32,
    hop: HopAttributes,
    hops: Option<Target>,
}

impl RouteAttributes {
    fn read(&mut self, attribute: Attribute<'_>, v4: bool) -> Result<(), Malformed> {
        match attribute.kind {
            RTA_DST => self.destination = Some(attribute.address_of(v4)?),
            RTA_PRIORITY => self.metric = attribute.u32()?,
            RTA_TABLE => self.table = attribute.u32()?,
            RTA_NH_ID => self.object = attribute.u32()?,
            RTA_MULTIPATH => self.hops = Some(multipath(attribute, v4, self.removes)?),
            _ => self.hop.read(attribute, v4)?,
        }
        Ok(())
    }

    /// Returns the treatment, given the type (`RTN_*`, linux/rtnetlink.h) of the route.
    fn target(self, kind: u8) -> Target {
        match kind {
            1 if self.object != 0 => Target::Object(self.object),
            1 if self.hop.encapsulated => Target::Unsupported(ENCAPSULATION),
            1 => self.hops.unwrap_or_else(|| match self.hop.hop(1) {
                Ok(hop) => Target::Hops(vec![hop]),
                Err(unsupported) => Target::Unsupported(unsupported),
            }),
            2 => Target::Unsupported("local address"),
            3 => Target::Unsupported("broadcast address"),
            4 => Target::Unsupported("anycast address"),
            5 => Target::Unsupported("multicast"),
            6 => Target::Blackhole,
            7 => Target::Unreachable,
            8 => Target::Prohibit,
            9 => Target::Unsupported("throw"),
            _ => Target::Unsupported("unknown type"),
        }
    }
}

/// Attributes of a route or of a next hop of several.
#[derive(Default)]
struct HopAttributes {
    gateway: Option<IpAddr>,
    interface: u32,
    encapsulated: bool,
}

impl HopAttributes {
    /// Reads an attribute, and skips those that are not about the next hop.
    fn read(&mut self, attribute: Attribute<'_>, v4: bool) -> Result<(), Malformed> {
        match attribute.kind {
            RTA_OIF => self.interface = attribute.u32()?,
            RTA_GATEWAY => self.gateway = Some(attribute.address_of(v4)?),
            RTA_VIA => self.gateway = Some(attribute.via()?),
            RTA_ENCAP_TYPE => self.encapsulated = true,
            _ => (),
        }
        Ok(())
    }

    fn hop(self, weight: u16) -> Result<Hop, &'static str> {
        match self {
            HopAttributes { encapsulated: true, .. } => Err(ENCAPSULATION),
            HopAttributes { gateway: None, interface: 0, .. } => Err(NO_HOP),
            HopAttributes { gateway, interface, .. } => Ok(Hop { gateway, interface, weight }),
        }
    }
}

/// Reads `RTA_MULTIPATH`: records of `struct rtnexthop` (linux/rtnetlink.h; u16 length with this header, u8 flags,
/// u8 hops, which is the weight less 1, i32 interface), each with attributes. The kernel marks next hops as dead while it
/// does not use them, as their interface is down; those are left out of routes that are not removed.
fn multipath(attribute: Attribute<'_>, v4: bool, removes: bool) -> Result<Target, Malformed> {
    const HEADER: usize = 8;
    let (mut rest, mut at) = (attribute.value, attribute.at + 4);
    let (mut hops, mut unsupported) = (vec![], None);
    while !rest.is_empty() {
        let len = if rest.len() < HEADER { rest.len() } else { usize::from(u16_at(rest, 0)) };
        let Some(attributes) = rest.get(HEADER..len) else {
            return Err(Malformed::Length { what: "next hop", at, len, min: HEADER, max: rest.len() });
        };
        let mut found = HopAttributes { interface: u32_at(rest, 4), ..Default::default() };
        for attribute in Attributes::new(attributes, at + HEADER) {
            found.read(attribute?, v4)?;
        }
        match found.hop(u16::from(rest[3]) + 1) {
            _ if rest[2] & RTNH_F_DEAD != 0 && !removes => {}
            Ok(_) if hops.len() == MAX_HOPS => unsupported = Some(TOO_MANY_HOPS),
            Ok(hop) => hops.push(hop),
            Err(reason) => unsupported = Some(reason),
        }
        rest = rest.get(aligned(len)..).unwrap_or_default();
        at += aligned(len);
    }
    Ok(match unsupported {
        Some(reason) => Target::Unsupported(reason),
        None if hops.is_empty() => Target::Unsupported("no next hops"),
        None => Target::Hops(hops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RTM_DELROUTE, RTM_NEWROUTE, attribute, message, rtmsg};
    use crate::{Message, messages};

    fn parsed(bytes: &[u8]) -> Message<'_> {
        let mut all = messages(bytes);
        let first = all.next().unwrap().unwrap();
        assert_eq!(all.next(), None);
        first
    }

    /// Returns the target of a route of 10.0.0.0/8, of this type and with these attributes.
    fn target(kind: u8, attributes: &[u8]) -> Result<Target, Malformed> {
        let destination = attribute(1, &[10, 0, 0, 0]);
        let bytes = message(RTM_NEWROUTE, 1, &[&rtmsg(true, 8, 254, 11, kind), &destination, attributes]);
        match messages(&bytes).next().unwrap() {
            Ok(Message::Route(route)) => Ok(route.target),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.cause),
        }
    }

    /// Bytes that FRR 8.4.4 sends for `ip route 10.6.0.0/16 192.0.2.1 table 1000`.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_route_of_zebra() {
        let bytes = [
            0x3c, 0, 0, 0, 0x18, 0, 0x01, 0x05, 0, 0, 0, 0, 0x8d, 0x40, 0x7a,
            0xa7, // nlmsghdr: CREATE, REPLACE, REQUEST
            0x02, 0x10, 0, 0, 0, 0xc4, 0, 0x01, 0, 0, 0,
            0, // rtmsg: IPv4, /16, table below, protocol 196, unicast
            0x08, 0, 0x01, 0, 10, 6, 0, 0, // RTA_DST
            0x08, 0, 0x06, 0, 20, 0, 0, 0, // RTA_PRIORITY
            0x08, 0, 0x0f, 0, 0xe8, 0x03, 0, 0, // RTA_TABLE
            0x08, 0, 0x1e, 0, 0x19, 0, 0, 0, // RTA_NH_ID
        ];
        let prefix = "10.6.0.0/16".parse().unwrap();
        let (table, protocol, metric, target) = (1000, 196, 20, Target::Object(25));
        let [removes, replaces, appends, is_conditional] = [false, true, false, false];
        let bytes = &bytes;
        let route =
            Route { removes, replaces, appends, is_conditional, table, prefix, protocol, metric, target, bytes };
        assert_eq!(parsed(bytes), Message::Route(route));
    }

    #[test]
    fn routes_of_a_dump_follow_others() {
        // nlmsghdr, which is not read, and rtmsg: IPv4, /0, main table, static, blackhole
        let bytes = [&[0; 16][..], &[2, 0, 0, 0, 254, 4, 0, 6, 0, 0, 0, 0]].concat();
        for (flags, appends) in [(0x501, false), (0xc00, true), (NLM_F_MULTI, true)] {
            assert_eq!(Route::parse(&bytes, false, flags).unwrap().unwrap().appends, appends, "{flags:#x}");
        }
    }

    #[test]
    fn next_hops_of_a_route() {
        let interface = attribute(4, &3u32.to_ne_bytes());
        let hop = |gateway, interface, weight| Hop { gateway, interface, weight };
        assert_eq!(target(1, &interface), Ok(Target::Hops(vec![hop(None, 3, 1)])));

        // struct rtvia: u16 family, address
        let via = attribute(18, &[&10u16.to_ne_bytes()[..], &Ipv6Addr::LOCALHOST.octets()].concat());
        let expected = Target::Hops(vec![hop(Some(Ipv6Addr::LOCALHOST.into()), 3, 1)]);
        assert_eq!(target(1, &[via, interface].concat()), Ok(expected));

        // struct rtnexthop: u16 length, u8 flags, u8 hops, i32 interface; attributes
        let gateway = attribute(5, &[192, 0, 2, 1]);
        let first = [&16u16.to_ne_bytes()[..], &[0, 255], &3u32.to_ne_bytes(), &gateway].concat();
        let second = [&8u16.to_ne_bytes()[..], &[0, 0], &4u32.to_ne_bytes()].concat();
        let hops = vec![hop(Some([192, 0, 2, 1].into()), 3, 256), hop(None, 4, 1)];
        assert_eq!(target(1, &attribute(9, &[first, second].concat())), Ok(Target::Hops(hops)));
    }

    /// The kernel sends the next hops that it removes, and says which it does not use.
    #[test]
    fn next_hops_that_are_removed_or_dead() {
        let hop = |flags: u8, host: u8| {
            let gateway = attribute(5, &[192, 0, 2, host]);
            [&16u16.to_ne_bytes()[..], &[flags, 0], &3u32.to_ne_bytes(), &gateway].concat()
        };
        let hops = attribute(9, &[hop(0, 1), hop(RTNH_F_DEAD | 0x10, 2), hop(0x10, 3)].concat());
        let hosts = |target: &Target| match target {
            Target::Hops(hops) => hops.iter().map(|hop| hop.gateway.unwrap().to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(hosts(&target(1, &hops).unwrap()), ["192.0.2.1", "192.0.2.3"]);
        assert_eq!(target(1, &attribute(9, &hop(RTNH_F_DEAD, 2))), Ok(Target::Unsupported("no next hops")));
        let destination = attribute(1, &[10, 0, 0, 0]);
        let bytes = message(RTM_DELROUTE, 0, &[&rtmsg(true, 8, 254, 4, 1), &destination, &hops]);
        let Message::Route(route) = parsed(&bytes) else { panic!() };
        assert_eq!(hosts(&route.target), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    }

    #[test]
    fn treatments_without_next_hops() {
        let hop = attribute(4, &3u32.to_ne_bytes());
        let mpls = [hop.clone(), attribute(21, &1u16.to_ne_bytes()), attribute(22, &[0; 8])].concat();
        let nothing = [&8u16.to_ne_bytes()[..], &[0; 6]].concat();
        let many = [&8u16.to_ne_bytes()[..], &[0, 0], &4u32.to_ne_bytes()].concat().repeat(MAX_HOPS + 1);
        for (kind, attributes, expected) in [
            (6, vec![], Target::Blackhole),
            (7, vec![], Target::Unreachable),
            (8, vec![], Target::Prohibit),
            (2, hop.clone(), Target::Unsupported("local address")),
            (77, hop, Target::Unsupported("unknown type")),
            (1, mpls, Target::Unsupported(ENCAPSULATION)),
            (1, vec![], Target::Unsupported(NO_HOP)),
            (1, attribute(9, &[]), Target::Unsupported("no next hops")),
            (1, attribute(9, &nothing), Target::Unsupported(NO_HOP)),
            (1, attribute(9, &many), Target::Unsupported(TOO_MANY_HOPS)),
        ] {
            assert_eq!(target(kind, &attributes), Ok(expected));
        }
    }

    #[test]
    fn a_route_that_depends_on_the_source_removes_no_other() {
        let mut rtmsg = rtmsg(false, 0, 254, 11, 1);
        rtmsg[2] = 64;
        let source = attribute(2, &Ipv6Addr::LOCALHOST.octets());
        let bytes = message(RTM_NEWROUTE, 1, &[&rtmsg, &source, &attribute(30, &1u32.to_ne_bytes())]);
        let Message::Route(route) = parsed(&bytes) else { panic!() };
        assert_eq!(route.prefix.to_string(), "::/0");
        assert_eq!(route.target, Target::Unsupported("selected by a source address"));
        assert!(route.is_conditional);
        let bytes = message(RTM_DELROUTE, 1, &[&rtmsg, &source]);
        assert_eq!(parsed(&bytes), Message::Other { kind: RTM_DELROUTE });
        // a label of MPLS
        rtmsg[0] = 28;
        let bytes = message(RTM_NEWROUTE, 1, &[&rtmsg]);
        assert_eq!(parsed(&bytes), Message::Other { kind: RTM_NEWROUTE });
    }

    #[test]
    fn invalid_values_are_errors() {
        let length = |what, at, len, min, max| Malformed::Length { what, at, len, min, max };
        let value = |kind, len, expected| Malformed::Value { kind, at: 36, len, expected };
        let short = [&7u16.to_ne_bytes()[..], &[0; 6]].concat();
        for (attributes, expected) in [
            (attribute(5, &[0; 16]), value(5, 16, "an IPv4 address")),
            (attribute(18, &[2, 0, 1, 2]), value(18, 4, "family 2 with 4 bytes or family 10 with 16 bytes")),
            (attribute(15, &[0; 2]), value(15, 2, "4 bytes")),
            (vec![3, 0, 5, 0], length("attribute", 36, usize::from(u16::from_ne_bytes([3, 0])), 4, 4)),
            (vec![0; 3], length("attribute", 36, 3, 4, 3)),
            (attribute(9, &short), length("next hop", 40, 7, 8, 8)),
            (attribute(9, &[0; 5]), length("next hop", 40, 5, 8, 5)),
        ] {
            assert_eq!(target(1, &attributes), Err(expected));
        }
        for (len, destination, expected) in [
            (33, attribute(1, &[0; 4]), Malformed::PrefixLength { len: 33, max: 32 }),
            (8, vec![], Malformed::Missing(RTA_DST)),
        ] {
            let bytes = message(RTM_NEWROUTE, 1, &[&rtmsg(true, len, 254, 11, 6), &destination]);
            assert_eq!(messages(&bytes).next().unwrap().unwrap_err().cause, expected);
        }
    }
}
