use super::*;
use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Harness, packets};

fn frame(port: u16, len: usize) -> Vec<u8> {
    build::udp4([10, 0, 0, 1], [10, 9, 0, 1], 1000, port).pad_to(len).to_vec()
}

/// Advances the time in steps and returns the bytes sent after each of them.
fn run(nf: &mut Harness, step: Duration, steps: usize) -> Vec<usize> {
    let step_once = |_| nf.jump_to(nf.now() + step)[0].iter().map(Vec::len).sum();
    (0..steps).map(step_once).collect()
}

#[test]
fn sends_at_the_rate_with_a_bounded_burst() {
    for (rate, bits, step_us) in
        [("10 Mbps", 10e6, 20), ("1 Gbps", 1e9, 20), ("1 Gbps", 1e9, 1000), ("7 Gbps", 7e9, 20)]
    {
        let settings = format!(
            "classes = [{{ name = \"all\", rate = \"{rate}\", burst = 3000, packets = 100000, bytes = 1000000000 }}]"
        );
        let mut nf = Harness::new::<Shape>(&settings);
        let (mut sent, step) = (vec![], Duration::from_micros(step_us));
        let per_step = bits / 8.0 * step.as_secs_f64();
        for _ in 0..200 {
            // twice the rate, at most as many as there are buffers
            let held = nf.held() as usize;
            let n = ((2.0 * per_step / 1000.0).ceil() as usize).min(4000 - held);
            let at_once: usize = nf.feed(&vec![frame(1, 1000); n]).iter().map(Vec::len).sum();
            sent.push(at_once + run(&mut nf, step, 1)[0]);
        }
        let all: usize = sent.iter().sum();
        let expected = per_step * 200.0;
        let error = (all as f64 - expected).abs();
        assert!(error <= expected / 100.0 + 4000.0, "{rate}: {all} bytes instead of {expected}");
        let most = sent.iter().max().copied().unwrap_or_default() as f64;
        assert!(most <= 2.0 * per_step + 3000.0 + 1000.0, "{rate}: {most} bytes in a step");
    }
}

#[test]
fn the_rate_does_not_depend_on_the_interval_of_timers() {
    let count = |step_us: u64| {
        let mut nf = Harness::new::<Shape>(
            "classes = [{ name = \"all\", rate = \"100 Mbps\", packets = 4000, bytes = 4000000 }]",
        );
        let first = nf.feed(&vec![frame(1, 1000); 2000]).len();
        let steps = 100_000 / step_us as usize;
        first * 1000 + run(&mut nf, Duration::from_micros(step_us), steps).iter().sum::<usize>()
    };
    // 100 ms at 100 Mbit/s are 1,250,000 bytes, and the first packet is sent at time 0
    assert_eq!([20, 50, 1000, 100_000].map(count), [1_251_000; 4]);
}

#[test]
fn drops_packets_when_the_queue_is_full_and_preserves_order() {
    let mut nf = Harness::new::<Shape>("classes = [{ name = \"all\", rate = \"8 Mbps\", packets = 5 }]");
    let frames: Vec<_> = (0..10).map(|port| frame(port, 100)).collect();
    assert_eq!(nf.feed(&frames), frames[..1]);
    assert_eq!((nf.held(), nf.dropped("queue_full")), (5, 4));
    assert_eq!(nf.advance(Duration::from_millis(1))[0], frames[1..6]);
    let mut nf = Harness::new::<Shape>("classes = [{ name = \"all\", rate = \"8 Mbps\", bytes = 2048 }]");
    nf.feed(&vec![frame(1, 1000); 4]);
    assert_eq!((nf.held(), nf.dropped("queue_full")), (2, 1));
}

#[test]
fn classes_are_shaped_separately_and_other_packets_pass() {
    let mut nf = Harness::new::<Shape>(
        "overhead = 24\nclasses = [{ name = \"a\", match = [{ dst_port = 1 }], rate = \"8 Mbps\" }, \
         { name = \"b\", match = [{ dst_port = 2 }], rate = \"8 Mbps\" }]",
    );
    let three = vec![frame(3, 976); 9];
    assert_eq!(nf.feed(&[vec![frame(1, 976); 3], vec![frame(2, 976); 2], three].concat()).len(), 11);
    assert_eq!(nf.jump_to(Duration::from_micros(999))[0].len(), 0);
    assert_eq!(nf.jump_to(Duration::from_micros(1020))[0].len(), 2);
    assert_eq!(nf.jump_to(Duration::from_micros(2020))[0].len(), 1);
    assert_eq!((nf.counter("a_delayed"), nf.counter("b_delayed")), (2, 1));
    let row = |class: &str, below: &str, packets: &str| {
        vec![class.to_owned(), below.to_owned(), packets.to_owned(), "#".repeat(30)]
    };
    assert_eq!(nf.table(), [row("a", "1024", "2"), row("b", "1024", "1")]);
}

