//! A program with an NF that fails in a chosen way, to test fault attribution and the isolation of other NFs.
//!
//! The setting `how` selects the fault; faults in `process` occur after `after` packets.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, HoldQueue, Nf, Node, PathId};
use packet::{Batch, Packet};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[global_allocator]
static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;

/// NF with a fault.
struct Misbehave;

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Fault.
    how: Fault,
    /// Packets that are forwarded before the fault.
    after: u64,
    /// Packets that a forged report claims to have created and dropped.
    created: u64,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    #[default]
    Pass,
    /// Never returns from a batch.
    Loop,
    /// Takes 20 ms for each of its first hundred batches.
    Slow,
    /// Waits for 3 s in one batch, as if others used its CPU.
    Wait,
    /// Waits in one batch until the process ends.
    Deadlock,
    /// Overflows its stack.
    Recurse,
    RecurseInBuild,
    /// Allocates memory without limit.
    Allocate,
    /// Allocates more memory than exists, infallibly and fallibly.
    Huge,
    Reserve,
    /// Opens a file, and creates a socket: both are denied in a sandbox.
    Open,
    Connect,
    Exit,
    ExitInDrop,
    ExitInFinish,
    Abort,
    /// Panics while it panics.
    PanicInDrop,
    /// Panics with a payload that panics on drop, in a batch or in its own drop.
    Throw,
    ThrowInDrop,
    /// Copies after the first fail when their counters are read.
    PanicInCounters,
    LoopInCounters,
    PanicInFinish,
    LoopInFinish,
    PanicInBuild,
    /// Panics, and never returns when it is rebuilt.
    LoopInBuild,
    /// Panics while packets are extracted from the batch.
    PanicInExtract,
    /// Leaks packets, or keeps them.
    Leak,
    Hoard,
    /// Sends each batch with the next one.
    Delay,
    /// Drops a queue of held packets.
    DropHoldQueue,
    /// Panics while a queue of held packets outlives it.
    SharedHoldQueue,
    /// Sends packets on the path of another NF.
    WrongPath,
    /// Prints a line for each packet.
    Flood,
    /// Prints many lines and ends the process.
    FloodAndExit,
    /// Sends a forged final report to the supervisor.
    Forge,
}

struct FaultyNode {
    how: Fault,
    copy: u64,
    remaining: u64,
    allocated: Vec<Vec<u64>>,
    packets: Vec<Packet>,
    /// Forged report.
    report: runtime::Summary,
}

/// A value that panics on drop.
struct PanicOnDrop;

static BUILD_COUNT: AtomicU64 = AtomicU64::new(0);
static HOLD_QUEUE: Mutex<Option<HoldQueue>> = Mutex::new(None);
static PATH: Mutex<Option<PathId>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

impl Nf for Misbehave {
    type Settings = Settings;
    const KIND: &'static str = "misbehave";
    const ABOUT: &'static str = "Fails in a chosen way.";
    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        // NFs without a fault are not counted
        let copy = if settings.how == Fault::Pass { 0 } else { BUILD_COUNT.fetch_add(1, Ordering::Relaxed) };
        match settings.how {
            Fault::RecurseInBuild => drop(std::hint::black_box(recurse(1))),
            Fault::PanicInBuild => panic!("while it is built"),
            Fault::LoopInBuild if copy > 0 => spin(),
            _ => {}
        }
        let forged = runtime::NfSummary {
            name: cx.name.clone(),
            created: settings.created,
            drops: [("forged".into(), settings.dropped)].into(),
            ..Default::default()
        };
        Ok(FaultyNode {
            how: settings.how,
            copy,
            remaining: settings.after,
            allocated: vec![],
            packets: vec![],
            report: runtime::Summary { nfs: vec![forged], ..Default::default() },
        })
    }
}

