use super::*;
use crate::simulated::{Simulated, Virtual};
use proptest::prelude::*;
use report::limit;

const TOP: f64 = 4e6;

fn settings(form: Form) -> Settings {
    let goal = match form {
        Form::Quick => Goal::quick(),
        Form::Standard => Goal::rfc2544(),
    };
    Settings { line_pps: Some(TOP), rate_pps: Some(3e6), ..Settings::new(form, goal, Limits::new(1e3, TOP).unwrap()) }
}

/// Methods that a simulated device can be asked: all but the last, whose streams have frames.
fn simulated() -> &'static [About] {
    match ALL {
        [all @ .., About { name: "profile", .. }] => all,
        _ => panic!("the profile comes last"),
    }
}

/// Carries it out; what was found, and how long trials and pauses took.
fn carry(name: &str, settings: &Settings, bed: &mut dyn Bed) -> (Findings, f64) {
    let (seconds, paused) = (std::cell::Cell::new(0.0), std::cell::Cell::new(0.0));
    let mut method = by_name(name, settings).unwrap();
    assert!(method.next() == method.next(), "says the same until told");
    let told = |seen: &Seen| {
        seconds.set(seconds.get() + seen.trial.duration_s);
        true
    };
    carry_out(&mut *method, bed, told, |pause| paused.set(paused.get() + pause)).unwrap();
    assert_eq!(method.next(), Step::Done);
    let findings = method.findings();
    fits(&findings);
    (findings, seconds.get() + paused.get())
}

fn found(name: &str, settings: &Settings, device: &str) -> Findings {
    carry(name, settings, &mut device.parse::<Simulated>().unwrap()).0
}

/// Whether a result document takes it.
fn fits(findings: &Findings) {
    assert!(findings.trials.len() <= limit::TRIALS && findings.series.len() <= limit::SERIES);
    assert!(findings.quantities.len() <= limit::QUANTITIES && findings.latency.len() <= limit::LATENCIES);
    assert!(findings.deviations.len() <= limit::DEVIATIONS);
    for quantity in &findings.quantities {
        assert!(
            quantity.value >= 0.0 && quantity.value.is_finite() && quantity.name.len() <= limit::NAME,
            "{quantity:?}"
        );
        assert!(quantity.spread.is_none_or(|spread| spread.min >= 0.0 && spread.sigma.is_finite()), "{quantity:?}");
    }
    for series in &findings.series {
        assert!(
            series.points.len() <= limit::POINTS && series.points.is_sorted_by(|a, b| a[0] <= b[0]),
            "{}",
            series.name
        );
        assert!(series.points.iter().flatten().all(|v| v.is_finite() && *v >= 0.0), "{}", series.name);
    }
    let mut names: Vec<_> = findings.quantities.iter().map(|quantity| &quantity.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), findings.quantities.len());
}

fn value(findings: &Findings, name: &str) -> f64 {
    let quantity = findings.quantities.iter().find(|quantity| quantity.name == name);
    quantity.unwrap_or_else(|| panic!("no {name} in {:?}", findings.quantities)).value
}

#[track_caller]
fn says(findings: &Findings, words: &str) {
    assert!(findings.deviations.iter().any(|says| says.contains(words)), "no `{words}` in {:#?}", findings.deviations);
}

#[track_caller]
fn near(is: f64, should: f64, share: f64) {
    assert!((is - should).abs() <= share * should.abs(), "{is} instead of {should}");
}

