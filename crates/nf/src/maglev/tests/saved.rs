//! State for the process that replaces this one.

use super::model::{Client, clients};
use super::reload::{ALL, Model, settings, states};
use super::*;
use std::collections::HashMap;
use std::time::Duration;
use testkit::Damage;
use testkit::proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Packets(Vec<Client>),
    Upgrade(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![3 => clients(20).prop_map(Step::Packets), 1 => (1..=ALL).prop_map(Step::Upgrade)];
    prop::collection::vec(step, 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn connections_agree_with_a_map_over_upgrades(gre in any::<bool>(), steps in steps()) {
        let forward = if gre { "gre" } else { "nat" };
        let (mut bench, _pool) = balancer(&settings(forward, ALL, 0));
        bench.jump_to(Duration::from_secs(1_000_000));
        let mut model = Model { backends: vec![], connections: HashMap::new(), moved: 0, removed: 0 };
        model.reload(ALL);
        let mut pools = vec![];
        for step in steps {
            match step {
                Step::Packets(clients) => model.agrees(&mut bench, gre, clients)?,
                Step::Upgrade(backends) => {
                    let (mut new, pool) = balancer(&settings(forward, backends, 0));
                    new.restore(&bench.save(), bench.now()).unwrap();
                    bench = new;
                    model.reload(backends);
                    model.sweep();
                    pools.push(pool);
                }
            }
            bench.advance(Duration::from_millis(1));
            prop_assert_eq!(bench.counter("connections"), model.connections.len() as u64);
        }
        // all expire at their time
        bench.jump_to(bench.now() + Duration::from_secs(100_000));
        bench.advance(Duration::from_millis(2000));
        prop_assert_eq!(bench.counter("connections"), 0);
    }

    #[test]
    fn damaged_state_is_rejected_or_harmless(
        before in clients(20), after in clients(20), damage in Damage::any()
    ) {
        let text = settings("gre", ALL, 0);
        let ((mut old, _old_pool), (mut new, _pool)) = (balancer(&text), balancer(&text));
        before.iter().for_each(|client| drop(old.feed(&[client.frame()])));
        let mut state = old.save();
        let end = damage.apply(&mut state);
        let is_valid = new.restore(&state, Duration::from_secs(1)).is_ok();
        prop_assert!(end.is_none() || !is_valid);
        after.iter().for_each(|client| drop(new.feed(&[client.frame()])));
        new.advance(Duration::from_millis(2000));
        prop_assert!(new.counter("connections") <= (before.len() + after.len()) as u64);
    }
}

#[test]
fn states_of_backends_and_fragments_continue() {
    use BackendState::{Down, Draining, Up};
    let text = |backends| {
        settings("gre", backends, 0).replace("forward", "health = { kind = \"tcp\", interval = 3600000 }\nforward")
    };
    // without threads that check
    let unchecked = |text: &str| {
        let settings: Settings = toml::from_str(text).unwrap();
        let pool = Arc::new(PoolHandle::new(Arc::new(Config::new(&settings).unwrap()), None).unwrap());
        let node = Balancer::new(&settings, pool.clone(), Copies::default().attach(0)).unwrap();
        (Harness::from_node(node), pool)
    };
    let (mut old, pool) = unchecked(&text(0b1111));
    pool.0.set(1, Down);
    assert_eq!(pool.0.drain(2, true), Some(Draining));
    let fragment = |from, more| {
        let payload = [[0, 9, 0, 53, 0, 16, 1, 1]; 2].concat();
        wire::build::ipv4([10, 1, 0, 7], VIP, IpProtocol::UDP).id(1).fragment(from, more).payload(&payload).to_vec()
    };
    let first = contents(&old.feed_one(&fragment(0, true)).unwrap()).dst;
    let (mut new, pool) = unchecked(&text(0b1_1111));
    new.restore(&old.save(), old.now()).unwrap();
    let names = [("b1", Up), ("b2", Down), ("b3", Draining), ("b4", Up), ("b5", Up)];
    assert_eq!(states(&pool), names.map(|(name, state)| (name.to_owned(), state)).into());
    assert_eq!(contents(&new.feed_one(&fragment(16, false)).unwrap()).dst, first);
    for port in 1..200 {
        let frame = wire::build::udp4([10, 1, 0, 9], VIP, port, 53).to_vec();
        let to = contents(&new.feed_one(&frame).unwrap()).dst;
        assert!(![2, 3].map(|n| IpAddr::from([10, 0, 0, n])).contains(&to), "{to}");
    }
}
