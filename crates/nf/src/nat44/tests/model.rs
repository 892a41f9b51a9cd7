//! Random traffic, beside a list of sessions that knows no table and no port.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Seconds of the timer of UDP.
const TIMER: f64 = 10.0;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From a subscriber, by its port, to an outside address and port.
    Out(u8, u16, u8, u16),
    /// From outside, to the port that the mapping of this number had.
    In(u8, u16, usize),
    /// Seconds.
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

/// Whether something is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum There {
    Yes,
    No,
    /// It may have been looked at before it was too old.
    Perhaps,
}

type Inside = (u8, u16);
type Outside = (u8, u16);

/// Sessions, with when they were last used and the port they had.
#[derive(Default)]
struct Model {
    sessions: HashMap<(Inside, Outside), (f64, u16)>,
    now: f64,
    /// How long the last wait was.
    waited: f64,
}

impl Model {
    fn there(&self, used: f64) -> There {
        // the clock has units of a quarter of a second
        match self.now - used {
            idle if idle < TIMER - 0.3 => There::Yes,
            idle if idle > TIMER + self.waited + 0.6 => There::No,
            _ => There::Perhaps,
        }
    }

    /// Sessions of an inside end that were at a port.
    fn of(&self, inside: Inside) -> impl Iterator<Item = (Outside, There, u16)> {
        let all = self.sessions.iter().filter(move |((i, _), _)| *i == inside);
        all.map(|((_, outside), (used, port))| (*outside, self.there(*used), *port))
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
                let gone: Vec<_> =
                    model.sessions.iter().filter(|(_, (u, _))| model.there(*u) == There::No).map(|(k, _)| *k).collect();
                model.sessions.retain(|key, _| !gone.contains(key));
                let sure = model.sessions.values().filter(|(used, _)| model.there(*used) == There::Yes).count();
                let sessions = nat.0.counter("sessions") as usize;
                assert!((sure..=model.sessions.len()).contains(&sessions), "{sessions} sessions");
            }
            Step::Out(host, port, to, to_port) => {
                let (end, remote) = ((host, port), (to, to_port));
                let out = nat.out(&udp(inside(host), port, outside(to), to_port)).expect("there is room");
                assert_eq!((out.src, out.dst, out.dst_port), (OUR, outside(to), to_port));
                for (known, there, had) in model.of(end) {
                    let same = known == remote || independent_mapping;
                    assert!(there != There::Yes || !same || had == out.src_port, "the mapping has moved");
                }
                for ((other, elsewhere), (used, had)) in &model.sessions {
                    let clash = *had == out.src_port && *other != end && (independent_mapping || *elsewhere == remote);
                    assert!(!clash || model.there(*used) != There::Yes, "two have one port");
                }
                // what had this port before is gone
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
                let mut may = There::No;
                let mut to = vec![];
                for ((end, remote), (used, had)) in &model.sessions {
                    let exact = *remote == (from, from_port);
                    let admitted = match filtering {
                        _ if exact => true,
                        // a port without a mapping of its own answers only to its sessions
                        _ if !independent_mapping => false,
                        "endpoint-independent" => true,
                        "address-dependent" => remote.0 == from,
                        _ => false,
                    };
                    if *had == port && admitted {
                        let there = model.there(*used);
                        if there == There::Yes || may == There::No {
                            may = there;
                        }
                        to.push(*end);
                    }
                }
                match nat.inn(&udp(outside(from), from_port, OUR, port)) {
                    Ok(t) => {
                        assert_ne!(may, There::No, "nobody has asked for it");
                        let end = to.iter().find(|(host, port)| (inside(*host), *port) == (t.dst, t.dst_port));
                        let end = *end.expect("it goes to one who has asked");
                        model.sessions.insert((end, (from, from_port)), (model.now, port));
                    }
                    Err(why) => {
                        assert_ne!(may, There::Yes, "{why}");
                        // whoever was not let in is not there
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
    fn sessions_are_as_the_list_has_them(
        independent in any::<bool>(),
        filtering in prop_oneof![Just("endpoint-independent"), Just("address-dependent"), Just("address-and-port-dependent")],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        check(independent, filtering, &steps);
    }
}
