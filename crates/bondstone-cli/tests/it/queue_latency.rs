//! Latency of pings beside a TCP download through a line with FQ-CoDel: that of `schedule`, and that of the kernel (HTB and
//! `fq_codel` on a bridge), with the same hosts and interfaces.

use crate::common::gateway::{accounted, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::{Running, Scratch, alone, has_cpu_0_and_another};
use std::process::Command;

const TOOLS: [&str; 3] = ["ping", "iperf3", "taskset"];
const SERVER: &str = "10.7.0.2";
/// Interfaces in the namespace between the hosts, and addresses of the hosts.
const LINKS: [(&str, &str); 2] = [("lan0", "10.7.0.1/24"), ("wan0", "10.7.0.2/24")];

/// Returns the chain for a rate in Mbit/s.
fn chain(rate: u32) -> String {
    format!(
        r#"bondstone = 1
[port.near]
device = "af_packet:lan0"
[port.far]
device = "af_packet:wan0"
[nf.down]
kind = "schedule"
rate = "{rate} Mbps"
[[chain]]
cores = [0]
path = ["far", "down", "near"]
[[chain]]
cores = [0]
path = ["near", "far"]
"#
    )
}

/// Returns a command in a namespace that leaves CPU 0, on which the chain polls, to others.
fn beside(namespace: &Namespace, program: &str) -> Command {
    let cpus: Vec<_> = runtime::allowed_cpus().into_iter().filter(|cpu| *cpu != 0).map(|cpu| cpu.to_string()).collect();
    let mut command = namespace.command("taskset");
    command.args(["-c", &cpus.join(","), program]);
    command
}

/// Round-trip times of pings in milliseconds, sorted, and the rate of the download beside them in Mbit/s.
struct Latency {
    times: Vec<f64>,
    rate: f64,
}

impl Latency {
    /// Measures for some seconds.
    fn measure(home: &Namespace, remote: &Namespace, seconds: u32) -> Self {
        let _server = Running::start(beside(remote, "iperf3").args(["-s", "-1"]));
        remote.wait_for_listener(5201);
        let mut words = beside(home, "iperf3");
        words.args(["-c", SERVER, "-R", "-J", "-C", "cubic", "-t", &(seconds + 2).to_string()]);
        let client = Running::start(&mut words);
        // the window opens in the first second
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let pings =
            beside(home, "ping").args(["-n", "-i", "0.01", "-w", &seconds.to_string(), SERVER]).output().unwrap();
        let ended = client.end();
        assert_eq!(ended.status, Some(0), "{}{}", ended.out, ended.err);
        let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6;
        let text = String::from_utf8(pings.stdout).unwrap();
        let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
        let mut times: Vec<f64> = text.lines().filter_map(time).collect();
        assert!(times.len() > 20, "{text}");
        times.sort_by(f64::total_cmp);
        Latency { times, rate }
    }

    fn quantile(&self, share: f64) -> f64 {
        self.times[((self.times.len() - 1) as f64 * share) as usize]
    }

    fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len() as f64
    }

    fn print(&self, name: &str) {
        let [p50, p99] = [0.5, 0.99].map(|share| self.quantile(share));
        println!(
            "| {name:<9} | {:>6.3} | {p50:>6.3} | {p99:>6.3} | {:>6.1} | {:>5} |",
            self.mean(),
            self.rate,
            self.times.len()
        );
    }
}

fn print_header() {
    println!("| queue     | mean, ms | p50 | p99 | Mbit/s | pings |\n|---|---:|---:|---:|---:|---:|");
}

/// Connects the hosts with the namespace between them, calls `measure`, and removes the links.
fn connected<T>([home, remote, between]: [&Namespace; 3], measure: impl FnOnce() -> T) -> T {
    for ((interface, address), host) in LINKS.into_iter().zip([home, remote]) {
        between.link(interface, host, interface);
        between.raise(interface);
        host.configure(interface, &[address]);
    }
    let measured = measure();
    for (interface, _) in LINKS {
        between.ip(&format!("link del {interface}"));
    }
    measured
}

