//! Bondstone as a switch beside Open vSwitch with DPDK, one CPU each, in turn: from a capture to nowhere, by MAC address, and
//! through an NF that is another process on another CPU.
//!
//! ```console
//! cargo run --release -p bondstone-cli --example switches
//! cargo run --release -p bondstone-cli --example switches -- MAC
//! ```
//!
//! Both read the same capture again and again, as fast as they can. Runs alternate; medians are printed, and the ratio with its
//! 95 % interval (of the median, by order statistics). Open vSwitch stands still while Bondstone runs. It takes root, 1024 huge
//! pages of 2 MiB and `apt-get install openvswitch-switch-dpdk`. A word selects the rows that have it in their name.

use bench::dut::{Env, Forward, Hooks, Kind, Plan, Ports, SentTo, Site};
use pcap::{LinkType, Writer};
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wire::MacAddr;

type Done<T> = Result<T, Box<dyn Error>>;

/// Runs of each switch, and how long one takes, seconds.
const RUNS: usize = 9;
const SECONDS: u64 = 2;
/// CPUs: of the switch, and of the NF.
const SWITCH: usize = 0;
const NF: usize = 1;
/// Who sends.
const FROM: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

/// What switches do.
#[derive(Clone, Copy, PartialEq)]
enum Task {
    /// All goes from one port to the other.
    Wire,
    /// There are so many addresses.
    Macs(u32),
    /// There and back through an NF.
    ThroughNf,
}

impl Task {
    fn name(self) -> String {
        match self {
            Task::Wire => "capture to nowhere".to_owned(),
            Task::Macs(n) => format!("by MAC, {n}"),
            Task::ThroughNf => "through an NF".to_owned(),
        }
    }
}

/// The address of a number.
fn to(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

/// A capture of frames of 60 bytes without FCS.
fn capture(path: &Path, ends: impl Iterator<Item = (MacAddr, MacAddr)>) -> Done<()> {
    let mut file = Writer::create(path, LinkType::ETHERNET)?;
    for (dst, src) in ends {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&dst.0);
        frame[6..12].copy_from_slice(&src.0);
        // IEEE 802: for experiments
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        file.write(0, 60, &frame)?;
    }
    file.finish()?;
    Ok(())
}

fn program() -> Done<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|folder| folder.join("bondstone")).filter(|program| program.exists());
    program.ok_or_else(|| "the program is not there: cargo build --release -p bondstone".into())
}

/// A process that ends with this one.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        // errors: it has ended
        let _ = Pid::from_raw(self.0.id() as i32).map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.0.wait();
    }
}

/// Starts an NF that swaps MAC addresses at the socket of a switch.
fn nf(folder: &Path, socket: &Path) -> Done<Beside> {
    let file = folder.join("nf.toml");
    let text = format!(
        "bondstone = 1\nport.way.device = \"virtio-user:{},queue_size=1024\"\n[nf.mac]\nkind = \"l2fwd\"\n\
         [[chain]]\npath = [\"way\", \"mac\", \"way\"]\ncores = [{NF}]\n",
        socket.display()
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program()?).arg("run").arg(file);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Beside(child))
}

