//! SR-IOV virtual functions of a NIC that QEMU (8 or later) emulates for a guest: they are created, passed through to a
//! router in a sandbox, carry packets between two hosts, and are removed. The guest has cgroup v2.

use crate::common::Scratch;
use crate::common::guest::{self, GuestFiles};
use serde_json::Value;
use std::fs::write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Kernel modules of the NIC, in order of their dependencies.
const NIC_MODULES: [&str; 3] =
    ["drivers/dca/dca.ko", "drivers/i2c/algos/i2c-algo-bit.ko", "drivers/net/ethernet/intel/igb/igb.ko"];
/// Kernel modules of VFIO, in order of their dependencies.
const VFIO_MODULES: [&str; 6] = [
    "virt/lib/irqbypass.ko",
    "drivers/vfio/vfio.ko",
    "drivers/vfio/vfio_iommu_type1.ko",
    "drivers/vfio/vfio_virqfd.ko",
    "drivers/vfio/pci/vfio-pci-core.ko",
    "drivers/vfio/pci/vfio-pci.ko",
];
/// A router in a sandbox with two virtual functions.
const CHAIN: &str = r#"bondstone = 1
[port.a]
device = "sriov:eth0,mac=02:00:00:00:00:01"
sandbox = "router"
[port.b]
device = "sriov:eth0,mac=02:00:00:00:00:02"
sandbox = "router"
[nf.router]
kind = "l3fwd"
isolation = "process"
interface.a = { addresses = ["10.0.0.1/24"], mac = "02:00:00:00:00:01" }
interface.b = { addresses = ["10.0.1.1/24"], mac = "02:00:00:00:00:02" }
[[chain]]
path = ["a", "router"]
[[chain]]
path = ["b", "router"]
"#;
/// Init program of the guest. One host is the physical function of the NIC, the other a second NIC on the same link.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
# iproute2, not the applet of the shell
export PATH=/sbin:/bin
ip() { /sbin/ip "$@"; }
if [ "$1" != again ]; then
	# pivot_root is not possible from the initial root
	mkdir /new; mount -t tmpfs -o size=90% none /new
	for at in *; do [ $at = new ] || [ $at = dev ] || cp -a $at /new; done
	mkdir -p /new/dev
	exec switch_root /new /init again
