//! Properties of the parsers, over generated and damaged bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::testing::{attribute, frame, message, next_hop, route};
use crate::{
    FrameReader, Hop, MAX_FRAME, MAX_HOPS, Message, NextHop, NextHopValue, NextHops, Route, Target, Verdict, answer,
    messages,
};

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<Ipv4Addr>().prop_map(IpAddr::from), any::<Ipv6Addr>().prop_map(IpAddr::from)]
}

fn hops() -> impl Strategy<Value = Hop> {
    (option::of(addresses()), 1u32.., 1..=256u16).prop_map(|(gateway, interface, weight)| Hop {
        gateway,
        interface,
        weight,
    })
}

fn targets() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::Unreachable),
        Just(Target::Prohibit),
        Just(Target::Blackhole),
        (1u32..).prop_map(Target::Object),
        hops().prop_map(|hop| Target::Hops(vec![hop])),
        vec(hops(), 1..8).prop_map(Target::Hops),
        hops().prop_map(|hop| Target::Hops(vec![hop; MAX_HOPS])),
    ]
}

fn routes() -> impl Strategy<Value = Route<'static>> {
    let table = prop_oneof![1..256u32, any::<u32>()];
    let prefix = (addresses(), 0..=128u8)
        .prop_map(|(a, len)| IpNet::new(a, if a.is_ipv4() { len / 4 } else { len }).unwrap().trunc());
    (any::<[bool; 3]>(), table, prefix, any::<u8>(), any::<u32>(), targets()).prop_map(
        |([removes, replaces, appends], table, prefix, protocol, metric, target)| {
            let target = if removes { Target::Hops(vec![]) } else { target };
            let (is_conditional, bytes) = (false, &[][..]);
            Route { removes, replaces, appends, is_conditional, table, prefix, protocol, metric, target, bytes }
        },
    )
}

fn next_hops() -> impl Strategy<Value = NextHop> {
    let value = prop_oneof![
        hops().prop_map(|hop| NextHopValue::Hop(Hop { weight: 1, ..hop })),
        Just(NextHopValue::Blackhole),
        vec((1u32..20, 1u16..), 1..8).prop_map(NextHopValue::Group),
    ];
    prop_oneof![
        3 => (1u32..20, value).prop_map(|(id, value)| NextHop::Add { id, value }),
        1 => (1u32..20).prop_map(|id| NextHop::Remove { id }),
    ]
}

/// Bytes of messages of all kinds.
fn bytes_of_messages() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => routes().prop_map(|r| route(&r)),
        4 => next_hops().prop_map(|n| next_hop(&n)),
        1 => (any::<u16>(), vec(any::<[u8; 4]>(), 0..9)).prop_map(|(kind, body)| message(kind, 0, &[&body.concat()])),
    ]
}

/// Reads all frames of a stream that is received in pieces of these lengths, repeated; returns what is parsed.
fn parse(stream: &[u8], pieces: &[usize]) -> Vec<String> {
    let (mut reader, mut parsed) = (FrameReader::new(), vec![]);
    let mut pieces = pieces.iter().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let room = reader.room();
        let n = (*pieces.next().unwrap()).min(room.len()).min(rest.len());
        room[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
        reader.filled(n);
        loop {
            match reader.next_frame() {
                Ok(None) => break,
                Ok(Some(payload)) => parsed.extend(messages(payload).map(|message| format!("{message:?}"))),
                Err(e) => return [parsed, vec![e.to_string()]].concat(),
            }
        }
    }
    parsed
}

proptest! {
    #[test]
    fn routes_are_parsed_as_written(spec in routes(), unknown in vec(any::<u8>(), 0..20)) {
        let mut bytes = route(&spec);
        // attributes that zebra may add: RTA_PREFSRC, and one that does not exist
        bytes.extend([attribute(7, &unknown), attribute(0x3000, &unknown)].concat());
        let len = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        let parsed: Vec<_> = messages(&bytes).collect();
        prop_assert_eq!(parsed, [Ok(Message::Route(Route { bytes: &bytes, ..spec }))]);
    }

    #[test]
    fn next_hops_are_parsed_as_written(spec in next_hops()) {
        let bytes = next_hop(&spec);
        prop_assert_eq!(messages(&bytes).collect::<Vec<_>>(), [Ok(Message::NextHop(spec))]);
    }

    #[test]
    fn frames_do_not_depend_on_how_they_are_received(
        payloads in vec(vec(bytes_of_messages(), 0..4), 1..12),
        pieces in vec(1..3000usize, 1..20),
    ) {
        let stream = payloads.iter().flat_map(|p| frame(&p.concat())).collect::<Vec<_>>();
        let whole = parse(&stream, &[MAX_FRAME]);
        prop_assert_eq!(whole.len(), payloads.iter().flatten().count());
        prop_assert_eq!(parse(&stream, &pieces), whole);
    }

    #[test]
    fn a_payload_that_is_cut_has_the_messages_before(written in vec(bytes_of_messages(), 1..5), cut in any::<Index>()) {
        let bytes = written.concat();
        let cut = cut.index(bytes.len());
        let (all, mut some) = (messages(&bytes).collect::<Vec<_>>(), messages(&bytes[..cut]).collect::<Vec<_>>());
        let mut ends = written.iter().scan(0, |end, message| { *end += message.len(); Some(*end) });
        if !ends.any(|end| end == cut) && cut > 0 {
            prop_assert!(some.pop().is_some_and(|last| last.is_err()));
        }
        prop_assert_eq!(&some[..], &all[..some.len()]);
    }

    #[test]
    fn damaged_messages_are_messages_or_errors(
        written in vec(bytes_of_messages(), 1..5),
        damage in vec((any::<Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = written.concat();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        check(&bytes);
    }

    #[test]
    fn any_bytes_are_messages_or_errors(bytes in vec(any::<u8>(), 0..200)) {
        check(&bytes);
        parse(&bytes, &[7, 1]);
        parse(&frame(&bytes), &[3]);
    }
}

/// Checks what holds for all bytes.
fn check(payload: &[u8]) {
    let mut objects = NextHops::new(3);
    let mut end = 0;
    for parsed in messages(payload) {
        match parsed {
            Err(e) => {
                assert!(e.offset >= end && e.offset < payload.len() && !e.to_string().is_empty());
                end = e.offset;
            }
            Ok(Message::Route(route)) => check_route(&route),
            Ok(Message::NextHop(NextHop::Add { id, value })) => {
                let _ = objects.insert(id, value);
                let _ = objects.resolve(id);
                assert!(objects.len() <= 3);
            }
            Ok(Message::NextHop(NextHop::Remove { id })) => drop(objects.remove(id)),
            Ok(Message::Other { .. }) => (),
        }
    }
}

/// Checks that an answer is a frame with the same route.
fn check_route(route: &Route<'_>) {
    assert_eq!(route.prefix, route.prefix.trunc());
    if let Target::Hops(hops) = &route.target {
        assert!(hops.len() <= MAX_HOPS && (route.removes || !hops.is_empty()));
    }
    let mut bytes = vec![0xff];
    answer(route, Verdict::Failed, &mut bytes);
    let mut reader = FrameReader::new();
    reader.room()[..bytes.len() - 1].copy_from_slice(&bytes[1..]);
    reader.filled(bytes.len() - 1);
    let answered = reader.next_frame().unwrap().map(|payload| messages(payload).collect::<Vec<_>>());
    match answered.as_deref() {
        None => assert!(route.removes),
        Some([Ok(Message::Route(same))]) => assert_eq!(same, &Route { bytes: same.bytes, ..route.clone() }),
        other => panic!("{other:?}"),
    }
}
