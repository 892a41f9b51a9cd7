//! `bondstone trace`.

mod headers;

use crate::exit::Exit;
use crate::observe::Observe;
use crate::stdout::stdout;
use control::Request;
use headers::Headers;
use logger::eprintln;
use runtime::{Step, StepKind, TraceEnd, TracedPacket};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::time::{Duration, UNIX_EPOCH};

/// Shows what happens to single packets in a running instance, NF by NF.
///
/// Follows the next packets that ports receive, with a filter those that it accepts then: the NFs that they enter, what these decide (counters that change, the
/// rule or route that applies), cycles, headers that change, and how each packet ends. Packets that NFs create of them,
/// such as replies and copies, are shown as well. A followed packet is processed alone, so it takes more cycles than in a
/// batch.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone trace                                         # the next 10 packets
  bondstone trace -n 1 --filter 'tcp dst port 8080 and tcp[tcpflags] & tcp-syn != 0'
  bondstone trace --filter 'host 192.168.1.10' --json | jq -c '.steps[]'")]
pub(crate) struct TraceCommand {
    /// Number of packets.
    #[arg(short = 'n', long, value_name = "PACKETS", default_value_t = 10)]
    packets: u32,
    #[command(flatten)]
    observe: Observe,
    /// Prints one JSON object per packet.
    #[arg(long)]
    json: bool,
}

impl TraceCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let request = Request::Trace { filter: self.observe.filter()?, packets: self.packets };
        let ((), mut stream) = self.observe.start(&request)?;
        if !self.json {
            eprintln!("waiting for packets; Ctrl-C ends");
        }
        let (mut line, mut packets, mut lost_steps) = (String::new(), 0, 0);
        let mut out = stdout();
        while stream.read_line(&mut line)? != 0 {
            if let Ok(end) = serde_json::from_str::<TraceEnd>(&line) {
                lost_steps = end.lost_steps;
                break;
            }
            packets += 1;
            if self.json {
                out.write_all(line.as_bytes())?;
            } else {
                out.write_all(text(&serde_json::from_str(&line)?).as_bytes())?;
            }
            out.flush()?;
            line.clear();
        }
        if packets < self.packets && !self.json {
            eprintln!("{packets} of {} packets followed", self.packets);
        }
        if lost_steps > 0 {
            eprintln!("{lost_steps} steps are missing: more packets were processed than shown; trace fewer of them");
        }
        Ok(Exit::Success)
    }
}

/// Returns the steps of a packet as text.
fn text(packet: &TracedPacket) -> String {
    let time = humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_nanos(packet.timestamp_ns));
    let mut out = format!("packet {}, {time}\n", packet.number);
    // of each packet, what was shown of its headers
    let mut shown: BTreeMap<u32, Headers> = BTreeMap::new();
    for step in in_reading_order(&packet.steps) {
        let which = if step.copy == 0 { String::new() } else { format!("[{}] ", step.copy) };
        let _ = writeln!(out, "  {which}{}", describe(step));
        if let Some(headers) = step.bytes.as_deref().and_then(Headers::of_hex) {
            let before = shown.get(&step.copy);
            for line in headers.differences(before, step.len) {
                let _ = writeln!(out, "  {which}    {line}");
            }
            shown.insert(step.copy, headers);
        }
    }
    if packet.is_held {
        out += "  not seen again within a second: held by an NF, or lost\n";
    }
    out + "\n"
}

/// Returns the steps with the counters of an NF before what it does with the packet.
fn in_reading_order(steps: &[Step]) -> Vec<&Step> {
    let mut ordered: Vec<&Step> = steps.iter().collect();
    for at in 1..ordered.len() {
        let is_result = |step: &Step| {
            matches!(step.kind, StepKind::Dropped { .. } | StepKind::Held { .. } | StepKind::Created { .. })
        };
        if matches!(ordered[at].kind, StepKind::Processed { .. }) {
            let results = ordered[..at].iter().rev().take_while(|step| is_result(step)).count();
            ordered[at - results..=at].rotate_right(1);
        }
    }
    ordered
}

fn describe(step: &Step) -> String {
    match &step.kind {
        StepKind::Received { from } => format!("received from {from} by CPU {}", step.cpu),
        StepKind::Enters { nf, input: None } => format!("enters {nf}"),
        StepKind::Enters { nf, input: Some(input) } => format!("enters {nf}:{input}"),
        StepKind::Explains { nf, text } => format!("  {nf}: {text}"),
        StepKind::Operator { nf, operator, result, cycles } => format!("  {nf}: {operator}: {result}, {cycles} cycles"),
        StepKind::Processed { nf, cycles, counters } if counters.is_empty() => format!("  {nf}: {cycles} cycles"),
        StepKind::Processed { nf, cycles, counters } => format!("  {nf}: {cycles} cycles; {}", counters.join(", ")),
        StepKind::Leaves { nf, output } => format!("leaves by {nf}.{output}"),
        StepKind::Dropped { nf, reason } => format!("DROPPED by {nf}: {reason}"),
        StepKind::Created { nf } => format!("created by {nf}"),
        StepKind::Held { nf } => format!("held by {nf}"),
        StepKind::Sent { to } => format!("sent to {to}"),
        StepKind::Refused { by, reason } => format!("DROPPED at {by}: {reason}"),
    }
}
