//! Policing, shaping and scheduling of fuzzed frames over time, with reloads: every packet is accounted for, limits hold, and
//! packets that are not dropped are sent once, changed in code point and ECN field only.
#![no_main]

use bondstone_fuzz::{FuzzedFrame, without_traffic_class};
use libfuzzer_sys::arbitrary::{Arbitrary as _, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;
use testkit::HarnessBuilder;
use wire::build;

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

/// Maximum number of packets that wait.
const PACKETS: u64 = 60;

/// Returns settings of a scheduler.
fn schedule(u: &mut Unstructured<'_>) -> Result<String> {
    let mut text = format!("rate = \"{} kbps\"\npackets = {PACKETS}\n", u.int_in_range(1..=100_000u32)?);
    let per = u.choose(&["all", "source", "destination"])?;
    text += &format!("per = \"{per}\"\nsubscribers = {}\nprefix4 = {}\n", u.int_in_range(1..=5u8)?, u.int_in_range(0..=32u8)?);
    if u.arbitrary()? {
        text += &format!("subscriber_rate = \"{} kbps\"\n", u.int_in_range(1..=1000u32)?);
    }
    text += &format!("quantum = {}\noverhead = {}\n", u.int_in_range(64..=3000u32)?, u.int_in_range(0..=64u8)?);
    let mut class = |name: &str, matches: &str| -> Result<String> {
        let discipline = u.choose(&["tail_drop", "red", "codel", "fq_codel"])?;
        let (packets, bytes) = (u.int_in_range(1..=40u8)?, u.int_in_range(2048..=20_000u32)?);
        let (flows, quantum, ecn) = (u.int_in_range(1..=9u8)?, u.int_in_range(64..=3000u32)?, u.arbitrary::<bool>()?);
        Ok(format!(
            "{{ name = \"{name}\", {matches}priority = {}, weight = {}, queue = {{ discipline = \"{discipline}\", \
             packets = {packets}, bytes = {bytes}, flows = {flows}, quantum = {quantum}, ecn = {ecn}, target = 100, \
             interval = 2000, min = 3, max = 9, weight = 1 }} }}",
            u.int_in_range(0..=2u8)?,
            u.int_in_range(1..=9u8)?,
        ))
    };
    let classes = [
        class("udp", "match = [{ protocol = \"udp\", dst_port = \"1-1000\" }, { dscp = [\"ef\"] }], ")?,
        class("tcp", "match = [{ protocol = \"tcp\" }], ")?,
        class("rest", "")?,
    ];
    Ok(text + &format!("classes = [{}]\n", classes.join(", ")))
}

fn shape(u: &mut Unstructured<'_>) -> Result<String> {
    let mut class = |name: &str, matches: &str| -> Result<String> {
        let (rate, burst) = (u.int_in_range(1..=100_000u32)?, u.int_in_range(0..=9000u16)?);
        let (packets, bytes) = (u.int_in_range(1..=PACKETS / 2)?, u.int_in_range(2048..=20_000u32)?);
        Ok(format!(
            "{{ name = \"{name}\", {matches}rate = \"{rate} kbps\", burst = {burst}, packets = {packets}, bytes = {bytes} }}"
        ))
    };
    let name = ["udp", "other"];
    let classes = [class(name[0], "match = [{ protocol = \"udp\" }], ")?, class("rest", "")?];
    let first = *u.choose(&name)?;
    Ok(format!("classes = [{}]", classes.join(", ")).replacen("\"udp\",", &format!("\"{first}\","), 1))
}

fn police(u: &mut Unstructured<'_>) -> Result<String> {
    let meter = *u.choose(&["rfc2697", "rfc2698", "rfc4115"])?;
    let (cir, more) = (u.int_in_range(1..=1000u32)?, u.int_in_range(0..=1000u32)?);
    let rates = match meter {
        "rfc2697" => "ebs = 3000".to_owned(),
        "rfc2698" => format!("pir = \"{} kbps\", pbs = 5000", cir + more),
        _ => format!("eir = \"{} kbps\", ebs = 3000", more + 1),
    };
    let per = u.choose(&["all", "source", "destination"])?;
    let (aware, full) = (u.arbitrary::<bool>()?, u.choose(&["drop", "pass"])?);
    Ok(format!(
        "subscribers = 3\nfull = \"{full}\"\nclasses = [{{ name = \"all\", per = \"{per}\", meter = \"{meter}\", \
         cir = \"{cir} kbps\", cbs = 2000, {rates}, colour_aware = {aware}, yellow = {{ dscp = \"af12\" }} }}]"
    ))
}

fn frame(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if u.ratio(1, 4)? {
        return Ok(FuzzedFrame::arbitrary(u)?.bytes);
    }
    let (from, to): (u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=6)?);
    let (port, ecn, len) = (u16::from(u.arbitrary::<u8>()?) * 8, u.int_in_range(0..=3u8)?, u.int_in_range(60..=1514)?);
    let dscp = if u.ratio(1, 8)? { 46 } else { 0 };
    let (src, dst) = ([10, 0, 0, from], [10, 9, 0, to]);
    Ok(match u.int_in_range(0..=3u8)? {
        0 => build::tcp4(src, dst, port, 80).ecn(ecn).dscp(dscp).pad_to(len).to_vec(),
        1 => build::udp6([from; 16], [to; 16], 7, port).traffic_class(dscp << 2 | ecn).pad_to(len).to_vec(),
        _ => build::udp4(src, dst, 7, port).ecn(ecn).dscp(dscp).pad_to(len).to_vec(),
    })
}

