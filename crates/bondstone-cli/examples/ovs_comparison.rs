//! Compares Bondstone as a switch with Open vSwitch on DPDK, each on the same CPU: from a capture to a null port, by
//! MAC address, and through an NF in another process on another CPU.
//!
//! ```console
//! cargo run --release -p bondstone-cli --example ovs_comparison
//! cargo run --release -p bondstone-cli --example ovs_comparison -- MAC
//! ```
//!
//! Both read the same capture repeatedly at the highest rate. Runs are interleaved; the medians are printed, and the
//! ratio with the
//! 95 % confidence interval of its median (order statistics). Open vSwitch is stopped while Bondstone runs. Needs root, 1024
//! huge pages of 2 MiB and `apt-get install openvswitch-switch-dpdk`. An argument selects rows by a part of their name.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use bench::dut::{CustomCommands, DutContext, DutSpec, Env, ExpectedTraffic, Forward, Ports, StartedDevice, registry};
use pcap::{LinkType, Writer};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wire::MacAddr;

type BoxResult<T> = Result<T, Box<dyn Error>>;

/// Runs of each switch.
const RUNS: usize = 9;
/// Duration of a run, seconds.
const RUN_S: u64 = 2;
/// CPU of the switch.
const SWITCH_CPU: usize = 0;
/// CPU of the NF.
const NF_CPU: usize = 1;
/// Source address of the frames.
const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

/// Forwarding task.
#[derive(Clone, Copy, PartialEq)]
enum Task {
    /// From one port to the other.
    PortToPort,
    /// By MAC address, with this number of addresses.
    Macs(u32),
    /// Through an NF and back.
    ThroughNf,
}

impl Task {
    fn name(self) -> String {
        match self {
            Task::PortToPort => "port to port".to_owned(),
            Task::Macs(n) => format!("by MAC, {n}"),
            Task::ThroughNf => "through an NF".to_owned(),
        }
    }
}

/// Returns the destination address of a number.
fn destination(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

/// Writes a capture of frames of 60 bytes without FCS, with these destination and source addresses.
fn write_capture(path: &Path, addresses: impl Iterator<Item = (MacAddr, MacAddr)>) -> BoxResult<()> {
    let mut file = Writer::create(path, LinkType::ETHERNET)?;
    for (dst, src) in addresses {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&dst.0);
        frame[6..12].copy_from_slice(&src.0);
        // local experimental EtherType (IEEE 802)
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        file.write(0, 60, &frame)?;
    }
    file.finish()?;
    Ok(())
}

fn program() -> BoxResult<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|folder| folder.join("bondstone")).filter(|program| program.exists());
    program.ok_or_else(|| "bondstone is not built: cargo build --release -p bondstone-cli".into())
}

/// A process that is terminated on drop.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // fails if it has ended
        let _ = Pid::from_raw(self.0.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.0.wait();
    }
}

