//! The environment abstraction layer (EAL): started once per process, in the mode that machine and user allow.

use crate::{Error, Memory, Result, check, layout};
use core::marker::PhantomData;
use dpdk_sys as sys;
use std::ffi::CString;
use std::sync::OnceLock;

/// Proof that the EAL has been started. It starts at most once per process; all callers share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eal {
    memory: Memory,
    /// True if it uses PCI devices.
    uses_devices: bool,
}

/// MiB that the EAL allocates at start without huge pages: without PCI devices, and with them, as each packet then lies
/// within one page.
const ORDINARY_MB: [usize; 2] = [512, 768];

/// Base address of the EAL's memory in a ring client. DPDK's default is 4 GiB, from which it reserves half a TiB.
const CLIENT_BASE_VIRTADDR: u64 = 0x2000_0000_0000;

static EAL: OnceLock<core::result::Result<Eal, (i32, String)>> = OnceLock::new();

impl Eal {
    /// Starts the EAL, or returns the one that this process has already started, in whatever mode.
    /// `pci` lists the addresses of the PCI devices that it may use.
    ///
    /// # Errors
    /// `rte_eal_init` failed. Every later call returns the same error: DPDK cannot be started twice in one process.
    pub fn start(memory: Memory, pci: &[String]) -> Result<Eal> {
        Eal::start_once(memory, pci, None)
    }

    /// Starts the EAL without PCI devices, and with its memory at an address that leaves room for the memory of a
    /// [`RingServer`](crate::RingServer).
    ///
    /// # Errors
    /// As for [`Eal::start`].
    pub fn start_ring_client(memory: Memory) -> Result<Eal> {
        Eal::start_once(memory, &[], Some(CLIENT_BASE_VIRTADDR))
    }

    fn start_once(memory: Memory, pci: &[String], base: Option<u64>) -> Result<Eal> {
        let started = EAL.get_or_init(|| {
            let affinity = Affinity::get();
            let eal = Eal { memory, uses_devices: !pci.is_empty() };
            let result = init(memory, pci, base).map(|()| eal).map_err(|rc| (-rc, take_log()));
            affinity.restore();
            result
        });
        match started {
            Ok(eal) => Ok(*eal),
            Err((errno, log)) => Err(Error { what: "starting DPDK".into(), errno: *errno, log: log.clone() }),
        }
    }

    /// Returns true if devices may read and write packets by DMA.
    pub(crate) fn uses_devices(self) -> bool {
        self.uses_devices
    }

    /// Returns the kind of memory that pools are allocated from.
    pub fn memory(self) -> Memory {
        self.memory
    }

    /// Registers the calling thread as an lcore, which gives it its own packet caches; other threads are slower.
    ///
    /// # Errors
    /// All lcore ids are in use.
    pub fn register_thread(self) -> Result<LcoreGuard> {
        // SAFETY: plain calls; u32::MAX is LCORE_ID_ANY, the id of an unregistered thread.
        let registered = unsafe { sys::bs_lcore_id() } == u32::MAX;
        if registered {
            // SAFETY: as above; the guard undoes it on the same thread.
            let rc = unsafe { sys::rte_thread_register() };
            // SAFETY: reads this thread's errno.
            check(|| "registering a worker thread".into(), if rc < 0 { -unsafe { sys::bs_errno() } } else { 0 })?;
        }
        Ok(LcoreGuard { registered, _stays_on_its_thread: PhantomData })
    }
}

/// Keeps its thread registered as an lcore while it lives.
pub struct LcoreGuard {
    registered: bool,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for LcoreGuard {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread registered itself.
            unsafe { sys::rte_thread_unregister() }
        }
    }
}

fn init(memory: Memory, pci: &[String], base: Option<u64>) -> core::result::Result<(), i32> {
    // SAFETY: before rte_eal_init nothing else uses the log.
    unsafe { sys::bs_log_capture() };
    let mut args = vec!["bondstone".to_owned(), "--no-telemetry".into(), "--no-shconf".into()];
    match memory {
        // one file per segment keeps the region count within what virtio-user and memif can share
        Memory::Huge => args.extend(["--in-memory".into(), "--single-file-segments".into()]),
        Memory::Ordinary => {
            args.extend(["--no-huge".into(), "-m".into(), ORDINARY_MB[usize::from(!pci.is_empty())].to_string()])
        }
    }
    args.extend(base.map(|base| format!("--base-virtaddr={base:#x}")));
    if pci.is_empty() {
        args.extend(["--no-pci".into(), "--iova-mode=va".into()]);
    }
    for address in pci {
        args.extend(["-a".into(), address.clone()]);
    }
    args.extend(["--lcores".into(), format!("0@{}", first_allowed_cpu())]);
    // rte_eal_init keeps and permutes argv: strings and array are leaked
    let argv: Vec<_> = args.into_iter().map(|a| CString::new(a).expect("no NUL in our arguments").into_raw()).collect();
    let argv = argv.leak();
    // SAFETY: argv is leaked, and this is the only call in the process.
    let rc = unsafe { sys::bs_eal_init(argv.len() as i32, argv.as_mut_ptr()) };
    if rc < 0 {
        return Err(rc);
    }
    // SAFETY: the EAL is up, and no pool exists yet; layout.rs proves that the field is unused by DPDK.
    let rc = unsafe {
        let [timestamp_bit, metadata_bit] = [packet::TIMESTAMP_FLAG, packet::METADATA_FLAG].map(u64::trailing_zeros);
        sys::bs_reserve_dynamic(layout::DYNFIELD_OFFSET, layout::DYNFIELD_SIZE, timestamp_bit, metadata_bit)
    };
    if rc < 0 {
        return Err(rc);
    }
    // SAFETY: the packet crate passes n owned buffers that name their pools; NonNull<Mbuf> is an rte_mbuf pointer.
    unsafe { packet::set_free_hook(|at, n| sys::bs_free(at.cast(), n)) };
    Ok(())
}

/// Returns what DPDK has logged since the last call, at most 4 KiB.
pub(crate) fn take_log() -> String {
    let mut text = [0u8; 4096];
    // SAFETY: pointer and size describe the buffer; the result excludes the NUL.
    let n = unsafe { sys::bs_log_take(text.as_mut_ptr().cast(), text.len()) };
    String::from_utf8_lossy(&text[..n]).into_owned()
}

/// The CPU affinity of the calling thread: rte_eal_init pins its caller, which is the control thread here.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    fn get() -> Self {
        // SAFETY: cpu_set_t is plain data, and the size is its own.
        unsafe {
            let mut set = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            Affinity(set)
        }
    }
    fn restore(&self) {
        // SAFETY: as above.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) };
    }
}

fn first_allowed_cpu() -> usize {
    let Affinity(set) = Affinity::get();
    // SAFETY: the index stays below the set's size.
    (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).unwrap_or(0)
}

/// Has the programs that this process executes from now on inherit no file descriptors except standard input, output and
/// error: DPDK's drivers leave theirs open.
///
/// # Errors
/// Linux before 5.11 lacks `CLOSE_RANGE_CLOEXEC`.
pub fn close_files_on_exec() -> std::io::Result<()> {
    // SAFETY: no descriptor of this process is closed.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Closes all file descriptors except standard input, output and error. DPDK's memory and sockets are inherited by the
/// programs that a process starts; a program that must not have access to them calls this before it opens any file.
///
/// # Errors
/// Linux before 5.9 lacks `close_range`.
///
/// # Safety
/// No other owner of a descriptor may exist: the process has opened no file.
pub unsafe fn close_inherited_fds() -> std::io::Result<()> {
    // SAFETY: as the caller promises.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
