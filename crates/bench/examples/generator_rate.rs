//! Rate and lateness of the packet generator alone: its cores send into a device that discards every packet.
//!
//! ```sh
//! cargo run --release -p bondstone-bench --example generator_rate -- CPUS PPS SECONDS
//! cargo run --release -p bondstone-bench --example generator_rate -- 0,1 29.76e6 5
//! ```
//!
//! A rate above that of the cores gives their highest rate: packets that could not be sent in time stay unsent.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use bench::dut::{CustomCommands, DutSpec, Env, ExpectedTraffic, Forward, Ports};
use bench::trial::Measurer;
use bench::{ExternalDut, PreparedTraffic, RunningDut, TrialInput};
use std::sync::Arc;
use traffic::{FlowSettings, Flows, FrameSize, Mix};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cpus, rate_pps, seconds] = &arguments[..] else { return Err("usage: generator_rate CPUS PPS SECONDS".into()) };
    let cpus = cpus.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let Some((first, further)) = cpus.split_first() else { return Err("no CPU".into()) };
    runtime::raise_priority();
    runtime::pin(*first)?;
    let spec = DutSpec {
        kind: "external".to_owned(),
        ports: Ports::Devices(vec!["null,no-rx=1".to_owned()]),
        cpus: vec![],
        env: Env::Native,
        forward: Forward::Any,
        chain: None,
        commands: CustomCommands::default(),
        interfaces: vec![],
        remote: None,
    };
    let expected =
        ExpectedTraffic { dst_mac: wire::build::DST_MAC, destinations: vec![], trace: None, longest_frame: 60 };
    let dut = ExternalDut::start("null", &spec, expected, Arc::default(), further)?;
    let _lcore = dut.ports().eal().register_thread()?;
    let flows = Flows::new(FlowSettings { count: 1024, ..FlowSettings::v4() })?;
    let traffic = PreparedTraffic::synthetic("64", &flows, &Mix::fixed(FrameSize::new(64)?))?;
    let mut dut = RunningDut::External(Box::new(dut));
    let output = dut.measurer(&traffic).trial(&TrialInput::constant(rate_pps.parse()?, seconds.parse()?))?;
    let trial = output.trial;
    let sent_pps = trial.sent as f64 / trial.duration_s;
    println!(
        "{} cores: sent {:.2} Mpps, {:.2} Mpps per core",
        cpus.len(),
        sent_pps / 1e6,
        sent_pps / 1e6 / cpus.len() as f64
    );
    println!(
        "unsent {:.4} %, off CPU {:?}",
        100.0 * trial.unsent as f64 / trial.intended as f64,
        trial.generator.off_cpu
    );
    if let Some(text) = &trial.lateness_hdr {
        let lateness = report::hdr::decode(text)?;
        let in_time = lateness.count_between(0, 1000) as f64 / lateness.len() as f64;
        println!("departures within 1 µs: {:.3} %", 100.0 * in_time);
    }
    Ok(())
}
