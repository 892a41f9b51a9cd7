//! Messages of zebra, and of peers that send others.

use super::*;
use crate::run::daemon_routes::testing::{DELETE_NEXT_HOP, DELETE_ROUTE, NEW_NEXT_HOP, NEW_ROUTE, attribute, message};
use graph::{BuildContext, Nf};
use nf::L3fwd;
use nf::live::LiveRoutes;

const OFFLOADED: u32 = 0x4000;
const FAILED: u32 = 0x2000_0000;

/// A router with one interface, `lan`, which has the number 3.
struct Lab {
    tables: Tables,
    session: Session,
    answers: Vec<u8>,
    _router: Box<dyn std::any::Any>,
}

impl Lab {
    fn new() -> Lab {
        let text = "interface.lan = { addresses = [\"10.0.0.1/24\"] }\nfpm = { routes_max = 4 }";
        let cx = BuildContext { name: "router".to_owned(), ..BuildContext::default() };
        let router = L3fwd::build(&toml::from_str(text).unwrap(), &cx).unwrap();
        let live = cx.shared::<LiveRoutes>(|| Err(diagnostics::Diagnostic::new("no routes"))).unwrap();
        Lab {
            tables: Tables { routers: vec![(254, live.vrf(None).unwrap())] },
            session: Session::new("router".to_owned()),
            answers: vec![],
            _router: Box::new(router),
        }
    }

    /// Receives messages, each in a frame; returns the flags of the answers.
    fn receive(&mut self, messages: &[Vec<u8>]) -> Vec<u32> {
        let frame = |message: &Vec<u8>| {
            let len = (message.len() + 4) as u16;
            [&[1, 1][..], &len.to_be_bytes(), message].concat()
        };
        let stream: Vec<u8> = messages.iter().flat_map(frame).collect();
        self.session.room()[..stream.len()].copy_from_slice(&stream);
        let netdev = |index| match index {
            3 => Netdev::Named("lan".to_owned()),
            50 => Netdev::Elsewhere,
            _ => Netdev::Missing,
        };
        let Lab { tables, session, answers, .. } = self;
        session.received(stream.len(), tables, &netdev, answers, &AtomicBool::new(false)).unwrap();
        let mut flags = vec![];
        let mut rest = &std::mem::take(answers)[..];
        while let Some(len) = rest.get(2..4) {
            let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
            flags.push(u32::from_ne_bytes(rest[28..32].try_into().unwrap()));
            rest = &rest[len..];
        }
        flags
    }

    fn installed(&self) -> Vec<String> {
        let routes = self.tables.routers[0].1.page(None).unwrap().routes;
        routes.into_iter().filter(|route| route.source == "fpm").map(|route| route.prefix).collect()
    }
}

/// A message about the route to 198.18.`n`.0/24 of a table.
fn route(kind: u16, table: u8, n: u8, more: &[Vec<u8>]) -> Vec<u8> {
    let rtmsg = vec![2, 24, 0, 0, table, 186, 0, 1, 0, 0, 0, 0];
    message(kind, &[&[rtmsg, attribute(1, &[198, 18, n, 0])][..], more].concat())
}

/// A next hop, 10.0.0.`host` at an interface.
fn gateway(host: u8, interface: u32) -> Vec<Vec<u8>> {
    vec![attribute(5, &[10, 0, 0, host]), attribute(4, &interface.to_ne_bytes())]
}

fn object(id: u32) -> Vec<Vec<u8>> {
    vec![attribute(30, &id.to_ne_bytes())]
}

/// A next-hop object, 10.0.0.`host` at an interface.
fn next_hop(id: u32, host: u8, interface: u32) -> Vec<u8> {
    let attributes =
        [attribute(1, &id.to_ne_bytes()), attribute(5, &interface.to_ne_bytes()), attribute(6, &[10, 0, 0, host])];
    message(NEW_NEXT_HOP, &[&[vec![2, 0, 0, 0, 0, 0, 0, 0]][..], &attributes].concat())
}

