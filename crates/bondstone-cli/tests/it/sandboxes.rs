//! NFs in sandboxes: the same packets and counts as without; privileges of sandboxed processes; effects of a sandbox
//! that ends, hangs or is malicious on others; cleanup.

use crate::common::sandboxed_run::{KINDS, SandboxedRun, demo, is_flowing, leftovers_of, possible, run, until};
use crate::common::{Running, Said, Scratch};
use rustix::process::Signal;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::{MacAddr, build};

/// Returns the frames of a capture.
fn frames(of: &Path) -> Vec<Vec<u8>> {
    let mut reader = pcap::Reader::open(of).unwrap();
    let mut frames = vec![];
    while let Some(record) = reader.next().unwrap() {
        frames.push(record.frame.to_vec());
    }
    frames
}

#[test]
fn packets_and_counts_do_not_depend_on_the_sandbox() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    let file = |name: &str, of_chain: &str, of_nfs: &str, of_sandboxes: &str| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"pcap:{name}.pcap\"\n\
             [port.copies]\ndevice = \"pcap:{name}-copies.pcap\"\n{of_sandboxes}\
             [nf.guard]\nkind = \"ttl\"\n{of_nfs}[nf.sandbox]\nkind = \"firewall\"\n{of_nfs}file = \"rules\"\n\
             [nf.probe]\nkind = \"tee\"\n{of_nfs}[[chain]]\nname = \"all\"\n{of_chain}\
             path = [\"in\", \"count\", \"guard\", \"sandbox\", \"probe\", \"monitor\", \"out\"]\n\
             [[edge]]\nfrom = \"probe.copy\"\nto = \"copies\"\n",
            demo()
        );
        scratch.write(format!("{name}.toml"), text)
    };
    scratch.write("rules", "drop proto icmp\naccept\n");
    let whole = run(&file("plain", "", "", "")).summary(0).0;
    // the whole chain in one sandbox, or each of three NFs in a separate one
    for (kind, each) in
        [("process", false), ("process", true), ("container", false), ("container", true), ("vm", false)]
    {
        if !possible(kind) {
            continue;
        }
        let isolation = format!("isolation = \"{kind}\"\n");
        let name = format!("{kind}-{each}");
        // some poll, others sleep when idle
        let sleeps = !each && kind != "process";
        let idle = if sleeps { "[sandbox.all]\nidle = \"sleep\"\n" } else { "" };
        let written = if each { file(&name, "", &isolation, "") } else { file(&name, &isolation, "", idle) };
        let summary = run(&written).summary(0);
        let sandboxes = summary.0["sandboxes"].as_array().unwrap();
        assert_eq!(sandboxes.len(), if each { 3 } else { 1 }, "{name}");
        assert!(
            sandboxes.iter().all(|sandbox| sandbox["isolation"] == kind && sandbox["starts"] == 1),
            "{sandboxes:?}"
        );
        assert!(!sleeps || sandboxes[0]["sleeps"] == true, "{sandboxes:?}");
        assert_eq!(summary.0["totals"], whole["totals"], "{name}");
        assert_eq!(summary.0["drops"], whole["drops"], "{name}");
        for nf in whole["nfs"].as_array().unwrap() {
            let here = summary.nf(nf["name"].as_str().unwrap()).0;
            for key in ["kind", "packets", "created", "held", "drops", "counters", "table"] {
                assert_eq!(here[key], nf[key], "{name}: {key} of {}", nf["name"]);
            }
        }
        for capture in ["", "-copies"] {
            let frames = |of: &str| frames(&scratch.path(format!("{of}{capture}.pcap")));
            assert!(!frames("plain").is_empty());
            assert_eq!(frames(&name), frames("plain"), "{name}{capture}");
        }
    }
}

#[test]
fn an_ids_uses_the_same_search_in_a_process() {
    let _alone = crate::common::alone();
    if !possible("process") {
        return;
    }
    let scratch = Scratch::new();
    let ids = |isolation: &str| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"null\"\n\
             [nf.ids]\nkind = \"ids\"\nmode = \"prevent\"\nisolation = \"{isolation}\"\n\
             inline = ['drop udp any any -> any any (content:\"|00|\"; sid:1;)']\n\
             [[chain]]\npath = [\"in\", \"ids\", \"out\"]\n",
            demo()
        );
        let summary = run(&scratch.write(format!("{isolation}.toml"), text)).summary(0);
        ["/packets", "/drops/drop_rule", "/counters/hyperscan"].map(|at| summary.nf("ids").number(at))
    };
    let [inproc, process] = ["inproc", "process"].map(ids);
    assert!(inproc[1] > 0, "{inproc:?}");
    assert_eq!(process, inproc);
}

