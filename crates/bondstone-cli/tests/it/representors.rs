//! Taps of representors: many, flooded, with long frames, reloaded, and at the end of a run.

use crate::common::gateway::start_with_socket;
use crate::common::lab::Lab;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::{LIMIT, Running, Scratch, alone};
use crate::punt::ping;
use dpdk::netdev::in_namespace;
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames per second that are read of a tap, and at once.
const RATE: f64 = 20_000.0;
const BURST: f64 = 512.0;

/// Waits until something is true.
#[track_caller]
fn until(expected: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_true() {
        assert!(Instant::now() < deadline, "{expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the names of the interfaces of a namespace, without `lo`.
fn interfaces(namespace: &Namespace) -> Vec<String> {
    let all: Value = serde_json::from_str(&namespace.ip("-j link show")).unwrap();
    let names = all.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
    names.filter(|name| name != "lo").collect()
}

/// Returns the CPUs of a thread of a process, as the kernel lists them.
fn cpus_of_thread(process: u32, name: &str) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|thread| thread.unwrap().path());
    let is_named = |path: &std::path::PathBuf| std::fs::read_to_string(path.join("comm")).unwrap().trim() == name;
    let status = std::fs::read_to_string(threads.into_iter().find(is_named)?.join("status")).unwrap();
    status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
}

#[test]
fn forty_representors_run_beside_the_ports_of_dpdk() {
    /// Interfaces with a host.
    const HOSTS: usize = 5;
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let (hosts, control, own) = (Namespace::new("many-h"), Namespace::new("many-c"), Namespace::new("many-own"));
    let scratch = Scratch::new();
    let mut text = "bondstone = 1\n[nf.sink]\nkind = \"drop\"\n[nf.router]\nkind = \"l3fwd\"\n".to_owned();
    for n in 0..40 {
        text += &format!("interface.i{n} = {{ addresses = [\"10.9.{n}.1/24\"], representor = \"r{n}\" }}\n");
    }
    let path = |port: &str| format!("[[chain]]\npath = [\"{port}\", \"router\"]\ncores = [0]\n");
    for n in 0..40 {
        text += &format!("[port.r{n}]\ndevice = \"tap:r{n}\"\nnamespace = \"{}\"\n", control.0);
        text += &path(&format!("r{n}"));
        text += &match n {
            0..HOSTS => {
                let path = path(&format!("i{n}"));
                format!("[port.i{n}]\ndevice = \"tap:h{n}\"\nnamespace = \"{}\"\n{path}", hosts.0)
            }
            _ => format!("[[edge]]\nfrom = \"router.i{n}\"\nto = \"sink\"\n"),
        };
    }
    let file = scratch.write("many.toml", text);
    let bondstone = start_with_socket(&own, &file, &scratch.path("sockets"));
    for n in 0..HOSTS {
        hosts.configure(&format!("h{n}"), &[&format!("10.9.{n}.2/24")]);
    }
    assert_eq!((interfaces(&control).len(), interfaces(&own)), (40, vec![]));
    let shown = control.ip("-brief -4 addr");
    assert!((0..40).all(|n| shown.contains(&format!("10.9.{n}.1/24"))), "{shown}");
    for n in 0..HOSTS {
        ping(&control, &format!("10.9.{n}.2"));
        ping(&hosts, &format!("10.9.{n}.1"));
    }
    if runtime::allowed_cpus().len() > 1 {
        let cpus = cpus_of_thread(bondstone.id(), "representors").expect("the thread runs");
        assert!(!cpus.starts_with('0'), "the worker is on CPU 0, and the thread on {cpus}");
    }
    let summary = bondstone.terminate().summary(130);
    for n in 0..HOSTS {
        assert!(summary.port(&format!("r{n}")).number("/received") >= 6, "{}", summary.0);
        assert!(summary.port(&format!("r{n}")).number("/sent") >= 6, "{}", summary.0);
    }
    assert_eq!(interfaces(&control), [""; 0]);
}

#[test]
fn a_control_plane_that_floods_its_tap_is_limited() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let begin = Instant::now();
    let lab = Lab::start("inject", "");
    let Lab { a, b, control, .. } = &lab;
    ping(control, "10.1.0.2");
    let socket = in_namespace(Some(&control.0), || UdpSocket::bind("10.1.0.1:0")).unwrap();
    let ends = AtomicBool::new(false);
    let offered = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut sent = 0u64;
            while !ends.load(Ordering::Relaxed) || sent < 100_000 {
                // errors: a host reports that no program listens
                sent += u64::from(socket.send_to(&[0; 18], "10.1.0.2:9").is_ok());
            }
            sent
        });
        ping(a, "10.2.0.2");
        ping(b, "10.1.0.2");
        // the other interface of the same control plane
        ping(control, "10.2.0.2");
        ends.store(true, Ordering::Relaxed);
        flood.join().unwrap()
    });
    let router = lab.stop(&[]);
    let injected = router.number("/counters/injected");
    // of both taps
    let most = 2.0 * (begin.elapsed().as_secs_f64() * RATE + BURST);
    assert!(injected > 1000 && injected < offered, "{injected} of {offered}");
    assert!(injected as f64 <= most, "{injected} of {offered}, {most} permitted");
}

