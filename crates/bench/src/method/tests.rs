use super::*;
use crate::simulated::{PacketLevelDut, Simulated};
use proptest::prelude::*;
use report::limit;

const TOP: f64 = 4e6;

fn settings(form: Thoroughness) -> MethodSettings {
    let goal = match form {
        Thoroughness::Quick => Goal::quick(),
        Thoroughness::Standard => Goal::rfc2544(),
    };
    MethodSettings {
        line_pps: Some(TOP),
        rate_pps: Some(3e6),
        ..MethodSettings::new(form, goal, Limits::new(1e3, TOP).unwrap())
    }
}

/// Methods that run on a simulated device: all but the last, which sends frames of a profile.
fn simulated() -> &'static [MethodInfo] {
    match METHODS {
        [
            all @ ..,
            MethodInfo { name: "address-table", .. },
            MethodInfo { name: "learning-rate", .. },
            MethodInfo { name: PROFILE, .. },
        ] => all,
        _ => panic!("the methods that a simulated device does not support come last"),
    }
}

/// Runs a method; returns its output, and the seconds of trials and pauses.
fn run_to_end(name: &str, settings: &MethodSettings, measurer: &mut dyn Measurer) -> (MethodOutput, f64) {
    let (seconds, paused) = (std::cell::Cell::new(0.0), std::cell::Cell::new(0.0));
    let mut method = start(name, settings).unwrap();
    assert!(method.next() == method.next(), "returns the same step until it is recorded");
    let on_step = |step: RunStep<'_>| {
        if let RunStep::Done(output) = step {
            seconds.set(seconds.get() + output.trial.duration_s);
        }
        true
    };
    run(&mut *method, measurer, on_step, |pause| paused.set(paused.get() + pause)).unwrap();
    assert_eq!(method.next(), Step::Done);
    let output = method.output();
    fits(&output);
    (output, seconds.get() + paused.get())
}

fn run_on(name: &str, settings: &MethodSettings, device: &str) -> MethodOutput {
    run_to_end(name, settings, &mut device.parse::<Simulated>().unwrap()).0
}

/// Asserts that the output fits into a result document.
fn fits(output: &MethodOutput) {
    assert!(output.trials.len() <= limit::TRIALS && output.series.len() <= limit::SERIES);
    assert!(output.quantities.len() <= limit::QUANTITIES && output.latency.len() <= limit::LATENCIES);
    assert!(output.deviations.len() <= limit::DEVIATIONS);
    for quantity in &output.quantities {
        assert!(
            quantity.value >= 0.0 && quantity.value.is_finite() && quantity.name.len() <= limit::NAME,
            "{quantity:?}"
        );
        assert!(quantity.spread.is_none_or(|spread| spread.min >= 0.0 && spread.stddev.is_finite()), "{quantity:?}");
    }
    for series in &output.series {
        assert!(
            series.points.len() <= limit::POINTS && series.points.is_sorted_by(|a, b| a[0] <= b[0]),
            "{}",
            series.name
        );
        assert!(series.points.iter().flatten().all(|v| v.is_finite() && *v >= 0.0), "{}", series.name);
    }
    let mut names: Vec<_> = output.quantities.iter().map(|quantity| &quantity.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), output.quantities.len());
}

fn value(output: &MethodOutput, name: &str) -> f64 {
    let quantity = output.quantities.iter().find(|quantity| quantity.name == name);
    quantity.unwrap_or_else(|| panic!("no {name} in {:?}", output.quantities)).value
}

#[track_caller]
fn assert_deviation(output: &MethodOutput, text: &str) {
    assert!(
        output.deviations.iter().any(|deviation| deviation.contains(text)),
        "no `{text}` in {:#?}",
        output.deviations
    );
}

#[track_caller]
fn near(is: f64, should: f64, share: f64) {
    assert!((is - should).abs() <= share * should.abs(), "{is} instead of {should}");
}

