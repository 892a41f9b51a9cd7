//! NFs that behave, and NFs that do not, on the bench.

use diagnostics::Diagnostic;
use graph::{StatsTable, BuildContext, Counter, Context, HoldQueue, Nf, NoSettings, Node, Operator, Registry};
use packet::{Batch, Packet};
use schemars::JsonSchema;
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Bench, Cycles, Setup};

/// Does what a packet's first byte says.
struct Obeys;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Packets that are held at most.
    room: usize,
    /// Milliseconds after which they are let out.
    wait: u64,
    /// A file that has to be there.
    file: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { room: 4, wait: 10, file: None }
    }
}

const PASS: u8 = 0;
const DROP: u8 = 1;
const DROP_AGAIN: u8 = 2;
const SECOND: u8 = 3;
const COPY: u8 = 4;
const HOLD: u8 = 5;
const LET_GO: u8 = 6;
const KEEP: u8 = 7;
const UNNAMED: u8 = 8;
const PANIC: u8 = 9;

impl Nf for Obeys {
    type Settings = Settings;
    const KIND: &'static str = "obeys";
    const ABOUT: &'static str = "Does what a packet's first byte says.";
    const INPUTS: &'static [&'static str] = &["in", "side"];
    const OUTPUTS: &'static [&'static str] = &["out", "second"];

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        if settings.room == 0 {
            return Err(Diagnostic::new("is no room").key("room").value(0).remedy("write 1 or more"));
        }
        if let Some(file) = &settings.file {
            let path = cx.path(file);
            std::fs::metadata(&path).map_err(|e| Diagnostic::new(e.to_string()).key("file").value(path.display()))?;
        }
        let copies = cx.common(|| Ok(Counter::default()))?;
        copies.add(1);
        Ok(Obeying {
            held: HoldQueue::new(settings.room),
            wait: Duration::from_millis(settings.wait),
            woken: Arc::default(),
            side: Arc::default(),
            copies,
            kept: vec![],
            board: Arc::new(StatsTable::new(&["woken"], 3)),
        })
    }
}

struct Obeying {
    held: HoldQueue,
    wait: Duration,
    woken: Arc<Counter>,
    side: Arc<Counter>,
    copies: Arc<Counter>,
    kept: Vec<Packet>,
    board: Arc<StatsTable>,
}

impl Node for Obeying {
    fn drops(&self) -> &[&'static str] {
        &["told_to", "no_room", "told_to"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let all = [("woken", &self.woken), ("side", &self.side), ("copies", &self.copies)];
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
                LET_GO => drop(packet),
                KEEP => self.kept.push(packet),
                UNNAMED => cx.drop(9, packet),
                _ => panic!("told to"),
            }
        }
    }
    fn interval(&self) -> Option<Duration> {
        Some(self.wait)
    }
    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.woken.add(1);
        if let Some((_, packet)) = cx.release(&mut self.held) {
            cx.emit(0, packet);
        }
    }
    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.board.clone())
    }
    fn finish(&mut self) {
        self.board.show(vec![(1, vec![self.woken.get().to_string()])]);
    }
}

fn frame(does: u8, n: u8) -> Vec<u8> {
    vec![does, n]
}

#[test]
fn what_comes_out_is_told_by_output_in_order() {
    let mut nf = Bench::of::<Obeys>("");
    assert_eq!(nf.outputs(), ["out", "second"]);
    // more than a burst
    let frames: Vec<_> = (0..200).map(|n| frame([PASS, DROP, SECOND, COPY][n % 4], n as u8)).collect();
    let out = nf.feed_by(0, &frames);
    let of = |kinds: [u8; 2]| frames.iter().filter(|f| kinds.contains(&f[0])).cloned().collect::<Vec<_>>();
    assert_eq!(out, [of([PASS, COPY]), of([SECOND, COPY])]);
    assert_eq!((nf.dropped("told_to"), nf.created(), nf.counter("side")), (50, 50, 0));
    assert_eq!(nf.feed_by(1, &[frame(PASS, 0)])[0].len(), 1);
    assert_eq!(nf.counter("side"), 1);
}

#[test]
fn reasons_of_one_name_count_together_and_one_frame_tells_its_reason() {
    let mut nf = Bench::of::<Obeys>("room = 1");
    assert_eq!(nf.one(&frame(PASS, 7)), Ok(frame(PASS, 7)));
    assert_eq!(nf.one(&frame(DROP, 7)), Err("told_to"));
    assert_eq!(nf.one(&frame(DROP_AGAIN, 7)), Err("told_to"));
    nf.feed(&[frame(HOLD, 0)]);
    assert_eq!(nf.one(&frame(HOLD, 1)), Err("no_room"));
    assert_eq!(nf.drops(), [("told_to", 2), ("no_room", 1)]);
}

#[test]
fn time_passes_at_once_or_step_by_step() {
    let mut nf = Bench::of::<Obeys>("");
    nf.feed(&[frame(HOLD, 1), frame(HOLD, 2), frame(HOLD, 3)]);
    assert_eq!(nf.held(), 3);
    assert_eq!(nf.wake(Duration::from_millis(9)), [vec![], vec![]] as [testkit::Frames; 2]);
    // once, however late
    assert_eq!(nf.wake(Duration::from_millis(35))[0], [frame(HOLD, 1)]);
    // and then every ten milliseconds
    assert_eq!(nf.advance(Duration::from_millis(25))[0], [frame(HOLD, 2), frame(HOLD, 3)]);
    assert_eq!((nf.now(), nf.held(), nf.counter("woken")), (Duration::from_millis(60), 0, 3));
    // time does not go back
    nf.wake(Duration::ZERO);
    assert_eq!(nf.now(), Duration::from_millis(60));
    assert_eq!(nf.table(), [["3"]]);
}

