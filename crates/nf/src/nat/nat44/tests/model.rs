//! Random traffic, compared with a model that is a plain list of sessions.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// UDP timeout in seconds.
const TIMER: f64 = 10.0;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From a port of a subscriber to an outside address and port.
    Out(u8, u16, u8, u16),
    /// From outside to the external port of the mapping with this number.
    In(u8, u16, usize),
    /// Wait, in seconds.
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (host, port) = (0..4u8, 40_000..40_003u16);
    prop_oneof![
        5 => (host.clone(), port, 0..3u8, 53..55u16).prop_map(|(a, b, c, d)| Step::Out(a, b, c, d)),
        5 => (0..3u8, 53..55u16, any::<usize>()).prop_map(|(a, b, c)| Step::In(a, b, c)),
        1 => (4..15u8).prop_map(Step::Wait),
    ]
}

/// Presence of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Yes,
    No,
    /// It may or may not have been scanned since it expired.
    Perhaps,
}

type Inside = (u8, u16);
type Outside = (u8, u16);

/// Sessions with the time of their last packet and their external port.
#[derive(Default)]
struct Model {
    sessions: HashMap<(Inside, Outside), (f64, u16)>,
    now: f64,
    /// Length of the last wait.
    waited: f64,
}

impl Model {
    fn presence(&self, used: f64) -> Presence {
        // the clock has units of a quarter of a second
        match self.now - used {
            idle if idle < TIMER - 0.3 => Presence::Yes,
            idle if idle > TIMER + self.waited + 0.6 => Presence::No,
            _ => Presence::Perhaps,
        }
    }

    /// Sessions of an inside endpoint.
    fn of(&self, inside: Inside) -> impl Iterator<Item = (Outside, Presence, u16)> {
        let all = self.sessions.iter().filter(move |((i, _), _)| *i == inside);
        all.map(|((_, outside), (used, port))| (*outside, self.presence(*used), *port))
    }
}

fn outside(n: u8) -> [u8; 4] {
    [198, 18, 0, n + 1]
}

fn inside(n: u8) -> [u8; 4] {
    [10, 0, 0, n + 1]
}

fn check(independent_mapping: bool, filtering: &str, steps: &[Step]) {
    let mapping = if independent_mapping { "endpoint-independent" } else { "endpoint-dependent" };
    let mut nat = Nat::new(&format!(
        "mapping = \"{mapping}\"\nfiltering = \"{filtering}\"\ntimers = {{ udp = {TIMER} }}\nsessions = 500"
    ));
    let mut model = Model::default();
    let mut ports: Vec<u16> = vec![];
    for step in steps {
        match *step {
            Step::Wait(seconds) => {
                let part = Duration::from_secs(seconds.into()) / 400;
                (0..400).for_each(|_| drop(nat.0.advance(part)));
                model.now += f64::from(seconds);
                model.waited = f64::from(seconds);
                let gone: Vec<_> = model
                    .sessions
                    .iter()
                    .filter(|(_, (u, _))| model.presence(*u) == Presence::No)
                    .map(|(k, _)| *k)
                    .collect();
                model.sessions.retain(|key, _| !gone.contains(key));
                let sure = model.sessions.values().filter(|(used, _)| model.presence(*used) == Presence::Yes).count();
                let sessions = nat.0.counter("sessions") as usize;
                assert!((sure..=model.sessions.len()).contains(&sessions), "{sessions} sessions");
            }
            Step::Out(host, port, to, to_port) => {
                let (end, remote) = ((host, port), (to, to_port));
                let out = nat.outbound(&udp(inside(host), port, outside(to), to_port)).expect("a free port");
                assert_eq!((out.src, out.dst, out.dst_port), (EXTERNAL, outside(to), to_port));
                for (known, there, had) in model.of(end) {
                    let same = known == remote || independent_mapping;
                    assert!(there != Presence::Yes || !same || had == out.src_port, "the mapping has changed");
                }
                for ((other, elsewhere), (used, had)) in &model.sessions {
                    let clash = *had == out.src_port && *other != end && (independent_mapping || *elsewhere == remote);
                    assert!(!clash || model.presence(*used) != Presence::Yes, "two mappings share a port");
                }
                // the earlier owner of the port has expired
                let port = out.src_port;
                model
                    .sessions
                    .retain(|(i, o), (_, p)| *p != port || *i == end || (!independent_mapping && *o != remote));
                model.sessions.retain(|(i, _), (_, p)| !independent_mapping || *i != end || *p == port);
                model.sessions.insert((end, remote), (model.now, port));
                ports.push(port);
            }
            Step::In(from, from_port, which) => {
                let Some(&port) = ports.get(which % ports.len().max(1)) else { continue };
                let mut may = Presence::No;
                let mut to = vec![];
                for ((end, remote), (used, had)) in &model.sessions {
                    let exact = *remote == (from, from_port);
                    let admitted = match filtering {
                        _ if exact => true,
                        // without a shared mapping only the sessions of the port are reachable
                        _ if !independent_mapping => false,
                        "endpoint-independent" => true,
                        "address-dependent" => remote.0 == from,
                        _ => false,
                    };
                    if *had == port && admitted {
                        let there = model.presence(*used);
                        if there == Presence::Yes || may == Presence::No {
                            may = there;
                        }
                        to.push(*end);
                    }
                }
                match nat.inbound(&udp(outside(from), from_port, EXTERNAL, port)) {
                    Ok(t) => {
                        assert_ne!(may, Presence::No, "no session admits the packet");
                        let end = to.iter().find(|(host, port)| (inside(*host), *port) == (t.dst, t.dst_port));
                        let end = *end.expect("an inside host with a session");
                        model.sessions.insert((end, (from, from_port)), (model.now, port));
                    }
                    Err(why) => {
                        assert_ne!(may, Presence::Yes, "{why}");
                        // a rejected packet has no session
                        if why == "no_session" {
                            model.sessions.retain(|(_, o), (_, p)| {
                                *p != port || (!independent_mapping && *o != (from, from_port))
                            });
                        } else {
                            model.sessions.retain(|(_, o), (_, p)| *p != port || *o != (from, from_port));
                        }
                    }
                }
            }
        }
    }
    let end = Duration::from_secs(60) / 1200;
    (0..1200).for_each(|_| drop(nat.0.advance(end)));
    for gauge in ["sessions", "mappings", "ports", "subscribers"] {
        assert_eq!(nat.0.counter(gauge), 0, "{gauge}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn behaves_like_the_model(
        independent in any::<bool>(),
        filtering in prop_oneof![Just("endpoint-independent"), Just("address-dependent"), Just("address-and-port-dependent")],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        check(independent, filtering, &steps);
    }
}