/// Frames that are neither sent nor dropped yet, without their code points, and how many of each.
#[derive(Default)]
struct Waiting(HashMap<Vec<u8>, u64>);

impl Waiting {
    fn add(&mut self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| *self.0.entry(without_traffic_class(frame.clone())).or_default() += 1);
    }

    fn remove(&mut self, sent: Vec<Vec<u8>>) {
        for frame in sent {
            let waiting = self.0.get_mut(&without_traffic_class(frame)).expect("a frame that was fed");
            *waiting = waiting.checked_sub(1).expect("a frame is sent once");
        }
    }

    fn len(&self) -> u64 {
        self.0.values().sum()
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let name = *u.choose(&["schedule", "shape", "police"])?;
    let kind = REGISTRY.get(name).expect("a shipped NF");
    let settings = |u: &mut Unstructured<'_>| match name {
        "schedule" => schedule(u),
        "shape" => shape(u),
        _ => police(u),
    };
    let mut builder = HarnessBuilder::from_kind(kind, &settings(u)?).buffers(512);
    let mut nf = builder.clone().build().expect("valid settings");
    let mut waiting = Waiting::default();
    while !u.is_empty() {
        let mut frames = vec![];
        for _ in 0..u.int_in_range(1..=32u8)? {
            frames.push(frame(u)?);
        }
        frames.retain(|frame| frame.len() <= 2048);
        waiting.add(&frames);
        let out = nf.feed(&frames);
        if name == "police" {
            assert!(out.len() <= frames.len());
        }
        waiting.remove(out);
        assert!(nf.held() <= PACKETS, "{} packets are held", nf.held());
        let step = Duration::from_micros(u64::from(u.arbitrary::<u16>()?));
        waiting.remove(nf.jump_to(nf.now() + step).remove(0));
        // shape and schedule drop the packets of removed classes within two calls of the timer; police has no state
        if name != "police" && u.ratio(1, 8)? {
            let next = HarnessBuilder::from_kind(kind, &settings(u)?).buffers(512);
            next.clone().reload(&builder, &mut nf).expect("valid settings");
            builder = next;
            for _ in 0..4 {
                waiting.remove(nf.jump_to(nf.now() + Duration::from_micros(20)).remove(0));
            }
        }
    }
    // all packets are sent
    for _ in 0..4 {
        waiting.remove(nf.jump_to(nf.now() + Duration::from_secs(10_000)).remove(0));
    }
    let dropped: u64 = nf.drops().iter().map(|(_, n)| n).sum();
    assert_eq!((nf.held(), waiting.len()), (0, dropped), "{:?}", nf.drops());
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
