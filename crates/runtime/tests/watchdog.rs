//! An NF that does not come to an end.

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

/// Ends the loop, so that the test leaves nothing running.
static ENOUGH: AtomicBool = AtomicBool::new(false);

struct Endless;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {}

struct Spins;

impl Nf for Endless {
    type Settings = Settings;
    const KIND: &'static str = "endless";
    const ABOUT: &'static str = "Does not come to an end.";
    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(Spins)
    }
}

impl Node for Spins {
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        while batch.iter().any(|p| p.data()[0] == 0xee) && !ENOUGH.load(Relaxed) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_endless_loop_is_named_and_a_stop_does_not_wait_for_it() {
    let text = "bondstone = 1\n[port.a]\ndevice = \"null\"\n[nf.round]\nkind = \"endless\"\n[nf.before]\nkind = \"endless\"\n\
                [[chain]]\npath = [\"a\", \"before\", \"round\", \"a\"]\n";
    let file = ChainFile::parse(text, Path::new("w.toml"), &Registry::new().with::<Endless>()).unwrap();
    let (engine, mut ends) = Engine::start_on_wires(&file, 256).unwrap();
    let send = |first: u8, ends: &mut Vec<runtime::End>| {
        let mut batch = Batch::new();
        batch.push(engine.pool().alloc_from(&[first; 60]).unwrap()).unwrap();
        ends[0].tx.send(&mut batch);
        assert!(batch.is_empty());
    };
    let until = |done: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !done() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(done(), "{:?}", engine.snapshot());
    };
    send(1, &mut ends);
    until(&|| engine.snapshot().ports[0].sent == 1);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(engine.snapshot().faults.is_empty(), "a worker that waits for packets is alive");
    send(0xee, &mut ends);
    until(&|| engine.snapshot().faults.len() == 1);
    let told = engine.snapshot().faults.remove(0);
    assert!(told.contains("nf \"before\" on CPU") && told.contains("endless loop"), "{told}");
    let summary = engine.stop();
    assert_eq!(summary.stuck, ["before"]);
    assert!(summary.faults.iter().any(|f| f.contains("does not end")), "{:?}", summary.faults);
    assert!(!summary.balanced && summary.totals.received == 2);
    ENOUGH.store(true, Relaxed);
}
