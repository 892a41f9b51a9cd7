//! State for the process that replaces this one.

use super::*;
use testkit::Damage;
use testkit::proptest::prelude::*;

fn restored(more: &str, old: &mut Harness) -> Harness {
    let mut new = router(more);
    let (state, now) = (old.save(), old.now());
    new.restore(&state, now).unwrap();
    new
}

fn to_host() -> Vec<Vec<u8>> {
    let to: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let from: Ipv6Addr = "2001:db8:2::9".parse().unwrap();
    let v4 = build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60);
    vec![v4.to_vec(), build::udp6(from, to, 1, 1).dst_mac(WAN).to_vec()]
}

#[test]
fn a_router_continues_with_the_neighbours_of_another() {
    let settings = format!("{DEFAULT}reachable_time = 10");
    let mut old = router(&settings);
    old.jump_to(Duration::from_secs(100));
    learn_host(&mut old);
    // packets that wait are not saved, nor is the neighbour that they wait for
    old.feed_input(FROM_LAN, &[lan4([10, 0, 0, 99]).to_vec()]);
    old.advance(Duration::from_secs(6));
    let mut new = restored(&settings, &mut old);
    for router in [&mut old, &mut new] {
        let out = router.feed_input(FROM_WAN, &to_host());
        assert_eq!(out[1].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(HOST, LAN); 2]);
        router.advance(Duration::from_millis(3500));
        // two of the settings, two learned
        assert_eq!(router.occupancy("neighbours").0, 4);
    }
    assert_eq!(new.counter("neighbour_requests"), 0);
    // both are probed by unicast at 110 s
    let probes = new.advance(Duration::from_secs(1));
    assert_eq!(probes[1].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(HOST, LAN); 2]);
    // which goes on in another process, and three unanswered probes remove them
    let mut third = restored(&settings, &mut new);
    for router in [&mut new, &mut third] {
        assert_eq!(router.feed_input(FROM_WAN, &to_host())[1].len(), 2);
        let before = router.counter("neighbour_requests");
        router.advance(Duration::from_secs(4));
        assert!(router.counter("neighbour_requests") - before <= 4);
        assert_eq!(router.occupancy("neighbours").0, 2);
    }
}

#[test]
fn neighbours_of_the_settings_and_the_maximum_apply() {
    let mut old = router(DEFAULT);
    learn_host(&mut old);
    let other = "02:00:00:00:01:77";
    let mut new = restored(&format!("neighbour = {{ \"10.0.0.5\" = \"{other}\" }}\nneighbours_max = 1"), &mut old);
    let out = new.feed_input(FROM_WAN, &to_host());
    assert_eq!(macs(&out[1][0]), (MacAddr([2, 0, 0, 0, 1, 0x77]), LAN));
    assert_eq!((out[1].len(), new.dropped("neighbour_table_full")), (1, 1));
}

#[test]
fn one_copy_saves_what_all_share() {
    let settings = format!("{TWO}{DEFAULT}");
    let copies = || HarnessBuilder::new::<L3fwd>(&settings).build_copies(2).unwrap();
    let (mut old, mut new) = (copies(), copies());
    learn_host(&mut old[1]);
    let states: Vec<_> = old.iter_mut().map(Harness::save).collect();
    assert!(!states[0].is_empty() && states[1].is_empty());
    for (new, state) in new.iter_mut().zip(&states) {
        new.restore(state, Duration::from_secs(1)).unwrap();
        assert_eq!(new.feed_input(FROM_WAN, &to_host()).len(), 3);
    }
    assert_eq!(new[1].feed_input(FROM_WAN, &to_host())[1].len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn damaged_state_is_rejected_or_harmless(
        damage in Damage::any()
    ) {
        let mut old = router(DEFAULT);
        learn_host(&mut old);
        let mut state = old.save();
        damage.apply(&mut state);
        let mut new = router(DEFAULT);
        let _ = new.restore(&state, Duration::from_secs(1));
        new.advance(Duration::from_secs(1));
        new.feed_input(FROM_WAN, &to_host());
        new.jump_to(Duration::from_secs(1000));
        new.advance(Duration::from_secs(4));
        prop_assert!(new.occupancy("neighbours").0 <= 4);
    }
}
