//! External devices under test: each forwards packets and is removed without a trace. Remote hosts are tested in
//! `far.rs`.

use crate::common::{LIMIT, Running, Said, Scratch, alone, bondstone, has_cpu_0_and_another, measured};
use dpdk::Memory;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns true if there are two CPUs and all programs are installed; prints what is missing.
fn has(programs: &[&str]) -> bool {
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

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: needs root, for network namespaces");
    }
    is_root
}

/// Returns a scenario with one device and frames of 64 bytes.
fn scenario(device: &str) -> String {
    format!(
        "bondstone = 1\n[scenario]\ntitle = \"a device\"\n[traffic]\nframes = \"64\"\nflows = 10\n[dut]\n{device}\n"
    )
}

/// Measures the cost of changes in the shortest trials; a slow line keeps the search for the throughput short.
const CHANGES: [&str; 7] =
    ["bench", "--method", "changes", "--goal", "quick,final=20ms,sum=20ms,first=20ms", "--line", "100M"];

/// Measures a device at 2000 packets per second, a load that all devices carry, and returns the results.
fn measure(scratch: &Scratch, device: &str) -> Vec<Value> {
    measure_with(Command::new(env!("CARGO_BIN_EXE_bondstone")), scratch, device, &["64"])
}

fn measure_with(mut program: Command, scratch: &Scratch, device: &str, sizes: &[&str]) -> Vec<Value> {
    let before = leftovers();
    let text = scenario(device).replace("frames = \"64\"", &format!("frames = {:?}", sizes.join(",")));
    let file = scratch.write("device.toml", text);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let mut command =
        vec!["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    command.extend(["--rate", "2000", "--goal", "quick,final=200ms,sum=600ms,first=200ms", "--json"]);
    program.args(command);
    let results = measured(&mut program);
    assert_eq!(results.len(), sizes.len(), "{device}");
    for result in &results {
        let trials = result["trials"].as_array().unwrap();
        assert!(trials.len() >= 3, "{result:#}");
        let n = |trial: &Value, name: &str| trial[name].as_u64().unwrap();
        for trial in trials {
            assert_eq!(n(trial, "sent") + n(trial, "unsent"), n(trial, "intended"));
            assert_eq!(n(trial, "received") + n(trial, "lost"), n(trial, "sent"));
            assert_eq!((n(trial, "duplicate"), n(trial, "corrupt")), (0, 0), "{trial:#}");
        }
        let chain = result["dut"]["chain"].as_str().unwrap();
        assert!(!chain.is_empty() && !chain.contains("bondstone-dut-"), "{chain}");
    }
    assert_nothing_left(&before);
    results
}

/// Returns interfaces, directories, control groups and processes that a device may leave behind.
fn leftovers() -> BTreeSet<String> {
    let names = |folder: &str| {
        let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
        all.map(|e| e.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let interfaces = names("/sys/class/net");
    // of containers, with cgroup v1 and v2
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
    // directories of sockets of sandboxes
    let sockets =
        names("/run").into_iter().filter(|name| name.starts_with("bondstone-") && name != "bondstone-tenants");
    let folders = folders.chain(sockets);
    let all = interfaces.into_iter().chain(groups).chain(folders).chain(processes);
    all.filter(|name| !has_live_owner(name)).collect()
}

/// Asserts that a device has left nothing behind. What earlier tests have ended may still disappear meanwhile.
fn assert_nothing_left(before: &BTreeSet<String>) {
    let left: Vec<String> = leftovers().difference(before).cloned().collect();
    assert!(left.is_empty(), "left: {left:?}");
}

/// Returns true if a running process created it: one of other tests.
fn has_live_owner(name: &str) -> bool {
    let pid = name.split_once("bondstone-dut-").and_then(|(_, rest)| rest.split('-').next()?.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

#[test]
fn measures_linux_bridge_router_and_tc() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let program = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let results = measure_with(program, &scratch, "kind = \"bridge\"\nforward = \"bridge\"", &["64", "1518", "9018"]);
    assert_eq!(results[0]["dut"]["kind"], "bridge");
    assert!(results[0]["dut"]["version"].as_str().unwrap().starts_with("Linux "));
    measure(&scratch, "kind = \"router\"\nforward = \"route\"");
    if has(&["tc"]) {
        measure(&scratch, "kind = \"tc\"");
    }
    if has(&["nft"]) {
        measure(&scratch, "kind = \"nftables\"\nforward = \"route\"");
    }
}

#[test]
fn a_router_resolves_the_hosts_of_the_generator() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
        return;
    }
    let device = "kind = \"command\"\nports = \"af_packet\"\nforward = \"route\"\nstart = \"\"\"\n\
                  ip link set $BONDSTONE_PORT0 address $BONDSTONE_MAC\n\
                  ip addr add 198.18.255.254/16 dev $BONDSTONE_PORT0\n\
                  ip addr add 192.0.2.1/30 dev $BONDSTONE_PORT1\n\
                  ip route add 198.19.0.0/16 via 192.0.2.2\n\
                  echo 1 > /proc/sys/net/ipv4/ip_forward\n\
                  exec sleep infinity\n\"\"\"\nready = \"ip route | grep -q 198.19\"";
    let results = measure(&Scratch::new(), device);
    let deviations = results[0]["deviations"].to_string();
    assert!(deviations.contains("answered ARP requests"), "{deviations}");
}

#[test]
fn rejects_a_device_that_does_not_forward_as_specified() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let before = leftovers();
    // a router decrements the TTL, a bridge does not
    let file = scratch.write("wrong.toml", scenario("kind = \"router\"\nforward = \"bridge\""));
    let db = scratch.path("db");
    let output = bondstone(["bench", file.to_str().unwrap(), "--rate", "1000", "--db", db.to_str().unwrap()]);
    assert_eq!(output.status, Some(3), "{}", output.err);
    assert!(output.err.contains("does not forward as specified") && output.err.contains("help:"), "{}", output.err);
    assert_nothing_left(&before);
}

#[test]
fn measures_testpmd() {
    let _one = alone();
    if has(&["dpdk-testpmd", "setpriv", "taskset"]) {
        let program = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        measure_with(program, &Scratch::new(), "kind = \"testpmd\"", &["64", "9018"]);
    }
}

#[test]
fn measures_a_chain_in_its_own_process() {
    let _one = alone();
    if !has(&["setpriv", "taskset"]) {
        return;
    }
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    scratch.write("chain.toml", chain);
    let program = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let results = measure_with(program, &scratch, "kind = \"bondstone\"\nchain = \"chain.toml\"", &["64", "9018"]);
    assert_eq!(results[0]["dut"]["nfs"][0]["kind"], "count");
}

#[test]
fn measures_devices_over_every_kind_of_port() {
    let _one = alone();
    if !has(&["setpriv", "taskset", "dpdk-testpmd"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"b\"] }]\n";
    scratch.write("chain.toml", chain);
    for ports in ["virtio-user", "memif", "tap", "af_packet", "af_xdp"] {
        for kind in ["bondstone\"\nchain = \"chain.toml", "testpmd"] {
            let results = measure(&scratch, &format!("kind = \"{kind}\"\nports = \"{ports}\""));
            assert_eq!(results[0]["dut"]["ports"][1]["device"], ports);
        }
    }
    if has(&OVS) && has_huge_pages() {
        measure(&scratch, "kind = \"ovs\"\nports = \"virtio-user\"");
    }
}

/// A chain of two NFs in sandboxes.
const SANDBOXED_CHAIN: &str = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                      [nf.mac]\nkind = \"l2fwd\"\nisolation = \"process\"\n\
                      [[chain]]\npath = [\"a\", \"mac\", \"count\", \"b\"]\n[nf.count]\nkind = \"count\"\nisolation = \"process\"\n";

#[test]
fn external_switches_connect_sandboxes() {
    let _one = alone();
    if !has(&["setpriv", "taskset"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    for (switch, kind, isolation, programs) in [
        ("bondstone", "bondstone", "process", &[][..]),
        ("ovs", "ovs", "process", &OVS),
        ("testpmd", "testpmd", "container", &["dpdk-testpmd", "runc"]),
    ] {
        if !has(programs) || switch == "ovs" && !has_huge_pages() {
            continue;
        }
        scratch.write("sandboxed.toml", SANDBOXED_CHAIN.replace("process", isolation));
        let results = measure(&scratch, &format!("chain = \"sandboxed.toml\"\nswitch = \"{switch}\""));
        let dut = &results[0]["dut"];
        assert_eq!((&dut["kind"], &dut["isolation"]), (&kind.into(), &isolation.into()), "{dut:#}");
        // the configuration of other switches contains the sockets of the sandboxes
        assert!(switch == "bondstone" || dut["chain"].as_str().unwrap().contains("SANDBOXES/"), "{dut:#}");
    }
}

/// Uses a program that imitates VPP, which distributions do not package.
#[test]
fn configures_vpp() {
    let _one = alone();
    if !has(&["setpriv", "taskset", "dpdk-testpmd"]) || !is_root() {
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
    scratch.write("sandboxed.toml", SANDBOXED_CHAIN);
    for device in
        ["kind = \"vpp\"", "kind = \"vpp\"\nports = \"af_packet\"", "chain = \"sandboxed.toml\"\nswitch = \"vpp\""]
    {
        let results = measure_with(program(), &scratch, device, &["64"]);
        let dut = &results[0]["dut"];
        assert_eq!((&dut["kind"], &dut["version"]), (&"vpp".into(), &"v24.06-release".into()), "{dut:#}");
    }
    // VPP rejects a command
    let file = scratch.write("device.toml", scenario("kind = \"vpp\"\nforward = \"bridge\""));
    let db = scratch.path("none.sqlite");
    let words = ["bench", file.to_str().unwrap(), "--rate", "1000", "--db", db.to_str().unwrap()];
    let output = Said::from(program().args(words).output().unwrap());
    assert_eq!(output.status, Some(3), "{}", output.err);
    assert!(output.err.contains("bridge domain 1: not here") && output.err.contains("help:"), "{}", output.err);
    assert!(!Path::new("/dev/shm/bondstone-vpe-api").exists());
}

/// Measures the cost of changes of rules.
fn measure_changes(scratch: &Scratch, device: &str) {
    let before = leftovers();
    let file = scratch.write("device.toml", scenario(device));
    let db = scratch.path("results.sqlite");
    let output =
        bondstone(CHANGES.into_iter().chain(["--json", "--db"]).chain([db.to_str().unwrap(), file.to_str().unwrap()]));
    assert!(matches!(output.status, Some(0 | 1)), "{device}\n{}\n{}", output.err, output.out);
    let results: Vec<Value> = serde_json::from_str(&output.out).unwrap();
    let of = |name: &str| {
        let all = results[0]["quantities"].as_array().unwrap();
        let one = all.iter().find(|q| q["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:#?}"));
        one["value"].as_f64().unwrap()
    };
    for rate in [1, 100, 10_000] {
        assert!(of(&format!("changes made at {rate} per second")) > 0.5);
        assert!(of(&format!("blocked time of a change at {rate} per second")) >= 0.0);
    }
    assert!(!results[0].to_string().contains("refused"), "{:#}", results[0]);
    assert_nothing_left(&before);
}

#[test]
fn changes_rules_and_routes_while_forwarding() {
    let _one = alone();
    if !has(&["setpriv", "taskset"]) {
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
    measure_changes(&scratch, "kind = \"bondstone\"\nchain = \"chain.toml\"");
    scratch.write("router.toml", TWO_TENANTS);
    measure_changes(&scratch, "kind = \"bondstone\"\nforward = \"route\"\nchain = \"router.toml\"");
    // a chain without either
    scratch.write("chain.toml", chain("nf.it = { kind = \"count\" }"));
    let file = scratch.write("none.toml", scenario("kind = \"bondstone\"\nchain = \"chain.toml\""));
    let db = scratch.path("none.sqlite");
    let output = bondstone(CHANGES.into_iter().chain(["--db", db.to_str().unwrap(), file.to_str().unwrap()]));
    // host interference may invalidate all trials before
    let judged = !output.err.contains("could be judged");
    assert!(!judged || output.err.contains("add a firewall or a router to the chain"), "{}", output.err);
}

/// Returns true if there are enough huge pages for Open vSwitch over vhost-user.
fn has_huge_pages() -> bool {
    let free = Memory::free_huge_pages();
    if free < 400 {
        eprintln!("skipped: needs 400 free huge pages of 2 MiB");
    }
    free >= 400
}

const OVS: [&str; 3] = ["/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "ovs-vsctl", "setpriv"];

/// A router whose tenants have their interfaces on the same ports. Flows are for them in turn.
const TWO_TENANTS: &str = "bondstone = 1
port.lan.device = \"ring:lan\"
port.wan.device = \"ring:wan\"
[nf.router]
kind = \"l3fwd\"
table = \"exact\"
interface.lan1 = { port = \"lan\", addresses = [\"10.0.1.1/24\"], mac = \"02:00:00:00:01:01\", tenant = \"a\" }
interface.lan2 = { port = \"lan\", addresses = [\"10.0.2.1/24\"], mac = \"02:00:00:00:01:02\", tenant = \"b\" }
interface.wan1 = { port = \"wan\", addresses = [\"10.1.1.1/24\"], mac = \"02:00:00:00:02:01\", tenant = \"a\" }
interface.wan2 = { port = \"wan\", addresses = [\"10.1.2.1/24\"], mac = \"02:00:00:00:02:02\", tenant = \"b\" }
tenant.a.route = [{ prefix = \"198.18.0.0/26\", hosts = true, via = [\"10.1.1.2\"] }]
tenant.a.neighbour = { \"10.1.1.2\" = \"02:00:00:00:03:01\" }
tenant.b.route = [{ prefix = \"198.19.0.0/26\", via = [\"10.1.2.2\"] }]
tenant.b.neighbour = { \"10.1.2.2\" = \"02:00:00:00:03:02\" }
[[chain]]
path = [\"lan\", \"router\"]
[traffic]
into = \"lan\"
src = \"10.0.9.0/24\"
dst = [\"198.18.0.0/26\", \"198.19.0.0/26\"]
dst_mac = [\"02:00:00:00:01:01\", \"02:00:00:00:01:02\"]
";

#[test]
fn measures_open_vswitch() {
    let _one = alone();
    if !has(&OVS) {
        return;
    }
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    if !has_huge_pages() {
        return;
    }
    let program = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let results = measure_with(program, &scratch, "kind = \"ovs\"", &["64", "9018"]);
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("in_port=1,actions=output:2"));
    assert!(results[0]["dut"]["version"].as_str().unwrap().contains('.'));
    measure(&scratch, "kind = \"ovs\"\nforward = \"bridge\"");
    scratch.write("router.toml", TWO_TENANTS);
    let results = measure(&scratch, "kind = \"ovs\"\nforward = \"route\"\nchain = \"router.toml\"");
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("add-flows"));
    measure(&scratch, "kind = \"bondstone\"\nforward = \"route\"\nchain = \"router.toml\"");
    measure(&scratch, "kind = \"ovs\"\nports = \"af_packet\"");
}

#[test]
fn check_prints_the_location_of_devices() {
    let scratch = Scratch::new();
    for (device, words) in [
        ("kind = \"ovs\"", "ovs, vhost-user ports"),
        ("kind = \"ovs\"\nenv = \"container\"", "ovs in containers, vhost-user ports"),
        (
            "kind = \"router\"\nssh = \"root@there\"\nports = [\"af_packet:lo\", \"null\"]\ninterfaces = [\"c\", \"d\"]",
            "router on root@there, af_packet:lo null ports",
        ),
    ] {
        let file = scratch.write("device.toml", scenario(device));
        let output = bondstone(["check", file.to_str().unwrap()]);
        assert!(output.status == Some(0) && output.out.contains(words), "{words}: {}{}", output.out, output.err);
    }
}

/// Returns true if containers can be created.
fn has_containers() -> bool {
    has(&["runc", "setpriv", "taskset"]) && is_root()
}

/// Checks that a result is of a device in a container.
fn assert_container(results: &[Value]) {
    let result = &results[0];
    assert_eq!(result["dut"]["isolation"], "container");
    let chain = result["dut"]["chain"].as_str().unwrap();
    assert!(chain.contains("runc --root FOLDER/runc run"), "{chain}");
    assert!(result.to_string().contains("containers of runc"), "{result:#}");
}

#[test]
fn measures_programs_in_containers() {
    let _one = alone();
    if !has_containers() {
        return;
    }
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                 chain = [{ path = [\"a\", \"count\", \"b\"] }]\n";
    scratch.write("chain.toml", chain);
    assert_container(&measure(&scratch, "kind = \"bondstone\"\nenv = \"container\"\nchain = \"chain.toml\""));
    if has(&["dpdk-testpmd"]) {
        assert_container(&measure(&scratch, "kind = \"testpmd\"\nenv = \"container\""));
    }
}

#[test]
fn measures_open_vswitch_in_containers() {
    let _one = alone();
    if has_containers() && has(&OVS) && has_huge_pages() {
        assert_container(&measure(&Scratch::new(), "kind = \"ovs\"\nenv = \"container\""));
    }
}

/// Custom commands run in the container: without capabilities and with a read-only file system.
#[test]
fn runs_custom_commands_in_a_container() {
    let _one = alone();
    if !has_containers() || !has(&["dpdk-testpmd"]) {
        return;
    }
    let start = "sleep 7777 & exec dpdk-testpmd --lcores=0@$BONDSTONE_CPUS,1@$BONDSTONE_CPUS --no-pci --no-shconf --no-huge \
                 -m 512 --vdev=net_vhost0,iface=$BONDSTONE_PORT0 --vdev=net_vhost1,iface=$BONDSTONE_PORT1 -- \
                 --forward-mode=io --no-mlockall --total-num-mbufs=16384";
    let ready = "grep -q 'CapEff:[[:space:]]*0000000000000000' /proc/self/status && ! touch /usr/bondstone-was-here && \
                 test -z \"$(ls /tmp | grep -v bondstone-dut-)\" && grep -q testpmd /proc/1/cmdline && test -S $BONDSTONE_PORT1";
    let device = format!("kind = \"command\"\nenv = \"container\"\nstart = {start:?}\nready = {ready:?}");
    assert_container(&measure(&Scratch::new(), &device));
}

/// Custom commands create a Linux bridge.
#[test]
fn measures_a_device_of_custom_commands() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    // background processes have to end as well
    let start = "sleep 7777 & ip link add mine type bridge && ip link set $BONDSTONE_PORT0 master mine && \
                 ip link set $BONDSTONE_PORT1 master mine && ip link set mine up && exec sleep infinity";
    let ready = "ip -br link show mine | grep -q UP";
    let stopped = scratch.path("stopped");
    let device = format!(
        "kind = \"command\"\nports = \"af_packet\"\nstart = {start:?}\nready = {ready:?}\nstop = \"touch {}\"",
        stopped.display()
    );
    let results = measure(&scratch, &device);
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("ip link add mine"));
    assert!(stopped.exists(), "the stop command was not run");
}

/// A killed program leaves only its work directory, which the next run removes.
#[test]
fn cleans_up_after_sigkill() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let before = leftovers();
    let free = Memory::free_huge_pages();
    let mut devices = vec!["kind = \"bridge\""];
    if has(&OVS) && has_huge_pages() {
        devices.push("kind = \"ovs\"");
    }
    if has(&OVS) && has_huge_pages() {
        scratch.write("sandboxed.toml", SANDBOXED_CHAIN);
        devices.push("chain = \"sandboxed.toml\"\nswitch = \"ovs\"");
    }
    if has(&["runc", "dpdk-testpmd"]) {
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
        let left = |name: &String| !before.contains(name) && !name.starts_with("bondstone-dut-");
        // memory of a killed process is freed after its command line is gone
        while leftovers().iter().any(left) || Memory::free_huge_pages() < free {
            let pages = Memory::free_huge_pages();
            let left = || leftovers().into_iter().filter(left).collect::<Vec<_>>();
            assert!(Instant::now() < end, "{pages} of {free} huge pages are free; left: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // the next run removes stale work directories
    let file = scratch.write("device.toml", scenario("kind = \"bridge\""));
    let arguments = ["--rate", "1000", "--goal", "quick,final=50ms,sum=50ms,first=50ms", "--db"];
    let output = bondstone(
        ["bench", file.to_str().unwrap()].into_iter().chain(arguments).chain([scratch.path("db").to_str().unwrap()]),
    );
    assert!(matches!(output.status, Some(0 | 1)), "{}", output.err);
    assert_nothing_left(&before);
}

#[test]
fn cleans_up_after_sigint() {
    let _one = alone();
    if !has(&["ip", "unshare", "nsenter", "setpriv"]) || !is_root() {
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
    assert_nothing_left(&before);
}

/// The device receives all packets that the generator sent and its queue accepted.
#[test]
fn counts_of_generator_and_device_add_up() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let [first, second] = ["first", "second"].map(|name| scratch.path(name).display().to_string());
    // slower than the generator
    let chain = format!(
        "bondstone = 1\nport.in.device = \"vhost:{first}\"\nport.out.device = \"vhost:{second}\"\n\
         nf.slow = {{ kind = \"work\", cycles = 3000 }}\n[[chain]]\npath = [\"in\", \"slow\", \"out\"]\ncores = [0]\n"
    );
    let mut device = Running::run(&scratch.write("chain.toml", chain), &[]);
    device.started();
    let generator = format!(
        "bondstone = 1\n[scenario]\ntitle = \"too much\"\n[traffic]\nframes = \"64\"\n[dut]\nkind = \"external\"\nforward = \"any\"\n\
         ports = [\"virtio-user:{first}\", \"virtio-user:{second}\"]\n[goal]\nrate = 2e6\n"
    );
    let generator = scratch.write("generator.toml", generator);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let said = bondstone([
        "bench",
        generator.to_str().unwrap(),
        "--db",
        db.to_str().unwrap(),
        "--report",
        page.to_str().unwrap(),
        "--core",
        "1",
        "--json",
    ]);
    assert_eq!(said.status, Some(1), "the load is too high: {}", said.err);
    let ended = device.interrupt();
    assert!(ended.err.contains("polls without pauses"), "{}", ended.err);
    let received = ended.summary(130).port("in").number("/received");
    let result = said.results().remove(0);
    let sum = |count: fn(&report::Trial) -> u64| result.trials.iter().map(count).sum::<u64>();
    let (sent, tx_full, lost) = (sum(|t| t.sent), sum(|t| t.tx_full), sum(|t| t.lost));
    assert!(tx_full > sent / 10 && tx_full <= lost, "{tx_full} of {lost} lost of {sent}");
    // besides the trials: the forwarding check, a warm-up trial of 5,000 packets, and 200 packets before each trial
    let before_trials = 200 * (result.trials.len() as u64 + 1);
    let more = received.checked_sub(sent - tx_full).expect("no more than was accepted");
    assert!((before_trials..before_trials + 8000).contains(&more), "{received} received of {sent} less {tx_full}");
}
