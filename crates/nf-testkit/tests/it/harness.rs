//! The harness on correct and on faulty NFs.

use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Counter, HoldQueue, Nf, NoSettings, Node, Operator, Registry, StatsTable};
use packet::{Batch, Packet};
use schemars::JsonSchema;
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use testkit::{CycleMeter, Harness, HarnessBuilder};

/// Performs the action that the first byte of each packet selects.
struct Scripted;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Capacity of the hold queue.
    capacity: usize,
    /// Interval in milliseconds at which a packet is released.
    interval: u64,
    /// A file that has to exist.
    file: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { capacity: 4, interval: 10, file: None }
    }
}

const PASS: u8 = 0;
const DROP: u8 = 1;
const DROP_AGAIN: u8 = 2;
const SECOND: u8 = 3;
const COPY: u8 = 4;
const HOLD: u8 = 5;
const FREE: u8 = 6;
const LEAK: u8 = 7;
const UNNAMED: u8 = 8;
const PANIC: u8 = 9;

impl Nf for Scripted {
    type Settings = Settings;
    const KIND: &'static str = "scripted";
    const ABOUT: &'static str = "Performs the action that the first byte of each packet selects.";
    const INPUTS: &'static [&'static str] = &["in", "side"];
    const OUTPUTS: &'static [&'static str] = &["out", "second"];

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        if settings.capacity == 0 {
            return Err(Diagnostic::new("must not be 0").key("capacity").value(0).remedy("write 1 or more"));
        }
        if let Some(file) = &settings.file {
            let path = cx.resolve_path(file);
            std::fs::metadata(&path).map_err(|e| Diagnostic::new(e.to_string()).key("file").value(path.display()))?;
        }
        let copies = cx.shared(|| Ok(Counter::default()))?;
        copies.add(1);
        Ok(ScriptedNode {
            held: HoldQueue::new(settings.capacity),
            interval: Duration::from_millis(settings.interval),
            timers: Arc::default(),
            side: Arc::default(),
            copies,
            leaked: vec![],
            table: Arc::new(StatsTable::new(&["timers"], 3)),
        })
    }
}

struct ScriptedNode {
    held: HoldQueue,
    interval: Duration,
    timers: Arc<Counter>,
    side: Arc<Counter>,
    copies: Arc<Counter>,
    leaked: Vec<Packet>,
    table: Arc<StatsTable>,
}

impl Node for ScriptedNode {
    fn drops(&self) -> &[&'static str] {
        &["scripted", "queue_full", "scripted"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let all = [("timers", &self.timers), ("side", &self.side), ("copies", &self.copies)];
        all.map(|(name, count)| (name.to_owned(), count.clone())).into()
    }
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            self.side.add(u64::from(input));
            match packet.data()[0] {
                PASS => batch.push(packet).unwrap(),
                DROP => cx.drop(0, packet),
                DROP_AGAIN => cx.drop(2, packet),
                SECOND => cx.emit(1, packet),
                COPY => {
                    let copy = cx.copy(&packet).unwrap();
                    cx.emit(1, copy);
                    batch.push(packet).unwrap();
                }
                HOLD => {
                    if let Err(packet) = cx.hold(&mut self.held, packet) {
                        cx.drop(1, packet);
                    }
                }
                FREE => drop(packet),
                LEAK => self.leaked.push(packet),
                UNNAMED => cx.drop(9, packet),
                _ => panic!("on purpose"),
            }
        }
    }
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }
    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.timers.add(1);
        if let Some((_, packet)) = cx.release(&mut self.held) {
            cx.emit(0, packet);
        }
    }
    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.table.clone())
    }
    fn finish(&mut self) {
        self.table.publish(vec![(1, vec![self.timers.get().to_string()])]);
    }
}

fn frame(action: u8, n: u8) -> Vec<u8> {
    vec![action, n]
}

