//! Virtual machines: accelerator and QEMU command.

use crate::error::environment_error;
use crate::image::initramfs;
use crate::image::program::{ImageFiles, Program};
use crate::kernel::{Kernel, cache_folder};
use crate::launch::GUEST_COMMAND;
use crate::private_folder;
use runtime::Error;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Program that runs guests.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Folders of QEMU's modules and firmware, below the folder that contains `bin`.
const QEMU_FOLDERS: [&str; 7] = [
    "lib/x86_64-linux-gnu/qemu",
    "lib/qemu",
    "lib64/qemu",
    "share/qemu",
    "share/qemu-firmware",
    "share/seabios",
    "share/ipxe",
];
/// Memory of QEMU in MiB, in addition to that of the guest.
pub(crate) const QEMU_MEMORY_MIB: u64 = 512;
/// Memory of a standalone guest in MiB.
const STANDALONE_MEMORY_MIB: u64 = 1024;
/// File descriptor of the console of a guest's kernel.
pub(crate) const CONSOLE_FD: i32 = 100;
/// Time for a kernel to start its first process with KVM.
const KVM_BOOT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a kernel to start its first process with emulation.
const TCG_BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// Accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation: many times slower.
    Tcg,
}

impl Accelerator {
    /// Returns the arguments for QEMU.
    fn args(self) -> [&'static str; 4] {
        match self {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Tcg => ["-accel", "tcg,tb-size=64", "-cpu", "max"],
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "TCG, an emulated CPU",
        })
    }
}

/// Returns the arguments for all guests.
fn common_arguments(accel: Accelerator) -> Vec<String> {
    let mut args: Vec<String> = vec!["-nodefaults".into(), "-no-user-config".into(), "-no-reboot".into()];
    const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    args.extend(["-display", "none", "-sandbox", SECCOMP].map(str::to_owned));
    args.extend(accel.args().map(str::to_owned));
    args
}

/// Returns a kernel command line with `more`: few messages, no hang after a panic, no timer check (a busy host delays
/// ticks), no second clearing of memory.
fn kernel_command_line(more: &str) -> String {
    format!("console=ttyS0 quiet panic=-1 no_timer_check init_on_alloc=0 {more}")
}

/// Opens KVM and creates a virtual machine, which is removed at once.
///
/// # Errors
/// The kernel or the CPU does not support virtual machines, or this user may not create them.
pub fn probe_kvm() -> io::Result<()> {
    /// Version that the kernel has reported since Linux 2.6.22 (`KVM_API_VERSION` of linux/kvm.h).
    const API_VERSION: i32 = 12;
    let error = |e: kvm_ioctls::Error| io::Error::from_raw_os_error(e.errno());
    let kvm = kvm_ioctls::Kvm::new().map_err(error)?;
    match kvm.get_api_version() {
        API_VERSION => kvm.create_vm().map(drop).map_err(error),
        other => Err(io::Error::other(format!("unknown version {other} of the KVM API"))),
    }
}