/// Packets a second through Bondstone.
fn bondstone(folder: &Path, task: Task) -> Done<f64> {
    let file = folder.join("bondstone.toml");
    let ports = "bondstone = 1\nport.in = { device = \"pcap:sent.pcap\", repeat = 0 }\nport.out.device = \"null\"\n";
    let rest = match task {
        Task::Wire => format!("[[chain]]\npath = [\"in\", \"out\"]\ncores = [{SWITCH}]\n"),
        // the hosts say once where they are
        Task::Macs(_) => format!(
            "port.hosts.device = \"pcap:hosts.pcap\"\nport.sink.device = \"null\"\n\
             [nf.sw]\nkind = \"bridge\"\nports = [\"in\", \"hosts\"]\naddresses = 32768\n\
             [[chain]]\npath = [\"in\", \"sw\"]\ncores = [{SWITCH}]\n[[chain]]\npath = [\"hosts\", \"sw\"]\ncores = [{SWITCH}]\n\
             [[edge]]\nfrom = \"sw.hosts\"\nto = \"out\"\n[[edge]]\nfrom = \"sw.in\"\nto = \"sink\"\n"
        ),
        Task::ThroughNf => format!(
            "[nf.mac]\nkind = \"l2fwd\"\nisolation = \"process\"\n[wall.mac]\ncores = [{NF}]\n\
             [[chain]]\npath = [\"in\", \"mac\", \"out\"]\ncores = [{SWITCH}]\n"
        ),
    };
    std::fs::write(&file, format!("{ports}{rest}"))?;
    let mut command = Command::new(program()?);
    command.arg("run").arg(&file).args(["--json", "--for", &format!("{SECONDS}s")]);
    let ran = command.output()?;
    let said = || String::from_utf8_lossy(&ran.stderr).into_owned();
    let summary: serde_json::Value = serde_json::from_slice(&ran.stdout).map_err(|_| said())?;
    let ports = summary["ports"].as_array().ok_or_else(said)?;
    let out = ports.iter().find(|port| port["name"] == "out").ok_or_else(said)?;
    let (sent, seconds) = (out["sent"].as_f64().unwrap_or_default(), summary["seconds"].as_f64().unwrap_or(1.0));
    Ok(sent / seconds)
}

/// Open vSwitch, that does one task.
struct Ovs {
    site: Site,
    process: Pid,
    // the NF goes before the switch
    nf: Option<Beside>,
    _running: bench::dut::Running,
}

impl Ovs {
    fn start(folder: &Path, task: Task) -> Done<Ovs> {
        let plan = Plan {
            kind: Kind::Ovs,
            ports: Ports::VhostUser,
            cpus: vec![SWITCH],
            env: Env::Native,
            forward: Forward::Ports,
            chain: None,
            hooks: Hooks::default(),
            inner: vec![],
            elsewhere: None,
        };
        let sent = SentTo { dst_mac: FROM, destinations: vec![], trace: None };
        let mut site = Site::new("ovs", &plan, sent)?;
        let running = plan.driver().start(&mut site)?;
        let pid: i32 = std::fs::read_to_string(site.path("vswitchd.pid"))?.trim().parse()?;
        let mut ovs = Ovs { process: Pid::from_raw(pid).ok_or("no process")?, nf: None, site, _running: running };
        let capture =
            format!("options:dpdk-devargs=net_pcap0,rx_pcap={},infinite_rx=1", folder.join("sent.pcap").display());
        ovs.configure(&["del-port", "br0", "port0"])?;
        if task != Task::ThroughNf {
            ovs.configure(&["del-port", "br0", "port1"])?;
        }
        let interface = |name, more: &str, number| {
            ["add-port", "br0", name, "--", "set", "interface", name, "type=dpdk", more, number].map(str::to_owned)
        };
        for words in [
            interface("pc0", &capture, "ofport_request=11"),
            interface("nu1", "options:dpdk-devargs=net_null1,no-rx=1", "ofport_request=12"),
        ] {
            ovs.configure(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        ovs.flows("del-flows", &[])?;
        match task {
            Task::Wire => ovs.flows("add-flow", &["in_port=11,actions=output:12"])?,
            Task::Macs(n) => {
                let all: String = (0..n).map(|n| format!("in_port=11,dl_dst={},actions=output:12\n", to(n))).collect();
                let file = folder.join("flows");
                std::fs::write(&file, all)?;
                ovs.flows("add-flows", &[&file.display().to_string()])?
            }
            Task::ThroughNf => {
                ovs.nf = Some(nf(folder, &ovs.site.path("port1"))?);
                ovs.flows("add-flow", &["in_port=11,actions=output:2"])?;
                ovs.flows("add-flow", &["in_port=2,actions=output:12"])?
            }
        };
        // it has seen all flows, and its NF is there
        std::thread::sleep(Duration::from_secs(2));
        Ok(ovs)
    }

    fn run(program: &str, words: &[&str]) -> Done<String> {
        let ran = Command::new(program).args(words).output()?;
        if !ran.status.success() {
            return Err(format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&ran.stderr)).into());
        }
        Ok(String::from_utf8(ran.stdout)?)
    }