#[test]
fn throughput() {
    let quick = found("throughput", &settings(Form::Quick), "capacity=3e6,buffer=100,jitter=1000");
    assert!((2.94e6..3.003e6).contains(&quick.summary.lower_pps) && quick.summary.upper_pps > Some(3e6), "{quick:?}");
    assert_eq!(quick.latency.len(), 1);
    near(quick.latency[0].share_of_throughput.unwrap(), 0.8, 1e-3);
    near(quick.latency[0].p50_ns, 10_000.0 + 1e3 * 0.7f64, 0.2);
    assert_eq!((quick.method.standard.as_deref(), quick.method.quick), (Some("RFC 9971"), true));
    says(&quick, "trials of 50 ms where RFC 2544 §24 asks for 60 s");
    says(&quick, "50 % of the trial time may have more loss where RFC 2544 §26.1 has none");
    says(&quick, "pauses of 7 ms between trials where RFC 2544 §23 asks for 7 s");
    says(&quick, "80 % of the throughput where the standard form has 0, 10, 50, 80 and 90 %");
    let full = found("throughput", &settings(Form::Standard), "capacity=3e6,buffer=100");
    assert_eq!(full.method.standard.as_deref(), Some("RFC 2544 §26.1, RFC 9971"));
    assert!(full.deviations.is_empty(), "{:?}", full.deviations);
    let loads: Vec<_> =
        full.latency.iter().map(|latency| (latency.load_pps / full.summary.lower_pps * 10.0).round()).collect();
    assert_eq!((loads, full.latency[0].load_pps), (vec![0.0, 1.0, 5.0, 8.0, 9.0], 1000.0));
    assert!(full.trials.iter().rev().take(5).all(|trial| trial.duration_s == 60.0));
    let verified = Settings { search: "verified,r=3,z=5000,step=10000".parse().unwrap(), ..settings(Form::Standard) };
    let verified = found("throughput", &verified, "capacity=3.333e6");
    assert_eq!((verified.summary.lower_pps, verified.summary.upper_pps), (3.33e6, Some(3.34e6)));
    assert_eq!(verified.method.standard.as_deref(), Some("ETSI GS NFV-TST 009 §12.3.3"));
    says(&verified, "66.67 % of the trial time may have more loss");
    let none = found("throughput", &settings(Form::Quick), "capacity=0");
    assert_eq!((none.summary.lower_pps, none.latency.len()), (0.0, 0));
    says(&none, "not even the lowest load holds");
}

#[test]
fn a_starved_generator_is_said_to_be_the_limit() {
    for about in simulated() {
        let findings = found(about.name, &settings(Form::Quick), "capacity=2e7,generator=2e6,reset=0.1,change=1e-5");
        assert_eq!(findings.limited_by, LimitedBy::Generator, "{}", about.name);
        assert!(findings.deviations.iter().any(|says| says.contains("the generator")), "{}", about.name);
        let lost: u64 = findings.trials.iter().map(|trial| trial.lost).sum();
        assert!(lost == 0 || matches!(about.name, "reset" | "changes"), "{}", about.name);
    }
    let curve = found("loss", &settings(Form::Quick), "capacity=2e7,generator=2e6");
    assert_eq!(value(&curve, "loss at the highest load"), 0.0);
    says(&curve, "the generator left packets unsent at 2 loads");
}

#[test]
fn latency_at_the_throughput() {
    let quick = found("latency", &settings(Form::Quick), "capacity=3e6");
    let mean = quick.quantities.iter().find(|quantity| quantity.name == "latency").unwrap();
    assert_eq!((mean.value, mean.unit.as_str()), (10_000.0, "ns"));
    assert_eq!(mean.spread.map(|spread| (spread.samples, spread.sigma)), Some((5, 0.0)));
    says(&quick, "5 trials of 500 ms with the tagged packet at 250 ms where RFC 2544 §26.2 asks for 20 of 120 s");
    let full = found("latency", &settings(Form::Standard), "capacity=3e6,jitter=2000,seed=9");
    let mean = full.quantities.iter().find(|quantity| quantity.name == "latency").unwrap();
    assert!(mean.spread.is_some_and(|spread| spread.samples == 20 && spread.sigma > 300.0));
    near(mean.value, 12_000.0, 0.15);
    near(full.latency[0].p99_ns, 10_000.0 + 2000.0 * 100f64.ln(), 0.03);
    assert_eq!(full.trials.iter().filter(|trial| trial.duration_s == 120.0).count(), 20);
    let lossy = Settings { throughput_pps: Some(2e6), ..settings(Form::Standard) };
    let lossy = found("latency", &lossy, "capacity=3e6,loss=0.3");
    assert!(value(&lossy, "tagged packets lost") >= 1.0);
    says(&lossy, "did not come back");
    says(&lossy, "the throughput of 2000000 packets/s is that of an earlier");
}

