use super::*;
use crate::trial::{Disturbance, Measurer, MeasurerError, TrialInput};
use proptest::prelude::*;
use traffic::Mix;

#[test]
fn bursts_and_buffers() {
    let mut device: Simulated = "capacity=3e6,buffer=900".parse().unwrap();
    // at 4 Mpps a quarter of the packets is queued: 3600 packets fill the buffer
    assert_eq!(device.offer(4e6, 3600.0 / 4e6).lost, 0);
    assert_eq!(device.offer(4e6, 3700.0 / 4e6).lost, 25);
    assert_eq!(device.offer(3e6, 60.0).lost, 0);
    assert_eq!(device.offer(4e6, 1.0).lost, 1_000_000 - 900);
}

#[test]
fn outputs_times_of_loss_and_latencies() {
    let mut device: Simulated = "capacity=1e6,buffer=1000,reset=0.25,change=1e-4,jitter=500".parse().unwrap();
    let input = TrialInput {
        loss_bins: 10,
        disturbance: Some(Disturbance::Reset { at_s: 0.5 }),
        tagged_at_s: Some(0.1),
        ..TrialInput::constant(5e5, 1.0)
    };
    let output = device.trial(&input).unwrap();
    let losses = output.losses.unwrap();
    assert_eq!(output.trial.lost, 125_000);
    assert_eq!(losses.bins.iter().map(|bin| bin.0).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 50_000, 50_000, 25_000, 0, 0]);
    assert!(losses.bins.iter().all(|bin| bin.1 == 50_000));
    assert!((losses.first_s.unwrap() - 0.5).abs() < 1e-5 && (losses.last_s.unwrap() - 0.75).abs() < 1e-5);
    assert!(output.tagged_latency_ns.is_some_and(|ns| (10_000.0..30_000.0).contains(&ns)));
    assert_eq!(output.disturbance.map(|report| (report.done, report.to_s)), Some((1, 0.75)));
    // 100 µs per change at 5e5 packets/s: 50 packets are queued, none is lost, some are 100 µs late
    let input = TrialInput {
        disturbance: Some(Disturbance::Changes { per_second: 100.0 }),
        delay_variation: true,
        ..TrialInput::constant(5e5, 1.0)
    };
    let output = device.trial(&input).unwrap();
    assert_eq!((output.trial.lost, output.disturbance.map(|report| report.done)), (0, Some(100)));
    let delays = output.delays.unwrap();
    assert!(delays.max_ns() > Some(105_000) && delays.quantile_ns(0.5) < Some(13_000), "{:?}", delays.max_ns());
    assert!(output.delay_variation.is_some_and(|v| v.ipdv.count() == 499_999 && v.rfc3550_ns > 500.0));
    let plain = &mut Simulated::with_capacity(1e6);
    let rejected = Measurer::trial(
        plain,
        &TrialInput { disturbance: Some(Disturbance::Reset { at_s: 0.0 }), ..TrialInput::constant(5e5, 1.0) },
    );
    assert!(matches!(rejected, Err(MeasurerError::Unsupported { .. })));
    assert!(matches!(Measurer::trial(plain, &TrialInput::constant(0.1, 1.0)), Err(MeasurerError::Pace(_))));
    assert!(Measurer::trial(plain, &TrialInput::default()).is_err());
}

#[test]
fn probabilities_match_the_trials() {
    for text in [
        "capacity=5e6,noise=uniform:0.05",
        "capacity=5e6,noise=normal:0.02,buffer=5000",
        "capacity=5e6,noise=modes:0.1,flaw=0.1",
        "capacity=5e6,loss=1e-6,flaw=0.05",
        "capacity=5e6,generator=4.9e6,loss=2e-7",
    ] {
        let device: Simulated = text.parse().unwrap();
        for load in [1e6, 4.6e6, 4.95e6, 5.05e6, 5.2e6] {
            for allowed in [0.0, 0.01] {
                let mut drawn = device.clone();
                let bad = (0..4000).filter(|_| drawn.offer(load, 0.2).loss_ratio() > allowed).count() as f64 / 4000.0;
                let law = device.loss_probability(load, 0.2, allowed);
                assert!((bad - law).abs() < 0.04, "{text} at {load}, {allowed}: {bad} drawn, {law} expected");
            }
        }
    }
    let hard = Simulated::with_capacity(3.3e6);
    assert_eq!(hard.expected_throughput(crate::SearchKind::Mlr, &crate::Goal::ndr(), 0.5, 14.88e6), 3.3e6);
    assert_eq!(
        hard.expected_throughput(crate::SearchKind::Mlr, &crate::Goal::pdr(), 0.5, 14.88e6),
        (3.3e6_f64 / 0.995).floor()
    );
}

#[test]
fn parses_what_it_formats() {
    for text in [
        "capacity=3300000",
        "capacity=3300000,buffer=512,latency=20,jitter=1.5,loss=0.0000001,flaw=0.1,gap=0.2,unseen=1,recovery=0.5,\
         generator=9000000,reset=2,change=0.001,noise=normal:0.01,stall=0.05/10,seed=77",
        "capacity=1,noise=uniform:0.5",
        "capacity=0,noise=modes:0.5",
    ] {
        assert_eq!(text.parse::<Simulated>().map(|device| device.to_string()).as_deref(), Ok(text));
    }
    let bad = [
        "",
        "capacity",
        "capacity=",
        "capacity=-1",
        "capacity=nan",
        "capacity=1,loss=2",
        "capacity=1,speed=9",
        "buffer=5",
        "capacity=1,noise=0.1",
        "capacity=1,noise=pink:0.1",
        "capacity=1,stall=1/0.5",
        "capacity=1,seed=x",
    ];
    for text in bad {
        assert!(text.parse::<Simulated>().is_err(), "{text}");
    }
}