#[test]
fn sandboxed_processes_have_no_privileges_and_see_no_files() {
    for kind in KINDS {
        let Some(run) = SandboxedRun::flow(kind) else { continue };
        let host = run.host();
        let status = std::fs::read_to_string(format!("/proc/{host}/status")).unwrap();
        let of = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap().trim().to_owned();
        for sets in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(u64::from_str_radix(&of(sets), 16), Ok(0), "{kind}: {sets}\n{status}");
        }
        assert_eq!((of("NoNewPrivs:").as_str(), of("Seccomp:").as_str()), ("1", "2"), "{kind}");
        let root = rustix::process::geteuid().is_root();
        if root {
            let user: u32 = of("Uid:").split_whitespace().next().unwrap().parse().unwrap();
            assert!(user > 1_000_000_000, "{kind}: {status}");
            let groups = std::fs::read_to_string(format!("/proc/{host}/cgroup")).unwrap();
            assert!(groups.contains(&format!("bondstone-{}-far", run.id)), "{kind}: {groups}");
        }
        for namespace in ["user", "mnt", "net", "pid", "ipc", "uts"] {
            let at = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
            assert_ne!(at(&host.to_string()), at("self"), "{kind}: {namespace}");
        }
        assert!(of("NSpid:").ends_with("\t1"), "{kind}: {status}");
        // its root contains its sockets and what DPDK or QEMU needs
        let root = PathBuf::from(format!("/proc/{host}/root"));
        for absent in ["etc", "usr/bin/env", "home", "root", "tmp", "sys/fs", "dev/hugepages"] {
            assert!(!root.join(absent).exists(), "{kind}: /{absent} exists");
        }
        if kind != "container" {
            // of all processes, only itself
            let entries = std::fs::read_dir(root.join("proc")).unwrap().flatten();
            let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            assert_eq!(names, ["1", "meminfo", "mounts", "self"], "{kind}");
        }
        let limits = std::fs::read_to_string(format!("/proc/{host}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(kind == "container" || core.split_whitespace().nth(4) == Some("0"), "{kind}: {core}");
        if kind != "vm" {
            // no files of the host process are open
            for open in std::fs::read_dir(format!("/proc/{host}/fd")).unwrap().flatten() {
                let to = std::fs::read_link(open.path()).unwrap_or_default().display().to_string();
                let own = !to.starts_with('/') || to == "/dev/null" || to.contains("memfd");
                assert!(!to.contains(".sock") && own, "{kind}: {to}");
            }
        }
        run.end(130);
    }
}

#[test]
fn a_killed_process_is_restarted_and_others_lose_nothing() {
    let plain = KINDS.map(|kind| (kind, ""));
    for (kind, keys) in plain.into_iter().chain([("process", "queues = 2\nspread = \"round-robin\"")]) {
        let Some(mut run) = SandboxedRun::flow_with(kind, keys) else { continue };
        let kills = if kind == "vm" { 1 } else { 3 };
        for turn in 1..=kills {
            run.kill();
            // rates are printed each second, so all packets of a second passed through the new process
            let mut flowing = 0;
            run.running.wait_for(&format!("packets after kill {turn}"), |line| {
                flowing += u32::from(is_flowing(line));
                flowing == 2 * turn
            });
        }
        let summary = run.end(4);
        let sandbox = summary.sandbox("far");
        assert_eq!(sandbox.number("/starts"), u64::from(kills) + 1, "{kind}");
        // each kill is an error
        let errors = summary.errors();
        assert_eq!(errors.len(), kills as usize, "{kind}: {errors:?}");
        assert!(
            errors.iter().all(|error| error.contains("\"far\"") && error.contains("signal 9")),
            "{kind}: {errors:?}"
        );
        // every packet that entered was returned or counted as lost
        let lost = sandbox.number("/drops/sandbox_lost") + sandbox.number("/drops/sandbox_return_full");
        let [sent, received, created] = ["/sent", "/received", "/created"].map(|key| sandbox.number(key));
        assert_eq!(sent + created, received + lost, "{kind}: {}", summary.0);
        assert_eq!(received, summary.port("out").number("/sent"), "{kind}");
        let other = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
        assert!(other[0] == other[1] && other[0] > 0, "{kind}: {}", summary.0);
    }
}

#[test]
fn killing_the_host_process_leaves_nothing_behind() {
    for kind in KINDS {
        let Some(run) = SandboxedRun::flow(kind) else { continue };
        run.host();
        run.running.signal(Signal::KILL);
        until(&format!("all of the {kind} to go"), || leftovers_of(run.id).is_empty());
    }
}

#[test]
fn a_hung_process_is_restarted() {
    for kind in KINDS {
        let Some(mut run) = SandboxedRun::flow(kind) else { continue };
        run.signal(Signal::STOP);
        run.running.wait_for("its end", |line| line.contains("sent no report"));
        run.running.wait_for("another", |line| line.contains("restarted in"));
        run.end(4);
    }
}

#[test]
fn stopping_does_not_wait_for_a_hung_process() {
    for kind in KINDS {
        let Some(run) = SandboxedRun::flow(kind) else { continue };
        run.signal(Signal::STOP);
        run.end(4);
    }
}

#[test]
fn counts_packets_that_a_killed_process_created() {
    for kind in KINDS {
        let text = format!(
            "bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"null\"\nport.copies.device = \"null\"\n\
             [nf.far]\nkind = \"tee\"\nisolation = \"{kind}\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n\
             [[edge]]\nfrom = \"far.copy\"\nto = \"copies\"\n"
        );
        let Some(mut run) = SandboxedRun::begin(kind, &text) else { continue };
        run.running.wait_for("packets", |line| line.contains("pps"));
        run.kill();
        run.running.wait_for("another", |line| line.contains("restarted in"));
        let summary = run.end(4);
        assert!(summary.port("copies").number("/sent") > 0, "{kind}: {}", summary.0);
    }
}

/// Several interfaces or queues with a CPU each; packets may return in any order.
#[test]
fn a_sandbox_may_have_several_interfaces_and_queues() {
    let _alone = crate::common::alone();
    if runtime::allowed_cpus() != [0, 1] {
        eprintln!("skipped: needs CPUs 0 and 1");
        return;
    }
    let scratch = Scratch::new();
    let frames = |of: &Path| {
        let mut frames = frames(of);
        frames.sort();
        frames
    };
    for (kind, by, [interfaces, queues]) in [
        ("process", "round-robin", [2, 1]),
        ("process", "flow", [3, 1]),
        ("process", "flow", [1, 8]),
        ("container", "round-robin", [1, 2]),
        ("vm", "round-robin", [2, 2]),
    ] {
        if !possible(kind) {
            continue;
        }
        let to = scratch.path(format!("{kind}-{by}.pcap"));
        let file = scratch.write(
            "wide.toml",
            format!(
                "bondstone = 1\nport.in.device = \"pcap:{}\"\nport.out.device = \"pcap:{}\"\n[nf.far]\nkind = \"count\"\n\
                 isolation = \"{kind}\"\n[nf.near]\nkind = \"count\"\n[sandbox.far]\ncores = [0, 1]\n\
                 interfaces = {interfaces}\nqueues = {queues}\nspread = \"{by}\"\n\
                 [[chain]]\npath = [\"in\", \"far\", \"near\", \"out\"]\ncores = [0]\n",
                demo(),
                to.display()
            ),
        );
        let ended = run(&file);
        let summary = ended.summary(0);
        let all = frames(Path::new(&demo()));
        assert_eq!(frames(&to), all, "{kind}");
        assert_eq!(summary.number("/sandboxes/0/sent"), all.len() as u64);
        for nf in ["far", "near"] {
            assert_eq!(summary.nf(nf).number("/packets"), all.len() as u64, "{kind}: {nf}");
        }
        // the spreading NF counts all packets
        let spread = summary.nf(&format!("far-{}", interfaces * queues + 1));
        assert_eq!((spread.0["kind"].as_str(), spread.number("/packets")), (Some("spread"), all.len() as u64));
    }
}

/// Packets that a worker receives while it is stopped return, also on CPUs that other threads use.
#[test]
#[ignore = "two minutes: make soak"]
fn short_runs_beside_other_load_return_all_packets() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let cpus = runtime::allowed_cpus();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    std::thread::scope(|scope| {
        for cpu in [first, last] {
            let ended = &ended;
            scope.spawn(move || {
                runtime::pin(cpu).unwrap();
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let file = scratch.write(
            "short.toml",
            format!(
                "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null,size=128\"\n\
                 [nf.far]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.far]\ncores = [{last}]\n\
                 [[chain]]\npath = [\"in\", \"far\", \"out\"]\ncores = [{first}]\n"
            ),
        );
        let runs = std::panic::catch_unwind(|| {
            for n in 0..150 {
                let mut running = Running::run(&file, &[]);
                running.started();
                std::thread::sleep(Duration::from_millis(n % 17));
                let summary = running.interrupt().summary(130);
                assert_eq!(summary.number("/drops/sandbox_lost"), 0, "run {n}: {}", summary.0);
            }
        });
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(payload) = runs {
            std::panic::resume_unwind(payload);
        }
    });
}

/// A router with interfaces that lead to ports by edges and by name; one of them receives nothing.
#[test]
fn a_router_behaves_the_same_in_a_sandbox() {
    const LAN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
    const WAN: MacAddr = MacAddr([2, 0, 0, 0, 2, 0]);
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    let capture = |name: &str, frames: &[Vec<u8>]| {
        let mut writer = pcap::Writer::create(scratch.path(name), pcap::LinkType::ETHERNET).unwrap();
        frames.iter().for_each(|frame| writer.write(0, frame.len() as u32, frame).unwrap());
        writer.finish().unwrap();
    };
    let [host, own] = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 1)];
    let lan = |to: [u8; 4], port: u16| build::udp4(host, to, port, 53).dst_mac(LAN).pad_to(60);
    let mut from_lan: Vec<_> = (0..500).map(|n| lan([198, 51, 100, 1], n).to_vec()).collect();
    let long = lan([198, 51, 100, 1], 1).payload(&[7; 1400]);
    from_lan.extend([
        // packets that cause ICMP errors, packets to the router, fragments, and packets to the third interface
        lan([198, 51, 100, 1], 1).ttl(1).to_vec(),
        lan([203, 0, 113, 1], 1).to_vec(),
        long.clone().dont_fragment().to_vec(),
        lan([100, 64, 0, 1], 1).to_vec(),
        build::echo4(host, own, 7, 8).payload(b"hello").dst_mac(LAN).to_vec(),
        build::arp_request([10, 0, 0, 6], own).pad_to(60).to_vec(),
        lan(own.octets(), 9).to_vec(),
        long.to_vec(),
        lan([10, 9, 0, 5], 1).to_vec(),
        lan([10, 9, 0, 5], 1).dst_mac(WAN).to_vec(),
        lan([198, 51, 100, 1], 1).to_vec()[..20].to_vec(),
    ]);
    capture("lan.pcap", &from_lan);
    let back = |n| build::udp4([192, 0, 2, 9], host, 53, n).dst_mac(WAN).pad_to(60).to_vec();
    capture("wan.pcap", &(0..300).map(back).collect::<Vec<_>>());
    let file = |name: &str, of_nf: &str, of_chains: &str, more: &str| {
        let ports = ["lan-out", "wan-out", "dmz"]
            .map(|port| format!("port.{port}.device = \"pcap:{name}-{port}.pcap\"\n"))
            .concat();
        let text = format!(
            "bondstone = 1\nport.lan-in.device = \"pcap:lan.pcap\"\nport.wan.device = \"pcap:wan.pcap\"\n{ports}\
             edge = [{{ from = \"router.lan\", to = \"lan-out\" }}, {{ from = \"router.wan\", to = \"wan-out\" }}]\n\
             [[chain]]\npath = [\"lan-in\", \"count\", \"router:lan\"]\n{of_chains}[[chain]]\npath = [\"wan\", \"router\"]\n{of_chains}\
             [nf.router]\nkind = \"l3fwd\"\n{of_nf}\
             interface.lan = {{ addresses = [\"{own}/24\"], mac = \"{LAN}\" }}\n\
             interface.wan = {{ addresses = [\"192.0.2.2/24\"], mac = \"{WAN}\", mtu = 1300 }}\n\
             interface.dmz = {{ addresses = [\"10.9.0.1/24\"] }}\n\
             route = [{{ prefix = \"198.51.100.0/24\", via = [\"192.0.2.1\"] }}, {{ prefix = \"100.64.0.0/10\", to = \"blackhole\" }}]\n\
             neighbour = {{ \"{host}\" = \"02:00:00:00:01:05\", \"192.0.2.1\" = \"02:00:00:00:02:01\", \
             \"10.9.0.5\" = \"02:00:00:00:09:05\" }}\n{more}"
        );
        scratch.write(format!("{name}.toml"), text)
    };
    // frames of two interfaces reach the third in any order
    let sent = |name: &str| {
        ["lan-out", "wan-out", "dmz"].map(|port| {
            let mut frames = frames(&scratch.path(format!("{name}-{port}.pcap")));
            frames.sort();
            frames
        })
    };
    let whole = run(&file("plain", "", "", "")).summary(0);
    let expected = sent("plain");
    assert_eq!(expected.each_ref().map(Vec::len), [300 + 5, 500 + 2, 1]);
    for (kind, of_nf, more) in [
        ("process", true, ""),
        ("process", false, ""),
        ("process", true, "[sandbox.router]\ntransport = \"memif\"\n"),
        ("process", true, "[sandbox.router]\ninterfaces = 2\n"),
        ("process", true, "[sandbox.router]\nqueues = 2\n"),
        ("container", true, ""),
        ("vm", true, ""),
    ] {
        if !possible(kind) {
            continue;
        }
        let isolation = format!("isolation = \"{kind}\"\n");
        let [of_nf, of_chains] = if of_nf { [&*isolation, ""] } else { ["", &isolation] };
        let summary = run(&file("sandboxed", of_nf, of_chains, more)).summary(0);
        assert_eq!(sent("sandboxed"), expected, "{kind}: {more}");
        for key in ["totals", "drops"] {
            assert_eq!(summary.0[key], whole.0[key], "{kind}: {more}: {key}");
        }
        let (here, there) = (summary.nf("router").0, whole.nf("router").0);
        for key in ["kind", "packets", "created", "held", "drops", "counters", "table"] {
            assert_eq!(here[key], there[key], "{kind}: {more}: {key}");
        }
        let sandbox = &summary.0["sandboxes"][0];
        assert_eq!((&sandbox["isolation"], &sandbox["starts"]), (&kind.into(), &1.into()), "{sandbox}");
        assert_eq!(sandbox["sent"], from_lan.len() + 300, "{sandbox}");
        assert_eq!(sandbox["received"], expected.iter().map(Vec::len).sum::<usize>(), "{sandbox}");
    }
    // packets to an unresolved neighbour are held and counted
    capture("lan.pcap", &(0..3).map(|n| lan([10, 9, 0, 77], n).to_vec()).collect::<Vec<_>>());
    if possible("process") {
        let summary = run(&file("held", "isolation = \"process\"\n", "", "")).summary(0);
        let router = summary.nf("router");
        assert_eq!(router.number("/held") + router.number("/drops/neighbour_unresolved"), 3, "{}", summary.0);
        assert!(sent("held")[2].iter().any(|request| request[..6] == [0xff; 6]), "{}", summary.0);
    }
}

#[test]
fn counts_packets_left_in_a_ring() {
    let _alone = crate::common::alone();
    if !possible("process") {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "ring.toml",
        format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"ring:x\"\n\
             [nf.far]\nkind = \"count\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n",
            demo()
        ),
    );
    let summary = run(&file).summary(0);
    assert_eq!(summary.number("/totals/held"), summary.number("/totals/sent"));
}