/// Returns the accelerator. KVM may create VMs that do not run, so a kernel is started with a time limit; the result is
/// cached until the next boot.
#[must_use]
pub fn detect_accelerator(kernel: &Kernel) -> Accelerator {
    if probe_kvm().is_err() {
        return Accelerator::Tcg;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let folder = cache_folder();
    // another user must not choose the accelerator
    let is_private = private_folder::create(&folder).is_ok();
    let cached = folder.join("kvm");
    let key = format!("{} {}", boot.trim(), kernel.version);
    if is_private
        && let Ok(text) = std::fs::read_to_string(&cached)
        && let Some(answer) = text.strip_prefix(&key)
    {
        return if answer.trim() == "yes" { Accelerator::Kvm } else { Accelerator::Tcg };
    }
    // without QEMU there is nothing to test
    if version().is_err() {
        return Accelerator::Tcg;
    }
    let works = measure_boot_time(kernel, Accelerator::Kvm).is_ok();
    if is_private {
        // errors: it is tested again
        let _ = std::fs::write(cached, format!("{key} {}", if works { "yes" } else { "no" }));
    }
    if works { Accelerator::Kvm } else { Accelerator::Tcg }
}

/// Measures the time until a kernel runs its first process, which does nothing.
///
/// # Errors
/// The kernel does not start in time.
pub fn measure_boot_time(kernel: &Kernel, accel: Accelerator) -> Result<Duration, Error> {
    /// Output of the first process.
    const HELLO: &str = "bondstone: hello";
    let files: ImageFiles = vec![("/init".into(), 0o755, hello_program(HELLO))];
    let temporary = |e: io::Error| environment_error(format!("temporary file: {e}"), "free disk space");
    let initrd = tempfile::NamedTempFile::new().map_err(temporary)?;
    initramfs::write(initrd.as_file(), &files).map_err(temporary)?;
    kernel.read(&kernel.image).map_err(|e| environment_error(e.to_string(), "run bondstone image vm --fetch"))?;
    // it ends with this process
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", QEMU]);
    command.args(common_arguments(accel)).args(["-m", "256", "-machine", "q35", "-serial", "stdio"]);
    command
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initrd.path())
        .arg("-append")
        .arg(kernel_command_line(""));
    let started = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(qemu_missing)?;
    let mut out = child.stdout.take();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        while let Some(Ok(n @ 1..)) = out.as_mut().map(|out| out.read(&mut buffer)) {
            text.push_str(&String::from_utf8_lossy(&buffer[..n]));
            if text.contains(HELLO) {
                // errors: the time limit has passed
                let _ = sender.send(started.elapsed());
                return;
            }
        }
    });
    let limit = if accel == Accelerator::Kvm { KVM_BOOT_TIMEOUT } else { TCG_BOOT_TIMEOUT };
    let took = receiver.recv_timeout(limit);
    // errors: the process has ended
    let _ = child.kill();
    let _ = child.wait();
    drop(reader.join());
    took.map_err(|_| {
        environment_error(
            format!("a kernel starts no process within {limit:?} ({accel})"),
            "run QEMU by hand and check its output",
        )
    })
}

/// Returns a program that prints a text and pauses: an ELF file with one segment and 36 bytes of x86-64 code.
fn hello_program(text: &str) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    const CODE: u64 = 36;
    let mut code: Vec<u8> = vec![];
    // write(1, text, length)
    code.extend([0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0xbe]);
    code.extend((BASE + HEADERS + CODE).to_le_bytes());
    code.push(0xba);
    code.extend((text.len() as u32).to_le_bytes());
    code.extend([0x0f, 0x05]);
    // loop: pause()
    code.extend([0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7]);
    let mut elf: Vec<u8> = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    elf.extend(2u16.to_le_bytes());
    elf.extend(62u16.to_le_bytes());
    elf.extend(1u32.to_le_bytes());
    elf.extend((BASE + HEADERS).to_le_bytes());
    elf.extend(64u64.to_le_bytes());
    elf.extend(0u64.to_le_bytes());
    elf.extend(0u32.to_le_bytes());
    elf.extend([64u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    let size = HEADERS + CODE + text.len() as u64;
    elf.extend(1u32.to_le_bytes());
    elf.extend(5u32.to_le_bytes());
    elf.extend([0, BASE, BASE, size, size, 4096].map(u64::to_le_bytes).concat());
    elf.extend(code);
    elf.extend(text.as_bytes());
    elf
}

fn qemu_missing(e: io::Error) -> Error {
    environment_error(format!("{QEMU}: {e}"), "install it: apt-get install qemu-system-x86")
}

/// Returns the version of QEMU.
///
/// # Errors
/// QEMU is not installed.
pub(crate) fn version() -> Result<String, Error> {
    let output = Command::new(QEMU).arg("--version").output().map_err(qemu_missing)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("?").to_owned())
}

/// Returns QEMU's path, and all files and folders that it needs.
///
/// # Errors
/// QEMU is not installed.
pub(crate) fn program_files() -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&folders).map(|folder| folder.join(QEMU)).find(|path| path.is_file());
    let path = path.ok_or_else(|| qemu_missing(io::ErrorKind::NotFound.into()))?;
    let path = path.canonicalize().map_err(qemu_missing)?;
    let mut files = Program::at(&path)?.libraries().to_vec();
    let prefix = path.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    files.extend(QEMU_FOLDERS.iter().map(|folder| prefix.join(folder)).filter(|folder| folder.is_dir()));
    files.push(path.clone());
    Ok((path, files))
}

/// Configuration of a guest.
pub(crate) struct Guest<'a> {
    pub(crate) accel: Accelerator,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) memory_mib: u64,
    /// True for memory of huge pages.
    pub(crate) huge: bool,
    pub(crate) cpus: usize,
    /// Sockets of the crossing interfaces, with their numbers of queues.
    pub(crate) interfaces: Vec<(PathBuf, usize)>,
    /// PCI addresses of passthrough devices, which follow the interfaces.
    pub(crate) devices: Vec<String>,
    /// Total number of descriptors of one queue of each device.
    pub(crate) descriptors: usize,
    /// Longest frame, bytes without FCS.
    pub(crate) max_frame: usize,
}