/// Starts an NF that swaps MAC addresses at the socket of a switch.
fn start_nf(folder: &Path, socket: &Path) -> BoxResult<ChildProcess> {
    let file = folder.join("nf.toml");
    let text = format!(
        "bondstone = 1\nport.switch.device = \"virtio-user:{},queue_size=1024\"\n[nf.mac]\nkind = \"l2fwd\"\n\
         [[chain]]\npath = [\"switch\", \"mac\", \"switch\"]\ncores = [{NF_CPU}]\n",
        socket.display()
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program()?).arg("run").arg(file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(ChildProcess(child))
}

/// Returns the rate of Bondstone, packets per second.
fn bondstone_rate(folder: &Path, task: Task) -> BoxResult<f64> {
    let file = folder.join("bondstone.toml");
    let ports = "bondstone = 1\nport.in = { device = \"pcap:sent.pcap\", repeat = 0 }\nport.out.device = \"null\"\n";
    let nodes = match task {
        Task::PortToPort => format!("[[chain]]\npath = [\"in\", \"out\"]\ncores = [{SWITCH_CPU}]\n"),
        // one frame from each host, for MAC learning
        Task::Macs(_) => format!(
            "port.hosts.device = \"pcap:hosts.pcap\"\nport.sink.device = \"null\"\n\
             [nf.sw]\nkind = \"bridge\"\nports = [\"in\", \"hosts\"]\nmac_entries = 32768\n\
             [[chain]]\npath = [\"in\", \"sw\"]\ncores = [{SWITCH_CPU}]\n[[chain]]\npath = [\"hosts\", \"sw\"]\ncores = [{SWITCH_CPU}]\n\
             [[edge]]\nfrom = \"sw.hosts\"\nto = \"out\"\n[[edge]]\nfrom = \"sw.in\"\nto = \"sink\"\n"
        ),
        Task::ThroughNf => format!(
            "[nf.mac]\nkind = \"l2fwd\"\nisolation = \"process\"\n[sandbox.mac]\ncores = [{NF_CPU}]\n\
             [[chain]]\npath = [\"in\", \"mac\", \"out\"]\ncores = [{SWITCH_CPU}]\n"
        ),
    };
    std::fs::write(&file, format!("{ports}{nodes}"))?;
    let mut command = Command::new(program()?);
    command.arg("run").arg(&file).args(["--json", "--for", &format!("{RUN_S}s")]);
    let output = command.output()?;
    let stderr = || String::from_utf8_lossy(&output.stderr).into_owned();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| stderr())?;
    let ports = summary["ports"].as_array().ok_or_else(stderr)?;
    let out = ports.iter().find(|port| port["name"] == "out").ok_or_else(stderr)?;
    let (sent, seconds) = (out["sent"].as_f64().unwrap_or_default(), summary["seconds"].as_f64().unwrap_or(1.0));
    Ok(sent / seconds)
}

/// Open vSwitch, configured for a task.
struct Ovs {
    context: DutContext,
    process: Pid,
    // dropped before the switch
    nf: Option<ChildProcess>,
    _started: StartedDevice,
}

