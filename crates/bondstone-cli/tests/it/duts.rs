//! Devices under test that are other programs: each forwards, is counted packet by packet, and leaves nothing behind.
//! Those on another machine are in `far.rs`.

use crate::common::{LIMIT, Running, Said, Scratch, bondstone};
use dpdk::Memory;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Whether generator and device have a CPU each, and what the device needs is there; says what is not.
fn possible(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        Path::new(**program).exists()
            || ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|f| Path::new(f).join(**program).exists())
    };
    if let Some(absent) = programs.iter().find(|p| !is_there(p)) {
        eprintln!("skipped: needs {absent}");
        return false;
    }
    if runtime::allowed_cpus().len() < 2 {
        eprintln!("skipped: needs two CPUs");
        return false;
    }
    true
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root, for network namespaces");
    }
    root
}

/// A scenario with one device.
fn scenario(device: &str) -> String {
    format!(
        "bondstone = 1\n[scenario]\ntitle = \"a device\"\n[traffic]\nframes = \"64,1518\"\nflows = 10\n[dut]\n{device}\n"
    )
}

/// Trials as short as they may be.
const SHORT: &str = "quick,final=20ms,sum=20ms,first=20ms";

/// Offers it 2000 packets a second, which whatever runs here takes, and says what came of it.
fn measured(scratch: &Scratch, device: &str) -> Vec<Value> {
    measured_by(Command::new(env!("CARGO_BIN_EXE_bondstone")), scratch, device)
}