fn virtual_device(capacity: f64, queue: usize) -> PacketLevelDut {
    PacketLevelDut::new(capacity, queue, 5_000, &"64".parse::<Mix>().unwrap()).unwrap()
}

#[test]
fn one_packet_in_ten_million() {
    let mut device = virtual_device(20e6, 1024).with_fault(Fault::Drop { every: 10_000_000 });
    let input = TrialInput { loss_bins: 10, ..TrialInput::constant(10e6, 1.2) };
    let output = device.trial(&input).unwrap();
    let trial = &output.trial;
    assert_eq!((trial.intended, trial.lost, trial.duplicate, trial.reordered), (12_000_000, 1, 0, 0));
    let losses = output.losses.unwrap();
    // packet 9,999,999 counted from 0, due after 0.9999999 s, in the ninth of ten bins
    assert_eq!(losses.bins.iter().position(|bin| bin.0 != 0), Some(8));
    assert_eq!(losses.first_s, losses.last_s);
    assert!((losses.first_s.unwrap() - 0.999_999_9).abs() < 1e-9);
}

#[test]
fn a_stall_of_fifty_milliseconds() {
    let mut device = virtual_device(4e6, 1024).with_fault(Fault::Stall { at_s: 0.2, for_s: 0.05 });
    let output =
        device.trial(&TrialInput { loss_bins: 20, delay_variation: true, ..TrialInput::constant(1e6, 0.5) }).unwrap();
    // 50,000 packets arrive meanwhile; the queue holds 1024
    let lost = output.trial.lost;
    assert!(lost.abs_diff(50_000 - 1024) <= 8, "{lost}");
    let losses = output.losses.unwrap();
    assert_eq!(losses.bins.iter().map(|bin| bin.0).sum::<u64>(), lost);
    assert!((losses.last_s.unwrap() - 0.25).abs() < 2e-5, "{losses:?}");
    let delays = output.delays.unwrap();
    assert!((50_000_000..50_200_000).contains(&delays.max_ns().unwrap()), "{:?}", delays.max_ns());
    assert!(output.delay_variation.unwrap().ipdv.max_ns() > Some(40_000_000));
}

#[test]
fn distinguishes_reordering_duplicates_and_corruption() {
    let faults = [Fault::Duplicate { every: 1000 }, Fault::Reorder { every: 777 }, Fault::Corrupt { every: 10_001 }];
    let mut device = faults.into_iter().fold(virtual_device(4e6, 1024), PacketLevelDut::with_fault);
    for _ in 0..2 {
        let trial = device.trial(&TrialInput::constant(1e6, 0.1)).unwrap().trial;
        assert_eq!(trial.check(), Ok(()));
        let expected = (100_000 / 1000, 100_000 / 777, 100_000 / 10_001);
        assert_eq!((trial.duplicate, trial.reordered, trial.corrupt), expected);
        assert_eq!(trial.lost, trial.corrupt, "a corrupt packet is lost");
    }
}

#[test]
fn packet_level_and_fluid_queues_agree() {
    for (load, queue) in [(2e6, 500), (1.2e6, 2000), (0.9e6, 10)] {
        let by_packets = virtual_device(1e6, queue).trial(&TrialInput::constant(load, 0.05)).unwrap().trial;
        let fluid = Simulated { buffer: queue as u64, ..Simulated::with_capacity(1e6) }.offer(load, 0.05);
        assert!(by_packets.lost.abs_diff(fluid.lost) <= 4, "{} {}", by_packets.lost, fluid.lost);
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_rejected(text in "(capacity=[0-9e.]{1,5})?(,(loss|noise|stall|seed|gap|x)=[-0-9.e:/unif]{0,8}){0,4}") {
        if let Ok(mut device) = text.parse::<Simulated>() {
            prop_assert_eq!(device.to_string(), device.to_string().parse::<Simulated>().unwrap().to_string());
            prop_assert!(device.offer(1e5, 0.1).check().is_ok());
        }
    }

    #[test]
    fn counts_add_up(
        capacity in 1e3..2e7_f64, load in 1e3..2e7_f64, buffer in 0_u64..10_000, bins in 0_usize..50, loss in 0.0..0.1_f64,
        stall in 0.0..0.01_f64, generator in 1e3..3e7_f64, seed: u64,
    ) {
        let mut device = Simulated {
            buffer, loss_ratio: loss, generator_pps: generator, stall: Some(Stall { for_s: stall, every_s: 0.02 }),
            ..Simulated::with_capacity(capacity).seeded(seed)
        };
        let input = TrialInput { loss_bins: bins, ..TrialInput::constant(load, 0.1) };
        let output = Measurer::trial(&mut device, &input).unwrap();
        prop_assert_eq!(output.trial.check(), Ok(()));
        if let Some(losses) = output.losses {
            let (lost, due) = losses.bins.iter().fold((0, 0), |(l, d), bin| (l + bin.0, d + bin.1));
            prop_assert!(lost <= output.trial.lost && output.trial.lost - lost <= bins as u64 + 2, "{} {}", lost, output.trial.lost);
            prop_assert!(due.abs_diff(output.trial.sent) <= 1);
            prop_assert!(losses.bins.iter().all(|(lost, due)| lost <= due));
        }
    }
}
