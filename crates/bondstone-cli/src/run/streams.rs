//! Captures and traces that the control socket streams to a client.

use control::{CaptureStarted, Connection, Refusal, Reply};
use pcap::{LinkType, MAX_FRAME, NgWriter};
use runtime::{Capture, CaptureSpec, Direction, Engine, Trace, TraceEnd};
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

/// Interval at which the queues of the workers are read.
const INTERVAL: Duration = Duration::from_millis(1);
/// Largest number of packets of a trace.
const MAX_TRACED: u32 = 100_000;

/// Starts a capture.
pub(super) fn capture(engine: &Engine, capture: control::Capture) -> Result<Reply, Refusal> {
    let snaplen = capture.snaplen.filter(|len| *len != 0).unwrap_or(MAX_FRAME as u32).min(MAX_FRAME as u32);
    let spec = CaptureSpec {
        places: capture.places,
        direction: match capture.direction {
            Some(control::Direction::In) => Direction::In,
            Some(control::Direction::Out) => Direction::Out,
            None => Direction::Both,
        },
        drops: capture.drops,
        reason: capture.reason,
        filter: capture.filter,
        snaplen,
    };
    let capture = engine.capture(&spec)?;
    let started = CaptureStarted { interfaces: capture.interfaces() };
    let value = serde_json::to_value(&started).unwrap_or_default();
    Ok(Reply::stream(value, move |client| {
        write_capture(capture, snaplen, &started.interfaces, client).map_err(io::Error::other)
    }))
}

fn write_capture(
    mut capture: Capture,
    snaplen: u32,
    interfaces: &[String],
    client: &mut Connection<'_>,
) -> Result<(), pcap::Error> {
    let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    let mut writer = NgWriter::new(client, LinkType::ETHERNET, snaplen, &names)?;
    // at once, so that a reader learns the interfaces before the first packet
    writer.flush()?;
    let mut has_ended = false;
    loop {
        if !has_ended && writer.get_ref().has_ended() {
            has_ended = true;
            capture.end();
        }
        let read = capture.read(|packet| {
            let comment = packet.reason.map(|reason| {
                let name = interfaces.get(packet.interface).map_or("", String::as_str);
                format!("dropped by {}: {reason}", name.strip_suffix(" drops").unwrap_or(name))
            });
            let (interface, time) = (packet.interface as u32, packet.timestamp_ns);
            writer.write(interface, time, packet.original_len, packet.frame, comment.as_deref())
        });
        match read? {
            0 if has_ended => break,
            0 => std::thread::sleep(INTERVAL),
            _ => writer.flush()?,
        }
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    for (interface, counts) in capture.counts().into_iter().enumerate() {
        writer.statistics(interface as u32, now, counts.matched, counts.lost)?;
    }
    writer.finish().map(drop)
}

/// Starts a trace.
pub(super) fn trace(engine: &Engine, filter: Option<bpf::Program>, packets: u32) -> Result<Reply, Refusal> {
    if packets == 0 || packets > MAX_TRACED {
        let problem = format!("is no number of packets to trace, from 1 to {MAX_TRACED}");
        return Err(Refusal { value: Some(packets.to_string()), ..Refusal::new(problem) });
    }
    let trace = engine.trace(filter, packets);
    Ok(Reply::stream(serde_json::Value::Null, move |client| write_trace(trace, client)))
}

fn write_trace(mut trace: Trace, client: &mut Connection<'_>) -> io::Result<()> {
    loop {
        let packets = trace.read();
        for packet in &packets {
            let mut line = serde_json::to_vec(packet)?;
            line.push(b'\n');
            client.write_all(&line)?;
        }
        if trace.is_complete() || client.has_ended() {
            break;
        }
        std::thread::sleep(INTERVAL);
    }
    let end = TraceEnd { lost_steps: trace.lost() };
    client.write_all(format!("{}\n", serde_json::to_string(&end)?).as_bytes())
}
