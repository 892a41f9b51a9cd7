use super::*;
use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Harness, packets};

fn frame(host: u8, dscp: u8, len: usize) -> Vec<u8> {
    build::udp4([10, 0, 0, host], [10, 9, 0, 1], 1000, 53).dscp(dscp).ecn(1).pad_to(len).to_vec()
}

/// 8 Mbit/s: 1 byte per microsecond.
const CLASS: &str = "name = \"all\", cir = \"8 Mbps\", cbs = 2000";

#[test]
fn drops_packets_above_the_rate() {
    let mut nf = Harness::new::<Police>(&format!("classes = [{{ {CLASS} }}]"));
    let burst: Vec<_> = (0..4).map(|_| frame(1, 0, 1000)).collect();
    assert_eq!(nf.feed(&burst).len(), 2);
    assert_eq!(nf.dropped("policed"), 2);
    nf.jump_to(Duration::from_micros(999));
    assert_eq!(nf.feed(&burst).len(), 0);
    nf.jump_to(Duration::from_micros(1000));
    assert_eq!(nf.feed(&burst).len(), 1);
    assert_eq!((nf.counter("all_green"), nf.counter("all_red")), (3, 9));
}

#[test]
fn counts_the_overhead_of_the_link() {
    let mut nf = Harness::new::<Police>(&format!("overhead = 24\nclasses = [{{ {CLASS} }}]"));
    assert_eq!(nf.feed(&[frame(1, 0, 1000), frame(1, 0, 976)]).len(), 1);
    let mut nf = Harness::new::<Police>(&format!("overhead = 24\nclasses = [{{ {CLASS} }}]"));
    assert_eq!(nf.feed(&[frame(1, 0, 976), frame(1, 0, 976), frame(1, 0, 60)]).len(), 2);
}

#[test]
fn marks_by_colour_and_keeps_ecn() {
    let mut nf = Harness::new::<Police>(
        "classes = [{ name = \"af\", match = [{ dscp = [\"af11\"] }], cir = \"8 Mbps\", cbs = 1000, ebs = 1000, \
         yellow = { dscp = \"af12\" }, red = { dscp = \"af13\" } }]",
    );
    let fed: Vec<_> = (0..3).map(|_| frame(1, 10, 1000)).chain([frame(1, 0, 1000)]).collect();
    assert_eq!(nf.feed(&fed), [frame(1, 10, 1000), frame(1, 12, 1000), frame(1, 14, 1000), frame(1, 0, 1000)]);
    assert_eq!((nf.counter("af_green"), nf.counter("af_yellow"), nf.counter("af_red")), (1, 1, 1));
}

#[test]
fn meters_subscribers_one_by_one_and_forgets_idle_ones() {
    let mut nf =
        Harness::new::<Police>(&format!("subscribers = 2\nclasses = [{{ {CLASS}, per = \"source\", prefix4 = 31 }}]"));
    // 10.0.0.2 and 10.0.0.3 are one subscriber
    assert_eq!(nf.feed(&[2, 3, 2].map(|host| frame(host, 0, 1000))).len(), 2);
    assert_eq!(nf.feed(&[4, 5, 4].map(|host| frame(host, 0, 1000))).len(), 2);
    assert_eq!(nf.dropped("policed"), 2);
    assert_eq!(nf.feed_one(&frame(6, 0, 1000)), Err("subscribers_full"));
    assert_eq!(nf.occupancy("subscribers").1, 2);
    nf.advance(Duration::from_secs(2));
    assert_eq!(nf.occupancy("subscribers").0, 0, "full buckets are removed");
    assert!(nf.feed_one(&frame(6, 0, 1000)).is_ok());
    let mut pass = Harness::new::<Police>(&format!(
        "subscribers = 1\nfull = \"pass\"\nclasses = [{{ {CLASS}, per = \"destination\" }}]"
    ));
    let other = build::udp4([10, 0, 0, 1], [10, 9, 0, 2], 1, 2).pad_to(1000).to_vec();
    assert_eq!(pass.feed(&vec![frame(1, 0, 1000); 9]).len(), 2);
    assert_eq!(pass.feed(&vec![other; 9]).len(), 9);
}

#[test]
fn rejects_invalid_settings() {
    for settings in [
        "classes = [{ name = \"a\" }]",
        "classes = [{ name = \"a\", cir = \"1 Mbps\" }]",
        "classes = [{ name = \"a\", cir = \"1 Mpps\", cbs = 1 }]",
        "classes = [{ name = \"a\", cir = \"1 Mbps\", cbs = 1, pir = \"1 Mbps\" }]",
        "classes = [{ name = \"a\", meter = \"rfc2698\", cir = \"2 Mbps\", pir = \"1 Mbps\", cbs = 1, pbs = 1 }]",
        "classes = [{ name = \"a\", cir = \"1 Mbps\", cbs = 1, prefix4 = 33 }]",
        "overhead = 65",
        "subscribers = 0\nclasses = [{ name = \"a\", cir = \"1 Mbps\", cbs = 1, per = \"source\" }]",
    ] {
        let error = Harness::try_new::<Police>(settings).expect_err(settings);
        assert!(error.key.is_some() && error.remedy.is_some(), "{settings}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn accounts_for_arbitrary_packets(frames in packets::mixed(100), times in proptest::collection::vec(0..5000_u64, 9)) {
        let mut nf = Harness::new::<Police>(
            "subscribers = 8\nclasses = [{ name = \"udp\", match = [{ protocol = \"udp\" }], cir = \"1 Mbps\", cbs = 500, \
             per = \"source\", red = { dscp = 1 } }, { name = \"all\", meter = \"rfc4115\", cir = \"1 Mbps\", cbs = 500, \
             eir = \"1 Mbps\", ebs = 500, colour_aware = true }]",
        );
        for after in times {
            nf.feed(&frames);
            nf.jump_to(nf.now() + Duration::from_micros(after));
        }
    }
}