/// virtio's driver drops frames that are shorter than an Ethernet header.
#[test]
fn counts_frames_without_an_ethernet_header() {
    let _alone = crate::common::alone();
    if !possible("process") {
        return;
    }
    let scratch = Scratch::new();
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for n in 0..100 {
        let len = if n % 10 == 3 { 10 } else { 60 };
        writer.write(n * 1000, len as u32, &[n as u8; 60][..len]).unwrap();
    }
    writer.finish().unwrap();
    for (by, received) in [("vhost", 90), ("rings", 100)] {
        let file = scratch.write(
            "runts.toml",
            format!(
                "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\n[port.out]\ndevice = \"null\"\n\
                 [nf.far]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.far]\ntransport = \"{by}\"\n\
                 [[chain]]\npath = [\"in\", \"far\", \"out\"]\n"
            ),
        );
        let summary = run(&file).summary(0);
        assert_eq!(summary.port("out").number("/sent"), received, "{by}: {}", summary.0);
        assert_eq!(summary.sandbox("far").number("/drops/rx_unusable"), 100 - received, "{by}: {}", summary.0);
    }
}

#[test]
fn faults_of_an_nf_do_not_affect_other_processes() {
    let hows = [
        ("exit", "called exit"),
        ("loop", "does not return a batch"),
        ("allocate", "a failed allocation"),
        ("abort", "aborted the process"),
        ("recurse", "overflowed its stack"),
        ("panic-in-drop", "aborted the process"),
        ("connect", "made a system call that NFs may not make"),
    ];
    // emulated guests start slowly, and their system calls reach another kernel
    let all =
        KINDS.into_iter().flat_map(|kind| hows[..if kind == "vm" { 3 } else { 7 }].iter().map(move |how| (kind, *how)));
    let small_pages = dpdk::Memory::free_huge_pages() < 256;
    for (kind, (how, expected)) in all {
        let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
        let text = format!(
            "bondstone = 1\n{ports}[nf.bad]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\nisolation = \"{kind}\"\n\
             [nf.good]\nkind = \"misbehave\"\n[sandbox.bad]\nmemory_mib = 640\n\
             [[chain]]\npath = [\"in\", \"bad\", \"out\"]\n[[chain]]\npath = [\"in2\", \"good\", \"out2\"]\n"
        );
        let program = crate::common::misbehave();
        let Some(mut run) = SandboxedRun::of(kind, &text, program.to_str().unwrap()) else { continue };
        let lines = run.running.wait_for(&format!("{kind}: {how}: the end of its process"), |line| {
            // with pages of 4 KiB the kernel may kill the process before the allocation fails
            let killed = how == "allocate" && small_pages && line.contains("killed by signal 9");
            let is_expected = line.contains(expected) || killed;
            let is_reported = line.starts_with("warning: ") && line.contains("\"bad\"") && is_expected;
            assert!(!is_reported || how == "connect" || !line.contains("made a system call"), "{kind}: {how}: {line}");
            is_reported
        });
        // another process is started, and the other chain forwards
        let rates = lines.iter().filter(|line| line.contains("pps")).count();
        run.wait_for_restart(&format!("{kind}: {how}"), rates);
        let summary = run.end(4);
        assert!(summary.sandbox("bad").number("/starts") > 1, "{kind}: {how}: {}", summary.0);
        let other = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
        assert!(other[0] == other[1] && other[0] > 0, "{kind}: {how}: {}", summary.0);
    }
}