#[test]
fn gaps_are_plotted_in_order() {
    let mut nf = Harness::new::<Shape>("classes = [{ name = \"a\", rate = \"8 Mbps\", burst = 3000 }]");
    nf.feed(&vec![frame(1, 1000); 4]);
    nf.feed(&vec![frame(1, 1000); 2]);
    nf.advance(Duration::from_millis(5));
    let rows = nf.table();
    let cells = |column: usize| rows.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
    assert_eq!((cells(1), cells(2)), (vec!["1".into(), "1024".into()], vec!["3".to_owned(), "2".into()]));
    assert_eq!(cells(3), ["#".repeat(30), "#".repeat(20)]);
}

#[test]
fn packets_leave_by_the_path_they_arrived_on() {
    let settings = "classes = [{ name = \"all\", rate = \"8 Mbps\" }]";
    let mut nf = testkit::HarnessBuilder::new::<Shape>(settings).paths(2).build().unwrap();
    let inputs: Vec<_> = (0..2).map(|input| nf.feed_input(input, &vec![frame(input as u16, 100); 2])).collect();
    assert_eq!(inputs[0][0].len(), 1);
    let later = nf.advance(Duration::from_millis(1));
    assert_eq!((later[0].len(), later[1].len()), (1, 2));
}

#[test]
fn a_reload_keeps_packets_of_classes_with_the_same_name() {
    use testkit::HarnessBuilder;
    let class = |name: &str, port, rate: &str, packets| {
        format!("{{ name = \"{name}\", match = [{{ dst_port = {port} }}], rate = \"{rate}\", packets = {packets} }}")
    };
    let of = |classes: [String; 2]| HarnessBuilder::new::<Shape>(&format!("classes = [{}]", classes.join(", ")));
    let first = of([class("a", 1, "8 Mbps", 100), class("b", 2, "8 Mbps", 100)]);
    let mut nf = first.clone().build().unwrap();
    nf.feed(&[vec![frame(1, 1000); 21], vec![frame(2, 1000); 11]].concat());
    assert_eq!(nf.held(), 30);
    // "a" has another rate and a smaller queue, "b" is gone
    of([class("c", 2, "8 Mbps", 100), class("a", 1, "80 Mbps", 10)]).reload(&first, &mut nf).unwrap();
    nf.feed(&[frame(1, 1000)]);
    assert_eq!((nf.held(), nf.dropped("queue_full")), (30, 1));
    assert_eq!(nf.feed(&[frame(2, 1000)]).len(), 1);
    let sent = nf.advance(Duration::from_millis(4)).remove(0);
    assert!(sent.len() == 20 && sent.iter().all(|sent| *sent == frame(1, 1000)), "{}", sent.len());
    assert_eq!((nf.held(), nf.dropped("reload")), (0, 10));
}

#[test]
fn rejects_invalid_settings() {
    for settings in [
        "classes = [{ name = \"a\" }]",
        "classes = [{ name = \"a\", rate = \"1 Mpps\" }]",
        "classes = [{ name = \"a\", rate = \"1 Mbps\", packets = 0 }]",
        "classes = [{ name = \"a\", rate = \"1 Mbps\", bytes = 100 }]",
        "overhead = 65",
    ] {
        let error = Harness::try_new::<Shape>(settings).expect_err(settings);
        assert!(error.key.is_some() && error.remedy.is_some(), "{settings}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn accounts_for_arbitrary_packets(frames in packets::mixed(60), times in proptest::collection::vec(0..2000_u64, 9)) {
        let mut nf = Harness::new::<Shape>(
            "classes = [{ name = \"udp\", match = [{ protocol = \"udp\" }], rate = \"1 Mbps\", burst = 500, packets = 20 }, \
             { name = \"all\", rate = \"50 Mbps\", bytes = 2048 }]",
        );
        for after in times {
            nf.feed(&frames);
            nf.jump_to(nf.now() + Duration::from_micros(after));
        }
        nf.advance(Duration::from_secs(1));
    }
}