#[test]
fn throughput() {
    let quick = run_on("throughput", &settings(Thoroughness::Quick), "capacity=3e6,buffer=100,jitter=1000");
    assert!((2.94e6..3.003e6).contains(&quick.summary.lower_pps) && quick.summary.upper_pps > Some(3e6), "{quick:?}");
    assert_eq!(quick.latency.len(), 1);
    near(quick.latency[0].share_of_throughput.unwrap(), 0.8, 1e-3);
    near(quick.latency[0].p50_ns, 10_000.0 + 1e3 * 0.7f64, 0.2);
    assert_eq!((quick.method.standard.as_deref(), quick.method.quick), (Some("RFC 9971"), true));
    assert_deviation(&quick, "trials of 50 ms where RFC 2544 §24 requires 60 s");
    assert_deviation(&quick, "exceed ratio 50 % where RFC 2544 §26.1 requires 0");
    assert_deviation(&quick, "pauses of 7 ms between trials where RFC 2544 §23 requires 7 s");
    assert_deviation(&quick, "80 % of the throughput where the standard form measures at 0, 10, 50, 80 and 90 %");
    let full = run_on("throughput", &settings(Thoroughness::Standard), "capacity=3e6,buffer=100");
    assert_eq!(full.method.standard.as_deref(), Some("RFC 2544 §26.1, RFC 9971"));
    assert!(full.deviations.is_empty(), "{:?}", full.deviations);
    let loads: Vec<_> =
        full.latency.iter().map(|latency| (latency.load_pps / full.summary.lower_pps * 10.0).round()).collect();
    assert_eq!((loads, full.latency[0].load_pps), (vec![0.0, 1.0, 5.0, 8.0, 9.0], 1000.0));
    assert!(full.trials.iter().rev().take(5).all(|trial| trial.duration_s == 60.0));
    let verified = MethodSettings {
        search: "verified,r=3,z=5000,step=10000".parse().unwrap(),
        ..settings(Thoroughness::Standard)
    };
    let verified = run_on("throughput", &verified, "capacity=3.333e6");
    assert_eq!((verified.summary.lower_pps, verified.summary.upper_pps), (3.33e6, Some(3.34e6)));
    assert_eq!(verified.method.standard.as_deref(), Some("ETSI GS NFV-TST 009 §12.3.3"));
    assert_deviation(&verified, "exceed ratio 66.67 %");
    let none = run_on("throughput", &settings(Thoroughness::Quick), "capacity=0");
    assert_eq!((none.summary.lower_pps, none.latency.len()), (0.0, 0));
    assert_deviation(&none, "the lowest load fails the goal");
}

#[test]
fn reports_a_starved_generator_as_the_limit() {
    for about in simulated() {
        let output =
            run_on(about.name, &settings(Thoroughness::Quick), "capacity=2e7,generator=2e6,reset=0.1,change=1e-5");
        assert_eq!(output.limited_by, LimitedBy::Generator, "{}", about.name);
        assert!(output.deviations.iter().any(|deviation| deviation.contains("the generator")), "{}", about.name);
        let lost: u64 = output.trials.iter().map(|trial| trial.lost).sum();
        assert!(lost == 0 || matches!(about.name, "reset" | "changes"), "{}", about.name);
    }
    let curve = run_on("loss", &settings(Thoroughness::Quick), "capacity=2e7,generator=2e6");
    assert_eq!(value(&curve, "loss at the highest load"), 0.0);
    assert_deviation(&curve, "the generator left packets unsent at 2 loads");
}

#[test]
fn latency_at_the_throughput() {
    let quick = run_on("latency", &settings(Thoroughness::Quick), "capacity=3e6");
    let mean = quick.quantities.iter().find(|quantity| quantity.name == "latency").unwrap();
    assert_eq!((mean.value, mean.unit.as_str()), (10_000.0, "ns"));
    assert_eq!(mean.spread.map(|spread| (spread.samples, spread.stddev)), Some((5, 0.0)));
    assert_deviation(
        &quick,
        "5 trials of 500 ms with the tagged packet at 250 ms where RFC 2544 §26.2 requires 20 of 120 s",
    );
    let full = run_on("latency", &settings(Thoroughness::Standard), "capacity=3e6,jitter=2000,seed=9");
    let mean = full.quantities.iter().find(|quantity| quantity.name == "latency").unwrap();
    assert!(mean.spread.is_some_and(|spread| spread.samples == 20 && spread.stddev > 300.0));
    near(mean.value, 12_000.0, 0.15);
    near(full.latency[0].p99_ns, 10_000.0 + 2000.0 * 100f64.ln(), 0.03);
    near(value(&full, "typical latency"), 10_000.0 + 2000.0 * 2f64.ln(), 0.03);
    near(value(&full, "worst-case latency"), 10_000.0 + 2000.0 * 1000f64.ln(), 0.1);
    assert_eq!(full.trials.iter().filter(|trial| trial.duration_s == 120.0).count(), 20);
    let lossy = MethodSettings { throughput_pps: Some(2e6), ..settings(Thoroughness::Standard) };
    let lossy = run_on("latency", &lossy, "capacity=3e6,loss=0.3");
    assert!(value(&lossy, "tagged packets lost") >= 1.0);
    assert_deviation(&lossy, "tagged packets were lost");
    assert_deviation(&lossy, "the throughput of 2000000 packets/s is taken from an earlier");
}