#[test]
fn returns_frames_by_output_in_order() {
    let mut nf = Harness::new::<Scripted>("");
    assert_eq!(nf.outputs(), ["out", "second"]);
    // more than a burst
    let frames: Vec<_> = (0..200).map(|n| frame([PASS, DROP, SECOND, COPY][n % 4], n as u8)).collect();
    let out = nf.feed_input(0, &frames);
    let with = |actions: [u8; 2]| frames.iter().filter(|f| actions.contains(&f[0])).cloned().collect::<Vec<_>>();
    assert_eq!(out, [with([PASS, COPY]), with([SECOND, COPY])]);
    assert_eq!((nf.dropped("scripted"), nf.created(), nf.counter("side")), (50, 50, 0));
    assert_eq!(nf.feed_input(1, &[frame(PASS, 0)])[0].len(), 1);
    assert_eq!(nf.counter("side"), 1);
}

#[test]
fn adds_up_reasons_of_the_same_name() {
    let mut nf = Harness::new::<Scripted>("capacity = 1");
    assert_eq!(nf.feed_one(&frame(PASS, 7)), Ok(frame(PASS, 7)));
    assert_eq!(nf.feed_one(&frame(DROP, 7)), Err("scripted"));
    assert_eq!(nf.feed_one(&frame(DROP_AGAIN, 7)), Err("scripted"));
    nf.feed(&[frame(HOLD, 0)]);
    assert_eq!(nf.feed_one(&frame(HOLD, 1)), Err("queue_full"));
    assert_eq!(nf.drops(), [("scripted", 2), ("queue_full", 1)]);
}

#[test]
fn time_advances_in_one_jump_or_in_steps() {
    let mut nf = Harness::new::<Scripted>("");
    nf.feed(&[frame(HOLD, 1), frame(HOLD, 2), frame(HOLD, 3)]);
    assert_eq!(nf.held(), 3);
    assert_eq!(nf.jump_to(Duration::from_millis(9)), [vec![], vec![]] as [testkit::Frames; 2]);
    // one timer call after a jump
    assert_eq!(nf.jump_to(Duration::from_millis(35))[0], [frame(HOLD, 1)]);
    // then every ten milliseconds
    assert_eq!(nf.advance(Duration::from_millis(25))[0], [frame(HOLD, 2), frame(HOLD, 3)]);
    assert_eq!((nf.now(), nf.held(), nf.counter("timers")), (Duration::from_millis(60), 0, 3));
    // time does not go back
    nf.jump_to(Duration::ZERO);
    assert_eq!(nf.now(), Duration::from_millis(60));
    assert_eq!(nf.table(), [["3"]]);
}

/// Returns the panic message of the harness.
fn panic_message(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("no panic");
    let message = payload.downcast_ref::<String>().cloned();
    message.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap()
}

#[test]
fn detects_missing_packets() {
    for (action, expected) in [
        (FREE, "without counting them"),
        (UNNAMED, "a reason that Node::drops does not list"),
        (LEAK, "neither sent nor dropped"),
        (PANIC, "on purpose"),
    ] {
        let message = panic_message(|| {
            drop(Harness::new::<Scripted>("").feed(&[frame(PASS, 0), frame(action, 0), frame(PASS, 0)]))
        });
        assert!(message.contains(expected), "{action}: {message}");
    }
}

