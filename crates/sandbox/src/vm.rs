//! Virtual machines: their kernel, what runs them, and how fast they begin.

use crate::image::VmImage;
use crate::program::Files;
use crate::{initramfs, lacks};
use runtime::Error;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Who runs a machine.
const QEMU: &str = "qemu-system-x86_64";
/// MiB that QEMU may have besides its guest's memory.
pub(crate) const BESIDES_MIB: u64 = 512;
/// MiB of memory of a guest that stands alone.
const MEMORY_MIB: u64 = 1024;
/// The open file to which a guest's kernel prints.
pub(crate) const CONSOLE: i32 = 100;
/// How long a kernel may take to come to its first program where the CPU runs it by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// And where it is emulated.
const LONG: Duration = Duration::from_secs(60);

/// A kernel of a distribution's, with the modules by which programs get at network interfaces.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel.
    pub image: PathBuf,
    /// `uio` and `uio_pci_generic`.
    pub(crate) modules: Vec<PathBuf>,
    /// Its version.
    pub version: String,
}

impl Kernel {
    /// The one that [`Kernel::fetch`] has brought, or that of this machine.
    ///
    /// # Errors
    /// There is none.
    pub fn find() -> Result<Kernel, Error> {
        let found = [cache(), PathBuf::from("/")].iter().find_map(|root| Kernel::below(root));
        found.ok_or_else(|| {
            lacks(
                "no kernel with the modules uio and uio_pci_generic is there for VMs",
                "run bondstone image vm --fetch",
            )
        })
    }

    fn below(root: &Path) -> Option<Kernel> {
        let all = std::fs::read_dir(root.join("boot")).ok()?.flatten();
        let mut images: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
        images.sort();
        images.into_iter().rev().find_map(|image| {
            let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            let folder = root.join("lib/modules").join(&version).join("kernel/drivers/uio");
            let modules = ["uio.ko", "uio_pci_generic.ko"].map(|name| folder.join(name)).to_vec();
            modules.iter().all(|path| path.is_file()).then_some(Kernel { image, modules, version })
        })
    }

    /// Brings one from the distribution's packages (Debian), without installing it and without rights, unless that has been done.
    ///
    /// # Errors
    /// There is no such package, or nothing to fetch it with.
    pub fn fetch() -> Result<Kernel, Error> {
        const META: &str = "linux-image-cloud-amd64";
        let remedy = "install a kernel with the modules uio and uio_pci_generic below /boot and /lib/modules";
        let to = cache();
        if let Some(there) = Kernel::below(&to) {
            return Ok(there);
        }
        let wrong = |what: &str, e: &dyn fmt::Display| lacks(format!("{what}: {e}"), remedy);
        std::fs::create_dir_all(&to).map_err(|e| wrong(&to.display().to_string(), &e))?;
        let run = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).current_dir(&to).output().map_err(|e| wrong(program, &e))?;
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            match done.status.success() {
                true => Ok(said),
                false => Err(wrong(program, &String::from_utf8_lossy(&done.stderr).trim())),
            }
        };
        let said = run("apt-cache", &["depends", META])?;
        let mut named = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let package = named.rfind(|name| name.starts_with("linux-image-"));
        let package = package.ok_or_else(|| wrong(META, &"there is no such package"))?;
        run("apt-get", &["-q", "download", package])?;
        let archive = std::fs::read_dir(&to).into_iter().flatten().flatten().map(|entry| entry.path());
        let archive = archive.filter(|path| path.extension().is_some_and(|e| e == "deb")).last();
        let archive = archive.ok_or_else(|| wrong(package, &"nothing was brought"))?;
        let at = archive.display().to_string();
        run("dpkg-deb", &["-x", &at, "."])?;
        // errors: it takes room
        let _ = std::fs::remove_file(archive);
        Kernel::below(&to).ok_or_else(|| wrong(package, &"it has no modules uio and uio_pci_generic"))
    }
}

/// Where a kernel is kept.
fn cache() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    folder.unwrap_or_else(std::env::temp_dir).join("bondstone/kernel")
}

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The CPU.
    Kvm,
    /// A translator: right, and many times slower.
    Tcg,
}

impl Accel {
    /// What QEMU is told.
    fn args(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accel::Tcg => ["-accel", "tcg,tb-size=64", "-cpu", "max"],
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accel::Kvm => "KVM",
            Accel::Tcg => "TCG, an emulated CPU",
        })
    }
}