#[test]
fn loss_over_load() {
    let curve = run_on("loss", &settings(Thoroughness::Standard), "capacity=3e6");
    let loads: Vec<_> = curve.trials.iter().map(|trial| trial.load_pps / TOP * 10.0).collect();
    assert_eq!(loads, [10.0, 9.0, 8.0, 7.0, 6.0], "two loads without loss end it");
    near(value(&curve, "loss at the highest load"), 0.25, 1e-6);
    near(value(&curve, "highest load without loss"), 2.8e6, 1e-9);
    assert_eq!((curve.series[0].points.len(), curve.limited_by), (5, LimitedBy::Device));
    near(curve.series[0].points[2][1], 1.0 - 3.0 / 3.2, 1e-6);
    assert!(curve.deviations.is_empty(), "{:?}", curve.deviations);
    let one = run_on("loss", &settings(Thoroughness::Quick), "capacity=9e6");
    assert_eq!((one.trials.len(), one.limited_by), (2, LimitedBy::MaxLoad));
    let all = run_on("loss", &MethodSettings { line_pps: None, ..settings(Thoroughness::Quick) }, "capacity=0");
    assert_eq!(all.trials.len(), 10);
    assert_deviation(&all, "the line rate is unknown");
    assert!(!all.quantities.iter().any(|quantity| quantity.name == "highest load without loss"));
}

#[test]
fn buffers_by_bursts() {
    for (form, capacity, buffer) in
        [(Thoroughness::Quick, 3e6, 900.0), (Thoroughness::Standard, 3e6, 4096.0), (Thoroughness::Quick, 1e6, 128.0)]
    {
        let device = format!("capacity={capacity},buffer={buffer}");
        let output = run_on("back-to-back", &settings(form), &device);
        // a burst at 4 Mpps fills the buffer with the packets that are not forwarded meanwhile
        let longest = buffer * TOP / (TOP - capacity);
        let step = if form == Thoroughness::Quick { 32.0 } else { 8.0 };
        let length = value(&output, "burst length");
        assert!(length <= longest && length >= longest - step, "{device}: {length} of {longest}");
        near(value(&output, "implied buffer time"), length / TOP, 1e-9);
        near(value(&output, "corrected buffer"), buffer, 0.03 + step / longest);
        let spread = output.quantities[0].spread.unwrap();
        assert_eq!((spread.samples, spread.stddev), (if form == Thoroughness::Quick { 5 } else { 50 }, 0.0));
    }
    let never = run_on("back-to-back", &settings(Thoroughness::Quick), "capacity=9e6,buffer=64");
    assert!(never.quantities.is_empty());
    assert_deviation(&never, "RFC 9004 §4 has nothing to measure");
    // bursts at the highest rate of the generator give the same result
    let slow = run_on("back-to-back", &settings(Thoroughness::Quick), "capacity=2e6,buffer=900,generator=3.3e6");
    near(value(&slow, "corrected buffer"), 900.0, 0.04);
    near(value(&slow, "burst length"), 900.0 * 3.24 / 1.24, 0.04);
    assert_eq!(slow.limited_by, LimitedBy::Generator);
    assert_deviation(
        &slow,
        "bursts at 3240000 packets/s, the highest rate the generator can send, where RFC 9004 §5 requires 4000000",
    );
    // the search may end below the limit by its width, so a device may forward a long burst
    let long = MethodSettings { throughput_pps: Some(3.9e6), ..settings(Thoroughness::Quick) };
    assert_deviation(&run_on("back-to-back", &long, "capacity=5e6"), "in 5 repetitions the longest burst");
}

