//! Reloads that change forwards, compared with a list of sessions.

use super::*;
use std::collections::{HashMap, HashSet};
use testkit::HarnessBuilder;
use testkit::proptest::prelude::*;

type Endpoint = ([u8; 4], u16);

/// External and inside endpoints of forwards.
const FORWARDS: [(u16, Endpoint); 6] =
    [(5000, (A, 5000)), (5000, (B, 5000)), (5001, (A, 5000)), (5002, (A, 80)), (5001, (B, 5001)), (5003, (B, 5000))];

/// Returns the forwards of a bit mask, without those that conflict with one before.
fn forwards(mask: u8) -> Vec<(u16, Endpoint)> {
    let mut chosen: Vec<(u16, Endpoint)> = vec![];
    for (n, forward) in FORWARDS.into_iter().enumerate() {
        if mask >> n & 1 != 0 && chosen.iter().all(|f| f.0 != forward.0 && f.1 != forward.1) {
            chosen.push(forward);
        }
    }
    chosen
}

fn settings(mapping: &str, forwards: &[(u16, Endpoint)]) -> String {
    let text = |(port, (to, inside)): &(u16, Endpoint)| {
        format!("\"udp 203.0.113.1:{port} -> {}:{inside}\"", Ipv4Addr::from(*to))
    };
    let forwards: Vec<_> = forwards.iter().map(text).collect();
    format!("external = [\"203.0.113.1\"]\nmapping = \"{mapping}\"\nforward = [{}]", forwards.join(", "))
}

/// A session of an inside endpoint with a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Session {
    external: u16,
    is_forward: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet from an inside host and port, or to a forward, and the port of the peer.
    Outbound(bool, u16, u16),
    Inbound(usize, u16),
    Reload(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 5000..5004u16, 1..4u16).prop_map(|(b, port, peer)| Step::Outbound(b, port, peer)),
        2 => (0..6usize, 4..6u16).prop_map(|(n, peer)| Step::Inbound(n, peer)),
        2 => (0..64u8).prop_map(Step::Reload),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sessions_that_fit_the_forwards_are_kept(independent in any::<bool>(), first in 0..64u8, steps in steps()) {
        let mapping = if independent { "endpoint-independent" } else { "endpoint-dependent" };
        let mut current = forwards(first);
        let mut builder = HarnessBuilder::new::<Nat44>(&settings(mapping, &current));
        let mut nat = Nat(builder.clone().build().unwrap());
        let mut sessions: HashMap<(Endpoint, u16), Session> = HashMap::new();
        for step in steps {
            match step {
                Step::Outbound(b, port, peer) => {
                    let inside = (if b { B } else { A }, port);
                    let out = nat.outbound(&udp(inside.0, port, REMOTE, peer)).unwrap();
                    prop_assert_eq!((out.src, out.dst, out.dst_port), (EXTERNAL, REMOTE, peer));
                    let forward = current.iter().find(|f| f.1 == inside);
                    let new = Session { external: out.src_port, is_forward: forward.is_some() };
                    let session = *sessions.entry((inside, peer)).or_insert(new);
                    prop_assert_eq!(out.src_port, session.external);
                    prop_assert!(forward.is_none_or(|f| f.0 == out.src_port));
                }
                Step::Inbound(n, peer) => {
                    let Some((external, inside)) = current.get(n).copied() else { continue };
                    let out = nat.inbound(&udp(REMOTE, peer, EXTERNAL, external));
                    prop_assert_eq!(out, Ok(endpoints(REMOTE, peer, inside.0, inside.1)));
                    sessions.entry((inside, peer)).or_insert(Session { external, is_forward: true });
                }
                Step::Reload(mask) => {
                    current = forwards(mask);
                    let next = HarnessBuilder::new::<Nat44>(&settings(mapping, &current));
                    next.clone().reload(&builder, &mut nat.0).unwrap();
                    builder = next;
                    let count = sessions.len();
                    sessions.retain(|(inside, _), s| match s.is_forward {
                        true => current.contains(&(s.external, *inside)),
                        false => current.iter().all(|f| (f.0 == s.external) == (f.1 == *inside)),
                    });
                    // the table is scanned in parts of 256 buckets
                    nat.0.advance(Duration::from_millis(200));
                    prop_assert_eq!(nat.0.counter("closed_by_reload"), (count - sessions.len()) as u64);
                }
            }
            nat.0.advance(Duration::from_millis(1));
            let dynamic = sessions.iter().filter(|(_, s)| !s.is_forward);
            let ports: HashSet<_> = dynamic.map(|((inside, _), s)| (*inside, s.external)).collect();
            let mapped = ports.iter().filter(|(inside, port)| !current.contains(&(*port, *inside))).count();
            let expected = match independent {
                true => [sessions.len(), current.len() + mapped, ports.len()],
                false => [sessions.len(), current.len(), 0],
            };
            prop_assert_eq!(["sessions", "mappings", "ports"].map(|name| nat.0.counter(name)), expected.map(|n| n as u64));
        }
        // both directions of all sessions
        for ((inside, peer), session) in &sessions {
            let out = nat.inbound(&udp(REMOTE, *peer, EXTERNAL, session.external));
            prop_assert_eq!(out, Ok(endpoints(REMOTE, *peer, inside.0, inside.1)));
            let out = nat.outbound(&udp(inside.0, inside.1, REMOTE, *peer));
            prop_assert_eq!(out, Ok(endpoints(EXTERNAL, session.external, REMOTE, *peer)));
        }
        // nothing leaks
        nat.advance_seconds(310);
        let left = ["sessions", "mappings", "ports", "subscribers"].map(|name| nat.0.counter(name));
        prop_assert_eq!(left, [0, current.len() as u64, 0, 0]);
    }
}

#[test]
fn a_forward_from_another_address_closes_the_sessions_of_its_host() {
    let text = "external = [\"203.0.113.0/31\"]\n";
    let before = HarnessBuilder::new::<Nat44>(text);
    let mut nat = Nat(before.clone().build().unwrap());
    let old = nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
    let other = nat.outbound(&udp(B, 5000, REMOTE, 53)).unwrap();
    let address = [203, 0, 113, old.src[3] ^ 1];
    let text = format!("{text}forward = [\"tcp {}:80 -> 10.0.0.1:80\"]", Ipv4Addr::from(address));
    HarnessBuilder::new::<Nat44>(&text).reload(&before, &mut nat.0).unwrap();
    // until all sessions with the other address are closed
    assert_eq!(nat.outbound(&udp(A, 5001, REMOTE, 53)), Err("no_port"));
    nat.0.advance(Duration::from_millis(200));
    assert_eq!((nat.0.counter("sessions"), nat.0.counter("closed_by_reload")), (1, 1));
    assert_eq!(nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap().src, address);
    assert_eq!(nat.outbound(&udp(B, 5000, REMOTE, 53)), Ok(other));
}
