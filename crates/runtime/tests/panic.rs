//! NFs that panic: what they cost, and whom.

use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Nf, Node, Registry};
use packet::{Batch, Packet, Pool};
use runtime::{Engine, NfSummary, Summary};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// DPDK starts once in a process, and this machine has few cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// After this long nothing is waited for any more.
const LIMIT: Duration = Duration::from_secs(60);
/// Copies that were dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Panics at packets that begin with 0xbb, in the way that `how` says.
struct Bomb;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Whether it panics while it is dropped as well.
    drop_too: bool,
    /// Whether it cannot be built twice.
    once: bool,
    /// Whether it panics when it is woken, too.
    wake_too: bool,
}

struct Armed {
    drop_too: bool,
    wake_too: bool,
    seen: Arc<Counter>,
}

impl Nf for Bomb {
    type Settings = Settings;
    const KIND: &'static str = "bomb";
    const ABOUT: &'static str = "Panics.";
    fn build(s: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let built = cx.common(|| Ok(AtomicU64::new(0)))?.fetch_add(1, Relaxed);
        if s.once && built > 0 {
            return Err(Diagnostic::new("is built once only"));
        }
        Ok(Armed { drop_too: s.drop_too, wake_too: s.wake_too, seen: Arc::default() })
    }
}

impl Node for Armed {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("seen".into(), self.seen.clone())]
    }
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.iter() {
            assert_ne!(packet.data()[0], 0xbb, "on purpose");
            self.seen.add(1);
        }
    }
    fn interval(&self) -> Option<Duration> {
        self.wake_too.then_some(Duration::from_millis(2))
    }
    fn on_timer(&mut self, _: &mut Context<'_>) {
        panic!("when woken");
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
        if self.drop_too && !std::thread::panicking() {
            panic!("when dropped");
        }
    }
}

/// A running file, one wire for each port.
struct Rig {
    engine: Engine,
    ends: Vec<runtime::End>,
    received: Vec<u64>,
}

impl Rig {
    fn start(nf: &str, chain: &str) -> Rig {
        let text = format!(
            "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n[port.c]\ndevice = \"null\"\n[port.d]\ndevice = \"null\"\n\
             [nf.bomb]\nkind = \"bomb\"\n{nf}\n[nf.other]\nkind = \"bomb\"\n\
             [[chain]]\npath = [\"a\", \"bomb\", \"b\"]\n{chain}\n[[chain]]\npath = [\"c\", \"other\", \"d\"]\n"
        );
        let file = ChainFile::parse(&text, Path::new("panic.toml"), &Registry::new().with::<Bomb>());
        let file = file.unwrap_or_else(|faults| panic!("{faults:?}"));
        let (engine, ends) = Engine::start_on_wires(&file, 4096).unwrap();
        Rig { engine, received: vec![0; ends.len()], ends }
    }

    /// Sends packets that begin with this byte into a port, and takes what comes out anywhere; how many went in.
    fn send(&mut self, port: usize, first: u8, n: usize) -> u64 {
        let mut batch = Batch::new();
        let packet = |_| -> Packet { self.engine.pool().alloc_from(&[first; 60]).expect("the pool has more") };
        (0..n).map(packet).for_each(|p| batch.push(p).expect("a batch has room for 32"));
        let until = Instant::now() + LIMIT;
        while !batch.is_empty() && Instant::now() < until {
            let end = self.ends.iter_mut().find(|e| e.port == port).expect("a port");
            end.tx.send(&mut batch);
            self.take();
        }
        (n - batch.len()) as u64
    }

    fn take(&mut self) {
        let mut batch = Batch::new();
        for end in &mut self.ends {
            end.rx.receive(&mut batch);
            self.received[end.port] += batch.len() as u64;
            batch.clear();
        }
    }