#[test]
fn a_removal_before_an_addition_is_a_change() {
    let mut lab = Lab::new();
    assert_eq!(lab.receive(&[route(NEW_ROUTE, 254, 1, &gateway(2, 3))]), [OFFLOADED]);
    // a packet between the two messages finds the route
    assert!(lab.receive(&[route(DELETE_ROUTE, 254, 1, &[])]).is_empty());
    assert_eq!(lab.installed(), ["198.18.1.0/24"]);
    assert_eq!(lab.receive(&[route(NEW_ROUTE, 254, 1, &gateway(4, 3))]), [OFFLOADED]);
    lab.session.flush(&lab.tables);
    assert_eq!(lab.installed(), ["198.18.1.0/24"]);
    // another message ends the wait, and so does a pause
    lab.receive(&[route(NEW_ROUTE, 254, 2, &gateway(2, 3)), route(DELETE_ROUTE, 254, 1, &[])]);
    lab.receive(&[route(DELETE_ROUTE, 254, 2, &[])]);
    assert_eq!(lab.installed(), ["198.18.2.0/24"]);
    lab.session.flush(&lab.tables);
    assert!(lab.installed().is_empty());
}

#[test]
fn a_route_waits_for_its_next_hop_object() {
    let mut lab = Lab::new();
    assert!(lab.receive(&[route(NEW_ROUTE, 254, 1, &object(7)), route(NEW_ROUTE, 254, 2, &object(8))]).is_empty());
    assert!(lab.installed().is_empty());
    assert_eq!(lab.receive(&[next_hop(7, 2, 3)]), [OFFLOADED]);
    assert_eq!(lab.installed(), ["198.18.1.0/24"]);
    // an object that the router cannot use
    assert_eq!(lab.receive(&[next_hop(8, 2, 99)]), [FAILED]);
    assert_eq!(lab.receive(&[next_hop(7, 2, 99)]), [0; 0]);
    assert!(lab.installed().is_empty());
    assert_eq!(lab.session.routes.objects.len(), 0);
}

#[test]
fn next_hops_of_another_kernel_are_found_by_their_network() {
    let mut lab = Lab::new();
    assert_eq!(lab.receive(&[route(NEW_ROUTE, 254, 1, &gateway(2, 50))]), [OFFLOADED]);
    let away = vec![attribute(5, &[10, 7, 0, 2]), attribute(4, &50u32.to_ne_bytes())];
    let without_gateway = vec![attribute(4, &50u32.to_ne_bytes())];
    assert_eq!(
        lab.receive(&[route(NEW_ROUTE, 254, 2, &away), route(NEW_ROUTE, 254, 3, &without_gateway)]),
        [FAILED; 2]
    );
    assert_eq!(lab.installed(), ["198.18.1.0/24"]);
}

#[test]
fn refused_routes_leave_nothing_behind() {
    let mut lab = Lab::new();
    let many = |more: &[Vec<u8>], table| (0..200).map(|n| route(NEW_ROUTE, table, n, more)).collect::<Vec<_>>();
    // of another table; without an object; of an interface that the router does not have; too many
    assert_eq!(lab.receive(&many(&object(1), 10)), [FAILED; 200]);
    assert_eq!(lab.receive(&many(&object(1), 254)), [FAILED; 196]);
    assert_eq!(lab.receive(&many(&gateway(2, 9), 254)), [FAILED; 200]);
    let flags = lab.receive(&many(&gateway(2, 3), 254));
    assert_eq!(flags.iter().filter(|flags| **flags == OFFLOADED).count(), 4);
    let DaemonRoutes { objects, waiting, .. } = &lab.session.routes;
    assert_eq!((objects.len(), waiting.len()), (0, 0));
    // a long message does not wait
    let padding = attribute(99, &[0; 2000]);
    assert_eq!(lab.receive(&[route(NEW_ROUTE, 254, 201, &[object(1), vec![padding]].concat())]), [FAILED]);
    assert_eq!(lab.session.counts().refused, 200 + 196 + 200 + 196 + 1);
    assert_eq!(lab.session.counts().changed, 4);
}

fn group(id: u32, members: &[u32]) -> Vec<u8> {
    // struct nexthop_grp: the number, the weight less 1, and zeros
    let entry = |id: &u32| [&id.to_ne_bytes()[..], &[0; 4]].concat();
    let members: Vec<u8> = members.iter().flat_map(entry).collect();
    let header = vec![0; 8];
    message(NEW_NEXT_HOP, &[header, attribute(1, &id.to_ne_bytes()), attribute(2, &members)])
}

