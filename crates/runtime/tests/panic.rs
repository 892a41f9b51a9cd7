//! NFs that panic: which packets are lost, and of which chain.

use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, Nf, Node, Registry};
use packet::{Batch, Packet, Pool};
use runtime::{Engine, NfSummary, Summary};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Serialises the tests: DPDK starts once per process, and cores are few.
static SERIAL_LOCK: Mutex<()> = Mutex::new(());
/// Time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of nodes dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// An NF that panics on packets that begin with 0xbb.
struct Bomb;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// True to panic also when dropped.
    panic_on_drop: bool,
    /// True to fail the second build.
    build_once: bool,
    /// True to panic also in the timer.
    panic_on_timer: bool,
}

struct BombNode {
    panic_on_drop: bool,
    panic_on_timer: bool,
    processed: Arc<Counter>,
}

impl Nf for Bomb {
    type Settings = Settings;
    const KIND: &'static str = "bomb";
    const ABOUT: &'static str = "Panics.";
    fn build(s: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let built = cx.shared(|| Ok(AtomicU64::new(0)))?.fetch_add(1, Relaxed);
        if s.build_once && built > 0 {
            return Err(Diagnostic::new("is built once only"));
        }
        Ok(BombNode { panic_on_drop: s.panic_on_drop, panic_on_timer: s.panic_on_timer, processed: Arc::default() })
    }
}

impl Node for BombNode {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![("processed".into(), self.processed.clone())]
    }
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.iter() {
            assert_ne!(packet.data()[0], 0xbb, "on purpose");
            self.processed.add(1);
        }
    }
    fn interval(&self) -> Option<Duration> {
        self.panic_on_timer.then_some(Duration::from_millis(2))
    }
    fn on_timer(&mut self, _: &mut Context<'_>) {
        panic!("in the timer");
    }
}

impl Drop for BombNode {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
        if self.panic_on_drop && !std::thread::panicking() {
            panic!("when dropped");
        }
    }
}

/// A running chain file with a wire for each port.
struct Fixture {
    engine: Engine,
    ends: Vec<runtime::PortQueues>,
    received: Vec<u64>,
}

impl Fixture {
    fn start(nf: &str, chain: &str) -> Fixture {
        let text = format!(
            "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n[port.c]\ndevice = \"null\"\n[port.d]\ndevice = \"null\"\n\
             [nf.bomb]\nkind = \"bomb\"\n{nf}\n[nf.other]\nkind = \"bomb\"\n\
             [[chain]]\npath = [\"a\", \"bomb\", \"b\"]\n{chain}\n[[chain]]\npath = [\"c\", \"other\", \"d\"]\n"
        );
        let file = ChainFile::parse(&text, Path::new("panic.toml"), &Registry::new().with::<Bomb>());
        let file = file.unwrap_or_else(|faults| panic!("{faults:?}"));
        let (engine, ends) = Engine::start_on_wires(&file, 4096).unwrap();
        Fixture { engine, received: vec![0; ends.len()], ends }
    }

    /// Sends packets that begin with this byte to a port, and receives from all ports; returns the number sent.
    fn send(&mut self, port: usize, first: u8, n: usize) -> u64 {
        let mut batch = Batch::new();
        let packet = |_| -> Packet { self.engine.pool().alloc_from(&[first; 60]).expect("the pool has buffers") };
        (0..n).map(packet).for_each(|p| batch.push(p).expect("a batch has room for 32"));
        let deadline = Instant::now() + TIMEOUT;
        while !batch.is_empty() && Instant::now() < deadline {
            let end = self.ends.iter_mut().find(|e| e.port == port).expect("a port");
            end.tx.send(&mut batch);
            self.receive();
        }
        (n - batch.len()) as u64
    }

    fn receive(&mut self) {
        let mut batch = Batch::new();
        for end in &mut self.ends {
            end.rx.receive(&mut batch);
            self.received[end.port] += batch.len() as u64;
            batch.clear();
        }
    }

