//! Evaluation of a profile for every second of a trial.

use super::{ActiveStream, MAX_SECONDS, Profile, ProfileStream, Rate};
use crate::method::percentile;
use crate::traffic_spec::vary::VariedField;
use crate::trial::StreamOutput;
use diagnostics::Diagnostic;
use report::{StreamLatency, limit, rate};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use traffic::flows::MAX_FLOWS;
use traffic::pace::MAX_PPS;
use traffic::{Mix, Stack};

/// Maximum number of combinations of frames and flows of all streams.
const MAX_PARTS: usize = 4096;
/// Maximum number of frame sizes of all streams.
const MAX_SIZES: usize = limit::SIZES;
/// Default line rate, bits per second.
const DEFAULT_LINE_BPS: f64 = rate::TEN_GBE_BPS;

/// Rates of the streams in every second of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    profile: Arc<Profile>,
    seconds: u32,
    /// Line rate of the shares, bits per second; none without shares.
    line_bps: Option<f64>,
    streams: Vec<StreamTimetable>,
}

/// Rates of a stream in every second.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamTimetable {
    /// Name.
    pub name: String,
    /// Port that it is sent into: 0 or 1.
    pub port: u8,
    /// Headers; by default UDP over the IP version of the addresses.
    pub stack: Option<Stack>,
    /// Header fields that change from packet to packet.
    pub vary: Vec<VariedField>,
    /// Combinations of frames and flows that it uses; at least one.
    pub parts: Vec<StreamTraffic>,
    /// Rate in each second.
    pub seconds: Vec<StreamSecond>,
}

/// Frames and flows of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamTraffic {
    /// Frames as written.
    pub frames: String,
    /// Frames.
    pub mix: Mix,
    /// Number of flows.
    pub flows: u32,
}

/// Rate of a stream in one second.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct StreamSecond {
    /// Packets per second: 0, or at least 1.
    pub pps: f64,
    /// Index in [`StreamTimetable::parts`].
    pub part: usize,
}

impl StreamSecond {
    /// Returns the packets of the schedule.
    pub fn intended(&self) -> u64 {
        // rounded as by the pacer: 999.9999999, a product of decimal fractions, means 1000
        (self.pps + 1e-6).floor() as u64
    }
}

impl StreamTimetable {
    /// Returns the packets of all seconds.
    pub fn intended(&self) -> u64 {
        self.seconds.iter().map(StreamSecond::intended).sum()
    }

    /// Returns the largest number of flows in a second.
    pub fn flows(&self) -> u32 {
        self.parts.iter().map(|part| part.flows).max().unwrap_or(1)
    }

    /// Returns the stream with its output for a result.
    pub(crate) fn document(&self, output: &StreamOutput, seconds: u32) -> report::Stream {
        let sum = output.sum();
        let latency = output.delays.as_ref().and_then(|delays| {
            Some(StreamLatency {
                p50_ns: delays.quantile_ns(0.5)? as f64,
                p99_ns: percentile(delays, 0.99),
                max_ns: delays.max_ns()? as f64,
                samples: delays.count(),
            })
        });
        // a sum of several seconds has no counts per second
        let is_per_second = output.seconds.len() == seconds as usize;
        let each = output.seconds.iter().filter(|_| is_per_second).map(|s| [s.intended, s.sent, s.received]);
        report::Stream {
            name: self.name.clone(),
            frames: self.frames().chars().take(limit::NAME).collect(),
            flows: self.flows(),
            port: self.port.into(),
            intended: sum.intended,
            sent: sum.sent,
            unsent: sum.unsent,
            received: sum.received,
            lost: sum.lost(),
            latency,
            per_second: each.collect(),
        }
    }

    /// Returns the frames that it uses, in order.
    pub fn frames(&self) -> String {
        let mut all: Vec<&str> = vec![];
        for entry in self.seconds.iter().filter(|entry| entry.intended() != 0) {
            let frames = self.parts[entry.part].frames.as_str();
            if !all.contains(&frames) {
                all.push(frames);
            }
        }
        if all.is_empty() {
            // the default frames of a stream that never sends
            all.extend(self.parts.first().map(|part| part.frames.as_str()));
        }
        let more = all.len().saturating_sub(4);
        let text = all[..all.len().min(4)].join(", ");
        if more == 0 { text } else { format!("{text} and {more} more") }
    }
}

impl Timetable {
    /// Evaluates a profile for `seconds`, or for the duration of the script. Shares are relative to a line rate of
    /// `line_bps`, by default 10 Gbit/s.
    ///
    /// # Errors
    /// A script that fails or returns invalid values in a second, which the diagnostic names, or sends nothing at all.
    pub fn new(profile: Arc<Profile>, seconds: Option<u32>, line_bps: Option<f64>) -> Result<Timetable, Diagnostic> {
        let seconds = seconds.unwrap_or(profile.seconds());
        if !(1..=MAX_SECONDS).contains(&seconds) {
            let d = Diagnostic::new("invalid number of seconds of a profile").value(seconds);
            return Err(d.remedy(format!("use 1 to {MAX_SECONDS}")));
        }
        profile.reset_operations();
        let of = |stream: &ProfileStream| StreamTimetable {
            name: stream.name.clone(),
            port: stream.port,
            stack: stream.stack.clone(),
            vary: stream.vary.clone(),
            parts: vec![StreamTraffic { frames: stream.frames.clone(), mix: stream.mix.clone(), flows: stream.flows }],
            seconds: vec![],
        };
        let streams = profile.streams().iter().map(of).collect();
        let mut table = Timetable { profile, seconds, line_bps: None, streams };
        for second in 0..seconds {
            let rates = table.profile.at(second)?;
            table.add(second, rates, line_bps)?;
        }
        table.validate()
    }