/// However an object changes together with its routes, and between them, each route has its next hops in the end.
#[test]
fn every_route_of_an_object_has_its_next_hops() {
    let mut lab = Lab::new();
    let via = |lab: &Lab| {
        let routes = lab.tables.routers[0].1.page(None).unwrap().routes;
        let hosts = |route: &control::Route| {
            let mut hosts: Vec<_> = route.via.iter().map(|hop| hop.address.clone()).collect();
            hosts.sort_unstable();
            hosts.join(" ")
        };
        routes.iter().filter(|route| route.source == "fpm").map(hosts).collect::<Vec<_>>()
    };
    let user = |n: u8| route(NEW_ROUTE, 254, n, &object(9));
    lab.receive(&[next_hop(1, 11, 3), next_hop(2, 12, 3), next_hop(3, 13, 3), group(9, &[1]), user(1)]);
    assert_eq!(via(&lab), ["10.0.0.11"]);
    // a second member, and a route that arrives with it
    lab.receive(&[group(9, &[1, 2]), user(2)]);
    assert_eq!(via(&lab), ["10.0.0.11 10.0.0.12"; 2]);
    lab.receive(&[group(9, &[1, 3])]);
    assert_eq!(via(&lab), ["10.0.0.11 10.0.0.13"; 2]);
    lab.receive(&[group(9, &[3]), user(3)]);
    assert_eq!(via(&lab), ["10.0.0.13"; 3]);
    // a member changes
    lab.receive(&[group(9, &[1, 3])]);
    lab.receive(&[next_hop(3, 14, 3)]);
    assert_eq!(via(&lab), ["10.0.0.11 10.0.0.14"; 3]);
    // one is gone, and returns with a further route
    lab.receive(&[message(DELETE_NEXT_HOP, &[vec![0; 8], attribute(1, &3u32.to_ne_bytes())])]);
    assert!(via(&lab).is_empty());
    lab.receive(&[next_hop(3, 15, 3), user(4)]);
    assert_eq!(via(&lab), ["10.0.0.11 10.0.0.15"; 4]);
    // a next hop on no network of the router
    lab.receive(&[next_hop(3, 16, 4)]);
    assert!(via(&lab).is_empty());
}

/// Of several values of an object that arrive at once, the last one counts.
#[test]
fn objects_change_once_with_all_messages() {
    let mut lab = Lab::new();
    lab.receive(&[next_hop(7, 2, 3), route(NEW_ROUTE, 254, 1, &object(7))]);
    let changes: Vec<_> = (2..200).map(|host| next_hop(7, host, 3)).collect();
    assert!(lab.receive(&changes).is_empty());
    let routes = lab.tables.routers[0].1.page(None).unwrap().routes;
    let route = routes.iter().find(|route| route.source == "fpm").unwrap();
    assert_eq!(route.via[0].address, "10.0.0.199");
}

#[test]
fn the_end_interrupts_the_execution() {
    let mut lab = Lab::new();
    let frame = route(NEW_ROUTE, 254, 1, &gateway(2, 3));
    let stream = [&[1, 1][..], &(frame.len() as u16 + 4).to_be_bytes(), &frame].concat();
    lab.session.room()[..stream.len()].copy_from_slice(&stream);
    let Lab { tables, session, answers, .. } = &mut lab;
    session.received(stream.len(), tables, &|_| Netdev::Missing, answers, &AtomicBool::new(true)).unwrap();
    assert!(lab.answers.is_empty() && lab.installed().is_empty());
}

/// Routers of several tables share a connection.
#[test]
fn the_table_selects_the_router() {
    let mut lab = Lab::new();
    let mut other = Lab::new();
    let router = other.tables.routers.remove(0).1;
    lab.tables.routers.push((10, router));
    assert_eq!(lab.receive(&[route(NEW_ROUTE, 10, 1, &gateway(2, 3))]), [OFFLOADED]);
    assert!(lab.installed().is_empty());
    assert_eq!(lab.tables.routers[1].1.page(None).unwrap().routes.iter().filter(|r| r.source == "fpm").count(), 1);
}