/// A chain through the NF `bad` in a sandbox, with a fault, and another chain without faults.
fn with_fault(fault: &str, kind: &str) -> String {
    let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
    format!(
        "bondstone = 1\n{ports}[nf.bad]\nkind = \"misbehave\"\n{fault}\nisolation = \"{kind}\"\n[nf.good]\nkind = \"misbehave\"\n\
         [[chain]]\npath = [\"in\", \"bad\", \"out\"]\n[[chain]]\npath = [\"in2\", \"good\", \"out2\"]\n"
    )
}

#[test]
fn output_of_a_sandbox_is_limited_and_counted() {
    let program = crate::common::misbehave();
    let program = program.to_str().unwrap();
    for kind in ["process", "container"] {
        let text = with_fault("how = \"flood\"", kind);
        let Some(mut run) = SandboxedRun::of(kind, &text, program) else { continue };
        let mut rates = 0;
        run.running.wait_for("rates", |line| {
            rates += u32::from(line.contains("pps"));
            rates == 2
        });
        let ended = run.running.interrupt();
        let summary = ended.summary(130);
        let suppressed = summary.sandbox("bad").number("/suppressed_lines");
        assert!(suppressed > 1000, "{kind}: {}", summary.0);
        let printed = ended.err.lines().filter(|line| line.starts_with("sandbox bad: packet")).count();
        let limit = 100 + 10 * (summary.0["seconds"].as_f64().unwrap() as usize + 10);
        // other output of the process counts, too
        assert!((50..limit).contains(&printed), "{kind}: {printed}\n{}", ended.err);
        let reports = ended.err.lines().filter_map(|line| line.strip_suffix(" lines of its output were suppressed"));
        let reported: u64 = reports.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(reported, suppressed, "{kind}: {}", ended.err);
        assert!(summary.port("out2").number("/sent") > 0, "{kind}: {}", summary.0);
    }
}

