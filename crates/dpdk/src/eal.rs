//! The environment abstraction layer: started once, in the mode that this machine and user allow.

use crate::{Error, Result, check, layout};
use core::marker::PhantomData;
use dpdk_sys as sys;
use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;

/// Proof that the EAL runs. It starts at most once per process, so every caller shares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eal {
    memory: Memory,
    /// Whether it uses devices of the machine.
    devices: bool,
}

/// What packets are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// 2 MiB pages: one TLB entry for a thousand packets.
    Huge,
    /// Ordinary pages: needs nothing, works everywhere, slower with large tables.
    Ordinary,
}

/// Megabytes that the EAL takes at start without huge pages; and with devices, for which each packet lies in a page of its own.
const ORDINARY_MB: [usize; 2] = [512, 768];
/// Huge pages (2 MiB) for what DPDK and its drivers keep beside packets.
const ENOUGH_PAGES: usize = 48;

/// Where the memory of a process is that borrows; DPDK's own choice is 4 GiB, from where it keeps half a TiB for itself.
const APART: u64 = 0x2000_0000_0000;

static EAL: OnceLock<core::result::Result<Eal, (i32, String)>> = OnceLock::new();

impl Memory {
    /// Huge pages where enough are free for drivers' rings and a pool of `packets`, ordinary ones elsewhere.
    pub fn best_for(packets: u32) -> Memory {
        let needed = ENOUGH_PAGES + packets as usize * 2432 / (2 << 20);
        if Self::free_huge_pages() >= needed { Memory::Huge } else { Memory::Ordinary }
    }

    /// Huge pages where enough are free for a small pool, ordinary ones elsewhere.
    pub fn best() -> Memory {
        Self::best_for((1 << 13) - 1)
    }

    /// Free 2 MiB pages on this machine.
    pub fn free_huge_pages() -> usize {
        let dir = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
        std::fs::read_to_string(dir.join("free_hugepages")).ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0)
    }
}

impl Eal {
    /// Starts the EAL, or joins the one that this process has already started (in whatever mode that was).
    /// `pci` lists the addresses of the PCI devices that it may use; no other is touched.
    ///
    /// # Errors
    /// What `rte_eal_init` refused. It is not tried again: DPDK cannot be started twice in one process.
    pub fn start(memory: Memory, pci: &[String]) -> Result<Eal> {
        Eal::begin(memory, pci, None)
    }

    /// As [`Eal::start`], without PCI devices, and with its memory where it leaves room for that of a process whose packets this
    /// one will [borrow](crate::Borrower).
    ///
    /// # Errors
    /// As of [`Eal::start`].
    pub fn start_apart(memory: Memory) -> Result<Eal> {
        Eal::begin(memory, &[], Some(APART))
    }

    fn begin(memory: Memory, pci: &[String], base: Option<u64>) -> Result<Eal> {
        let started = EAL.get_or_init(|| {
            let affinity = Affinity::get();
            let eal = Eal { memory, devices: !pci.is_empty() };
            let result = init(memory, pci, base).map(|()| eal).map_err(|rc| (-rc, take_log()));
            affinity.restore();
            result
        });
        match started {
            Ok(eal) => Ok(*eal),
            Err((errno, log)) => Err(Error { what: "starting DPDK".into(), errno: *errno, log: log.clone() }),
        }
    }

    /// Whether devices of the machine may read and write packets by themselves.
    pub(crate) fn devices(self) -> bool {
        self.devices
    }

    /// What packets are kept in.
    pub fn memory(self) -> Memory {
        self.memory
    }

    /// Makes the calling thread an lcore, which gives it packet caches of its own. Without, everything works, slower.
    ///
    /// # Errors
    /// When all lcore ids are taken.
    pub fn register_thread(self) -> Result<LcoreGuard> {
        // SAFETY: plain calls; LCORE_ID_ANY says that this thread has none yet.
        let fresh = unsafe { sys::bs_lcore_id() } == u32::MAX;
        if fresh {
            // SAFETY: as above; undone by the guard, on this same thread.
            let rc = unsafe { sys::rte_thread_register() };
            // SAFETY: reads this thread's errno.
            check(|| "registering a worker thread".into(), if rc < 0 { -unsafe { sys::bs_errno() } } else { 0 })?;
        }
        Ok(LcoreGuard { fresh, _stays_on_its_thread: PhantomData })
    }
}

/// While it lives, its thread is an lcore.
pub struct LcoreGuard {
    fresh: bool,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for LcoreGuard {
    fn drop(&mut self) {
        if self.fresh {
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
    // rte_eal_init keeps and permutes argv: strings and array stay for ever
    let argv: Vec<_> = args.into_iter().map(|a| CString::new(a).expect("no NUL in our arguments").into_raw()).collect();
    let argv = argv.leak();
    // SAFETY: argv lives for ever, and this is the process's only call.
    let rc = unsafe { sys::bs_eal_init(argv.len() as i32, argv.as_mut_ptr()) };
    if rc < 0 {
        return Err(rc);
    }
    // SAFETY: the EAL is up, and no pool exists yet; the field is ours by layout.rs's offsets.
    let rc = unsafe {
        let [stamped, noted] = [packet::TIMESTAMPED, packet::NOTED].map(u64::trailing_zeros);
        sys::bs_reserve_dynamic(layout::CAPTURE_OFFSET, layout::CAPTURE_SIZE, stamped, noted)
    };
    if rc < 0 {
        return Err(rc);
    }
    packet::set_free_hook(|at, n| {
        // SAFETY: the packet crate hands over n owned buffers that name their pools; NonNull<Mbuf> is an rte_mbuf pointer.
        unsafe { sys::bs_free(at.cast(), n) }
    });
    Ok(())
}

/// What DPDK has logged since it was last asked, at most 4 KiB of it.
pub(crate) fn take_log() -> String {
    let mut text = [0u8; 4096];
    // SAFETY: the buffer and its size match; the result excludes the NUL.
    let n = unsafe { sys::bs_log_take(text.as_mut_ptr().cast(), text.len()) };
    String::from_utf8_lossy(&text[..n]).into_owned()
}

/// rte_eal_init pins its caller; the caller here is the control thread, which shall stay where it was.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    fn get() -> Self {
        // SAFETY: cpu_set_t is plain bits, and the size is its own.
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

/// Closes all that this process has open but the three standard ones. DPDK lets programs that its process starts inherit its
/// memory and its sockets; one that is not to have them calls this first, before it has opened anything itself.
///
/// # Errors
/// Linux before 5.9 has no such call.
pub fn close_inherited() -> std::io::Result<()> {
    // SAFETY: nobody owns these yet.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