    fn configure(&self, words: &[&str]) -> Done<String> {
        let socket = format!("--db=unix:{}", self.site.path("db.sock").display());
        Ovs::run("ovs-vsctl", &[&[&*socket, "--timeout=20"], words].concat())
    }

    fn flows(&self, command: &str, rest: &[&str]) -> Done<String> {
        let bridge = format!("unix:{}", self.site.path("br0.mgmt").display());
        Ovs::run("ovs-ofctl", &[&["-O", "OpenFlow13", command, &*bridge], rest].concat())
    }

    /// Packets that have gone out.
    fn sent(&self) -> Done<u64> {
        let said = self.flows("dump-ports", &["12"])?;
        let count = said.split("tx pkts=").nth(1).and_then(|rest| rest.split(',').next()).ok_or("no count")?;
        Ok(count.trim().parse()?)
    }

    fn rate(&self, time: Duration) -> Done<f64> {
        kill_process(self.process, Signal::CONT)?;
        // what waited meanwhile
        std::thread::sleep(Duration::from_millis(300));
        let (before, from) = (self.sent()?, Instant::now());
        std::thread::sleep(time);
        let (sent, took) = (self.sent()? - before, from.elapsed());
        kill_process(self.process, Signal::STOP)?;
        Ok(sent as f64 / took.as_secs_f64())
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // errors: it has ended
        let _ = kill_process(self.process, Signal::CONT);
        drop(self.nf.take());
    }
}

/// The median, and the interval in which that of all runs is with 95 %.
fn middle(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    // of nine values the second and the last but one: 96 % (binomial)
    let edge = all.len() / 5;
    [all[edge], all[all.len() / 2], all[all.len() - 1 - edge]]
}

fn measure(folder: &Path, task: Task) -> Done<()> {
    let macs = if let Task::Macs(n) = task { n } else { 1 };
    let many = 1024.max(macs);
    capture(&folder.join("sent.pcap"), (0..many).map(|n| (to(n % macs), FROM)))?;
    capture(&folder.join("hosts.pcap"), (0..macs).map(|n| (FROM, to(n))))?;
    let ovs = Ovs::start(folder, task)?;
    kill_process(ovs.process, Signal::STOP)?;
    let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..RUNS {
        ours.push(bondstone(folder, task)?);
        theirs.push(ovs.rate(Duration::from_secs(SECONDS))?);
        ratios.push(ours[ours.len() - 1] / theirs[theirs.len() - 1]);
    }
    let ([_, ours, _], [_, theirs, _], [low, ratio, high]) = (middle(ours), middle(theirs), middle(ratios));
    println!("{:<20} {:>10.2} {:>10.2} {ratio:>7.2} {low:>7.2} to {high:.2}", task.name(), ours / 1e6, theirs / 1e6);
    Ok(())
}

fn main() -> ExitCode {
    let folder = std::env::temp_dir().join(format!("switches-{}", std::process::id()));
    let all = || -> Done<()> {
        std::fs::create_dir_all(&folder)?;
        println!(
            "{:<20} {:>10} {:>10} {:>7} {:>15}",
            "60-byte frames", "ours, Mpps", "OVS, Mpps", "ratio", "95 % of it"
        );
        let word = std::env::args().nth(1).unwrap_or_default();
        let tasks = [Task::Wire, Task::Macs(1), Task::Macs(100), Task::Macs(10_000), Task::ThroughNf];
        for task in tasks.into_iter().filter(|task| task.name().contains(&word)) {
            measure(&folder, task)?;
        }
        Ok(())
    };
    let done = all();
    // errors: it is a folder for passing files
    let _ = std::fs::remove_dir_all(&folder);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(3)
        }
    }
}