#[test]
fn recovery_from_overload() {
    let output = run_on("recovery", &settings(Thoroughness::Standard), "capacity=3e6,recovery=2.5");
    near(value(&output, "recovery time"), 2.5, 1e-3);
    assert!(output.deviations.is_empty(), "{:?}", output.deviations);
    assert_eq!(output.trials.iter().filter(|trial| trial.duration_s == 120.0).count(), 5);
    let quick = run_on("recovery", &settings(Thoroughness::Quick), "capacity=3e6,buffer=512");
    assert_eq!(value(&quick, "recovery time"), 0.0, "the loss ends with the overload");
    assert_deviation(&quick, "3 overloads of 500 ms where RFC 2544 §26.5 requires at least 60 s");
    assert_deviation(
        &run_on("recovery", &settings(Thoroughness::Quick), "capacity=3e6,recovery=9"),
        "lost packets up to the end",
    );
    assert_deviation(&run_on("recovery", &settings(Thoroughness::Quick), "capacity=9e6"), "no overload is possible");
    assert_deviation(
        &run_on("recovery", &settings(Thoroughness::Quick), "capacity=3.9e6"),
        "the overload is the highest load, 10",
    );
    let roomy = MethodSettings { throughput_pps: Some(2e6), ..settings(Thoroughness::Quick) };
    assert_deviation(&run_on("recovery", &roomy, "capacity=3e6"), "3 overloads caused no loss");
}

#[test]
fn resets() {
    let output = run_on("reset", &settings(Thoroughness::Quick), "capacity=3e6,reset=0.3");
    for name in ["reset time by frames lost", "reset time by time stamps"] {
        near(value(&output, name), 0.3, 1e-3);
    }
    let long = run_on("reset", &settings(Thoroughness::Quick), "capacity=3e6,reset=30");
    assert_deviation(&long, "3 trials ended before the DUT forwarded again");
    let full = run_on("reset", &settings(Thoroughness::Standard), "capacity=3e6,reset=30");
    near(value(&full, "reset time by frames lost"), 30.0, 1e-3);
    let stray = run_on(
        "reset",
        &MethodSettings { throughput_pps: Some(2e6), ..settings(Thoroughness::Quick) },
        "capacity=3e6,reset=0.3,loss=1e-4",
    );
    assert_deviation(&stray, "3 trials lost packets before the reset");
    near(value(&stray, "reset time by frames lost"), 0.3, 1e-2);
    let mut cannot =
        start("reset", &MethodSettings { throughput_pps: Some(1e6), ..settings(Thoroughness::Quick) }).unwrap();
    let stopped = run(&mut *cannot, &mut Simulated::with_capacity(3e6), |_| true, |_| ());
    assert!(matches!(stopped, Err(MeasurementError::Measurer(MeasurerError::Unsupported { .. }))));
}

#[test]
fn variation_of_delay() {
    let output = run_on("delay-variation", &settings(Thoroughness::Quick), "capacity=3e6,jitter=10000,latency=50000");
    // Exponential times: the median is ln 2 of the mean, p99 ln 100; so are their differences.
    for percent in [10, 50, 80, 90] {
        near(value(&output, &format!("pdv p50 at {percent} %")), 1e4 * 2f64.ln(), 0.05);
        near(value(&output, &format!("pdv p99 at {percent} %")), 1e4 * 100f64.ln(), 0.05);
        near(value(&output, &format!("ipdv p50 at {percent} %")), 1e4 * 2f64.ln(), 0.05);
        near(value(&output, &format!("jitter at {percent} %")), 1e4, 0.05);
        near(value(&output, &format!("ipdv rising at {percent} %")), 0.5, 0.01);
    }
    assert_eq!(output.latency.len(), 4);
    assert_deviation(&output, "1 trial of 500 ms at each load where RFC 8219 §7.3 requires 20 of 60 s");
    let few = MethodSettings { throughput_pps: Some(10_000.0), ..settings(Thoroughness::Quick) };
    let few = run_on("delay-variation", &few, "capacity=3e6,jitter=100");
    assert_deviation(&few, "fewer than 10 packets beyond");
    assert!(!few.quantities.iter().any(|quantity| quantity.name.starts_with("pdv p99.9")));
    // 4500 packets at 90 %: 45 beyond the 99th percentile, 4 beyond the next; 5 beyond the 99th at 10 %.
    assert!(value(&few, "pdv p99 at 90 %") > 0.0);
    assert!(!few.quantities.iter().any(|quantity| quantity.name == "pdv p99 at 10 %"));
    let full = run_on("delay-variation", &settings(Thoroughness::Standard), "capacity=3e6,jitter=100");
    let quantity = full.quantities.iter().find(|quantity| quantity.name == "pdv p99.9 at 50 %").unwrap();
    assert_eq!(quantity.spread.map(|spread| spread.samples), Some(20));
}