    fn add(&mut self, second: u32, rates: Vec<ActiveStream>, line_bps: Option<f64>) -> Result<(), Diagnostic> {
        for stream in &mut self.streams {
            stream.seconds.push(StreamSecond::default());
        }
        for ActiveStream { stream, rate, frames, mix, flows } in rates {
            let pps = match rate {
                Rate::Pps(pps) => pps,
                Rate::Share(share) => {
                    let line = *self.line_bps.insert(line_bps.unwrap_or(DEFAULT_LINE_BPS));
                    share * rate::line_pps(line, mix.mean())
                }
            };
            let plan = &mut self.streams[stream];
            if pps != 0.0 && !(1.0..=MAX_PPS).contains(&pps) {
                let problem =
                    format!("invalid rate of {pps} packets/s in second {second}: neither 0 nor 1 to {MAX_PPS}");
                let value = format!("{}: {rate}", plan.name);
                return Err(self.profile.error("at", &value, &problem, "use another rate, or leave the stream out"));
            }
            let same = |part: &StreamTraffic| part.flows == flows && part.frames == frames;
            let part = plan.parts.iter().position(same).unwrap_or_else(|| {
                plan.parts.push(StreamTraffic { frames, mix, flows });
                plan.parts.len() - 1
            });
            if let Some(last) = plan.seconds.last_mut() {
                *last = StreamSecond { pps, part };
            }
        }
        let sum: f64 = self.streams.iter().filter_map(|s| s.seconds.last()).map(|entry| entry.pps).sum();
        if sum > MAX_PPS {
            let problem = format!("rate of all streams in second {second} exceeds {MAX_PPS} packets/s");
            return Err(self.profile.error("at", &sum.to_string(), &problem, "use lower rates"));
        }
        let parts: usize = self.streams.iter().map(|stream| stream.parts.len()).sum();
        if parts > MAX_PARTS {
            let problem = format!("more than {MAX_PARTS} combinations of frames and flows up to second {second}");
            return Err(self.profile.error("at", &parts.to_string(), &problem, "change them less often"));
        }
        Ok(())
    }

    /// Checks the limits that apply to all seconds together.
    fn validate(self) -> Result<Timetable, Diagnostic> {
        let error = |place, value: u64, problem: &str, remedy| {
            Err(self.profile.error(place, &value.to_string(), problem, remedy))
        };
        if self.intended() == 0 {
            let remedy = "set the rate of a stream in at least one second";
            return error("at", 0, &format!("no packets are sent in {} s", self.seconds), remedy);
        }
        let flows: u64 = self.streams.iter().map(|stream| u64::from(stream.flows())).sum();
        if flows > u64::from(MAX_FLOWS) {
            let problem = format!("flows of all streams exceed {MAX_FLOWS}");
            return error("streams", flows, &problem, "use fewer flows");
        }
        let sizes = self.streams.iter().flat_map(|s| &s.parts).flat_map(|part| part.mix.entries());
        let sizes = sizes.map(|(size, _)| size.with_fcs()).collect::<BTreeSet<_>>().len();
        if sizes > MAX_SIZES {
            let problem = format!("more than {MAX_SIZES} sizes of frames");
            return error("at", sizes as u64, &problem, "use fewer");
        }
        Ok(self)
    }

    /// Returns the profile.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Returns the duration in seconds.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Returns the line rate of the shares, bits per second; none without shares.
    pub fn line_bps(&self) -> Option<f64> {
        self.line_bps
    }

    /// Returns the streams, 1 to 64.
    pub fn streams(&self) -> &[StreamTimetable] {
        &self.streams
    }

    /// Returns the number of ports that packets are sent into, 1 or 2.
    pub fn ports(&self) -> u8 {
        1 + self.streams.iter().map(|stream| stream.port).max().unwrap_or(0)
    }

    /// Returns the packets of all streams and seconds.
    pub fn intended(&self) -> u64 {
        self.streams.iter().map(StreamTimetable::intended).sum()
    }

    /// Returns the mean rate, packets per second.
    pub fn mean_pps(&self) -> f64 {
        self.intended() as f64 / f64::from(self.seconds)
    }

    /// Returns the highest rate in a second, packets per second.
    pub fn highest_pps(&self) -> f64 {
        let sum = |second: usize| self.streams.iter().map(|s| s.seconds[second].pps).sum::<f64>();
        (0..self.seconds as usize).map(sum).fold(0.0, f64::max)
    }

    /// Returns the approximate number of packets of each frame size in bytes with FCS.
    pub fn sizes(&self) -> BTreeMap<u16, f64> {
        let mut sizes = BTreeMap::new();
        for stream in &self.streams {
            let mut packets = vec![0; stream.parts.len()];
            stream.seconds.iter().for_each(|entry| packets[entry.part] += entry.intended());
            for (part, packets) in stream.parts.iter().zip(packets) {
                let all: f64 = part.mix.entries().iter().map(|(_, weight)| f64::from(*weight)).sum();
                for (size, weight) in part.mix.entries() {
                    *sizes.entry(size.with_fcs()).or_default() += packets as f64 * f64::from(*weight) / all;
                }
            }
        }
        sizes
    }
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
        write!(
            f,
            "{}: {} s of {}, mean {:.3} Mpps, highest {:.3} Mpps",
            self.profile.name(),
            self.seconds,
            names.join(", "),
            self.mean_pps() / 1e6,
            self.highest_pps() / 1e6
        )
    }
}