#[test]
fn suppressed_output_does_not_hide_the_cause_of_an_end() {
    let program = crate::common::misbehave();
    let program = program.to_str().unwrap();
    let text = with_fault("how = \"flood-and-exit\"\nafter = 1000", "process");
    let Some(mut run) = SandboxedRun::of("process", &text, program) else { return };
    run.running.wait_for("the end of its process", |line| {
        line.starts_with("warning: ") && line.contains("\"bad\"") && line.contains("called exit")
    });
    let summary = run.end(4);
    assert!(summary.sandbox("bad").number("/suppressed_lines") > 1000, "{}", summary.0);
}

#[test]
fn forged_counts_are_detected_and_not_added() {
    let _alone = crate::common::alone();
    if !possible("process") {
        return;
    }
    let scratch = Scratch::new();
    let run = |created: u64, dropped: u64, more: &[&str]| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"null\"\n\
             [nf.bad]\nkind = \"misbehave\"\nhow = \"forge\"\ncreated = {created}\ndropped = {dropped}\n\
             isolation = \"process\"\n[[chain]]\npath = [\"in\", \"bad\", \"out\"]\n",
            demo()
        );
        let file = scratch.write("forge.toml", text);
        Running::start(Command::new(crate::common::misbehave()).arg("run").arg(file).args(more)).end()
    };
    // consistent counts that cannot be distinguished from true ones
    let summary = run(0, 0, &["--json"]).summary(0);
    assert_eq!(summary.sandbox("bad").0.get("implausible"), None, "{}", summary.0);
    let packets = summary.number("/totals/received");
    assert!(packets > 0 && summary.number("/totals/sent") == packets, "{}", summary.0);
    let many = 1 << 47;
    for (created, dropped) in [(many, many), (many, 0), (0, many), (0, 5), (2 * packets, 7 * packets)] {
        let summary = run(created, dropped, &["--json"]).reported(4);
        let totals = ["received", "sent", "created", "dropped"].map(|n| summary.number(&format!("/totals/{n}")));
        assert_eq!(totals, [packets, packets, 0, 0], "{created} {dropped}: {}", summary.0);
        assert_eq!(summary.sandbox("bad").0["implausible"], true, "{created} {dropped}: {}", summary.0);
        assert_eq!(summary.nf("bad").0["implausible"], true, "{created} {dropped}: {}", summary.0);
        let [error] = summary.errors()[..] else { panic!("{}", summary.0) };
        assert!(error.contains("sandbox \"bad\"") && error.contains("cannot be true"), "{error}");
    }
    let text = run(many, many, &[]);
    assert_eq!(text.status, Some(4), "{}", text.err);
    assert!(text.out.contains("(these counts cannot be true)"), "{}", text.out);
}

