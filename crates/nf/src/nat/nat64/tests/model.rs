//! Random traffic, compared with a model of plain sets of mappings and sessions.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From a port of a host to an outside address and port.
    Out(u8, u16, u8, u16),
    /// From outside to the external port of the mapping with this number.
    In(u8, u16, usize),
    /// From a port of an inside host to the external port with this number.
    Across(u8, u16, usize),
    /// Wait until everything has expired.
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let (host, port) = (0..4u8, 40_000..40_003u16);
    prop_oneof![
        8 => (host.clone(), port.clone(), 0..3u8, 53..55u16).prop_map(|(a, b, c, d)| Step::Out(a, b, c, d)),
        8 => (0..3u8, 53..55u16, any::<usize>()).prop_map(|(a, b, c)| Step::In(a, b, c)),
        2 => (host, port, any::<usize>()).prop_map(|(a, b, c)| Step::Across(a, b, c)),
        1 => Just(Step::Wait),
    ]
}

type Inside = (u8, u16);
type Outside = ([u8; 4], u16);

#[derive(Default)]
struct Model {
    mappings: BTreeMap<Inside, u16>,
    sessions: BTreeSet<(Inside, Outside)>,
}

impl Model {
    fn outbound(&mut self, inside: Inside, outside: Outside, port: u16) {
        if let Some(had) = self.mappings.get(&inside) {
            assert_eq!(*had, port, "one port for all sessions (RFC 6146 §3.5)");
        } else {
            assert!(self.mappings.values().all(|taken| *taken != port), "two mappings share a port");
            self.mappings.insert(inside, port);
        }
        self.sessions.insert((inside, outside));
    }

    /// Returns the inside endpoint that receives the packet, or the drop reason.
    fn inbound(&mut self, filtering: &str, outside: Outside, port: u16) -> Result<Inside, &'static str> {
        let inside = *self.mappings.iter().find(|(_, p)| **p == port).ok_or("no_session")?.0;
        let known = |one: &(Inside, Outside)| {
            one.0 == inside
                && match filtering {
                    "endpoint-independent" => true,
                    "address-dependent" => one.1.0 == outside.0,
                    _ => one.1 == outside,
                }
        };
        if !self.sessions.iter().any(known) {
            return Err("filtered");
        }
        self.sessions.insert((inside, outside));
        Ok(inside)
    }
}

fn host(n: u8) -> String {
    format!("2001:db8::{}", n + 1)
}

fn outside(n: u8) -> [u8; 4] {
    [198, 18, 0, n + 1]
}

fn check(filtering: &str, steps: &[Step]) {
    let mut nat = Nat::new(&format!("filtering = \"{filtering}\"\ntimers = {{ udp = 3 }}\nsessions = 500"));
    let mut model = Model::default();
    for step in steps {
        match *step {
            Step::Wait => {
                nat.advance_seconds(4);
                model = Model::default();
            }
            Step::Out(from, port, to, to_port) => {
                let out = nat.outbound(&udp6(&host(from), port, embedded(outside(to)), to_port)).expect("a free port");
                assert_eq!(out, endpoints(ipv4_text(EXTERNAL), out.src_port, ipv4_text(outside(to)), to_port));
                model.outbound((from, port), (outside(to), to_port), out.src_port);
            }
            Step::In(from, from_port, which) => {
                let all: Vec<u16> = model.mappings.values().copied().collect();
                // sometimes an unused port
                let port = all.get(which % (all.len() + 1)).copied().unwrap_or(30_000);
                let expected = model.inbound(filtering, (outside(from), from_port), port);
                let got = nat.inbound(&udp4(outside(from), from_port, EXTERNAL, port));
                let expected =
                    expected.map(|(to, to_port)| endpoints(embedded(outside(from)), from_port, host(to), to_port));
                assert_eq!(got, expected);
            }
            Step::Across(from, from_port, which) => {
                let all: Vec<u16> = model.mappings.values().copied().collect();
                let Some(&port) = all.get(which % all.len().max(1)) else { continue };
                let got = nat.outbound(&udp6(&host(from), from_port, embedded(EXTERNAL), port));
                // the outbound session is created in any case
                let mine = match (&got, model.mappings.get(&(from, from_port))) {
                    (Ok(t), _) => t.src_port,
                    (Err(_), Some(mine)) => *mine,
                    // the port of that session is not visible here
                    (Err(_), None) => {
                        nat.advance_seconds(4);
                        model = Model::default();
                        continue;
                    }
                };
                model.outbound((from, from_port), (EXTERNAL, port), mine);
                let expected = model.inbound(filtering, (EXTERNAL, mine), port);
                assert_eq!(got, expected.map(|(to, to_port)| endpoints(embedded(EXTERNAL), mine, host(to), to_port)));
            }
        }
        let hosts: BTreeSet<u8> = model.mappings.keys().map(|(host, _)| *host).collect();
        let counts = ["sessions", "mappings", "ports", "subscribers"].map(|name| nat.0.counter(name) as usize);
        assert_eq!(counts, [model.sessions.len(), model.mappings.len(), model.mappings.len(), hosts.len()]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn behaves_like_the_model(
        filtering in prop_oneof![Just("endpoint-independent"), Just("address-dependent"), Just("address-and-port-dependent")],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        check(filtering, &steps);
    }

    #[test]
    fn arbitrary_frames_are_accounted_for(frames in testkit::packets::mixed(60)) {
        let mut nat = Nat::new("prefix = \"2001:db8::/32\"\nexternal = [\"10.0.0.0/24\"]");
        nat.0.feed_input(0, &frames);
        nat.0.feed_input(1, &frames);
        nat.0.advance(Duration::from_secs(3));
    }
}
