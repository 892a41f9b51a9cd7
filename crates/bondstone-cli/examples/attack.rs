//! A program with an NF that attacks the host from its sandbox with `unsafe` code, to test the sandbox.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, Nf, Node};
use packet::Batch;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;

struct Attack;

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Attack.
    how: How,
    /// Attacks while it is built instead of with its first packet.
    in_build: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum How {
    /// Tries everything that an NF may try without being killed, and counts what it reached.
    #[default]
    Probe,
    /// Creates a socket.
    SocketInet,
    SocketNetlink,
    SocketPacket,
    SocketVsock,
    SocketUnix,
    /// Maps memory that is writable and executable.
    Rwx,
    /// Makes written memory executable.
    Execute,
    /// Attaches to the first process of its namespace as a debugger.
    Ptrace,
    Fork,
    Exec,
    /// Kills its parent, or itself.
    KillParent,
    KillItself,
    /// Creates files without a path: memory, and an eventfd that blocks.
    Memfd,
    Eventfd,
    IoUring,
    Keys,
    Shmget,
    Personality,
    /// Sends four copies of each packet.
    Flood,
    /// Writes random numbers into the queues that it shares with the host side.
    Scribble,
}

/// The head of DPDK's `rte_memzone`.
#[repr(C)]
struct Memzone {
    name: [c_char; 32],
    iova: u64,
    addr: *mut u8,
    len: usize,
}

unsafe extern "C" {
    fn rte_memzone_walk(each: extern "C" fn(*const Memzone, *mut c_void), argument: *mut c_void);
}

extern "C" fn collect_queue(zone: *const Memzone, queues: *mut c_void) {
    // SAFETY: DPDK passes a zone of its own, and the argument of `rte_memzone_walk`.
    let (zone, queues) = unsafe { (&*zone, &mut *queues.cast::<Vec<(usize, usize)>>()) };
    // SAFETY: the name ends with a zero byte.
    let name = unsafe { CStr::from_ptr(zone.name.as_ptr()) }.to_string_lossy();
    // rings of virtio-user, and their headers
    if name.contains("vq") {
        queues.push((zone.addr.addr(), zone.len));
    }
}

/// Writes into the virtio queues until the process ends.
fn scribble() -> ! {
    let mut queues: Vec<(usize, usize)> = vec![];
    // SAFETY: the function calls its argument with the vector, which outlives it.
    unsafe { rte_memzone_walk(collect_queue, (&raw mut queues).cast()) };
    assert!(!queues.is_empty(), "no queue to write to");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (start, len) = queues[random as usize % queues.len()];
        let at = start + (random >> 16) as usize % (len - 8);
        // SAFETY: within the memory of the queue; this corrupts its own process on purpose.
        unsafe { (at as *mut u32).write_unaligned((random >> 32) as u32) };
    }
}

fn socket(family: c_int) {
    // SAFETY: the call accesses no memory.
    unsafe { libc::socket(family, libc::SOCK_DGRAM, 0) };
}

/// Returns the address of a new page with this protection.
fn map(protection: c_int) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping replaces no other.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) }
}

/// Makes a system call with arguments that are numbers.
fn call(number: libc::c_long, arguments: [i64; 3]) {
    let [a, b, c] = arguments;
    // SAFETY: none of the calls below accesses memory by these arguments.
    unsafe { libc::syscall(number, a, b, c) };
}