/// The number of flows is that of the present process; the number of new flows is that of all.
#[test]
fn gauges_of_ended_processes_are_not_added() {
    const FLOWS: u16 = 10;
    if !possible("process") {
        return;
    }
    let scratch = Scratch::new();
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for port in 0..FLOWS {
        let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000 + port, 53).pad_to(60).to_vec();
        writer.write(u64::from(port) * 1_000_000, 60, &frame).unwrap();
    }
    writer.finish().unwrap();
    let text = format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\nrepeat = 0\ntimed = true\n[port.out]\ndevice = \"null\"\n\
         [nf.far]\nkind = \"monitor\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n",
        scratch.path("in.pcap").display()
    );
    let Some(mut run) = SandboxedRun::begin("process", &text) else { return };
    run.running.wait_for("packets", is_flowing);
    run.kill();
    run.running.wait_for("the restart", |line| line.contains("\"far\": restarted"));
    let mut after = 0;
    run.running.wait_for("packets of the new process", |line| {
        after = if line.contains("restarted") { 1 } else { after + u32::from(after > 0 && is_flowing(line)) };
        after == 3
    });
    let summary = run.end(4);
    let far = summary.nf("far");
    assert_eq!(far.number("/counters/flows"), u64::from(FLOWS), "{}", summary.0);
    assert_eq!(far.number("/counters/new"), 2 * u64::from(FLOWS), "{}", summary.0);
    assert_eq!(far.0["gauges"], serde_json::json!(["flows"]), "{}", summary.0);
    let expected = serde_json::json!({ "used": FLOWS, "capacity": 65_536 });
    assert_eq!(far.0["occupancy"]["flows_ipv4"], expected, "{}", summary.0);
}