/// What the bench says when an NF does this.
fn complaint(f: impl FnOnce()) -> String {
    let cause = catch_unwind(AssertUnwindSafe(f)).expect_err("the bench has noticed nothing");
    let said = cause.downcast_ref::<String>().cloned();
    said.or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap()
}

#[test]
fn a_packet_that_is_missing_is_noticed() {
    for (does, said) in [
        (LET_GO, "without a word"),
        (UNNAMED, "a reason that it does not name"),
        (KEEP, "neither sent, nor dropped"),
        (PANIC, "told to"),
    ] {
        let heard = complaint(|| drop(Bench::of::<Obeys>("").feed(&[frame(PASS, 0), frame(does, 0), frame(PASS, 0)])));
        assert!(heard.contains(said), "{does}: {heard}");
    }
}

#[test]
fn a_test_that_asks_for_what_is_not_there_is_told_what_there_is() {
    for (heard, said) in [
        (complaint(|| drop(Bench::of::<Obeys>("").one(&frame(SECOND, 0)))), "[\"second\"]"),
        (complaint(|| drop(Bench::of::<Obeys>("").one(&frame(HOLD, 0)))), "is held"),
        (complaint(|| assert_eq!(Bench::of::<Obeys>("").dropped("tod_to"), 0)), "no_room"),
        (complaint(|| assert_eq!(Bench::of::<Obeys>("").counter("wokn"), 0)), "woken"),
        (complaint(|| drop(Bench::of::<Obeys>("").feed_by(2, &[frame(PASS, 0)]))), "2 inputs"),
        (complaint(|| drop(Bench::of::<Obeys>("").feed(&[vec![0; 3000]]))), "3000 bytes"),
        (complaint(|| drop(Setup::of::<Obeys>("").buffers(2).build().unwrap().feed(&[[0; 60]; 3]))), "buffers"),
        (complaint(|| drop(Bench::of::<Obeys>("rom = 1"))), "rom"),
    ] {
        assert!(heard.contains(said), "{said}: {heard}");
    }
}

#[test]
fn settings_are_read_as_from_a_file() {
    let fault = Bench::try_of::<Obeys>("room = 0").unwrap_err();
    assert_eq!((fault.key, fault.value.as_deref()), (Some("room"), Some("0")));
    assert!(Bench::try_of::<Obeys>("room = \"many\"").unwrap_err().problem.contains("invalid type"));
    assert!(Bench::try_of::<Obeys>("room = ").is_err());
    let there = Setup::of::<Obeys>("file = \"Cargo.toml\"").folder(env!("CARGO_MANIFEST_DIR"));
    assert!(there.build().is_ok());
    let fault = Setup::of::<Obeys>("file = \"absent\"").folder("nowhere").build().unwrap_err();
    assert_eq!(fault.value.as_deref(), Some("nowhere/absent"));
}

#[test]
fn copies_share_what_they_have_in_common_and_a_kind_will_do() {
    let registry = Registry::new().with::<Obeys>();
    let copies = Setup::of_kind(registry.get("obeys").unwrap(), "").copies(3).unwrap();
    assert!(copies.iter().all(|copy| copy.counter("copies") == 3));
    assert_eq!(Bench::of::<Obeys>("").counter("copies"), 1);
}

#[test]
fn cycles_are_counted_and_what_does_not_leave_is_said() {
    let frames = [frame(PASS, 0), frame(PASS, 1), frame(PASS, 2), frame(DROP, 3)];
    let nfs = Cycles::on(&frames).samples(5);
    let costs = nfs.nf("passes", Bench::of::<Obeys>("")).nf("holds", Bench::of::<Obeys>("wait = 1")).measure();
    assert_eq!(costs.all().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["nothing", "passes", "holds"]);
    assert_eq!(costs.of("passes").unwrap().lost, 0.25);
    assert_eq!(costs.of("nothing").unwrap().lost, 0.0);
    assert!(costs.all().iter().all(|c| c.p05 > 0.0 && c.median >= c.p05), "{costs:?}");
    let text = costs.to_string();
    assert!(text.contains("above nothing") && text.contains("25.0 % did not leave"), "{text}");
    let heard = complaint(|| drop(Cycles::on(&[[LET_GO, 0]]).nf("leaks", Bench::of::<Obeys>("")).measure()));
    assert!(heard.contains("without a word"), "{heard}");
}

/// Passes everything, and has nothing to be set.
struct Plain;

impl Nf for Plain {
    type Settings = NoSettings;
    const KIND: &'static str = "plain";
    const ABOUT: &'static str = "Passes everything.";
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(graph::frame().compose())
    }
}

#[test]
fn an_nf_without_settings_needs_no_type_for_them() {
    assert_eq!(Bench::of::<Plain>("").one(&frame(PASS, 1)), Ok(frame(PASS, 1)));
    assert!(Bench::try_of::<Plain>("any = 1").is_err());
    let schema = Registry::new().with::<Plain>().get("plain").unwrap().schema();
    assert!(schema["properties"].as_object().is_none_or(|all| all.is_empty()), "{schema}");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn a_node_is_tested_as_it_is() {
    let chain = graph::frame().filter("odd", |frame| frame.bytes()[1] % 2 == 0).compose();
    let mut node = Bench::node(chain);
    assert_eq!(node.feed(&[frame(PASS, 0), frame(PASS, 1), frame(PASS, 2)]), [frame(PASS, 0), frame(PASS, 2)]);
    assert_eq!((node.inputs(), node.outputs()), (1, &["out".to_owned()][..]));
    assert_eq!(node.drops(), [("odd", 1)]);
}
