//! A program with one NF that does what NFs should not, to see what is said of it, and what others feel of it.
//!
//! `how` is what it does; once it has seen `after` packets, if it does that to packets.

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, HoldQueue, Nf, Node, PathId};
use packet::{Batch, Packet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[global_allocator]
static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;

/// The NF.
struct Misbehave;

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// What it does.
    how: How,
    /// Packets that it lets pass first.
    after: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum How {
    #[default]
    Pass,
    /// Does not come to an end with a batch.
    Loop,
    /// Takes 20 ms for each of its first hundred batches.
    Slow,
    /// Overflows its stack.
    Recurse,
    RecurseInBuild,
    /// Takes memory without end.
    Allocate,
    /// Asks for more memory than there is, and for the same without insisting.
    Huge,
    Reserve,
    /// Opens a file, which an NF behind a wall has not, and makes a socket, which it may not.
    Open,
    Connect,
    Exit,
    ExitInDrop,
    ExitInFinish,
    Abort,
    /// Panics while it panics.
    PanicInDrop,
    /// Throws what panics when it is dropped, from a batch or from its own end.
    Throw,
    ThrowInDrop,
    /// The copies after the first fail where they are asked what they show.
    PanicInCounters,
    LoopInCounters,
    PanicInFinish,
    LoopInFinish,
    PanicInBuild,
    /// Panics, and is then not built again.
    LoopInBuild,
    /// Panics while packets are on their way out of the batch.
    PanicInSift,
    /// Loses packets, or keeps them.
    Leak,
    Hoard,
    /// Keeps a batch, and sends it with the next.
    Delay,
    /// Loses a queue of held packets.
    LoseHeld,
    /// Panics while a queue of held packets survives it.
    HeldAbroad,
    /// Sends packets by the way of another NF.
    Stray,
}

struct Bad {
    how: How,
    copy: u64,
    left: u64,
    kept: Vec<Vec<u64>>,
    packets: Vec<Packet>,
}

/// What panics when it is dropped.
struct Falls;

static BUILT: AtomicU64 = AtomicU64::new(0);
static ABROAD: Mutex<Option<HoldQueue>> = Mutex::new(None);
static WAY: Mutex<Option<PathId>> = Mutex::new(None);

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
    const ABOUT: &'static str = "Does what an NF should not.";
    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        // NFs that behave are not counted
        let copy = if settings.how == How::Pass { 0 } else { BUILT.fetch_add(1, Ordering::Relaxed) };
        match settings.how {
            How::RecurseInBuild => drop(std::hint::black_box(deeper(1))),
            How::PanicInBuild => panic!("while it is built"),
            How::LoopInBuild if copy > 0 => spin(),
            _ => {}
        }
        Ok(Bad { how: settings.how, copy, left: settings.after, kept: vec![], packets: vec![] })
    }
}

impl Node for Bad {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        match self.how {
            How::PanicInCounters if self.copy > 0 => panic!("in counters"),
            How::LoopInCounters if self.copy > 0 => spin(),
            _ => vec![],
        }
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        if self.how == How::Pass {
            // for those that stray
            *lock(&WAY) = Some(cx.path());
        }
        self.left = self.left.saturating_sub(batch.len() as u64);
        if self.left != 0 {
            return;
        }
        match self.how {
            How::Pass | How::RecurseInBuild | How::PanicInBuild => {}
            How::ExitInDrop | How::ExitInFinish | How::PanicInFinish | How::LoopInFinish => {}
            How::Loop => spin(),
            How::Slow if self.copy < 100 => {
                self.copy += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            How::Slow => {}
            How::Recurse => drop(std::hint::black_box(deeper(batch.len() as u64))),
            How::Allocate => self.kept.push(vec![1; 1 << 13]),
            How::Huge => drop(std::hint::black_box(vec![0u8; 1 << 60])),
            How::Reserve => {
                for _ in 0..2 {
                    assert!(std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(1 << 62).is_err());
                }
                self.kept.push(vec![1; 1 << 13]);
            }
            How::Open => match std::fs::read_to_string("/etc/hostname") {
                Ok(_) => std::process::exit(0),
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::PermissionDenied),
            },
            How::Connect => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            How::Exit => std::process::exit(0),
            How::Abort => std::process::abort(),
            How::PanicInDrop => {
                let _falls = Falls;
                panic!("the first");
            }
            How::Throw => std::panic::panic_any(Falls),
            How::ThrowInDrop | How::PanicInCounters | How::LoopInCounters | How::LoopInBuild if self.copy == 0 => {
                panic!("the first copy");
            }
            How::ThrowInDrop | How::PanicInCounters | How::LoopInCounters | How::LoopInBuild => {}
            How::PanicInSift => batch.extract_if(|_| Some(()), |(), _| panic!("one of a batch")),
            How::Leak => batch.drain().for_each(std::mem::forget),
            How::Hoard => self.packets.extend(batch.drain()),
            How::Delay => {
                let old = std::mem::take(&mut self.packets);
                self.packets.extend(batch.drain());
                old.into_iter().for_each(|p| batch.push(p).expect("a batch fits in a batch"));
            }
            How::LoseHeld => {
                let mut held = HoldQueue::new(1000);
                batch.drain().for_each(|p| cx.hold(&mut held, p).expect("there is room"));
            }
            How::HeldAbroad => {
                let mut abroad = lock(&ABROAD);
                let held = abroad.get_or_insert_with(|| HoldQueue::new(1000));
                if self.copy == 0 {
                    batch.drain().for_each(|p| cx.hold(held, p).expect("there is room"));
                    panic!("holds packets");
                }
                while let Some((way, packet)) = cx.release(held) {
                    cx.emit_from(way, 0, packet);
                }
            }
            How::Stray => {
                let Some(way) = *lock(&WAY) else { return };
                batch.drain().for_each(|p| cx.emit_from(way, 0, p));
            }
        }
    }

    fn finish(&mut self) {
        match self.how {
            How::ExitInFinish => std::process::exit(0),
            How::PanicInFinish => panic!("at its end"),
            How::LoopInFinish => spin(),
            _ => {}
        }
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        match self.how {
            How::ExitInDrop => std::process::exit(0),
            How::ThrowInDrop => std::panic::panic_any(Falls),
            _ => {}
        }
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("the second");
    }
}

#[expect(unconditional_recursion, reason = "on purpose")]
fn deeper(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    deeper(n + room[3]) + room[7]
}

fn main() -> ExitCode {
    bondstone_cli::main(nf::registry().with::<Misbehave>())
}