#[test]
fn an_nf_cannot_open_files() {
    let _alone = crate::common::alone();
    for kind in ["process", "container"].into_iter().filter(|kind| possible(kind)) {
        let scratch = Scratch::new();
        let file = scratch.write(
            "open.toml",
            format!(
                "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"null\"\n\
                 [nf.bad]\nkind = \"misbehave\"\nhow = \"open\"\nisolation = \"{kind}\"\n[[chain]]\npath = [\"in\", \"bad\", \"out\"]\n",
                demo()
            ),
        );
        let summary = Running::start(Command::new(crate::common::misbehave()).arg("run").arg(file).arg("--json"))
            .end()
            .summary(0);
        assert_eq!(summary.sandbox("bad").number("/starts"), 1, "{}", summary.0);
        assert_eq!(summary.port("out").number("/sent"), summary.port("in").number("/received"), "{kind}");
    }
}

/// A peer that 20 times connects, sends valid packets, then writes invalid descriptors at full speed, and removes its
/// memory.
#[test]
fn a_malicious_vhost_peer_does_not_affect_others() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    let socket = scratch.path("evil.sock");
    let file = scratch.write(
        "evil.toml",
        format!(
            "bondstone = 1\nport.evil.device = \"vhost:{}\"\nport.out.device = \"null\"\nport.in.device = \"null\"\n\
             port.out2.device = \"null\"\n[[chain]]\npath = [\"evil\", \"count\", \"out\"]\n\
             [[chain]]\npath = [\"in\", \"tee\", \"out2\"]\n[[edge]]\nfrom = \"tee.copy\"\nto = \"evil\"\n",
            socket.display()
        ),
    );
    let mut running = Running::run(&file, &[]);
    running.started();
    let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(b"the truth").pad_to(60).to_vec();
    for turn in 0..20 {
        let mut peer = crate::common::peer::Peer::link(&socket, &scratch.path(format!("memory{turn}")));
        running.wait_for("its link", |line| line.contains("\"evil\"") && line.contains("link up"));
        (0..64).for_each(|_| peer.send(&frame));
        until("the truth to be heard", || peer.taken() == 64);
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(500) {
            (0..100).for_each(|_| peer.lie());
        }
        peer.shrink();
        std::thread::sleep(Duration::from_millis(20));
    }
    let summary = running.interrupt().summary(130);
    assert!(summary.port("evil").number("/received") >= 20 * 64, "{}", summary.0);
    let other = [summary.port("in").number("/received"), summary.port("out2").number("/sent")];
    assert!(other[0] > 0 && other[0] == other[1], "{}", summary.0);
}