    /// Receives from all ports until `done` returns true, for at most [`TIMEOUT`].
    fn receive_until(&mut self, done: impl Fn(&Summary, &[u64]) -> bool) -> Summary {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.receive();
            let summary = self.engine.snapshot();
            if done(&summary, &self.received) || Instant::now() > deadline {
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

fn serialise() -> std::sync::MutexGuard<'static, ()> {
    SERIAL_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_panic_drops_its_batch_and_the_nf_is_rebuilt() {
    let _lock = serialise();
    let mut fixture = Fixture::start("", "");
    let mut sent = [0, 0];
    for round in 1..=200 {
        // in a batch of their own, so that the loss is known
        sent[0] += fixture.send(0, 0xbb, 7);
        // the counts are read one after another, so wait for both
        let at = fixture.receive_until(|s, _| bomb(s).restarts == round && panics(s) == 7 * round);
        assert_eq!((bomb(&at).restarts, panics(&at)), (round, 7 * round));
        sent[1] += fixture.send(2, 1, 32);
        sent[0] += fixture.send(0, 1, 3);
        fixture.receive_until(|_, received| received[1] == 3 * round && received[3] == 32 * round);
    }
    assert_eq!(fixture.received, [0, 600, 0, 6400]);
    let summary = fixture.engine.stop();
    assert!(summary.balanced, "{summary:?}");
    assert_eq!(summary.totals.received, sent[0] + sent[1]);
    let message = "nf \"bomb\" panicked: assertion `left != right` failed: on purpose\n  left: 187\n right: 187, at ";
    let [error] = &summary.errors[..] else { panic!("{:?}", summary.errors) };
    assert!(error.starts_with(message) && error.contains("panic.rs:") && error.ends_with("(200 times)"), "{error}");
    // the counters of the last copy start at 0
    assert_eq!(bomb(&summary).counters["processed"], 3);
}

#[test]
fn a_chain_without_its_nf_is_open_or_closed() {
    let _lock = serialise();
    for (chain, open) in [("", false), ("on_panic = \"closed\"", false), ("on_panic = \"open\"", true)] {
        let mut fixture = Fixture::start("build_once = true", chain);
        fixture.send(0, 0xbb, 1);
        fixture.receive_until(|s, _| panics(s) == 1 && !s.errors.is_empty());
        let n = (0..10).map(|_| fixture.send(0, 0xbb, 32)).sum::<u64>() + fixture.send(2, 1, 32);
        let at = fixture.receive_until(|s, received| (panics(s) == 321) ^ (received[1] == 320) && received[3] == 32);
        assert_eq!((panics(&at), fixture.received[1]), if open { (1, 320) } else { (321, 0) }, "{chain}");
        let summary = fixture.engine.stop();
        assert!(summary.balanced && summary.totals.received == n + 1, "{summary:?}");
        assert_eq!(bomb(&summary).restarts, 0);
        let reported = |what: &str| summary.errors.iter().any(|f| f.contains(what));
        assert!(reported("could not be rebuilt after a panic: is built once only"), "{:?}", summary.errors);
    }
}

#[test]
fn panics_in_the_timer_or_on_drop_do_not_affect_other_chains() {
    let _lock = serialise();
    let mut fixture = Fixture::start("panic_on_timer = true\npanic_on_drop = true", "");
    fixture.receive_until(|s, _| bomb(s).restarts >= 20);
    let n = (0..20).map(|_| fixture.send(2, 1, 32)).sum::<u64>();
    let at = fixture.receive_until(|_, received| received[3] == n);
    assert!(bomb(&at).restarts >= 20 && DROPPED.load(Relaxed) >= 20);
    assert_eq!(fixture.received[3], n);
    let summary = fixture.engine.stop();
    assert!(summary.balanced, "{summary:?}");
    let reported = |what: &str| summary.errors.iter().any(|f| f.contains(what));
    assert!(
        reported("panicked: in the timer, at ") && reported("panicked when it was dropped after a panic"),
        "{:?}",
        summary.errors
    );
}