impl Guest<'_> {
    /// Returns the command for a guest in a sandbox. Its first serial line is standard error, its second standard input
    /// and output.
    pub(crate) fn command(&self) -> Vec<String> {
        let lines = [
            format!("-add-fd fd={CONSOLE_FD},set=1 -chardev file,id=console,path=/dev/fdset/1,append=on"),
            "-serial chardev:console -serial stdio".to_owned(),
        ];
        let huge = if self.huge { ",hugetlb=on,hugetlbsize=2M" } else { "" };
        self.command_with(&lines.join(" "), huge)
    }

    fn command_with(&self, lines: &str, huge: &str) -> Vec<String> {
        let mut all = vec![QEMU.to_owned()];
        all.extend(common_arguments(self.accel));
        all.extend(lines.split(' ').map(str::to_owned));
        let mut add = |key: &str, value: String| all.extend([key.to_owned(), value]);
        add("-m", self.memory_mib.to_string());
        add("-smp", self.cpus.to_string());
        add("-machine", "q35,memory-backend=memory".into());
        add("-object", format!("memory-backend-memfd,id=memory,size={}M,share=on{huge}", self.memory_mib));
        for (n, (socket, queues)) in self.interfaces.iter().enumerate() {
            let slot = config::Sandbox::pci_slot(n);
            add("-chardev", format!("socket,id=interface{n},path={}", socket.display()));
            add("-netdev", format!("vhost-user,id=net{n},chardev=interface{n},queues={queues}"));
            let queue = config::Sandbox::QUEUE_SIZE;
            let many = if *queues > 1 { "on" } else { "off" };
            let rings = format!("rx_queue_size={queue},tx_queue_size={queue},mq={many},packed=on");
            // MSI-X crashes QEMU 7.2 here, and polling needs no interrupts
            add("-device", format!("virtio-net-pci,netdev=net{n},addr={slot:#x},romfile=,vectors=0,{rings}"));
        }
        for (n, address) in (self.interfaces.len()..).zip(&self.devices) {
            add("-device", format!("vfio-pci,host={address},addr={:#x},rombar=0", config::Sandbox::pci_slot(n)));
        }
        add("-kernel", self.kernel.display().to_string());
        add("-initrd", self.initrd.display().to_string());
        // pages of 2 MiB for packets, other memory of DPDK, and tables; each page delays the start
        let queued = config::Sandbox::QUEUE_SIZE * (self.interfaces.len() + 1) + self.descriptors;
        let further_queues: usize =
            self.interfaces.iter().map(|(_, queues)| 2 * config::Sandbox::QUEUE_SIZE * (queues - 1)).sum();
        let packets =
            (2 * (self.cpus + 1) * queued + further_queues).next_power_of_two().min(runtime::MAX_POOL_PACKETS);
        let pages =
            (52 + packets as u64 * dpdk::Memory::packet_bytes(self.max_frame) / (2 << 20) + self.memory_mib / 32)
                .min(self.memory_mib / 4);
        add("-append", kernel_command_line(&format!("hugepages={pages} -- {}", GUEST_COMMAND)));
        all
    }
}

/// A VM image that was written.
pub struct VmImage {
    /// Path of the kernel.
    pub kernel: PathBuf,
    /// Path of the initramfs.
    pub initramfs: PathBuf,
    /// Sizes of both in bytes.
    pub bytes: [u64; 2],
}

/// Returns the command that starts a guest from its image, with a vhost-user socket for each port; the console is the
/// terminal.
#[must_use]
pub fn standalone_command(image: &VmImage, accel: Accelerator, sockets: Vec<PathBuf>) -> Vec<String> {
    let interfaces = sockets.into_iter().map(|socket| (socket, 1)).collect();
    let (kernel, initrd) = (&image.kernel, &image.initramfs);
    Guest {
        accel,
        kernel,
        initrd,
        memory_mib: STANDALONE_MEMORY_MIB,
        huge: false,
        cpus: 1,
        interfaces,
        devices: vec![],
        descriptors: 0,
        max_frame: packet::MAX_FRAME,
    }
    .command_with("-serial stdio", "")
}

/// Returns the MiB of free huge pages of 2 MiB.
pub(crate) fn free_huge_mib() -> u64 {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    text.trim().parse::<u64>().map_or(0, |pages| pages * 2)
}