impl Node for FaultyNode {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        match self.how {
            Fault::PanicInCounters if self.copy > 0 => panic!("in counters"),
            Fault::LoopInCounters if self.copy > 0 => spin(),
            _ => vec![],
        }
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        if self.how == Fault::Pass {
            // used by `WrongPath`
            *lock(&PATH) = Some(cx.path());
        }
        self.remaining = self.remaining.saturating_sub(batch.len() as u64);
        if self.remaining != 0 {
            return;
        }
        match self.how {
            Fault::Pass | Fault::RecurseInBuild | Fault::PanicInBuild => {}
            Fault::ExitInDrop | Fault::ExitInFinish | Fault::PanicInFinish | Fault::LoopInFinish | Fault::Forge => {}
            Fault::Flood => print_lines(batch.len()),
            Fault::FloodAndExit => {
                print_lines(10_000);
                std::process::exit(0);
            }
            Fault::Loop => spin(),
            Fault::Slow if self.copy < 100 => {
                self.copy += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Fault::Wait if self.copy < 100 => {
                self.copy = 100;
                std::thread::sleep(Duration::from_secs(3));
            }
            Fault::Slow | Fault::Wait => {}
            Fault::Deadlock => std::thread::park(),
            Fault::Recurse => drop(std::hint::black_box(recurse(batch.len() as u64))),
            Fault::Allocate => self.allocated.push(vec![1; 1 << 13]),
            Fault::Huge => drop(std::hint::black_box(vec![0u8; 1 << 60])),
            Fault::Reserve => {
                for _ in 0..2 {
                    assert!(std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(1 << 62).is_err());
                }
                self.allocated.push(vec![1; 1 << 13]);
            }
            Fault::Open => match std::fs::read_to_string("/etc/hostname") {
                Ok(_) => std::process::exit(0),
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::PermissionDenied),
            },
            Fault::Connect => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            Fault::Exit => std::process::exit(0),
            Fault::Abort => std::process::abort(),
            Fault::PanicInDrop => {
                let _panic_on_drop = PanicOnDrop;
                panic!("the first");
            }
            Fault::Throw => std::panic::panic_any(PanicOnDrop),
            Fault::ThrowInDrop | Fault::PanicInCounters | Fault::LoopInCounters | Fault::LoopInBuild
                if self.copy == 0 =>
            {
                panic!("the first copy");
            }
            Fault::ThrowInDrop | Fault::PanicInCounters | Fault::LoopInCounters | Fault::LoopInBuild => {}
            Fault::PanicInExtract => batch.extract_if(|_| Some(()), |(), _| panic!("one of a batch")),
            Fault::Leak => batch.drain().for_each(std::mem::forget),
            Fault::Hoard => self.packets.extend(batch.drain()),
            Fault::Delay => {
                let old = std::mem::take(&mut self.packets);
                self.packets.extend(batch.drain());
                old.into_iter().for_each(|p| batch.push(p).expect("a batch fits in a batch"));
            }
            Fault::DropHoldQueue => {
                let mut held = HoldQueue::new(1000);
                batch.drain().for_each(|p| cx.hold(&mut held, p).expect("there is room"));
            }
            Fault::SharedHoldQueue => {
                let mut shared = lock(&HOLD_QUEUE);
                let held = shared.get_or_insert_with(|| HoldQueue::new(1000));
                if self.copy == 0 {
                    batch.drain().for_each(|p| cx.hold(held, p).expect("there is room"));
                    panic!("holds packets");
                }
                while let Some((path, packet)) = cx.release(held) {
                    cx.emit_on_path(path, 0, packet);
                }
            }
            Fault::WrongPath => {
                let Some(path) = *lock(&PATH) else { return };
                batch.drain().for_each(|p| cx.emit_on_path(path, 0, p));
            }
        }
    }

    fn finish(&mut self) {
        match self.how {
            Fault::ExitInFinish => std::process::exit(0),
            Fault::PanicInFinish => panic!("at its end"),
            Fault::LoopInFinish => spin(),
            Fault::Forge => {
                let message = serde_json::json!({ "final_report": self.report });
                // standard input is a socket to the supervisor
                rustix::io::write(std::io::stdin(), format!("{message}\n").as_bytes()).expect("it is open");
                std::process::exit(0);
            }
            _ => {}
        }
    }
}

fn print_lines(n: usize) {
    let mut stderr = std::io::stderr().lock();
    (0..n).for_each(|n| drop(writeln!(stderr, "packet {n} was processed by an NF that logs each of them")));
}

impl Drop for FaultyNode {
    fn drop(&mut self) {
        match self.how {
            Fault::ExitInDrop => std::process::exit(0),
            Fault::ThrowInDrop => std::panic::panic_any(PanicOnDrop),
            _ => {}
        }
    }
}

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("the second");
    }
}

#[expect(unconditional_recursion, reason = "on purpose")]
fn recurse(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 64]);
    recurse(n + frame[3]) + frame[7]
}

fn main() -> ExitCode {
    bondstone_cli::main(nf::registry().with::<Misbehave>())
}