impl How {
    /// Attacks; returns if the attack has failed.
    fn run(self) {
        match self {
            How::Probe | How::Flood => {}
            How::SocketInet => socket(libc::AF_INET),
            How::SocketNetlink => socket(libc::AF_NETLINK),
            How::SocketPacket => socket(libc::AF_PACKET),
            How::SocketVsock => socket(libc::AF_VSOCK),
            How::SocketUnix => socket(libc::AF_UNIX),
            How::Rwx => drop(map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)),
            How::Execute => {
                let page = map(libc::PROT_READ | libc::PROT_WRITE);
                // SAFETY: the page was just mapped.
                unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) };
            }
            How::Ptrace => call(libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), 1, 0]),
            How::Fork => {
                // SAFETY: the child ends at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: nothing of the parent is used.
                    unsafe { libc::_exit(0) };
                }
            }
            How::Exec => drop(std::process::Command::new("/bin/true").status()),
            How::KillParent => call(libc::SYS_kill, [0, libc::SIGKILL.into(), 0]),
            How::KillItself => call(libc::SYS_kill, [std::process::id().into(), libc::SIGKILL.into(), 0]),
            How::Memfd => call(libc::SYS_memfd_create, [c"code".as_ptr() as i64, 0, 0]),
            How::Eventfd => call(libc::SYS_eventfd2, [0; 3]),
            How::IoUring => call(libc::SYS_io_uring_setup, [1, 0, 0]),
            How::Keys => call(libc::SYS_add_key, [0; 3]),
            How::Shmget => call(libc::SYS_shmget, [libc::IPC_PRIVATE.into(), 4096, 0o1600]),
            How::Personality => call(libc::SYS_personality, [0x0040_0000, 0, 0]),
            How::Scribble => scribble(),
        }
    }
}

/// An attempt and its success.
type Probe = (&'static str, fn() -> bool);

/// Attempts that a sandbox refuses; each succeeds for root outside of one.
const PROBES: [Probe; 14] = [
    ("read /etc/passwd", || File::open("/etc/passwd").is_ok()),
    ("read /etc/shadow", || File::open("/etc/shadow").is_ok()),
    ("read the program", || File::open("/proc/self/exe").is_ok()),
    ("read /proc/1/status", || File::open("/proc/1/status").is_ok()),
    ("read /proc/self/maps", || File::open("/proc/self/maps").is_ok()),
    ("write /proc/self/mem", || File::options().write(true).open("/proc/self/mem").is_ok()),
    ("read /proc/sys/kernel/osrelease", || File::open("/proc/sys/kernel/osrelease").is_ok()),
    ("read /proc/kallsyms", || File::open("/proc/kallsyms").is_ok()),
    ("list /", || std::fs::read_dir("/").is_ok()),
    ("list /sys/devices/system", || std::fs::read_dir("/sys/devices/system").is_ok()),
    ("open /dev/null", || File::open("/dev/null").is_ok()),
    ("write a file", || {
        let path = std::env::temp_dir().join(format!("bondstone-attack-{}", std::process::id()));
        let written = std::fs::write(&path, "here").is_ok();
        let _ = std::fs::remove_file(path);
        written
    }),
    ("outlive the parent", || {
        // SAFETY: the call accesses no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) == 0 }
    }),
    ("read the kernel's version", || {
        // SAFETY: zeros are a valid value, which the call overwrites.
        unsafe { libc::uname(&mut std::mem::zeroed()) == 0 }
    }),
];

struct AttackNode {
    how: How,
    done: bool,
    reached: Vec<(String, Arc<Counter>)>,
}

impl AttackNode {
    fn attack(&mut self) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        self.how.run();
        if self.how == How::Probe {
            for ((_, probe), (_, counter)) in PROBES.iter().zip(&self.reached) {
                // 1 for an attempt, 2 for a success
                counter.add(1 + u64::from(probe()));
            }
        }
    }
}

impl Nf for Attack {
    type Settings = Settings;
    const KIND: &'static str = "attack";
    const ABOUT: &'static str = "Attacks the host.";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let reached = PROBES.iter().map(|(name, _)| ((*name).to_owned(), Arc::default())).collect();
        let mut node = AttackNode { how: settings.how, done: false, reached };
        if settings.in_build {
            node.attack();
        }
        Ok(node)
    }
}

impl Node for AttackNode {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        if self.how == How::Probe { self.reached.clone() } else { vec![] }
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.attack();
        if self.how == How::Flood {
            let path = cx.path();
            for packet in batch.as_slice() {
                for _ in 0..4 {
                    let Some(copy) = cx.copy(packet) else { break };
                    cx.emit_on_path(path, 0, copy);
                }
            }
        }
    }
}

fn main() -> ExitCode {
    bondstone_cli::main(nf::registry().with::<Attack>())
}