#[test]
fn soak_finds_the_worst_second() {
    let given = MethodSettings { throughput_pps: Some(3e6), ..settings(Thoroughness::Quick) };
    // stalls for 0.4 s every 100 s, at most once in 60 s
    let hour = MethodSettings { soak_s: Some(600.0), soak_share: 0.5, ..given };
    let output = run_on("soak", &hour, "capacity=3e6,stall=0.4/200,seed=2");
    assert_eq!((output.trials.len(), output.series[0].points.len()), (10, 600));
    assert!(value(&output, "lost") > 0.0 && value(&output, "worst second") <= 0.41);
    assert!(value(&output, "worst second") >= 0.19, "{}", value(&output, "worst second"));
    near(value(&output, "duration"), 600.0, 1e-9);
    assert!((60.0..600.0).contains(&value(&output, "longest time without loss")));
    assert_deviation(&output, "600 s at 50 % of the throughput in 10 trials of 60 s");
    let clean = run_on("soak", &given, "capacity=3e6");
    assert_eq!((value(&clean, "lost"), value(&clean, "longest time without loss")), (0.0, 10.0));
    assert_deviation(&clean, "10 s where the standard form lasts 2 h");
    let standard = MethodSettings { throughput_pps: Some(3e6), ..settings(Thoroughness::Standard) };
    let two_hours = run_on("soak", &standard, "capacity=3e6,loss=1e-10");
    assert_eq!((two_hours.trials.len(), two_hours.series[0].points.len()), (120, 7200));
    let week = MethodSettings { soak_s: Some(604_800.0), ..given };
    let week = run_on("soak", &week, "capacity=3e6");
    assert_eq!(week.trials.len(), 1000);
    assert_deviation(&week, "\"worst second\" covers 60.48 s");
}

#[test]
fn measures_the_cost_of_changes() {
    let given = MethodSettings { throughput_pps: Some(3e6), ..settings(Thoroughness::Quick) };
    let output = run_on("changes", &given, "capacity=3e6,change=1e-3");
    near(value(&output, "blocked time of a change at 1 per second"), 1e-3, 1e-2);
    near(value(&output, "blocked time of a change at 100 per second"), 1e-3, 1e-2);
    // the device makes at most a thousand changes per second, and then forwards nothing
    assert_deviation(&output, "changes per second were made where 10000 were requested");
    near(value(&output, "lost time in a trial at 10000 per second"), 1.0, 1e-2);
    assert_eq!(value(&output, "lost time in a trial without changes"), 0.0);
    assert_eq!(output.trials.len(), 18);
    // loss without changes is subtracted
    let lossy = run_on("changes", &given, "capacity=3e6,change=1e-4,loss=1e-3");
    near(value(&lossy, "blocked time of a change at 100 per second"), 1e-4, 0.05);
    let buffered = run_on("changes", &given, "capacity=3e6,change=1e-5,buffer=1000");
    assert_eq!(value(&buffered, "blocked time of a change at 100 per second"), 0.0);
    assert_eq!(output.series[0].points.len(), 4);
}

#[test]
fn counts_connections() {
    let settings = MethodSettings { packets_per_connection: 8.0, ..settings(Thoroughness::Quick) };
    let output = run_on("connections", &settings, "capacity=3e6");
    near(value(&output, "connections"), output.summary.lower_pps / 8.0, 1e-12);
    assert!(value(&output, "connections, upper bound") > 3e6 / 8.0);
    assert_deviation(&output, "no endpoint waits for replies");
}