#[test]
fn long_frames_reach_the_control_plane_and_leave_it() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let (host, control, own) = (Namespace::new("long-h"), Namespace::new("long-c"), Namespace::new("long-own"));
    host.link("h0", &own, "lan0");
    for (namespace, end) in [(&host, "h0"), (&own, "lan0")] {
        namespace.ip(&format!("link set {end} mtu 9000"));
    }
    own.raise("lan0");
    host.configure("h0", &["10.1.0.2/24", "fd01::2/64"]);
    let scratch = Scratch::new();
    let text = format!(
        "bondstone = 1\nmax_frame = 9014\n\
         port.lan = {{ device = \"af_packet:lan0\" }}\n\
         port.lan-host = {{ device = \"tap:lan\", namespace = \"{}\" }}\n\
         chain = [{{ path = [\"lan\", \"router\"], cores = [0] }}, {{ path = [\"lan-host\", \"router\"], cores = [0] }}]\n\
         [nf.router]\nkind = \"l3fwd\"\n\
         interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], mtu = 9000, representor = \"lan-host\" }}\n",
        control.0
    );
    let bondstone = start_with_socket(&own, &scratch.write("long.toml", text), &scratch.path("sockets"));
    let shown: Value = serde_json::from_str(&control.ip("-j link show dev lan")).unwrap();
    assert_eq!(shown[0]["mtu"], 9000, "{shown}");
    for (from, to) in [(&control, "10.1.0.2"), (&host, "10.1.0.1"), (&control, "fd01::2"), (&host, "fd01::1")] {
        ping(from, &format!("-M do -s 8900 {to}"));
    }
    // frames above the buffers, which the control plane can send once it has raised the MTU
    control.ip("link set lan mtu 12000");
    let sent =
        control.command("ping").args(["-n", "-c", "3", "-i", "0.2", "-W", "1", "-s", "9500", "10.1.0.2"]).output();
    assert!(!sent.unwrap().status.success());
    let summary = bondstone.terminate().summary(130);
    assert_eq!(summary.port("lan-host").number("/drops/too_long"), 3, "{}", summary.0);
}

#[test]
fn a_start_names_an_interface_that_exists_in_the_namespace() {
    let _one = alone();
    if !possible(&[]) {
        return;
    }
    let (control, scratch) = (Namespace::new("taken-c"), Scratch::new());
    control.ip("tuntap add lan mode tap");
    let file = |namespace: &str, mtu: u16| {
        let text = format!(
            "bondstone = 1\nport.lan.device = \"null\"\n\
             port.lan-host = {{ device = \"tap:lan\", namespace = \"{namespace}\" }}\n\
             chain = [{{ path = [\"lan\", \"router\"] }}, {{ path = [\"lan-host\", \"router\"] }}]\n\
             [nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"fd01::1/64\"], mtu = {mtu}, representor = \"lan-host\" }}\n"
        );
        scratch.write("taken.toml", text)
    };
    let problem = |file: &std::path::Path| {
        let ended = Running::run(file, &[]).end();
        assert_eq!(ended.status, Some(3), "{}", ended.err);
        ended.err
    };
    let taken = problem(&file(&control.0, 1500));
    assert!(["\"lan-host\"", "\"lan\" exists", &control.0].iter().all(|word| taken.contains(word)), "{taken}");
    let missing = problem(&file("bs-no-such", 1500));
    assert!(["\"lan-host\"", "bs-no-such", "ip netns add"].iter().all(|word| missing.contains(word)), "{missing}");
    control.ip("link delete lan");
    let short = problem(&file(&control.0, 1000));
    assert!(["\"lan-host\"", "fd01::1", "1280"].iter().all(|word| short.contains(word)), "{short}");
    assert_eq!(interfaces(&control), [""; 0]);
}