    /// Takes what comes out until `done`, for at most [`LIMIT`].
    fn until(&mut self, done: impl Fn(&Summary, &[u64]) -> bool) -> Summary {
        let until = Instant::now() + LIMIT;
        loop {
            self.take();
            let summary = self.engine.snapshot();
            if done(&summary, &self.received) || Instant::now() > until {
                return summary;
            }
            std::thread::yield_now();
        }
    }
}

fn bomb(summary: &Summary) -> &NfSummary {
    summary.nfs.iter().find(|nf| nf.name == "bomb").expect("an NF")
}

fn panics(summary: &Summary) -> u64 {
    bomb(summary).drops.get("nf_panic").copied().unwrap_or_default()
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_panic_costs_its_batch_and_the_nf_is_built_anew() {
    let _alone = alone();
    let mut rig = Rig::start("", "");
    let mut sent = [0, 0];
    for round in 1..=200 {
        // alone, so that what is lost is known
        sent[0] += rig.send(0, 0xbb, 7);
        // the counts are read one after the other
        let at = rig.until(|s, _| bomb(s).restarts == round && panics(s) == 7 * round);
        assert_eq!((bomb(&at).restarts, panics(&at)), (round, 7 * round));
        sent[1] += rig.send(2, 1, 32);
        sent[0] += rig.send(0, 1, 3);
        rig.until(|_, received| received[1] == 3 * round && received[3] == 32 * round);
    }
    assert_eq!(rig.received, [0, 600, 0, 6400]);
    let summary = rig.engine.stop();
    assert!(summary.balanced, "{summary:?}");
    assert_eq!(summary.totals.received, sent[0] + sent[1]);
    let said = "nf \"bomb\" panicked: assertion `left != right` failed: on purpose\n  left: 187\n right: 187, at ";
    let [told] = &summary.faults[..] else { panic!("{:?}", summary.faults) };
    assert!(told.starts_with(said) && told.contains("panic.rs:") && told.ends_with("(200 times)"), "{told}");
    // the last copy has counted what it saw itself
    assert_eq!(bomb(&summary).counters["seen"], 3);
}

#[test]
fn while_there_is_no_nf_its_chain_is_open_or_closed() {
    let _alone = alone();
    for (chain, open) in [("", false), ("on_panic = \"closed\"", false), ("on_panic = \"open\"", true)] {
        let mut rig = Rig::start("once = true", chain);
        rig.send(0, 0xbb, 1);
        rig.until(|s, _| panics(s) == 1 && !s.faults.is_empty());
        let n = (0..10).map(|_| rig.send(0, 0xbb, 32)).sum::<u64>() + rig.send(2, 1, 32);
        let at = rig.until(|s, received| (panics(s) == 321) ^ (received[1] == 320) && received[3] == 32);
        assert_eq!((panics(&at), rig.received[1]), if open { (1, 320) } else { (321, 0) }, "{chain}");
        let summary = rig.engine.stop();
        assert!(summary.balanced && summary.totals.received == n + 1, "{summary:?}");
        assert_eq!(bomb(&summary).restarts, 0);
        let told = |what: &str| summary.faults.iter().any(|f| f.contains(what));
        assert!(told("could not be built anew after a panic: is built once only"), "{:?}", summary.faults);
    }
}

#[test]
fn a_panic_while_woken_or_dropped_harms_nobody_else() {
    let _alone = alone();
    let mut rig = Rig::start("wake_too = true\ndrop_too = true", "");
    rig.until(|s, _| bomb(s).restarts >= 20);
    let n = (0..20).map(|_| rig.send(2, 1, 32)).sum::<u64>();
    let at = rig.until(|_, received| received[3] == n);
    assert!(bomb(&at).restarts >= 20 && DROPPED.load(Relaxed) >= 20);
    assert_eq!(rig.received[3], n);
    let summary = rig.engine.stop();
    assert!(summary.balanced, "{summary:?}");
    let told = |what: &str| summary.faults.iter().any(|f| f.contains(what));
    assert!(
        told("panicked: when woken, at ") && told("panicked when it was dropped after a panic"),
        "{:?}",
        summary.faults
    );
}