fi
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mkdir -p /tmp /run
mount -t cgroup2 none /sys/fs/cgroup
exec >/dev/ttyS0 2>&1 </dev/null
cd /sys/bus/pci/devices
state() {
	echo "STATE $1: $(cat $pf/sriov_numvfs) functions, autoprobe $(cat $pf/sriov_drivers_autoprobe), $(ls | wc -l) devices"
}
run() {
	timeout 60 /bondstone run /vf.toml --for 1s
	echo "STATUS $1: $?"
}
flows() {
	tries=0
	until ping -q -c 1 -W 1 10.0.1.2 >/dev/null 2>&1; do
		tries=$((tries + 1)); [ $tries -lt 90 ] || { echo "FAILED: no packets forwarded, $1"; return; }
	done
	echo "PING $1: $(ping -q -c 50 -i 0.02 -W 5 10.0.1.2 | grep transmitted)"
}
inner() {
	for process in /proc/[0-9]*; do
		tr '\0' ' ' <$process/cmdline 2>/dev/null | grep -q '[-]-inner' && echo ${process#/proc/}
	done
}
load() {
	for module in $(cat /modules/$1); do insmod /modules/$module || echo "FAILED: insmod $module"; done
}
gone() {
	tries=0
	while [ "$(cat $pf/sriov_numvfs $pf/sriov_drivers_autoprobe | tr '\n' ' ')" != "0 1 " ] && [ $tries -lt 1000 ]; do
		tries=$((tries + 1)); sleep 0.02
	done
	state "$1"
	echo "GROUPS $1: $(ls -d /sys/fs/cgroup/bondstone-* 2>/dev/null | wc -l)"
}
load nic
pf=$(basename "$(readlink -f /sys/class/net/eth0/device)")
ip link set lo up
ip link set eth0 up; ip addr add 10.0.0.2/24 dev eth0; ip route add 10.0.1.0/24 via 10.0.0.1
ip netns add far; ip link set eth1 netns far
ip -n far link set eth1 up; ip -n far addr add 10.0.1.2/24 dev eth1; ip -n far route add default via 10.0.1.1
state first
run "without vfio-pci"
load programs

/bondstone run /vf.toml --json >/summary &
main=$!
flows running
echo "BOUND: $(basename "$(readlink $pf/virtfn0/driver)"), $(cat $pf/virtfn0/driver_override), $(ls /dev/vfio | wc -l) in /dev/vfio"
state running
group=/sys/fs/cgroup/bondstone-$main-router
echo "GROUP: $(cat $group/memory.max $group/pids.max $group/cpuset.cpus | tr '\n' ' ')and $(wc -l <$group/cgroup.procs) processes"
run "a second"
kill -9 $(inner)
flows again
kill -INT $main
wait $main
echo "STATUS stopped: $?"
echo "SUMMARY $(tr -d '\n' </summary) END"
gone stopped

/bondstone run /vf.toml &
main=$!
flows anew
kill -9 $main
wait $main
gone killed

echo 0 >$pf/sriov_drivers_autoprobe; echo 1 >$pf/sriov_numvfs
run "beside others"
state "beside others"
echo o >/proc/sysrq-trigger; sleep 60
"#;

/// Returns the folder that `scripts/emulated-nic.sh` downloads to.
fn download_dir() -> PathBuf {
    guest::cache().join("emulated-nic")
}

/// Returns the command of a QEMU that emulates the NIC.
fn qemu() -> Option<Command> {
    fn installed() -> Command {
        Command::new("qemu-system-x86_64")
    }
    fn downloaded() -> Command {
        let root = download_dir().join("usr");
        let mut qemu = Command::new(root.join("bin/qemu-system-x86_64"));
        for data in ["qemu", "seabios"] {
            qemu.arg("-L").arg(root.join("share").join(data));
        }
        qemu
    }
    let has = |mut qemu: Command| {
        let output = qemu.args(["-device", "igb,help"]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("netdev="))
    };
    [installed as fn() -> Command, downloaded].into_iter().find(|qemu| has(qemu())).map(|qemu| qemu())
}

#[test]
#[ignore = "an emulated guest takes minutes on a busy machine: make soak"]
fn virtual_functions_carry_packets_to_a_sandbox_and_are_removed() {
    let scratch = Scratch::new();
    let ip = Path::new("/sbin/ip");
    let modules = [&NIC_MODULES[..], &VFIO_MODULES].concat();
    let kernel = guest::kernel(&download_dir(), &modules);
    let (Some(mut qemu), Some((image, modules)), true) = (qemu(), kernel, guest::has_tools() && ip.exists()) else {
        eprintln!(
            "skipped: needs cpio, busybox-static, iproute2, and a QEMU and kernel with igb (scripts/emulated-nic.sh)"
        );
        return;
    };

    let files = GuestFiles::new(scratch.path("root"), INIT);
    files.put_program(ip, "sbin/ip");
    for (list, of) in [("nic", &NIC_MODULES[..]), ("programs", &VFIO_MODULES)] {
        files.put_modules(list, &modules, of);
    }
    write(files.path("vf.toml"), CHAIN).unwrap();
    let archive = scratch.path("initramfs");
    files.pack(&archive);

    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    // QEMU 10.0 ignores the upper half of a virtual function's address: all devices are placed below 4 GiB
    qemu.args(["-accel", "tcg", "-cpu", "max,phys-bits=36", "-smp", "2", "-m", "3072", "-serial", "stdio"]);
    qemu.args(["-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on"]);
    for n in 0..2 {
        qemu.args(["-netdev", &format!("hubport,id=cable{n},hubid=0")]);
        qemu.args(["-device", &format!("pcie-root-port,id=root{n},chassis={n},slot={n}")]);
        qemu.args(["-device", &format!("igb,bus=root{n},netdev=cable{n},mac=02:00:00:00:01:0{n},romfile=")]);
    }
    qemu.arg("-kernel").arg(&image).arg("-initrd").arg(&archive);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 intel_iommu=on"]).stdin(Stdio::null());
    let output = guest::run(&qemu);

    let part = |from: &str, to: &str| {
        let rest = output.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {output}")).1;
        rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} in {output}")).0.to_owned()
    };
    let before = part("STATE first: ", "\n");
    assert!(before.starts_with("0 functions, autoprobe 1, "), "{output}");
    assert!(!output.contains("FAILED"), "{output}");
    assert!(part("STATE first", "STATUS without vfio-pci: 3\n").contains("sudo modprobe vfio-pci"));
    for when in ["running", "again", "anew"] {
        assert!(
            part(&format!("PING {when}: "), "\n").starts_with("50 packets transmitted, 50 packets received"),
            "{when}"
        );
    }
    // the container node, and one for each group
    assert_eq!(part("BOUND: ", "\n"), "vfio-pci, vfio-pci, 3 in /dev/vfio");
    assert!(part("STATE running: ", "\n").starts_with("2 functions, autoprobe 0, "));
    // limits of cgroup v2, and two processes: the one that creates the namespaces and the one inside
    let (group, after) = (part("GROUP: ", "\n"), "and 2 processes");
    assert!(group.starts_with("1073741824 64 ") && group.ends_with(after), "{group}");
    assert_eq!([part("GROUPS stopped: ", "\n"), part("GROUPS killed: ", "\n")], ["0", "0"]);
    assert!(part("STATE running", "STATUS a second: 3\n").contains("another Bondstone process uses"));
    // a process of the sandbox was killed
    assert_eq!(part("STATUS stopped: ", "\n"), "4");
    let summary: Value = serde_json::from_str(&part("SUMMARY ", " END")).unwrap();
    let total = |key: &str| summary["totals"][key].as_u64().unwrap();
    assert_eq!(summary["balanced"], true, "{summary}");
    assert_eq!(total("received") + total("created"), total("sent") + total("held") + total("dropped"), "{summary}");
    assert_eq!(summary["sandboxes"][0]["starts"], 2, "{summary}");
    for port in summary["ports"].as_array().unwrap() {
        assert!(port["received"].as_u64() >= Some(100) && port["sent"].as_u64() >= Some(100), "{summary}");
    }
    assert_eq!(part("STATE stopped: ", "\n"), before);
    assert_eq!(part("STATE killed: ", "\n"), before);
    assert!(part("STATE killed", "STATUS beside others: 3\n").contains("already has 1 virtual functions"));
    assert!(part("STATE beside others: ", "\n").starts_with("1 functions, autoprobe 0, "));
}