#[test]
fn reloads_open_close_and_repair_taps() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let lab = Lab::start("taps", "");
    let Lab { a, b, control, .. } = &lab;
    let setting = |path: &str| done(control.command("cat").arg(format!("/proc/sys/net/{path}"))).stdout;
    for path in ["ipv6/conf/lan/accept_ra", "ipv6/conf/lan/autoconf", "ipv6/conf/lan/accept_redirects"]
        .into_iter()
        .chain(["ipv4/conf/lan/accept_redirects", "ipv4/conf/all/accept_redirects", "ipv6/conf/wan/accept_dad"])
    {
        assert_eq!(setting(path), b"0\n", "{path}");
    }
    ping(a, "10.1.0.1");
    // a port and its tap are removed, and the other stays open
    let (removed, without) = (", representor = \"wan-host\"", "");
    let port = format!("port.wan-host = {{ device = \"tap:wan\", namespace = \"{}\" }}\n", control.0);
    let chain = ", { path = [\"wan-host\", \"router\"], cores = [1] }";
    let index = |name: &str| control.ip(&format!("-o link show dev {name}")).split(':').next().unwrap().to_owned();
    let (lan, wan) = (index("lan"), index("wan"));
    let said = lab.reload(&[(removed, without), (&port, ""), (chain, "")]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(interfaces(control), ["lan"]);
    ping(a, "10.1.0.1");
    let last = "addresses = [\"10.2.0.1/24\", \"fd02::1/64\"]";
    let chains = "cores = [0] }]";
    let said = lab.reload(&[
        (last, &format!("{last}{removed}")),
        (chains, &format!("cores = [0] }}{chain}]")),
        ("bondstone = 1\n", &format!("bondstone = 1\n{port}")),
    ]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(index("lan") == lan && index("wan") != wan);
    ping(a, "10.1.0.1");
    ping(b, "10.2.0.1");
    // addresses of others are removed by a change of the interface
    control.ip("addr add 10.66.0.1/24 dev lan");
    control.ip("addr add fd66::1/64 dev lan");
    let said = lab.reload(&[("\"10.1.0.1/24\", ", "\"10.1.0.7/24\", ")]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let shown: Value = serde_json::from_str(&control.ip("-j addr show dev lan")).unwrap();
    let mut addresses: Vec<_> = shown[0]["addr_info"].as_array().unwrap().iter().map(|own| &own["local"]).collect();
    addresses.sort_by_key(|address| address.to_string());
    assert_eq!(addresses, ["10.1.0.7", "fd01::1", "fe80::ff:fe00:100"], "{shown}");
    // an interface that cannot be configured is configured later
    control.ip("link set lan name away");
    let said = lab.reload(&[("\"10.1.0.7/24\", ", "\"10.1.0.8/24\", ")]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!([&said.out, &said.err].iter().any(|said| said.contains("tap lan could not be configured")), "{said:?}");
    std::thread::sleep(Duration::from_secs(3));
    control.ip("link set away name lan");
    until("the address is added", || control.ip("-brief addr show dev lan").contains("10.1.0.8/24"));
    ping(a, "10.1.0.8");
    lab.stop(&[]);
}

#[test]
fn taps_end_with_a_killed_process_and_a_deleted_tap_is_reported() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let lab = Lab::start("gone", "");
    let Lab { control, bondstone, .. } = &lab;
    ping(control, "10.1.0.2");
    bondstone.signal(Signal::KILL);
    until("the taps end", || interfaces(control).is_empty());
    drop(lab);

    let lab = Lab::start("deleted", "");
    let Lab { b, control, .. } = &lab;
    control.ip("link delete lan");
    // the worker and the other tap go on
    ping(b, "10.2.0.1");
    ping(b, "10.1.0.2");
    let summary = lab.bondstone.terminate().reported(4);
    let errors = summary.errors();
    assert!(matches!(errors[..], [error] if error.contains("\"lan-host\": interface lan was deleted")), "{errors:?}");
}
