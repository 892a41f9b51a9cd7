//! An NF with an endless loop.

use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, Node, Registry};
use packet::{Batch, Pool};
use runtime::Engine;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Ends the loop, so that the test leaves no thread behind.
static END_LOOP: AtomicBool = AtomicBool::new(false);

struct Endless;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {}

struct EndlessNode;

impl Nf for Endless {
    type Settings = Settings;
    const KIND: &'static str = "endless";
    const ABOUT: &'static str = "Loops on some packets.";
    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(EndlessNode)
    }
}

impl Node for EndlessNode {
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        while batch.iter().any(|p| p.data()[0] == 0xee) && !END_LOOP.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_endless_loop_is_reported_and_does_not_block_the_stop() {
    let text = "bondstone = 1\n[port.a]\ndevice = \"null\"\n[nf.round]\nkind = \"endless\"\n[nf.before]\nkind = \"endless\"\n\
                [[chain]]\npath = [\"a\", \"before\", \"round\", \"a\"]\n";
    let file = ChainFile::parse(text, Path::new("w.toml"), &Registry::new().with::<Endless>()).unwrap();
    let (engine, mut ends) = Engine::start_on_wires(&file, 256).unwrap();
    let send = |first: u8, ends: &mut Vec<runtime::PortQueues>| {
        let mut batch = Batch::new();
        batch.push(engine.pool().alloc_from(&[first; 60]).unwrap()).unwrap();
        ends[0].tx.send(&mut batch);
        assert!(batch.is_empty());
    };
    let wait_until = |done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(done(), "{:?}", engine.snapshot());
    };
    send(1, &mut ends);
    wait_until(&|| engine.snapshot().ports[0].sent == 1);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(engine.snapshot().errors.is_empty(), "a worker without packets is not reported");
    send(0xee, &mut ends);
    wait_until(&|| engine.snapshot().errors.len() == 1);
    let error = engine.snapshot().errors.remove(0);
    assert!(error.contains("nf \"before\" on CPU") && error.contains("endless loop"), "{error}");
    let summary = engine.stop();
    assert_eq!(summary.stuck, ["before"]);
    assert!(summary.errors.iter().any(|f| f.contains("does not stop")), "{:?}", summary.errors);
    assert!(!summary.balanced && summary.totals.received == 2);
    END_LOOP.store(true, Relaxed);
}
