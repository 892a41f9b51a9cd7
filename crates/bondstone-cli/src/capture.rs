//! `bondstone capture`.

mod blocks;

use crate::exit::Exit;
use crate::observe::Observe;
use crate::stdout::stdout;
use anyhow::Context as _;
use blocks::{Block, Blocks};
use control::{CaptureStarted, Direction, Request, StreamEnder};
use logger::eprintln;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Captures packets of a running instance, at any place of its graph, without stopping anything.
///
/// A PLACE is a port, an NF, an input NF:INPUT or an output NF.OUTPUT; each is an interface of the pcapng file. With
/// --drops, only dropped packets are captured, each with the reason as its comment. Packets for which the buffer has no
/// room (4 MiB per CPU) are counted as lost; forwarding does not wait for them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone capture -w all.pcapng                                # all ports, both directions
  bondstone capture lan nat.out -w dns.pcapng --filter 'udp and port 53'
  bondstone capture --drops -w drops.pcapng                      # all drops, with their reasons
  bondstone capture fw --drops=rule -c 100 -w rule.pcapng
  bondstone capture nat -w - | tshark -r -                       # while it grows
  bondstone capture wan -w - | wireshark -k -i -")]
pub(crate) struct CaptureCommand {
    /// Places [default: all ports].
    #[arg(value_name = "PLACE")]
    places: Vec<String>,
    /// File to write, in the format pcapng; - for standard output.
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Captures packets that ports receive and that enter NFs (in), or that are sent and leave NFs (out).
    #[arg(short = 'Q', long, value_name = "DIRECTION", value_enum, default_value = "both")]
    direction: Way,
    /// Captures dropped packets, of all NFs and ports if there is no PLACE; with =REASON only those dropped for this
    /// reason.
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    drops: Option<String>,
    /// Stops after this number of packets.
    #[arg(short, long, value_name = "PACKETS")]
    count: Option<u64>,
    /// Captures at most this number of bytes of each packet [default: all].
    #[arg(short, long, value_name = "BYTES")]
    snaplen: Option<u32>,
    #[command(flatten)]
    observe: Observe,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Way {
    In,
    Out,
    Both,
}

impl CaptureCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let filter = self.observe.filter()?;
        let request = Request::Capture(control::Capture {
            places: self.places.clone(),
            direction: match self.direction {
                Way::In => Some(Direction::In),
                Way::Out => Some(Direction::Out),
                Way::Both => None,
            },
            drops: self.drops.is_some(),
            reason: self.drops.clone().filter(|reason| !reason.is_empty()),
            filter,
            snaplen: self.snaplen,
        });
        let (started, stream): (CaptureStarted, _) = self.observe.start(&request)?;
        // after the request, so that an error of it leaves no file
        let out: Box<dyn Write> = if self.write == Path::new("-") {
            Box::new(stdout())
        } else {
            Box::new(File::create(&self.write).with_context(|| self.write.display().to_string())?)
        };
        eprintln!("capturing {}; Ctrl-C ends", started.interfaces.join(", "));
        let ender = stream.ender()?;
        let written = copy(&mut Blocks::new(stream), BufWriter::new(out), self.count, &ender);
        let counts = match written {
            // the reader has seen enough
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Success),
            written => written.with_context(|| self.write.display().to_string())?,
        };
        let lost = match counts.lost {
            0 => String::new(),
            lost => format!(", {lost} lost: narrow it by --filter, --snaplen or a PLACE"),
        };
        eprintln!("{} packets captured{lost}", counts.written);
        Ok(Exit::Success)
    }
}

/// Counts of packets.
#[derive(Default)]
struct Counts {
    written: u64,
    lost: u64,
}

/// Copies the blocks of a capture; ends it after `limit` packets.
fn copy(blocks: &mut Blocks, mut out: impl Write, limit: Option<u64>, ender: &StreamEnder) -> std::io::Result<Counts> {
    let mut counts = Counts::default();
    while let Some(block) = blocks.next()? {
        match block {
            Block::Packet if limit.is_some_and(|limit| counts.written >= limit) => continue,
            Block::Packet => counts.written += 1,
            Block::Statistics { lost } => counts.lost += lost,
            Block::Other => {}
        }
        out.write_all(blocks.bytes())?;
        if limit == Some(counts.written) {
            ender.end();
        }
        if blocks.is_last_received() {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(counts)
}