/// The simulated device of docs/reference/methods.md and its results there.
#[test]
fn reproduces_the_examples_of_the_documentation() {
    let device = "capacity=3e6,buffer=900";
    let by = |search: &str| {
        let settings = MethodSettings { search: search.parse().unwrap(), ..settings(Thoroughness::Standard) };
        run_on("connections", &settings, device)
    };
    let (binary, mlr) = (by("binary"), by("mlr"));
    let kpps: Vec<_> = binary.trials.iter().map(|trial| (trial.load_pps / 1e3).round()).collect();
    // the trial at the throughput follows
    assert_eq!(kpps[..10], [4000.0, 2001.0, 3000.0, 2500.0, 2750.0, 2875.0, 2938.0, 2969.0, 2985.0, 2992.0]);
    assert!(binary.trials[2].lost > 0 && binary.trials[3..].iter().all(|trial| trial.lost == 0));
    let trials: Vec<_> =
        mlr.trials.iter().map(|trial| ((trial.load_pps / 1e3).round(), trial.duration_s.round())).collect();
    assert_eq!((trials[0], trials.iter().filter(|(_, seconds)| *seconds == 60.0).count()), ((4000.0, 1.0), 1));
}

#[test]
fn durations_in_the_registry_are_about_right() {
    let device = "capacity=3e6,buffer=900,reset=0.3,change=1e-4";
    let mut wrong: Vec<(&str, Thoroughness, f64)> = vec![];
    // connections are not held by a simulated device
    for about in simulated().iter().filter(|about| about.name != "concurrent-connections") {
        for (form, expected_s) in [(Thoroughness::Quick, about.quick_s), (Thoroughness::Standard, about.standard_s)] {
            let (_, seconds) = run_to_end(about.name, &settings(form), &mut device.parse::<Simulated>().unwrap());
            println!("{} {form:?}: {seconds:.1} s, expected {expected_s}", about.name);
            if seconds < expected_s * 0.6 || seconds > expected_s * 1.5 {
                wrong.push((about.name, form, seconds));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_simulated_device_rejects_a_profile() {
    let settings = settings(Thoroughness::Quick);
    let given = MethodSettings { profile: Some(ProfileSummary { mean_pps: 1e3, seconds: 1 }), ..settings };
    let mut method = start("profile", &given).unwrap();
    let mut device: Simulated = "capacity=3e6".parse().unwrap();
    let stopped = run(&mut *method, &mut device, |_| true, |_| ()).unwrap_err();
    assert!(
        matches!(stopped, MeasurementError::Measurer(MeasurerError::Unsupported { .. }))
            && stopped.to_string().contains("--rate")
    );
    assert!(method.output().streams.is_empty());
}

#[test]
fn repeats_trials_with_host_interference() {
    let given = MethodSettings { throughput_pps: Some(3e6), ..settings(Thoroughness::Quick) };
    let many =
        |name: &str| !matches!(name, "soak" | "throughput" | "connections" | "concurrent-connections" | "back-to-back");
    for about in simulated().iter().filter(|about| many(about.name)) {
        let output = run_on(about.name, &given, "capacity=5e6,gap=0.4,reset=0.1,change=1e-5,seed=3");
        assert!(output.trials.iter().any(|trial| trial.host_interference), "{}", about.name);
        let plain = run_on(about.name, &given, "capacity=5e6,reset=0.1,change=1e-5");
        assert!(output.trials.len() > plain.trials.len(), "{}", about.name);
    }
    let always = run_on("loss", &settings(Thoroughness::Quick), "capacity=5e6,gap=1");
    assert_eq!(always.trials.len(), 5 * 9 + 1, "at 10 % the ring of 1024 absorbs a gap of 2 ms");
    assert_deviation(&always, "9 trials with host interference count: each of 5 attempts had it");
}

/// Adds host interference to four of five trials.
struct Interfered(Simulated, u32);

impl Measurer for Interfered {
    fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
        self.1 += 1;
        let mut output = self.0.trial(input)?;
        output.trial.host_interference = !self.1.is_multiple_of(5);
        Ok(output)
    }
}

#[test]
fn ends_at_the_trial_limit_of_a_result() {
    let given = MethodSettings { throughput_pps: Some(1e6), ..settings(Thoroughness::Standard) };
    let (output, _) =
        run_to_end("back-to-back", &given, &mut Interfered("capacity=3.9e6,buffer=100000".parse().unwrap(), 0));
    assert_eq!(output.trials.len(), limit::TRIALS);
    assert_deviation(&output, "the method ended after 4096 trials");
}

#[test]
fn rejects_other_trials() {
    let mut method = start("loss", &settings(Thoroughness::Quick)).unwrap();
    let output = |load, seconds| TrialOutput {
        trial: Simulated::with_capacity(1e6).offer(load, seconds),
        ..TrialOutput::default()
    };
    assert!(matches!(method.record(output(TOP, 0.5)), Err(SearchError::UnexpectedTrial(_))));
    assert_eq!(method.next(), Step::Pause(0.007));
    assert!(matches!(method.record(output(TOP, 0.5)), Err(SearchError::UnexpectedTrial(_))));
    method.paused();
    assert_eq!(method.next(), Step::Trial(TrialInput::constant(TOP, 0.5)));
    method.paused();
    assert!(matches!(method.record(output(TOP, 0.6)), Err(SearchError::DifferentTrial { .. })));
    let mut bad = output(TOP, 0.5);
    bad.trial.lost += 1;
    assert!(matches!(method.record(bad), Err(SearchError::Trial(_))));
    assert!(method.record(output(TOP, 0.5)).is_ok());
    assert_eq!(method.output().trials.len(), 1);
}

#[test]
fn packet_by_packet() {
    let mut device = PacketLevelDut::new(2e6, 256, 7_000, &"64".parse().unwrap()).unwrap();
    let settings = MethodSettings { search: "binary".parse().unwrap(), ..settings(Thoroughness::Quick) };
    let (output, _) = run_to_end("throughput", &settings, &mut device);
    let (lower, upper) = (output.summary.lower_pps, output.summary.upper_pps.unwrap());
    // a queue of 256 packets absorbs the excess of 5120 packets/s over 50 ms
    assert!(lower <= 2e6 + 5_200.0 && upper >= 2e6 + 5_000.0, "{lower} {upper}");
    assert!(
        output.latency[0].p50_ns < 12_000.0 && output.latency[0].p50_ns > 7_000.0,
        "{:?}",
        output.latency[0].p50_ns
    );
    let known = MethodSettings { throughput_pps: Some(2e6), ..settings };
    let (bursts, _) = run_to_end("back-to-back", &known, &mut device);
    near(value(&bursts, "corrected buffer"), 256.0, 0.1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_method_ends(
        which in 0..METHODS.len() - 1, standard: bool, kind in 0..3_usize, capacity in 0.0..5e6_f64, buffer in 0_u64..20_000,
        loss in prop::option::of(0.0..0.5_f64), gap in 0.0..0.5_f64, noise in 0.0..0.5_f64, generator in 1e3..1e7_f64,
        line in prop::option::of(1e3..1e7_f64), given in prop::option::of(1.0..6e6_f64), seed: u64,
    ) {
        let form = if standard { Thoroughness::Standard } else { Thoroughness::Quick };
        let search = ["mlr", "binary", "verified,r=2,z=100"][kind].parse().unwrap();
        let settings = MethodSettings { line_pps: line, throughput_pps: given, search, ..settings(form) };
        let mut device = Simulated {
            buffer, loss_ratio: loss.unwrap_or(0.0), gap_share: gap, generator_pps: generator, reset_s: Some(0.1),
            noise: crate::simulated::Noise::Normal(noise), change_s: Some(1e-4),
            ..Simulated::with_capacity(capacity).seeded(seed)
        };
        let (output, _) = run_to_end(METHODS[which].name, &settings, &mut device);
        prop_assert!(output.trials.len() <= limit::TRIALS);
    }

    #[test]
    fn has_an_output_at_any_time(
        which in 0..simulated().len(), standard: bool, trials_left in 0_usize..60, capacity in 0.0..5e6_f64, gap in 0.0..=1.0_f64,
        loss in prop::option::of(0.0..0.1_f64), generator in 1e4..1e7_f64, seed: u64,
    ) {
        let form = if standard { Thoroughness::Standard } else { Thoroughness::Quick };
        let settings = settings(form);
        let mut device = Simulated {
            gap_share: gap, loss_ratio: loss.unwrap_or(0.0), generator_pps: generator, reset_s: Some(0.1),
            change_s: Some(1e-5), ..Simulated::with_capacity(capacity).seeded(seed)
        };
        let mut method = start(simulated()[which].name, &settings).unwrap();
        let mut left = trials_left;
        let stopped = run(&mut *method, &mut device, |_| { left = left.saturating_sub(1); left > 0 }, |_| ());
        prop_assert!(matches!(stopped, Ok(()) | Err(MeasurementError::Measurer(MeasurerError::Interrupted))), "{:?}", stopped);
        let output = method.output();
        fits(&output);
        prop_assert!(output.trials.len() <= trials_left);
    }
}