impl Ovs {
    fn start(folder: &Path, task: Task) -> BoxResult<Ovs> {
        let spec = DutSpec {
            kind: "ovs".to_owned(),
            ports: Ports::VhostUser,
            cpus: vec![SWITCH_CPU],
            env: Env::Native,
            forward: Forward::Ports,
            chain: None,
            commands: CustomCommands::default(),
            interfaces: vec![],
            remote: None,
        };
        let traffic = ExpectedTraffic { dst_mac: SOURCE, destinations: vec![], trace: None, longest_frame: 1514 };
        let mut context = DutContext::new("ovs", &spec, traffic)?;
        let driver = registry::driver(&spec.kind).ok_or("no driver")?;
        let started = driver.device(&spec).start(&mut context)?;
        let pid: i32 = std::fs::read_to_string(context.path("vswitchd.pid"))?.trim().parse()?;
        let mut ovs = Ovs { process: Pid::from_raw(pid).ok_or("no process")?, nf: None, context, _started: started };
        let capture =
            format!("options:dpdk-devargs=net_pcap0,rx_pcap={},infinite_rx=1", folder.join("sent.pcap").display());
        ovs.vsctl(&["del-port", "br0", "port0"])?;
        if task != Task::ThroughNf {
            ovs.vsctl(&["del-port", "br0", "port1"])?;
        }
        let interface = |name, more: &str, number| {
            ["add-port", "br0", name, "--", "set", "interface", name, "type=dpdk", more, number].map(str::to_owned)
        };
        for words in [
            interface("pc0", &capture, "ofport_request=11"),
            interface("nu1", "options:dpdk-devargs=net_null1,no-rx=1", "ofport_request=12"),
        ] {
            ovs.vsctl(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        ovs.ofctl("del-flows", &[])?;
        match task {
            Task::PortToPort => ovs.ofctl("add-flow", &["in_port=11,actions=output:12"])?,
            Task::Macs(n) => {
                let all: String =
                    (0..n).map(|n| format!("in_port=11,dl_dst={},actions=output:12\n", destination(n))).collect();
                let file = folder.join("flows");
                std::fs::write(&file, all)?;
                ovs.ofctl("add-flows", &[&file.display().to_string()])?
            }
            Task::ThroughNf => {
                ovs.nf = Some(start_nf(folder, &ovs.context.path("port1"))?);
                ovs.ofctl("add-flow", &["in_port=11,actions=output:2"])?;
                ovs.ofctl("add-flow", &["in_port=2,actions=output:12"])?
            }
        };
        // wait until flows are installed and the NF is connected
        std::thread::sleep(Duration::from_secs(2));
        Ok(ovs)
    }

    fn run(program: &str, words: &[&str]) -> BoxResult<String> {
        let output = Command::new(program).args(words).output()?;
        if !output.status.success() {
            return Err(format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn vsctl(&self, words: &[&str]) -> BoxResult<String> {
        let socket = format!("--db=unix:{}", self.context.path("db.sock").display());
        Ovs::run("ovs-vsctl", &[&[&*socket, "--timeout=20"], words].concat())
    }

    fn ofctl(&self, command: &str, args: &[&str]) -> BoxResult<String> {
        let bridge = format!("unix:{}", self.context.path("br0.mgmt").display());
        Ovs::run("ovs-ofctl", &[&["-O", "OpenFlow13", command, &*bridge], args].concat())
    }

    /// Returns the number of packets sent.
    fn sent(&self) -> BoxResult<u64> {
        let output = self.ofctl("dump-ports", &["12"])?;
        let count = output.split("tx pkts=").nth(1).and_then(|text| text.split(',').next()).ok_or("no count")?;
        Ok(count.trim().parse()?)
    }

    fn rate(&self, time: Duration) -> BoxResult<f64> {
        kill_process(self.process, Signal::CONT)?;
        // skip packets that were queued while it was stopped
        std::thread::sleep(Duration::from_millis(300));
        let (before, start) = (self.sent()?, Instant::now());
        std::thread::sleep(time);
        let (sent, elapsed) = (self.sent()? - before, start.elapsed());
        kill_process(self.process, Signal::STOP)?;
        Ok(sent as f64 / elapsed.as_secs_f64())
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // fails if it has ended
        let _ = kill_process(self.process, Signal::CONT);
        drop(self.nf.take());
    }
}

/// Returns the median and its 95 % confidence interval: lower bound, median, upper bound.
fn median_interval(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    // second lowest and second highest of nine values: 96 % (binomial)
    let edge = all.len() / 5;
    [all[edge], all[all.len() / 2], all[all.len() - 1 - edge]]
}

fn measure(folder: &Path, task: Task) -> BoxResult<()> {
    let macs = if let Task::Macs(n) = task { n } else { 1 };
    let frames = 1024.max(macs);
    write_capture(&folder.join("sent.pcap"), (0..frames).map(|n| (destination(n % macs), SOURCE)))?;
    write_capture(&folder.join("hosts.pcap"), (0..macs).map(|n| (SOURCE, destination(n))))?;
    let ovs = Ovs::start(folder, task)?;
    kill_process(ovs.process, Signal::STOP)?;
    let (mut bondstone, mut ovs_rates, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..RUNS {
        bondstone.push(bondstone_rate(folder, task)?);
        ovs_rates.push(ovs.rate(Duration::from_secs(RUN_S))?);
        ratios.push(bondstone[bondstone.len() - 1] / ovs_rates[ovs_rates.len() - 1]);
    }
    let ([_, bondstone, _], [_, ovs, _], [low, ratio, high]) =
        (median_interval(bondstone), median_interval(ovs_rates), median_interval(ratios));
    println!("{:<20} {:>10.2} {:>10.2} {ratio:>7.2} {low:>7.2} to {high:.2}", task.name(), bondstone / 1e6, ovs / 1e6);
    Ok(())
}

fn main() -> ExitCode {
    let folder = std::env::temp_dir().join(format!("ovs-comparison-{}", std::process::id()));
    let all = || -> BoxResult<()> {
        std::fs::create_dir_all(&folder)?;
        println!(
            "{:<20} {:>10} {:>10} {:>7} {:>15}",
            "60-byte frames", "Bondstone", "OVS, Mpps", "ratio", "95 % interval"
        );
        let filter = std::env::args().nth(1).unwrap_or_default();
        let tasks = [Task::PortToPort, Task::Macs(1), Task::Macs(100), Task::Macs(10_000), Task::ThroughNf];
        for task in tasks.into_iter().filter(|task| task.name().contains(&filter)) {
            measure(&folder, task)?;
        }
        Ok(())
    };
    let result = all();
    // a leftover temporary directory is harmless
    let _ = std::fs::remove_dir_all(&folder);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(3)
        }
    }
}