#[test]
fn rejects_invalid_sandboxes() {
    let scratch = Scratch::new();
    for (text, expected) in [
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"prison\"\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "unknown isolation",
        ),
        ("[sandbox.a]\ncores = [0]\n[[chain]]\npath = [\"in\", \"count\", \"out\"]", "is in a sandbox"),
        (
            "[nf.a]\nkind = \"count\"\n[[chain]]\nisolation = \"process\"\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"a\", \"out\"]",
            "and in this one, which is not",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"a\"]\n[[chain]]\npath = [\"a.out\", \"out\"]",
            "another path outside it",
        ),
        (
            "[nf.a]\nkind = \"tee\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[edge]]\nfrom = \"a.copy\"\nto = \"drop\"",
            "on the other side of a sandbox boundary",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.a]\nmemory_mib = 10\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "less memory than DPDK needs",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.a]\ninterfaces = 9000000000\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "not a valid number of interfaces",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.a]\nqueues = 18446744073709551615\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "not a valid number of queues",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.a]\nqueues = 8\ninterfaces = 4\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "gives each chain 32 queues",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.a]\nqueues = 2\ntransport = \"memif\"\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "requires transport",
        ),
    ] {
        let second = if text.contains("in2") { "port.in2.device = \"null,size=60\"\n" } else { "" };
        let file = scratch.write(
            "wrong.toml",
            format!("bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"ring:x\"\n{second}{text}\n"),
        );
        let output: Said =
            Command::new(env!("CARGO_BIN_EXE_bondstone")).arg("check").arg(file).output().unwrap().into();
        assert_eq!(output.status, Some(2), "{text}: {output:?}");
        assert!(output.err.contains(expected) && output.err.contains("help: "), "{text}: {output:?}");
    }
}
