//! State for the process that replaces this one.

use super::*;
use testkit::Damage;

fn restored(settings: &str, old: &mut Harness) -> Harness {
    let mut new = Harness::new::<Bridge>(settings);
    let (state, now) = (old.save(), old.now());
    new.restore(&state, now).unwrap();
    new
}

#[test]
fn a_bridge_continues_with_the_addresses_of_another() {
    let settings = format!("{PORTS}ageing_time = 30");
    let mut old = Harness::new::<Bridge>(&settings);
    old.jump_to(Duration::from_secs(50_000));
    for host in 1..10 {
        old.feed_input(usize::from(host % 3), &[frame(host, 0xff)]);
        old.advance(Duration::from_secs(1));
    }
    let mut new = restored(&settings, &mut old);
    for bridge in [&mut old, &mut new] {
        bridge.advance(Duration::from_millis(1));
    }
    for second in (0..48).step_by(4) {
        for bridge in [&mut old, &mut new] {
            // the whole table is searched at once
            bridge.jump_to(bridge.now() + Duration::from_secs(4));
        }
        let to = |host| [frame(20, host)];
        for host in 1..10 {
            let outputs = [&mut old, &mut new].map(|bridge| outputs(&bridge.feed_input(0, &to(host))));
            assert_eq!(outputs[0], outputs[1], "host {host} at {second} s");
        }
        assert_eq!(new.occupancy("mac_entries"), old.occupancy("mac_entries"));
    }
    assert_eq!((new.counter("aged_out"), new.counter("learned")), (9, 1));
}

#[test]
fn a_smaller_table_takes_what_fits() {
    let mut old = Harness::new::<Bridge>(PORTS);
    (1..100).for_each(|host| drop(old.feed_input(0, &[frame(host, 0xff)])));
    let mut new = restored(&format!("{PORTS}mac_entries = 16"), &mut old);
    new.advance(Duration::from_millis(2));
    assert_eq!(new.occupancy("mac_entries"), (16, 16));
}

proptest! {
    #[test]
    fn damaged_state_is_rejected_or_harmless(
        damage in Damage::any()
    ) {
        let mut old = Harness::new::<Bridge>(PORTS);
        (1..20u8).for_each(|host| drop(old.feed_input(usize::from(host % 3), &[frame(host, 0xff)])));
        let mut state = old.save();
        let end = damage.apply(&mut state);
        let mut new = Harness::new::<Bridge>(PORTS);
        let is_valid = new.restore(&state, Duration::from_secs(1)).is_ok();
        prop_assert!(end.is_none() || !is_valid);
        (1..20).for_each(|host| drop(new.feed_input(0, &[frame(30, host)])));
        new.advance(Duration::from_secs(1));
        prop_assert!(new.counter("mac_entries") <= 20);
    }
}