#[test]
fn loss_over_load() {
    let curve = found("loss", &settings(Form::Standard), "capacity=3e6");
    let loads: Vec<_> = curve.trials.iter().map(|trial| trial.load_pps / TOP * 10.0).collect();
    assert_eq!(loads, [10.0, 9.0, 8.0, 7.0, 6.0], "two loads without loss end it");
    near(value(&curve, "loss at the highest load"), 0.25, 1e-6);
    near(value(&curve, "highest load without loss"), 2.8e6, 1e-9);
    assert_eq!((curve.series[0].points.len(), curve.limited_by), (5, LimitedBy::Device));
    near(curve.series[0].points[2][1], 1.0 - 3.0 / 3.2, 1e-6);
    assert!(curve.deviations.is_empty(), "{:?}", curve.deviations);
    let one = found("loss", &settings(Form::Quick), "capacity=9e6");
    assert_eq!((one.trials.len(), one.limited_by), (2, LimitedBy::MaxLoad));
    let all = found("loss", &Settings { line_pps: None, ..settings(Form::Quick) }, "capacity=0");
    assert_eq!(all.trials.len(), 10);
    says(&all, "what the medium carries is not known");
    assert!(!all.quantities.iter().any(|quantity| quantity.name == "highest load without loss"));
}

#[test]
fn buffers_by_bursts() {
    for (form, capacity, buffer) in
        [(Form::Quick, 3e6, 900.0), (Form::Standard, 3e6, 4096.0), (Form::Quick, 1e6, 128.0)]
    {
        let device = format!("capacity={capacity},buffer={buffer}");
        let findings = found("back-to-back", &settings(form), &device);
        // A burst at 4 Mpps fills the buffer by what is not worked off meanwhile.
        let longest = buffer * TOP / (TOP - capacity);
        let step = if form == Form::Quick { 32.0 } else { 8.0 };
        let length = value(&findings, "burst length");
        assert!(length <= longest && length >= longest - step, "{device}: {length} of {longest}");
        near(value(&findings, "implied buffer time"), length / TOP, 1e-9);
        near(value(&findings, "corrected buffer"), buffer, 0.03 + step / longest);
        let spread = findings.quantities[0].spread.unwrap();
        assert_eq!((spread.samples, spread.sigma), (if form == Form::Quick { 5 } else { 50 }, 0.0));
    }
    let never = found("back-to-back", &settings(Form::Quick), "capacity=9e6,buffer=64");
    assert!(never.quantities.is_empty());
    says(&never, "RFC 9004 §4 has nothing to measure");
    // Where the generator cannot send at the full rate, the fastest bursts that it can send tell as much.
    let slow = found("back-to-back", &settings(Form::Quick), "capacity=2e6,buffer=900,generator=3.3e6");
    near(value(&slow, "corrected buffer"), 900.0, 0.04);
    near(value(&slow, "burst length"), 900.0 * 3.24 / 1.24, 0.04);
    assert_eq!(slow.limited_by, LimitedBy::Generator);
    says(
        &slow,
        "bursts at 3240000 packets/s, which is what the generator can send, where RFC 9004 §5 asks for 4000000",
    );
    // The search may end below the limit by its width, so a device may stand a long burst.
    let long = Settings { throughput_pps: Some(3.9e6), ..settings(Form::Quick) };
    says(&found("back-to-back", &long, "capacity=5e6"), "in 5 repetitions the longest burst tried");
}