fn measured_by(mut program: Command, scratch: &Scratch, device: &str) -> Vec<Value> {
    let before = leftovers();
    let file = scratch.write("device.toml", scenario(device));
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let mut command =
        vec!["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    command.extend(["--rate", "2000", "--goal", "quick,final=200ms,sum=600ms,first=200ms", "--json"]);
    let said = Said::from(program.args(command).output().unwrap());
    // on a machine that is away so often that no trial can be judged, that is the verdict
    assert!(matches!(said.status, Some(0 | 1)), "{device}\n{}\n{}", said.err, said.out);
    let results: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    assert_eq!(results.len(), 2, "{}", said.err);
    for result in &results {
        let trials = result["trials"].as_array().unwrap();
        assert!(trials.len() >= 3, "{result:#}");
        let n = |trial: &Value, name: &str| trial[name].as_u64().unwrap();
        for trial in trials {
            assert_eq!(n(trial, "sent") + n(trial, "unsent"), n(trial, "intended"));
            assert_eq!(n(trial, "received") + n(trial, "lost"), n(trial, "sent"));
            assert_eq!((n(trial, "duplicate"), n(trial, "corrupt")), (0, 0), "{trial:#}");
        }
        let received: u64 = trials.iter().map(|t| n(t, "received")).sum();
        // before the trials 200 packets of each direction came out as they have to, all of them
        assert!(received > 0, "nothing comes back: {result:#}");
        let chain = result["dut"]["chain"].as_str().unwrap();
        assert!(!chain.is_empty() && !chain.contains("bondstone-dut-"), "{chain}");
    }
    assert_eq!(leftovers(), before, "{device}");
    results
}

/// What a device may leave behind: interfaces, folders, processes.
fn leftovers() -> BTreeSet<String> {
    let names = |folder: &str| {
        let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
        all.map(|e| e.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let interfaces = names("/sys/class/net");
    // of containers: the older groups of processes, and the one tree of the newer
    let groups = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpuset"].map(&names).concat();
    let groups =
        groups.into_iter().filter(|name| name.starts_with("bondstone-dut-")).map(|name| format!("group {name}"));
    let temporary = std::env::temp_dir();
    let folders = names(&temporary.to_string_lossy()).into_iter().filter(|n| n.starts_with("bondstone-dut-"));
    let command = |pid: &String| std::fs::read(format!("/proc/{pid}/cmdline")).ok();
    let ours = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line).replace('\0', " ");
        line.contains("bondstone-dut-") || line.contains("/run/bondstone-") || line.contains("sleep 7777")
    };
    let processes = names("/proc").into_iter().filter(|n| n.parse::<u32>().is_ok());
    let processes =
        processes.filter_map(|pid| command(&pid)).filter(ours).map(|l| String::from_utf8_lossy(&l).replace('\0', " "));
    // where what is behind walls has its sockets
    let sockets = names("/run").into_iter().filter(|name| name.starts_with("bondstone-"));
    let folders = folders.chain(sockets);
    let all = interfaces.into_iter().chain(groups).chain(folders).chain(processes);
    all.filter(|what| !is_of_the_living(what)).collect()
}

/// Whether a program made it that still runs: another one, as those of these tests have ended then.
fn is_of_the_living(what: &str) -> bool {
    let pid = what.split_once("bondstone-dut-").and_then(|(_, rest)| rest.split('-').next()?.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

#[test]
fn the_kernels_bridge_and_router() {
    let _one = crate::common::alone();
    if !possible(&["ip", "unshare", "nsenter", "setpriv"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    let results = measured(&scratch, "kind = \"bridge\"\nforward = \"bridge\"");
    assert_eq!(results[0]["dut"]["kind"], "bridge");
    assert!(results[0]["dut"]["version"].as_str().unwrap().starts_with("Linux "));
    measured(&scratch, "kind = \"router\"\nforward = \"route\"");
    if possible(&["nft"]) {
        measured(&scratch, "kind = \"nftables\"\nforward = \"route\"");
    }
}

#[test]
fn a_device_that_does_something_else_is_refused() {
    let _one = crate::common::alone();
    if !possible(&["ip", "unshare", "nsenter", "setpriv"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    let before = leftovers();
    // a router lowers the time to live, a bridge may not
    let file = scratch.write("wrong.toml", scenario("kind = \"router\"\nforward = \"bridge\""));
    let db = scratch.path("db");
    let said = bondstone(["bench", file.to_str().unwrap(), "--rate", "1000", "--db", db.to_str().unwrap()]);
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.contains("does not forward as it should") && said.err.contains("help:"), "{}", said.err);
    assert_eq!(leftovers(), before);
}

#[test]
fn testpmd() {
    let _one = crate::common::alone();
    if possible(&["dpdk-testpmd", "setpriv", "taskset"]) {
        measured(&Scratch::new(), "kind = \"testpmd\"");
    }
}

#[test]
fn a_chain_in_a_process_of_its_own() {
    let _one = crate::common::alone();
    if !possible(&["setpriv", "taskset"]) {
        return;
    }
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    scratch.write("chain.toml", chain);
    let results = measured(&scratch, "kind = \"bondstone\"\nchain = \"chain.toml\"");
    assert_eq!(results[0]["dut"]["nfs"][0]["kind"], "count");
}

/// An NF behind a wall, as a chain.
const BEHIND: &str = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                      [nf.mac]\nkind = \"l2fwd\"\nisolation = \"process\"\n\
                      [[chain]]\npath = [\"a\", \"mac\", \"count\", \"b\"]\n[nf.count]\nkind = \"count\"\nisolation = \"process\"\n";

#[test]
fn any_switch_joins_nfs_behind_walls() {
    let _one = crate::common::alone();
    if !possible(&["setpriv", "taskset"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    // a container beside a switch that the kernel prefers and that never rests
    for (switch, kind, isolation, programs) in [
        ("bondstone", "bondstone", "process", &[][..]),
        ("ovs-dpdk", "ovs", "process", &OVS),
        ("testpmd", "testpmd", "container", &["dpdk-testpmd", "runc"]),
    ] {
        if !possible(programs) || switch == "ovs-dpdk" && !pages() {
            continue;
        }
        scratch.write("behind.toml", BEHIND.replace("process", isolation));
        let results = measured(&scratch, &format!("chain = \"behind.toml\"\nswitch = \"{switch}\""));
        let dut = &results[0]["dut"];
        assert_eq!((&dut["kind"], &dut["isolation"]), (&kind.into(), &isolation.into()), "{dut:#}");
        // switches of others are told of the sockets by which they are joined
        assert!(switch == "bondstone" || dut["chain"].as_str().unwrap().contains("WALLS/"), "{dut:#}");
    }
}

/// VPP is in no distribution's packages: a program stands for it that answers as it does.
#[test]
fn vpp_is_told_what_it_understands() {
    let _one = crate::common::alone();
    if !possible(&["setpriv", "taskset", "dpdk-testpmd"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["vpp", "vppctl"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vpp").join(name).with_extension("sh");
        std::os::unix::fs::symlink(file, scratch.path(name)).unwrap();
    }
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        let path = std::env::var("PATH").unwrap();
        program.env("PATH", format!("{}:{path}", scratch.path("").display()));
        program
    };
    scratch.write("behind.toml", BEHIND);
    for device in
        ["kind = \"vpp\"", "kind = \"vpp\"\nports = \"af_packet\"", "chain = \"behind.toml\"\nswitch = \"vpp\""]
    {
        let results = measured_by(program(), &scratch, device);
        let dut = &results[0]["dut"];
        assert_eq!((&dut["kind"], &dut["version"]), (&"vpp".into(), &"v24.06-release".into()), "{dut:#}");
    }
    // of what it refuses, the reason is told
    let file = scratch.write("device.toml", scenario("kind = \"vpp\"\nforward = \"bridge\""));
    let db = scratch.path("none.sqlite");
    let words = ["bench", file.to_str().unwrap(), "--rate", "1000", "--db", db.to_str().unwrap()];
    let said = Said::from(program().args(words).output().unwrap());
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.contains("bridge domain 1: not here") && said.err.contains("help:"), "{}", said.err);
    assert!(!Path::new("/dev/shm/bondstone-vpe-api").exists());
}

/// What changes of rules cost: those that are asked for are made.
fn changed(scratch: &Scratch, device: &str) {
    let before = leftovers();
    let file = scratch.write("device.toml", scenario(device).replace("64,1518", "64"));
    let db = scratch.path("results.sqlite");
    let said = bondstone(
        ["bench", file.to_str().unwrap(), "--method", "changes", "--goal", SHORT, "--json", "--db"]
            .into_iter()
            .chain(db.to_str()),
    );
    assert!(matches!(said.status, Some(0 | 1)), "{device}\n{}\n{}", said.err, said.out);
    let results: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let of = |name: &str| {
        let all = results[0]["quantities"].as_array().unwrap();
        let one = all.iter().find(|q| q["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:#?}"));
        one["value"].as_f64().unwrap()
    };
    for rate in [1, 100, 10_000] {
        assert!(of(&format!("changes made at {rate} a second")) > 0.5);
        assert!(of(&format!("blocked time of a change at {rate} a second")) >= 0.0);
    }
    assert!(!results[0].to_string().contains("refused"), "{:#}", results[0]);
    assert_eq!(leftovers(), before, "{device}");
}

#[test]
fn rules_of_a_firewall_change_while_it_forwards() {
    let _one = crate::common::alone();
    if !possible(&["setpriv", "taskset"]) {
        return;
    }
    let scratch = Scratch::new();
    let chain = |nf: &str| {
        format!(
            "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n{nf}\nchain = [{{ path = [\"a\", \"it\", \"b\"] }}]\n"
        )
    };
    scratch.write("chain.toml", chain("nf.it = { kind = \"firewall\", file = \"edge.rules\", default = \"accept\" }"));
    let rules: String = (0..400).map(|n| format!("drop src 203.0.{}.0/24 dport {n}\n", n % 100)).collect();
    scratch.write("edge.rules", rules);
    changed(&scratch, "kind = \"bondstone\"\nchain = \"chain.toml\"");
    // without one there is nothing to change
    scratch.write("chain.toml", chain("nf.it = { kind = \"count\" }"));
    let file = scratch.write("none.toml", scenario("kind = \"bondstone\"\nchain = \"chain.toml\""));
    let db = scratch.path("none.sqlite");
    let words = ["bench", file.to_str().unwrap(), "--method", "changes", "--goal", SHORT, "--db"];
    let said = bondstone(words.into_iter().chain(db.to_str()));
    // a machine on which nothing can be judged gets no further
    let judged = !said.err.contains("could be judged");
    assert!(!judged || said.err.contains("put a firewall into the chain"), "{}", said.err);
}

/// Whether Open vSwitch on DPDK has the memory that it wants; it forwards nothing over vhost-user without.
fn pages() -> bool {
    let free = Memory::free_huge_pages();
    if free < 400 {
        eprintln!("skipped: needs 400 free huge pages of 2 MiB");
    }
    free >= 400
}

const OVS: [&str; 3] = ["/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "ovs-vsctl", "setpriv"];

#[test]
fn open_vswitch() {
    let _one = crate::common::alone();
    if !possible(&OVS) {
        return;
    }
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    if !pages() {
        return;
    }
    let results = measured(&scratch, "kind = \"ovs\"");
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("in_port=1,actions=output:2"));
    assert!(results[0]["dut"]["version"].as_str().unwrap().contains('.'));
    measured(&scratch, "kind = \"ovs\"\nforward = \"bridge\"");
    measured(&scratch, "kind = \"ovs\"\nports = \"af_packet\"");
}

#[test]
fn check_says_where_it_runs() {
    let scratch = Scratch::new();
    for (device, words) in [
        ("kind = \"ovs\"", "ovs, vhost-user ports"),
        ("kind = \"ovs\"\nenv = \"container\"", "ovs in containers, vhost-user ports"),
        (
            "kind = \"router\"\nssh = \"root@there\"\nports = [\"af_packet:a\", \"af_packet:b\"]\ninner = [\"c\", \"d\"]",
            "router on root@there, af_packet:a af_packet:b ports",
        ),
    ] {
        let file = scratch.write("device.toml", scenario(device));
        let said = bondstone(["check", file.to_str().unwrap()]);
        assert!(said.status == Some(0) && said.out.contains(words), "{words}: {}{}", said.out, said.err);
    }
}

/// Whether containers can be made.
fn containers() -> bool {
    possible(&["runc", "setpriv", "taskset"]) && root()
}

/// The result says that it ran in a container, and how.
fn contained(results: &[Value]) {
    let result = &results[0];
    assert_eq!(result["dut"]["isolation"], "container");
    let chain = result["dut"]["chain"].as_str().unwrap();
    assert!(chain.contains("runc --root FOLDER/runc run"), "{chain}");
    assert!(result.to_string().contains("containers of runc"), "{result:#}");
}

#[test]
fn a_program_in_a_container() {
    let _one = crate::common::alone();
    if !containers() {
        return;
    }
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    scratch.write("chain.toml", chain);
    contained(&measured(&scratch, "kind = \"bondstone\"\nenv = \"container\"\nchain = \"chain.toml\""));
    if possible(&["dpdk-testpmd"]) {
        contained(&measured(&scratch, "kind = \"testpmd\"\nenv = \"container\""));
    }
}

#[test]
fn open_vswitch_in_containers() {
    let _one = crate::common::alone();
    if containers() && possible(&OVS) && pages() {
        contained(&measured(&Scratch::new(), "kind = \"ovs\"\nenv = \"container\""));
    }
}

/// The user's commands run where the device does: without rights, and with nothing of this system's to write to.
#[test]
fn commands_in_a_container() {
    let _one = crate::common::alone();
    if !containers() || !possible(&["dpdk-testpmd"]) {
        return;
    }
    let start = "sleep 7777 & exec dpdk-testpmd --lcores=0@$BONDSTONE_CPUS,1@$BONDSTONE_CPUS --no-pci --no-shconf --no-huge \
                 -m 512 --vdev=net_vhost0,iface=$BONDSTONE_PORT0 --vdev=net_vhost1,iface=$BONDSTONE_PORT1 -- \
                 --forward-mode=io --no-mlockall --total-num-mbufs=16384";
    let ready = "grep -q 'CapEff:[[:space:]]*0000000000000000' /proc/self/status && ! touch /usr/bondstone-was-here && \
                 test -z \"$(ls /tmp | grep -v bondstone-dut-)\" && grep -q testpmd /proc/1/cmdline && test -S $BONDSTONE_PORT1";
    let device = format!("kind = \"command\"\nenv = \"container\"\nstart = {start:?}\nready = {ready:?}");
    contained(&measured(&Scratch::new(), &device));
}

/// A device by the user's own commands: here the kernel's bridge again.
#[test]
fn commands_of_the_users_own() {
    let _one = crate::common::alone();
    if !possible(&["ip", "unshare", "nsenter", "setpriv"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    // what it leaves running in the background has to go as well
    let start = "sleep 7777 & ip link add mine type bridge && ip link set $BONDSTONE_PORT0 master mine && \
                 ip link set $BONDSTONE_PORT1 master mine && ip link set mine up && exec sleep infinity";
    let ready = "ip -br link show mine | grep -q UP";
    let stopped = scratch.path("stopped");
    let device = format!(
        "kind = \"command\"\nports = \"af_packet\"\nstart = {start:?}\nready = {ready:?}\nstop = \"touch {}\"",
        stopped.display()
    );
    let results = measured(&scratch, &device);
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("ip link add mine"));
    assert!(stopped.exists(), "the stop command has run");
}

/// Killed in the midst of a trial, the program leaves nothing but a folder, and that is gone with the next.
#[test]
fn killed_it_leaves_nothing() {
    let _one = crate::common::alone();
    if !possible(&["ip", "unshare", "nsenter", "setpriv"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    let before = leftovers();
    let free = Memory::free_huge_pages();
    let mut devices = vec!["kind = \"bridge\""];
    if possible(&OVS) && pages() {
        devices.push("kind = \"ovs\"");
    }
    if possible(&OVS) && pages() {
        scratch.write("behind.toml", BEHIND);
        devices.push("chain = \"behind.toml\"\nswitch = \"ovs-dpdk\"");
    }
    if possible(&["runc", "dpdk-testpmd"]) {
        devices.push("kind = \"testpmd\"\nenv = \"container\"");
    }
    for device in devices {
        let file = scratch.write("device.toml", scenario(device));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.args(["bench", file.to_str().unwrap(), "--rate", "1000", "--goal", "quick,final=60s,sum=600s", "--db"]);
        let mut running = Running::start(command.arg(scratch.path("db")));
        running.wait_for("the generator", |line| line.contains("generator on CPU"));
        running.signal(Signal::KILL);
        running.end();
        let end = Instant::now() + LIMIT;
        let left = |what: &String| !before.contains(what) && !what.starts_with("bondstone-dut-");
        // a process that was killed has no name any more, long before the last of its memory is free
        while leftovers().iter().any(left) || Memory::free_huge_pages() < free {
            let pages = Memory::free_huge_pages();
            let left = || leftovers().into_iter().filter(left).collect::<Vec<_>>();
            assert!(Instant::now() < end, "{pages} of {free} huge pages are free; left: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // whoever comes next takes the folders of the dead away
    let file = scratch.write("device.toml", scenario("kind = \"bridge\""));
    let arguments = ["--rate", "1000", "--goal", "quick,final=50ms,sum=50ms,first=50ms", "--db"];
    let said = bondstone(
        ["bench", file.to_str().unwrap()].into_iter().chain(arguments).chain([scratch.path("db").to_str().unwrap()]),
    );
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.err);
    assert_eq!(leftovers(), before);
}

#[test]
fn interrupted_it_leaves_nothing() {
    let _one = crate::common::alone();
    if !possible(&["ip", "unshare", "nsenter", "setpriv"]) || !root() {
        return;
    }
    let scratch = Scratch::new();
    let before = leftovers();
    let file = scratch.write("device.toml", scenario("kind = \"bridge\""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.args(["bench", file.to_str().unwrap(), "--rate", "1000", "--goal", "quick,final=60s,sum=600s", "--db"]);
    let mut running = Running::start(command.arg(scratch.path("db")));
    running.wait_for("the generator", |line| line.contains("generator on CPU"));
    assert_eq!(running.interrupt().status, Some(130));
    assert_eq!(leftovers(), before);
}
