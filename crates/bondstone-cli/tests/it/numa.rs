//! Placement of chains in a guest with two NUMA nodes, each with a NIC.

use crate::common::Scratch;
use crate::common::guest::{self, GuestFiles};
use crate::common::sandboxed_run::possible;
use serde_json::Value;
use std::process::Command;

/// Kernel modules of the NICs, in order of their dependencies.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];
/// Two NFs, each at one NIC.
const CHAIN: &str = r#"bondstone = 1
port.a.device = "af_packet:eth0"
port.b.device = "af_packet:eth1"
[nf.first]
kind = "ttl"
[nf.second]
kind = "ttl"
[[chain]]
name = "at-eth0"
path = ["a", "first", "a"]
[[chain]]
name = "at-eth1"
path = ["b", "second", "b"]
"#;
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mkdir -p /tmp /run
exec >/dev/ttyS0 2>&1 </dev/null
for module in $(cat /modules/nic); do insmod /modules/$module || echo "FAILED: insmod $module"; done
for nic in eth0 eth1; do echo "NODE $nic: $(cat /sys/class/net/$nic/device/../numa_node)"; done
for place in local worst "random --seed 1" "random --seed 2" "random --seed 3"; do
	echo "PLAN $place: $(/bondstone plan /chain.toml --json --place $place | tr -d '\n') END"
done
echo o >/proc/sysrq-trigger; sleep 60
"#;

#[test]
fn chains_are_placed_near_their_devices_or_far_from_them() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    if !possible("vm") || !guest::has_tools() {
        return eprintln!("skipped: needs QEMU, the kernel of virtual machines, cpio and busybox-static");
    }
    // that which `bondstone image vm --fetch` has downloaded
    let Some((image, modules)) = guest::kernel(&guest::cache().join("kernel"), &MODULES) else {
        return eprintln!("skipped: the kernel has no modules of virtio NICs");
    };
    let files = GuestFiles::new(scratch.path("root"), INIT);
    files.put_modules("nic", &modules, &MODULES);
    std::fs::write(files.path("chain.toml"), CHAIN).unwrap();
    let archive = scratch.path("initramfs");
    files.pack(&archive);

    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    qemu.args(["-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max", "-m", "1536", "-serial", "stdio"]);
    qemu.args(["-smp", "4,sockets=2,cores=2"]);
    for node in 0..2 {
        qemu.args(["-object", &format!("memory-backend-ram,id=ram{node},size=768M")]);
        let cpus = format!("{}-{}", 2 * node, 2 * node + 1);
        qemu.args(["-numa", &format!("node,nodeid={node},cpus={cpus},memdev=ram{node}")]);
        // a bus of the node
        qemu.args([
            "-device",
            &format!("pxb-pcie,id=bus{node},bus_nr={},numa_node={node},bus=pcie.0", 64 * (node + 1)),
        ]);
        qemu.args(["-device", &format!("pcie-root-port,id=root{node},bus=bus{node},chassis={node},slot={node}")]);
        qemu.args(["-netdev", &format!("hubport,id=net{node},hubid={node}")]);
        qemu.args(["-device", &format!("virtio-net-pci,bus=root{node},netdev=net{node},romfile=")]);
    }
    qemu.arg("-kernel").arg(&image).arg("-initrd").arg(&archive);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
    let output = guest::run(&qemu);

    let part = |from: &str, to: &str| {
        let rest = output.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {output}")).1;
        rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} in {output}")).0.to_owned()
    };
    assert!(!output.contains("FAILED"), "{output}");
    // the order of their names depends on the kernel
    let devices = ["eth0", "eth1"].map(|nic| part(&format!("NODE {nic}: "), "\n").parse::<u64>().unwrap());
    assert!(devices == [0, 1] || devices == [1, 0], "{devices:?}");
    let nodes = |place: &str| -> Vec<u64> {
        let plan: Value = serde_json::from_str(&part(&format!("PLAN {place}: "), " END")).unwrap();
        assert_eq!(plan["nodes"].as_object().unwrap().len(), 2, "{plan}");
        let chains = plan["chains"].as_array().unwrap();
        chains.iter().map(|chain| chain["nodes"][0].as_u64().unwrap()).collect()
    };
    assert_eq!(nodes("local"), devices);
    assert_eq!(nodes("worst"), devices.map(|node| 1 - node));
    let random: Vec<Vec<u64>> = (1..=3).map(|seed| nodes(&format!("random --seed {seed}"))).collect();
    assert!(random.iter().any(|nodes| *nodes != random[0]), "{random:?}");
}