#[test]
fn recovery_from_overload() {
    let findings = found("recovery", &settings(Form::Standard), "capacity=3e6,recovery=2.5");
    near(value(&findings, "recovery time"), 2.5, 1e-3);
    assert!(findings.deviations.is_empty(), "{:?}", findings.deviations);
    assert_eq!(findings.trials.iter().filter(|trial| trial.duration_s == 120.0).count(), 5);
    let quick = found("recovery", &settings(Form::Quick), "capacity=3e6,buffer=512");
    assert_eq!(value(&quick, "recovery time"), 0.0, "the loss ends with the overload");
    says(&quick, "3 overloads of 500 ms where RFC 2544 §26.5 asks for at least 60 s");
    says(&found("recovery", &settings(Form::Quick), "capacity=3e6,recovery=9"), "lost packets up to the end");
    says(&found("recovery", &settings(Form::Quick), "capacity=9e6"), "no overload to recover from");
    says(&found("recovery", &settings(Form::Quick), "capacity=3.9e6"), "overload is the highest load, 10");
    let roomy = Settings { throughput_pps: Some(2e6), ..settings(Form::Quick) };
    says(&found("recovery", &roomy, "capacity=3e6"), "3 overloads lost nothing");
}

#[test]
fn resets() {
    let findings = found("reset", &settings(Form::Quick), "capacity=3e6,reset=0.3");
    for name in ["reset time by frames lost", "reset time by time stamps"] {
        near(value(&findings, name), 0.3, 1e-3);
    }
    let long = found("reset", &settings(Form::Quick), "capacity=3e6,reset=30");
    says(&long, "3 trials ended before the device was back");
    let full = found("reset", &settings(Form::Standard), "capacity=3e6,reset=30");
    near(value(&full, "reset time by frames lost"), 30.0, 1e-3);
    let stray = found(
        "reset",
        &Settings { throughput_pps: Some(2e6), ..settings(Form::Quick) },
        "capacity=3e6,reset=0.3,loss=1e-4",
    );
    says(&stray, "3 trials lost packets before the reset");
    near(value(&stray, "reset time by frames lost"), 0.3, 1e-2);
    let mut cannot = by_name("reset", &Settings { throughput_pps: Some(1e6), ..settings(Form::Quick) }).unwrap();
    let stopped = carry_out(&mut *cannot, &mut Simulated::hard(3e6), |_| true, |_| ());
    assert!(matches!(stopped, Err(Stopped::Bed(BedError::Cannot { .. }))));
}

#[test]
fn variation_of_delay() {
    let findings = found("delay-variation", &settings(Form::Quick), "capacity=3e6,jitter=10000,latency=50000");
    // Exponential times: the median is ln 2 of the mean, p99 ln 100; so are their differences.
    for percent in [10, 50, 80, 90] {
        near(value(&findings, &format!("pdv p50 at {percent} %")), 1e4 * 2f64.ln(), 0.05);
        near(value(&findings, &format!("pdv p99 at {percent} %")), 1e4 * 100f64.ln(), 0.05);
        near(value(&findings, &format!("ipdv p50 at {percent} %")), 1e4 * 2f64.ln(), 0.05);
        near(value(&findings, &format!("jitter at {percent} %")), 1e4, 0.05);
        near(value(&findings, &format!("ipdv rising at {percent} %")), 0.5, 0.01);
    }
    assert_eq!(findings.latency.len(), 4);
    says(&findings, "1 trial of 500 ms at each load where RFC 8219 §7.3 asks for 20 of 60 s");
    let few = Settings { throughput_pps: Some(10_000.0), ..settings(Form::Quick) };
    let few = found("delay-variation", &few, "capacity=3e6,jitter=100");
    says(&few, "fewer than 10 packets beyond");
    assert!(!few.quantities.iter().any(|quantity| quantity.name.starts_with("pdv p99.9")));
    // 4500 packets at 90 %: 45 beyond the 99th percentile, 4 beyond the next; 5 beyond the 99th at 10 %.
    assert!(value(&few, "pdv p99 at 90 %") > 0.0);
    assert!(!few.quantities.iter().any(|quantity| quantity.name == "pdv p99 at 10 %"));
    let full = found("delay-variation", &settings(Form::Standard), "capacity=3e6,jitter=100");
    let quantity = full.quantities.iter().find(|quantity| quantity.name == "pdv p99.9 at 50 %").unwrap();
    assert_eq!(quantity.spread.map(|spread| spread.samples), Some(20));
}