/// Measures with `schedule` at a rate in Mbit/s.
fn bondstone(hosts: [&Namespace; 3], rate: u32, seconds: u32) -> Latency {
    let [home, remote, between] = hosts;
    connected(hosts, || {
        let scratch = Scratch::new();
        let running = start(between, &scratch.write("chain.toml", chain(rate)));
        done(home.command("ping").args(["-n", "-c", "1", "-w", "100", SERVER]));
        let latency = Latency::measure(home, remote, seconds);
        let summary = running.terminate().summary(130);
        accounted(&summary);
        assert!(summary.nf("down").number("/counters/default_sent") > 1000, "{}", summary.0);
        latency
    })
}

/// Measures with the kernel at a rate in Mbit/s; `None` if it has no HTB or no `fq_codel`.
fn kernel(hosts: [&Namespace; 3], rate: u32, seconds: u32) -> Option<Latency> {
    let [home, remote, between] = hosts;
    connected(hosts, || {
        between.ip("link add br0 type bridge");
        LINKS.iter().for_each(|(interface, _)| _ = between.ip(&format!("link set {interface} master br0")));
        between.ip("link set br0 up");
        let tc = |words: &str| {
            let output = between.command("tc").args(words.split(' ')).output();
            output.is_ok_and(|output| output.status.success())
        };
        let is_shaped = tc("qdisc add dev lan0 root handle 1: htb default 1")
            && tc(&format!("class add dev lan0 parent 1: classid 1:1 htb rate {rate}mbit"))
            && tc("qdisc add dev lan0 parent 1:1 fq_codel");
        let latency = is_shaped.then(|| {
            done(home.command("ping").args(["-n", "-c", "1", "-w", "100", SERVER]));
            Latency::measure(home, remote, seconds)
        });
        between.ip("link del br0");
        latency
    })
}

fn hosts(name: &str) -> [Namespace; 3] {
    ["home", "remote", "m"].map(|n| Namespace::new(&format!("{name}-{n}")))
}

#[test]
fn a_download_hardly_delays_pings() {
    let _one = alone();
    if !possible(&TOOLS) || !has_cpu_0_and_another() {
        return;
    }
    let hosts = hosts("queue");
    let [home, remote, between] = &hosts;
    print_header();
    // repeated where others used the CPUs
    let is_short = |_| {
        let latency = bondstone([home, remote, between], 100, 2);
        latency.print("schedule");
        // a packet of the download takes 0.12 ms, and a queue of all its packets tens of milliseconds
        latency.quantile(0.5) < 3.0 && (50.0..100.0).contains(&latency.rate)
    };
    assert!((0..5).any(is_short), "pings are delayed by the download");
}

#[test]
#[ignore = "several downloads: make soak"]
fn latency_beside_a_download_is_that_of_the_kernel() {
    const ROUNDS: u32 = 4;
    // less where CPUs are emulated: scripts/fq-codel.sh
    let rate = std::env::var("BONDSTONE_LINE_MBPS").map_or(100, |rate| rate.parse().expect("Mbit/s"));
    let _one = alone();
    if !possible(&TOOLS) || !has_cpu_0_and_another() {
        return;
    }
    let hosts = hosts("codel");
    let [home, remote, between] = &hosts;
    let mut ratios = vec![];
    for _ in 0..3 {
        let (mut ours, mut others, mut is_full) = (0.0, 0.0, true);
        print_header();
        for _ in 0..ROUNDS {
            let Some(other) = kernel([home, remote, between], rate, 5) else {
                eprintln!("skipped: tc cannot add HTB and fq_codel in this kernel");
                return;
            };
            let own = bondstone([home, remote, between], rate, 5);
            other.print("kernel");
            own.print("schedule");
            (ours, others) = (ours + own.mean(), others + other.mean());
            is_full &= [own.rate, other.rate].iter().all(|own| *own > 0.7 * f64::from(rate));
        }
        println!("mean latency of schedule / kernel: {:.2}", ours / others);
        // where CPUs limit the download, packets wait for them and not in the queue
        ratios.extend(is_full.then_some(ours / others));
        if ratios.last().is_some_and(|ratio| *ratio <= 1.1) {
            return;
        }
    }
    if ratios.is_empty() {
        eprintln!("skipped: the CPUs are too slow or too busy for {rate} Mbit/s");
        return;
    }
    panic!("latency of schedule / kernel: {ratios:.2?}");
}