/// What every guest is started with.
fn common(accel: Accel) -> Vec<String> {
    let mut args: Vec<String> = vec!["-nodefaults".into(), "-no-user-config".into(), "-no-reboot".into()];
    const SHUT: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    args.extend(["-display", "none", "-sandbox", SHUT].map(str::to_owned));
    args.extend(accel.args().map(str::to_owned));
    args
}

/// What a kernel is told: `more`, to be quiet, to end the machine when it fails, to believe that timers work (a busy machine
/// lets QEMU miss a tick), and not to clear what is cleared already.
fn boot(more: &str) -> String {
    format!("console=ttyS0 quiet panic=-1 no_timer_check init_on_alloc=0 {more}")
}

/// Whether the CPU runs guests by itself, which a device for it does not say: a kernel is started with a limit of time.
/// Asked once, as long as this machine runs.
#[must_use]
pub fn accel(kernel: &Kernel) -> Accel {
    let usable = rustix::fs::access("/dev/kvm", rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok();
    if !usable {
        return Accel::Tcg;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let known = cache().join("kvm");
    let asked = format!("{} {}", boot.trim(), kernel.version);
    if let Ok(text) = std::fs::read_to_string(&known)
        && let Some(answer) = text.strip_prefix(&asked)
    {
        return if answer.trim() == "yes" { Accel::Kvm } else { Accel::Tcg };
    }
    // of what is not there nothing is learned
    if version().is_err() {
        return Accel::Tcg;
    }
    let works = time_to_init(kernel, Accel::Kvm).is_ok();
    // errors: it is asked again
    let _ = std::fs::create_dir_all(cache());
    let _ = std::fs::write(known, format!("{asked} {}", if works { "yes" } else { "no" }));
    if works { Accel::Kvm } else { Accel::Tcg }
}

/// The time that a kernel takes to come to a first program that does nothing.
///
/// # Errors
/// It does not come there in time.
pub fn time_to_init(kernel: &Kernel, accel: Accel) -> Result<Duration, Error> {
    /// What the first program says.
    const HERE: &str = "bondstone: here";
    let initrd = cache().join("empty");
    let files: Files = vec![("/init".into(), 0o755, sayer(HERE))];
    let folder = std::fs::create_dir_all(cache());
    let written = folder.and_then(|()| initramfs::write(std::fs::File::create(&initrd)?, &files));
    written.map_err(|e| lacks(format!("{}: {e}", initrd.display()), "make room for it"))?;
    // it ends with this program, however that ends
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", QEMU]);
    command.args(common(accel)).args(["-m", "256", "-machine", "q35", "-serial", "stdio"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initrd).arg("-append").arg(boot(""));
    let started = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(no_qemu)?;
    let mut out = child.stdout.take();
    let (say, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut text, mut some) = (String::new(), [0; 4096]);
        while let Some(Ok(n @ 1..)) = out.as_mut().map(|out| out.read(&mut some)) {
            text.push_str(&String::from_utf8_lossy(&some[..n]));
            if text.contains(HERE) {
                // errors: nobody waits
                let _ = say.send(started.elapsed());
                return;
            }
        }
    });
    let limit = if accel == Accel::Kvm { PATIENCE } else { LONG };
    let took = heard.recv_timeout(limit);
    // errors: it has ended
    let _ = child.kill();
    let _ = child.wait();
    drop(reader.join());
    took.map_err(|_| {
        lacks(
            format!("a kernel comes to no program within {limit:?} ({accel})"),
            "look at what QEMU says of it by hand",
        )
    })
}

/// A program that says something and then waits: an ELF file of one segment, and 36 bytes of x86-64.
fn sayer(what: &str) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    const CODE: u64 = 36;
    let mut code: Vec<u8> = vec![];
    // write(1, text, length)
    code.extend([0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0xbe]);
    code.extend((BASE + HEADERS + CODE).to_le_bytes());
    code.push(0xba);
    code.extend((what.len() as u32).to_le_bytes());
    code.extend([0x0f, 0x05]);
    // for ever: pause()
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
    let size = HEADERS + CODE + what.len() as u64;
    elf.extend(1u32.to_le_bytes());
    elf.extend(5u32.to_le_bytes());
    elf.extend([0, BASE, BASE, size, size, 4096].map(u64::to_le_bytes).concat());
    elf.extend(code);
    elf.extend(what.as_bytes());
    elf
}

fn no_qemu(e: std::io::Error) -> Error {
    lacks(format!("{QEMU}: {e}"), "install it: apt-get install qemu-system-x86")
}