#[test]
fn a_soak_finds_the_bad_second() {
    let given = Settings { throughput_pps: Some(3e6), ..settings(Form::Quick) };
    // Away for 0.4 s every 100 s, and that once in 60 s at most.
    let hour = Settings { soak_s: Some(600.0), soak_share: 0.5, ..given };
    let findings = found("soak", &hour, "capacity=3e6,stall=0.4/200,seed=2");
    assert_eq!((findings.trials.len(), findings.series[0].points.len()), (10, 600));
    assert!(value(&findings, "lost") > 0.0 && value(&findings, "worst second") <= 0.41);
    assert!(value(&findings, "worst second") >= 0.19, "{}", value(&findings, "worst second"));
    near(value(&findings, "soaked"), 600.0, 1e-9);
    assert!((60.0..600.0).contains(&value(&findings, "longest time without loss")));
    says(&findings, "600 s at 50 % of the throughput in 10 trials of 60 s");
    let clean = found("soak", &given, "capacity=3e6");
    assert_eq!((value(&clean, "lost"), value(&clean, "longest time without loss")), (0.0, 10.0));
    says(&clean, "10 s where the standard form has 2 h");
    let standard = Settings { throughput_pps: Some(3e6), ..settings(Form::Standard) };
    let two_hours = found("soak", &standard, "capacity=3e6,loss=1e-10");
    assert_eq!((two_hours.trials.len(), two_hours.series[0].points.len()), (120, 7200));
    let week = Settings { soak_s: Some(604_800.0), ..given };
    let week = found("soak", &week, "capacity=3e6");
    assert_eq!(week.trials.len(), 1000);
    says(&week, "the worst second is the worst 60.48 s");
}

#[test]
fn changes_cost_time() {
    let given = Settings { throughput_pps: Some(3e6), ..settings(Form::Quick) };
    let findings = found("changes", &given, "capacity=3e6,change=1e-3");
    near(value(&findings, "blocked time of a change at 1 a second"), 1e-3, 1e-2);
    near(value(&findings, "blocked time of a change at 100 a second"), 1e-3, 1e-2);
    // It makes a thousand a second at most, and then does nothing else.
    says(&findings, "changes a second were made where 10000 were asked for");
    near(value(&findings, "lost time in a trial at 10000 a second"), 1.0, 1e-2);
    assert_eq!(value(&findings, "lost time in a trial without changes"), 0.0);
    assert_eq!(findings.trials.len(), 18);
    // What is lost anyway is taken off.
    let lossy = found("changes", &given, "capacity=3e6,change=1e-4,loss=1e-3");
    near(value(&lossy, "blocked time of a change at 100 a second"), 1e-4, 0.05);
    let buffered = found("changes", &given, "capacity=3e6,change=1e-5,buffer=1000");
    assert_eq!(value(&buffered, "blocked time of a change at 100 a second"), 0.0);
    assert_eq!(findings.series[0].points.len(), 4);
}

#[test]
fn connections_are_packets() {
    let settings = Settings { packets_per_connection: 8.0, ..settings(Form::Quick) };
    let findings = found("connections", &settings, "capacity=3e6");
    near(value(&findings, "connections"), findings.summary.lower_pps / 8.0, 1e-12);
    assert!(value(&findings, "connections, upper bound") > 3e6 / 8.0);
    assert_eq!(findings.method.standard, None);
}

/// The device of docs/methods.md, and what it says of it.
#[test]
fn examples_of_the_book() {
    let device = "capacity=3e6,buffer=900";
    let by = |search: &str| {
        let settings = Settings { search: search.parse().unwrap(), ..settings(Form::Standard) };
        found("connections", &settings, device)
    };
    let (binary, mlr) = (by("binary"), by("mlr"));
    let kpps: Vec<_> = binary.trials.iter().map(|trial| (trial.load_pps / 1e3).round()).collect();
    assert_eq!(kpps, [4000.0, 2001.0, 3000.0, 2500.0, 2750.0, 2875.0, 2938.0, 2969.0, 2985.0, 2992.0]);
    assert!(binary.trials[2].lost > 0 && binary.trials[3..].iter().all(|trial| trial.lost == 0));
    let trials: Vec<_> =
        mlr.trials.iter().map(|trial| ((trial.load_pps / 1e3).round(), trial.duration_s.round())).collect();
    assert_eq!((trials[0], trials.iter().filter(|(_, seconds)| *seconds == 60.0).count()), ((4000.0, 1.0), 3));
}

