//! Virtual functions by the kernel of a guest whose machine has a device with SR-IOV. QEMU has that since 7.1, for a
//! disk (NVMe): all that is written to `/sys` is tried, and nothing of what a NIC does.

mod common;

use common::Scratch;
use isolate::Kernel;
use std::fs::{copy, create_dir_all, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Modules of the guest's kernel, each after those that it needs, below its folder.
const MODULES: [&str; 6] = [
    "virt/lib/irqbypass.ko",
    "drivers/vfio/vfio.ko",
    "drivers/vfio/vfio_iommu_type1.ko",
    "drivers/vfio/vfio_virqfd.ko",
    "drivers/vfio/pci/vfio-pci-core.ko",
    "drivers/vfio/pci/vfio-pci.ko",
];
/// A chain file with two virtual functions.
const CHAIN: &str = "bondstone = 1\n[port.a]\ndevice = \"sriov:01:00.0\"\n[port.b]\ndevice = \"sriov:01:00.0\"\n\
                     [[chain]]\npath = [\"a\", \"ttl\", \"b\"]\n";
/// The guest's first program.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mkdir /tmp
exec 2>&1
cd /sys/bus/pci/devices
pf=0000:01:00.0
state() {
	echo "STATE $1: $(cat $pf/sriov_numvfs) functions, autoprobe $(cat $pf/sriov_drivers_autoprobe), $(ls | wc -l) devices"
}
run() {
	/bondstone run /vf.toml --for 1s
	echo "STATUS $1: $?"
}
state first
run "without vfio-pci"
for module in $(cat /modules/order); do insmod /modules/$module || echo "FAILED: insmod $module"; done
run "without a NIC"
state "without a NIC"

/bondstone run /vf.toml &
until [ "$(basename "$(readlink $pf/virtfn1/driver)")" = vfio-pci ]; do :; done
kill -STOP $!
driver=$(basename "$(readlink $pf/virtfn0/driver)")
echo "BOUND: $driver, $(cat $pf/virtfn0/driver_override), $(ls /dev/vfio | wc -l) in /dev/vfio"
state running
run "a second"
kill -9 $!
wait $!
echo "STATUS killed: $?"
tries=0
while [ "$(cat $pf/sriov_numvfs $pf/sriov_drivers_autoprobe | tr '\n' ' ')" != "0 1 " ] && [ $tries -lt 1000 ]; do
	tries=$((tries + 1)); sleep 0.02
done
state killed

echo 0 >$pf/sriov_drivers_autoprobe; echo 1 >$pf/sriov_numvfs
run "beside others"
state "beside others"
echo o >/proc/sysrq-trigger; sleep 60
"#;

/// What a program needs besides itself.
fn libraries(program: &Path) -> Vec<String> {
    let listed = Command::new(program).arg("--version").env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let word = |line: &str| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).split_whitespace().next()?.to_owned();
        path.starts_with('/').then_some(path)
    };
    String::from_utf8(listed.stdout).unwrap().lines().filter_map(word).collect()
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

#[test]
fn a_real_kernel_makes_virtual_functions_and_takes_them_back() {
    let scratch = Scratch::new();
    let tools = ["qemu-system-x86_64", "cpio"].iter().all(|tool| succeeds(Command::new(tool).arg("--version")));
    let has_sriov = Command::new("qemu-system-x86_64").args(["-device", "nvme,help"]).output();
    let has_sriov = has_sriov.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("sriov_max_vfs"));
    let busybox = Path::new("/bin/busybox");
    let Some(kernel) = Kernel::fetch().ok().filter(|_| tools && has_sriov && busybox.exists()) else {
        eprintln!("skipped: needs QEMU 7.1, cpio, busybox-static, and a kernel for VMs (bondstone image vm --fetch)");
        return;
    };
    let modules = kernel.image.with_file_name("").join("../lib/modules").join(&kernel.version).join("kernel");
    if let Some(absent) = MODULES.iter().find(|module| !modules.join(module).is_file()) {
        eprintln!("skipped: the kernel for VMs has no module {absent}");
        return;
    }

    let own = Path::new(env!("CARGO_BIN_EXE_bondstone"));
    let root = scratch.path("root");
    let put = |from: &Path, to: &str| {
        let to = root.join(to.trim_start_matches('/'));
        create_dir_all(to.parent().unwrap()).unwrap();
        copy(from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    };
    put(busybox, "bin/busybox");
    put(own, "bondstone");
    // debuggers' parts are most of it, and it is read into memory
    succeeds(Command::new("strip").arg(root.join("bondstone")));
    libraries(own).iter().for_each(|library| put(Path::new(library), library));
    let names = MODULES.map(|module| Path::new(module).file_name().unwrap().to_str().unwrap());
    MODULES.iter().zip(names).for_each(|(module, name)| put(&modules.join(module), &format!("modules/{name}")));
    write(root.join("modules/order"), names.join("\n")).unwrap();
    write(root.join("vf.toml"), CHAIN).unwrap();
    ["proc", "sys", "dev"].iter().for_each(|folder| create_dir_all(root.join(folder)).unwrap());
    write(root.join("init"), INIT).unwrap();
    std::fs::set_permissions(root.join("init"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let archive = scratch.path("initramfs");
    let pack = format!("find . | cpio --quiet -o -H newc >{}", archive.display());
    assert!(succeeds(Command::new("sh").args(["-c", &pack]).current_dir(&root)));

    let mut qemu = Command::new("timeout");
    qemu.args(["120", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    qemu.args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "2048", "-serial", "stdio"]);
    qemu.args(["-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=off"]);
    qemu.args(["-device", "pcie-root-port,id=root,chassis=1", "-device", "nvme-subsys,id=all"]);
    let queues = "max_ioqpairs=26,msix_qsize=33,sriov_vq_flexible=8,sriov_vi_flexible=8";
    qemu.args(["-device", &format!("nvme,serial=1,subsys=all,bus=root,sriov_max_vfs=4,{queues}")]);
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&archive);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 intel_iommu=on"]).stdin(std::process::Stdio::null());
    let said = qemu.output().unwrap();
    assert!(said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8_lossy(&said.stdout).replace('\r', "");
    eprintln!("{said}");

    let part = |from: &str, to: &str| {
        let rest = said.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {said}")).1;
        rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} in {said}")).0.to_owned()
    };
    let before = part("STATE first: ", "\n");
    assert!(before.starts_with("0 functions, autoprobe 1, "), "{said}");
    assert!(!said.contains("FAILED"), "{said}");
    assert!(part("STATE first", "STATUS without vfio-pci: 3\n").contains("sudo modprobe vfio-pci"));
    // both are handed to DPDK, which has no driver for a disk
    assert!(part("STATUS without vfio-pci", "STATUS without a NIC: 3\n").contains("\"0000:01:00.1\""));
    assert_eq!(part("STATE without a NIC: ", "\n"), before);
    assert_eq!(part("BOUND: ", "\n"), "vfio-pci, vfio-pci, 3 in /dev/vfio");
    assert!(part("STATE running: ", "\n").starts_with("2 functions, autoprobe 0, "));
    assert!(part("STATE running", "STATUS a second: 3\n").contains("another Bondstone has"));
    assert_eq!(part("STATUS killed: ", "\n"), "137");
    assert_eq!(part("STATE killed: ", "\n"), before);
    assert!(part("STATE killed", "STATUS beside others: 3\n").contains("has 1 virtual functions already"));
    assert!(part("STATE beside others: ", "\n").starts_with("1 functions, autoprobe 0, "));
}