/// The version of QEMU.
///
/// # Errors
/// It is not there.
pub(crate) fn version() -> Result<String, Error> {
    let said = Command::new(QEMU).arg("--version").output().map_err(no_qemu)?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("?").to_owned())
}

/// A guest, as it is to be started.
pub(crate) struct Guest<'a> {
    pub(crate) accel: Accel,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) memory_mib: u64,
    /// Whether that is huge pages.
    pub(crate) huge: bool,
    pub(crate) cpus: usize,
    /// Sockets of the interfaces of its wall, and how many queues each has.
    pub(crate) ways: Vec<(PathBuf, usize)>,
    /// PCI addresses of devices that it is handed, which come after these.
    pub(crate) devices: Vec<String>,
    /// Descriptors of a queue of each of them, in all.
    pub(crate) descriptors: usize,
}

impl Guest<'_> {
    /// The command for one behind a wall. Its first serial line is standard error, its second standard input and output.
    pub(crate) fn command(&self) -> Vec<String> {
        let lines = [
            format!("-add-fd fd={CONSOLE},set=1 -chardev file,id=console,path=/dev/fdset/1,append=on"),
            "-serial chardev:console -serial stdio".to_owned(),
        ];
        let huge = if self.huge { ",hugetlb=on,hugetlbsize=2M" } else { "" };
        self.with(&lines.join(" "), huge)
    }

    fn with(&self, lines: &str, huge: &str) -> Vec<String> {
        let mut all = vec![QEMU.to_owned()];
        all.extend(common(self.accel));
        all.extend(lines.split(' ').map(str::to_owned));
        let mut add = |key: &str, value: String| all.extend([key.to_owned(), value]);
        add("-m", self.memory_mib.to_string());
        add("-smp", self.cpus.to_string());
        add("-machine", "q35,memory-backend=memory".into());
        add("-object", format!("memory-backend-memfd,id=memory,size={}M,share=on{huge}", self.memory_mib));
        for (n, (socket, queues)) in self.ways.iter().enumerate() {
            let slot = config::Wall::slot(n);
            add("-chardev", format!("socket,id=way{n},path={}", socket.display()));
            add("-netdev", format!("vhost-user,id=net{n},chardev=way{n},queues={queues}"));
            let queue = config::Wall::QUEUE;
            let many = if *queues > 1 { "on" } else { "off" };
            let rings = format!("rx_queue_size={queue},tx_queue_size={queue},mq={many}");
            // QEMU 7.2 falls over interrupts of its own for these, and nobody here waits for any
            add("-device", format!("virtio-net-pci,netdev=net{n},addr={slot:#x},romfile=,vectors=0,{rings}"));
        }
        for (n, address) in (self.ways.len()..).zip(&self.devices) {
            add("-device", format!("vfio-pci,host={address},addr={:#x},rombar=0", config::Wall::slot(n)));
        }
        add("-kernel", self.kernel.display().to_string());
        add("-initrd", self.initrd.display().to_string());
        // pages of 2 MiB for packets, for what DPDK keeps beside them, and for tables; each costs time at the start
        let waiting = config::Wall::QUEUE * (self.ways.len() + 1) + self.descriptors;
        let further: usize = self.ways.iter().map(|(_, queues)| 2 * config::Wall::QUEUE * (queues - 1)).sum();
        let packets = (2 * (self.cpus + 1) * waiting + further).next_power_of_two().min(runtime::MOST_PACKETS);
        let pages = (52 + packets as u64 * 2432 / (2 << 20) + self.memory_mib / 32).min(self.memory_mib / 4);
        add("-append", boot(&format!("hugepages={pages} -- {}", crate::GUEST)));
        all
    }
}

/// The command that starts a guest from its image, with a vhost-user socket for each of its ports; its console is the terminal.
#[must_use]
pub fn vm_command(image: &VmImage, accel: Accel, ways: Vec<PathBuf>) -> Vec<String> {
    let ways = ways.into_iter().map(|socket| (socket, 1)).collect();
    let (kernel, initrd) = (&image.kernel, &image.initramfs);
    Guest { accel, kernel, initrd, memory_mib: MEMORY_MIB, huge: false, cpus: 1, ways, devices: vec![], descriptors: 0 }
        .with("-serial stdio", "")
}

/// MiB of huge pages of 2 MiB that nobody has.
pub(crate) fn free_huge_mib() -> u64 {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    text.trim().parse::<u64>().map_or(0, |pages| pages * 2)
}
