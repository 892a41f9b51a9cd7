//! Reloads: connections, compared with a map, and states of backends.

use super::model::{Client, clients};
use super::*;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tables::maglev::{Member, Ring};
use testkit::proptest::prelude::*;
use wire::build;

/// Bits of the backends b1 to b6.
pub(super) const ALL: u8 = 0b11_1111;

/// Returns the settings of a service with some backends, of which some are drained.
pub(super) fn settings(forward: &str, backends: u8, drained: u8) -> String {
    let backend = |n: u8| format!("b{n} = {{ address = \"10.0.0.{n}\", drain = {} }}", drained >> (n - 1) & 1 != 0);
    let backends: Vec<_> = (1..=6).filter(|n| backends >> (n - 1) & 1 != 0).map(backend).collect();
    let backends = format!("backend = {{ {} }}", backends.join(", "));
    let others = service(forward, false);
    let (before, _) = others.split_once("backend.").unwrap();
    format!("{before}{backends}").replace("connections = 100", "connections = 1000")
}

/// Reference implementation: a map of connections to backends.
pub(super) struct Model {
    pub(super) backends: Vec<u8>,
    /// Backends of connections, `None` if the backend has been removed.
    pub(super) connections: HashMap<Client, Option<u8>>,
    pub(super) moved: u64,
    pub(super) removed: u64,
}

impl Model {
    /// Sends packets of these clients, which the balancer forwards to the backends of the model.
    pub(super) fn agrees(&mut self, bench: &mut Harness, gre: bool, clients: Vec<Client>) -> Result<(), TestCaseError> {
        for mut client in clients {
            client.v6 &= gre;
            let received = contents(&bench.feed_one(&client.frame()).unwrap());
            prop_assert_eq!(received.dst, IpAddr::from([10, 0, 0, self.send(client)]), "{:?}", client);
        }
        Ok(())
    }

    pub(super) fn reload(&mut self, backends: u8) {
        self.backends = (1..=6).filter(|n| backends >> (n - 1) & 1 != 0).collect();
        self.connections.values_mut().for_each(|b| *b = b.filter(|b| self.backends.contains(b)));
    }

    fn send(&mut self, client: Client) -> u8 {
        let known = self.connections.get(&client).copied();
        if let Some(Some(backend)) = known {
            return backend;
        }
        let names: Vec<_> = self.backends.iter().map(|n| format!("b{n}")).collect();
        let members: Vec<_> = names.iter().map(|name| Member { name, weight: 1 }).collect();
        let chosen = self.backends[usize::from(Ring::build(251, &members).unwrap().get(client.hash()).unwrap())];
        self.moved += u64::from(known.is_some());
        self.connections.insert(client, Some(chosen));
        chosen
    }

    /// Removes connections to removed backends.
    pub(super) fn sweep(&mut self) {
        let before = self.connections.len();
        self.connections.retain(|_, backend| backend.is_some());
        self.removed += (before - self.connections.len()) as u64;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Packets(Vec<Client>),
    Reload(u8),
    /// Two seconds pass.
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => clients(20).prop_map(Step::Packets),
        3 => (1..=ALL).prop_map(Step::Reload),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn connections_agree_with_a_map_over_reloads(gre in any::<bool>(), steps in steps()) {
        let forward = if gre { "gre" } else { "nat" };
        let (mut bench, mut pool) = balancer(&settings(forward, ALL, 0));
        let mut model = Model { backends: vec![], connections: HashMap::new(), moved: 0, removed: 0 };
        model.reload(ALL);
        // counters of nodes before reloads
        let mut moved = 0;
        for step in steps {
            match step {
                Step::Packets(clients) => model.agrees(&mut bench, gre, clients)?,
                Step::Reload(backends) => {
                    moved += bench.counter("moved");
                    let (node, next) = node(&settings(forward, backends, 0), Some(&pool));
                    bench.reload(node);
                    pool = next;
                    model.reload(backends);
                }
                Step::Sweep => {
                    bench.advance(Duration::from_millis(2000));
                    model.sweep();
                }
            }
        }
        bench.advance(Duration::from_millis(2000));
        model.sweep();
        // the statistics are published once a second
        bench.advance(Duration::from_millis(1000));
        prop_assert_eq!(moved + bench.counter("moved"), model.moved);
        prop_assert_eq!(bench.counter("connections"), model.connections.len() as u64);
        prop_assert_eq!(bench.counter("expired"), model.removed);
    }
}

pub(super) fn states(pool: &PoolHandle) -> BTreeMap<String, BackendState> {
    let states = pool.0.current().states;
    pool.0.config.backends.iter().zip(states).map(|(backend, state)| (backend.name.clone(), state)).collect()
}

#[test]
fn states_of_backends_survive_a_reload_that_keeps_them() {
    use BackendState::{Down, Draining, Up};
    let checked = |backends, drained| {
        // a check that never ends
        let health = "health = { kind = \"tcp\", interval = 3600000 }\nforward";
        settings("gre", backends, drained).replace("forward", health).replace("10.0.0", "127.0.0")
    };
    let config = |text: &str| Arc::new(Config::new(&toml::from_str(text).unwrap()).unwrap());
    // without threads that check
    let pool =
        |text: &str, before: Option<&PoolHandle>| PoolHandle::new(config(text), before.map(|pool| &*pool.0)).unwrap();
    let first = pool(&checked(0b1111, 0b1000), None);
    first.0.set(2, Down);
    assert_eq!((first.0.drain(0, true), first.0.drain(3, false)), (Some(Draining), Some(Up)));
    let second = pool(&checked(0b11_1101, 0b1000), Some(&first));
    let names = |states: &[(&str, BackendState)]| states.iter().map(|(n, s)| (n.to_string(), *s)).collect();
    assert_eq!(states(&second), names(&[("b1", Draining), ("b3", Down), ("b4", Up), ("b5", Up), ("b6", Up)]));
    // a change of the setting applies; without health checks all backends are up
    let third = pool(&settings("gre", 0b1101, 0b0100).replace("10.0.0", "127.0.0"), Some(&second));
    assert_eq!(states(&third), names(&[("b1", Draining), ("b3", Draining), ("b4", Up)]));
    // a request does not leave a service without backends; another address is another backend
    assert_eq!(states(&pool(&checked(0b1, 0), Some(&first))), names(&[("b1", Up)]));
    assert_eq!(states(&pool(&settings("gre", 0b11, 0), Some(&first))), names(&[("b1", Up), ("b2", Up)]));
}

#[test]
fn fragments_continue_over_a_reload() {
    let (mut bench, pool) = balancer(&settings("gre", 0b11, 0));
    let fragment = |id, from, more| {
        let payload = [[0, 9, 0, 53, 0, 16, 1, 1]; 2].concat();
        build::ipv4([10, 1, 0, 7], VIP, IpProtocol::UDP).id(id).fragment(from, more).payload(&payload).to_vec()
    };
    let first = contents(&bench.feed_one(&fragment(1, 0, true)).unwrap()).dst;
    assert!(bench.feed(&[fragment(2, 16, false)]).is_empty());
    let (node, _pool) = node(&settings("gre", 0b1_0011, 0), Some(&pool));
    bench.reload(node);
    assert_eq!(contents(&bench.feed_one(&fragment(1, 16, false)).unwrap()).dst, first);
    assert_eq!((bench.held(), bench.feed(&[fragment(2, 0, true)]).len(), bench.held()), (1, 2, 0));
}