#[test]
fn panics_name_the_alternatives() {
    for (message, expected) in [
        (panic_message(|| drop(Harness::new::<Scripted>("").feed_one(&frame(SECOND, 0)))), "[\"second\"]"),
        (panic_message(|| drop(Harness::new::<Scripted>("").feed_one(&frame(HOLD, 0)))), "is held"),
        (panic_message(|| assert_eq!(Harness::new::<Scripted>("").dropped("scriptd"), 0)), "queue_full"),
        (panic_message(|| assert_eq!(Harness::new::<Scripted>("").counter("timrs"), 0)), "timers"),
        (panic_message(|| drop(Harness::new::<Scripted>("").feed_input(2, &[frame(PASS, 0)]))), "2 inputs"),
        (panic_message(|| drop(Harness::new::<Scripted>("").feed(&[vec![0; 3000]]))), "3000 bytes"),
        (
            panic_message(|| drop(HarnessBuilder::new::<Scripted>("").buffers(2).build().unwrap().feed(&[[0; 60]; 3]))),
            "buffers",
        ),
        (panic_message(|| drop(Harness::new::<Scripted>("capcity = 1"))), "capcity"),
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn settings_have_the_syntax_of_a_chain_file() {
    let error = Harness::try_new::<Scripted>("capacity = 0").unwrap_err();
    assert_eq!((error.key, error.value.as_deref()), (Some("capacity"), Some("0")));
    assert!(Harness::try_new::<Scripted>("capacity = \"many\"").unwrap_err().problem.contains("invalid type"));
    assert!(Harness::try_new::<Scripted>("capacity = ").is_err());
    let existing = HarnessBuilder::new::<Scripted>("file = \"Cargo.toml\"").base_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(existing.build().is_ok());
    let error = HarnessBuilder::new::<Scripted>("file = \"absent\"").base_dir("missing").build().unwrap_err();
    assert_eq!(error.value.as_deref(), Some("missing/absent"));
}

#[test]
fn copies_share_state() {
    let registry = Registry::new().with::<Scripted>();
    let copies = HarnessBuilder::from_kind(registry.get("scripted").unwrap(), "").build_copies(3).unwrap();
    assert!(copies.iter().all(|copy| copy.counter("copies") == 3));
    assert_eq!(Harness::new::<Scripted>("").counter("copies"), 1);
}

#[test]
fn measures_cycles_and_loss() {
    let frames = [frame(PASS, 0), frame(PASS, 1), frame(PASS, 2), frame(DROP, 3)];
    let meter = CycleMeter::new(&frames).samples(5);
    let costs = meter
        .add("passes", Harness::new::<Scripted>(""))
        .add("holds", Harness::new::<Scripted>("interval = 1"))
        .measure();
    assert_eq!(costs.all().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["baseline", "passes", "holds"]);
    assert_eq!(costs.get("passes").unwrap().loss, 0.25);
    assert_eq!(costs.get("baseline").unwrap().loss, 0.0);
    assert!(costs.all().iter().all(|c| c.p05 > 0.0 && c.median >= c.p05), "{costs:?}");
    let text = costs.to_string();
    assert!(text.contains("above baseline") && text.contains("25.0 % not forwarded"), "{text}");
    let message =
        panic_message(|| drop(CycleMeter::new(&[[FREE, 0]]).add("leaks", Harness::new::<Scripted>("")).measure()));
    assert!(message.contains("without counting them"), "{message}");
}

/// An NF without settings.
struct Plain;

impl Nf for Plain {
    type Settings = NoSettings;
    const KIND: &'static str = "plain";
    const ABOUT: &'static str = "Forwards every packet unchanged.";
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(graph::frame().compose())
    }
}

#[test]
fn nfs_without_settings_use_no_settings() {
    assert_eq!(Harness::new::<Plain>("").feed_one(&frame(PASS, 1)), Ok(frame(PASS, 1)));
    assert!(Harness::try_new::<Plain>("any = 1").is_err());
    let schema = Registry::new().with::<Plain>().get("plain").unwrap().schema();
    assert!(schema["properties"].as_object().is_none_or(|all| all.is_empty()), "{schema}");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn tests_a_node_without_an_nf() {
    let chain = graph::frame().filter("odd", |frame| frame.bytes()[1] % 2 == 0).compose();
    let mut node = Harness::from_node(chain);
    assert_eq!(node.feed(&[frame(PASS, 0), frame(PASS, 1), frame(PASS, 2)]), [frame(PASS, 0), frame(PASS, 2)]);
    assert_eq!((node.inputs(), node.outputs()), (1, &["out".to_owned()][..]));
    assert_eq!(node.drops(), [("odd", 1)]);
}