#[test]
fn times_told_are_about_right() {
    let device = "capacity=3e6,buffer=900,reset=0.3,change=1e-4";
    let mut wrong: Vec<(&str, Form, f64)> = vec![];
    for about in simulated() {
        for (form, told) in [(Form::Quick, about.quick_s), (Form::Standard, about.standard_s)] {
            let (_, seconds) = carry(about.name, &settings(form), &mut device.parse::<Simulated>().unwrap());
            println!("{} {form:?}: {seconds:.1} s, told {told}", about.name);
            if seconds < told * 0.6 || seconds > told * 1.5 {
                wrong.push((about.name, form, seconds));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_simulated_device_refuses_a_profile() {
    let settings = settings(Form::Quick);
    let given = Settings { profile: Some(Outline { mean_pps: 1e3, seconds: 1 }), ..settings };
    let mut method = by_name("profile", &given).unwrap();
    let mut device: Simulated = "capacity=3e6".parse().unwrap();
    let stopped = carry_out(&mut *method, &mut device, |_| true, |_| ()).unwrap_err();
    assert!(matches!(stopped, Stopped::Bed(BedError::Cannot { .. })) && stopped.to_string().contains("--rate"));
    assert!(method.findings().streams.is_empty());
}

#[test]
fn what_the_machine_spoils_is_repeated() {
    let given = Settings { throughput_pps: Some(3e6), ..settings(Form::Quick) };
    for about in
        simulated().iter().filter(|about| !matches!(about.name, "soak" | "throughput" | "connections" | "back-to-back"))
    {
        let findings = found(about.name, &given, "capacity=5e6,gap=0.4,reset=0.1,change=1e-5,seed=3");
        assert!(findings.trials.iter().any(|trial| trial.machine), "{}", about.name);
        let plain = found(about.name, &given, "capacity=5e6,reset=0.1,change=1e-5");
        assert!(findings.trials.len() > plain.trials.len(), "{}", about.name);
    }
    let always = found("loss", &settings(Form::Quick), "capacity=5e6,gap=1");
    assert_eq!(always.trials.len(), 5 * 9 + 1, "at 10 % the ring of 1024 holds what comes in 2 ms");
    says(&always, "9 trials count though the machine was in the way, as it was each of 5 times");
}

/// The machine is in the way of four trials of five.
struct Spoilt(Simulated, u32);

impl Bed for Spoilt {
    fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError> {
        self.1 += 1;
        let mut seen = self.0.trial(ask)?;
        seen.trial.machine = !self.1.is_multiple_of(5);
        Ok(seen)
    }
}

#[test]
fn no_more_trials_than_a_result_holds() {
    let given = Settings { throughput_pps: Some(1e6), ..settings(Form::Standard) };
    let (findings, _) = carry("back-to-back", &given, &mut Spoilt("capacity=3.9e6,buffer=100000".parse().unwrap(), 0));
    assert_eq!(findings.trials.len(), limit::TRIALS);
    says(&findings, "it ended after 4096 trials");
}

#[test]
fn only_what_was_asked_for() {
    let mut method = by_name("loss", &settings(Form::Quick)).unwrap();
    let seen = |load, seconds| Seen { trial: Simulated::hard(1e6).offer(load, seconds), ..Seen::default() };
    assert!(matches!(method.tell(seen(TOP, 0.5)), Err(SearchError::Unasked(_))));
    assert_eq!(method.next(), Step::Pause(0.007));
    assert!(matches!(method.tell(seen(TOP, 0.5)), Err(SearchError::Unasked(_))));
    method.paused();
    assert_eq!(method.next(), Step::Trial(Ask::load(TOP, 0.5)));
    method.paused();
    assert!(matches!(method.tell(seen(TOP, 0.6)), Err(SearchError::Other { .. })));
    let mut bad = seen(TOP, 0.5);
    bad.trial.lost += 1;
    assert!(matches!(method.tell(bad), Err(SearchError::Trial(_))));
    assert!(method.tell(seen(TOP, 0.5)).is_ok());
    assert_eq!(method.findings().trials.len(), 1);
}

#[test]
fn packet_by_packet() {
    let mut device = Virtual::new(2e6, 256, 7_000, &"64".parse().unwrap()).unwrap();
    let settings = Settings { search: "binary".parse().unwrap(), ..settings(Form::Quick) };
    let (findings, _) = carry("throughput", &settings, &mut device);
    let (lower, upper) = (findings.summary.lower_pps, findings.summary.upper_pps.unwrap());
    // A queue of 256 holds what 50 ms at 5120 packets a second more than the limit bring.
    assert!(lower <= 2e6 + 5_200.0 && upper >= 2e6 + 5_000.0, "{lower} {upper}");
    assert!(
        findings.latency[0].p50_ns < 12_000.0 && findings.latency[0].p50_ns > 7_000.0,
        "{:?}",
        findings.latency[0].p50_ns
    );
    let known = Settings { throughput_pps: Some(2e6), ..settings };
    let (bursts, _) = carry("back-to-back", &known, &mut device);
    near(value(&bursts, "corrected buffer"), 256.0, 0.1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_method_ends(
        which in 0..simulated().len(), standard: bool, kind in 0..3_usize, capacity in 0.0..5e6_f64, buffer in 0_u64..20_000,
        loss in prop::option::of(0.0..0.5_f64), gap in 0.0..0.5_f64, noise in 0.0..0.5_f64, generator in 1e3..1e7_f64,
        line in prop::option::of(1e3..1e7_f64), given in prop::option::of(1.0..6e6_f64), seed: u64,
    ) {
        let form = if standard { Form::Standard } else { Form::Quick };
        let search = ["mlr", "binary", "verified,r=2,z=100"][kind].parse().unwrap();
        let settings = Settings { line_pps: line, throughput_pps: given, search, ..settings(form) };
        let mut device = Simulated {
            buffer, loss_ratio: loss.unwrap_or(0.0), gap_share: gap, generator_pps: generator, reset_s: Some(0.1),
            noise: crate::simulated::Noise::Normal(noise), change_s: Some(1e-4),
            ..Simulated::hard(capacity).seeded(seed)
        };
        let (findings, _) = carry(simulated()[which].name, &settings, &mut device);
        prop_assert!(findings.trials.len() <= limit::TRIALS);
    }

    #[test]
    fn findings_at_any_time(
        which in 0..simulated().len(), standard: bool, told in 0_usize..60, capacity in 0.0..5e6_f64, gap in 0.0..=1.0_f64,
        loss in prop::option::of(0.0..0.1_f64), generator in 1e4..1e7_f64, seed: u64,
    ) {
        let form = if standard { Form::Standard } else { Form::Quick };
        let settings = settings(form);
        let mut device = Simulated {
            gap_share: gap, loss_ratio: loss.unwrap_or(0.0), generator_pps: generator, reset_s: Some(0.1),
            change_s: Some(1e-5), ..Simulated::hard(capacity).seeded(seed)
        };
        let mut method = by_name(simulated()[which].name, &settings).unwrap();
        let mut left = told;
        let stopped = carry_out(&mut *method, &mut device, |_| { left = left.saturating_sub(1); left > 0 }, |_| ());
        prop_assert!(matches!(stopped, Ok(()) | Err(Stopped::Bed(BedError::Interrupted))), "{:?}", stopped);
        let findings = method.findings();
        fits(&findings);
        prop_assert!(findings.trials.len() <= told);
    }
}
