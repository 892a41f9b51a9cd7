//! What a profile says for each second of a trial.

use super::{MAX_SECONDS, Profile, ProfileStream, Rate, StreamRate};
use crate::bed::StreamSeen;
use crate::method::percentile;
use diagnostics::Diagnostic;
use report::{StreamLatency, limit, rate};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use traffic::Mix;
use traffic::flows::MAX_FLOWS;
use traffic::pace::MAX_PPS;

/// Different frames and numbers of flows of all streams together.
const MOST_PARTS: usize = 4096;
/// Different sizes of frames of all streams together.
const MOST_SIZES: usize = limit::SIZES;
/// What the line carries where nothing says so, bits a second.
const LINE_BPS: f64 = rate::TEN_GBE_BPS;

/// What is sent in every second of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    profile: Arc<Profile>,
    seconds: u32,
    /// 100 % of what is said as a share, bits a second; none where nothing is.
    line_bps: Option<f64>,
    streams: Vec<StreamPlan>,
}

/// A stream in every second.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// Its name.
    pub name: String,
    /// Into which port it is sent: 0 or 1.
    pub port: u8,
    /// Each of the frames with a number of flows that it has in some second; at least one.
    pub parts: Vec<Part>,
    /// For each second.
    pub seconds: Vec<Entry>,
}

/// Frames of a stream with a number of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What was written of the frames.
    pub frames: String,
    /// The frames.
    pub mix: Mix,
    /// Flows.
    pub flows: u32,
}

/// What a stream sends in a second.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Entry {
    /// Packets a second: 0, or at least 1.
    pub pps: f64,
    /// Which of [`StreamPlan::parts`].
    pub part: usize,
}

impl Entry {
    /// Packets that its schedule has.
    pub fn intended(&self) -> u64 {
        // as the pacer has it: a product such as 999.9999999 of decimal fractions means 1000
        (self.pps + 1e-6).floor() as u64
    }
}

impl StreamPlan {
    /// Packets in all seconds.
    pub fn intended(&self) -> u64 {
        self.seconds.iter().map(Entry::intended).sum()
    }

    /// The most flows that it has in a second.
    pub fn flows(&self) -> u32 {
        self.parts.iter().map(|part| part.flows).max().unwrap_or(1)
    }

    /// What a result says of it, and of what was seen of it.
    pub(crate) fn document(&self, seen: &StreamSeen, seconds: u32) -> report::Stream {
        let sum = seen.sum();
        let latency = seen.delays.as_ref().and_then(|delays| {
            Some(StreamLatency {
                p50_ns: delays.quantile_ns(0.5)? as f64,
                p99_ns: percentile(delays, 0.99),
                max_ns: delays.max_ns()? as f64,
                samples: delays.count(),
            })
        });
        // one that is the sum of several tells nothing of each
        let told = seen.seconds.len() == seconds as usize;
        let each = seen.seconds.iter().filter(|_| told).map(|s| [s.intended, s.sent, s.received]);
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
            seconds: each.collect(),
        }
    }

    /// Its frames, all that it has, in the order in which they come.
    pub fn frames(&self) -> String {
        let mut all: Vec<&str> = vec![];
        for entry in self.seconds.iter().filter(|entry| entry.intended() != 0) {
            let frames = self.parts[entry.part].frames.as_str();
            if !all.contains(&frames) {
                all.push(frames);
            }
        }
        if all.is_empty() {
            // those that it would have
            all.extend(self.parts.first().map(|part| part.frames.as_str()));
        }
        let more = all.len().saturating_sub(4);
        let text = all[..all.len().min(4)].join(", ");
        if more == 0 { text } else { format!("{text} and {more} more") }
    }
}

impl Timetable {
    /// Asks a profile for every second, `seconds` of them or as many as it says itself. Shares are of what a line of
    /// `line_bps` carries of the stream's frames, or of 10 Gbit/s.
    ///
    /// # Errors
    /// When the script fails or gives what cannot be in one of them, which is named; when all of it sends nothing.
    pub fn of(profile: Arc<Profile>, seconds: Option<u32>, line_bps: Option<f64>) -> Result<Timetable, Diagnostic> {
        let seconds = seconds.unwrap_or(profile.seconds());
        if !(1..=MAX_SECONDS).contains(&seconds) {
            let d = Diagnostic::new("is no number of seconds of a profile").value(seconds);
            return Err(d.remedy(format!("give 1 to {MAX_SECONDS}")));
        }
        profile.begin();
        let of = |stream: &ProfileStream| StreamPlan {
            name: stream.name.clone(),
            port: stream.port,
            parts: vec![Part { frames: stream.frames.clone(), mix: stream.mix.clone(), flows: stream.flows }],
            seconds: vec![],
        };
        let streams = profile.streams().iter().map(of).collect();
        let mut table = Timetable { profile, seconds, line_bps: None, streams };
        for second in 0..seconds {
            let rates = table.profile.at(second)?;
            table.add(second, rates, line_bps)?;
        }
        table.checked()
    }

    fn add(&mut self, second: u32, rates: Vec<StreamRate>, line_bps: Option<f64>) -> Result<(), Diagnostic> {
        for stream in &mut self.streams {
            stream.seconds.push(Entry::default());
        }
        for StreamRate { stream, rate, frames, mix, flows } in rates {
            let pps = match rate {
                Rate::Pps(pps) => pps,
                Rate::Share(share) => {
                    let line = *self.line_bps.insert(line_bps.unwrap_or(LINE_BPS));
                    share * rate::line_pps(line, mix.mean())
                }
            };
            let plan = &mut self.streams[stream];
            if pps != 0.0 && !(1.0..=MAX_PPS).contains(&pps) {
                let problem = format!("is {pps} packets in second {second}, neither none nor 1 to {MAX_PPS}");
                let value = format!("{}: {rate}", plan.name);
                return Err(self.profile.wrong("at", &value, &problem, "give another rate, or leave the stream out"));
            }
            let same = |part: &Part| part.flows == flows && part.frames == frames;
            let part = plan.parts.iter().position(same).unwrap_or_else(|| {
                plan.parts.push(Part { frames, mix, flows });
                plan.parts.len() - 1
            });
            if let Some(last) = plan.seconds.last_mut() {
                *last = Entry { pps, part };
            }
        }
        let sum: f64 = self.streams.iter().filter_map(|s| s.seconds.last()).map(|entry| entry.pps).sum();
        if sum > MAX_PPS {
            let problem = format!("packets of all streams in second {second} are more than {MAX_PPS}");
            return Err(self.profile.wrong("at", &sum.to_string(), &problem, "give lower rates"));
        }
        let parts: usize = self.streams.iter().map(|stream| stream.parts.len()).sum();
        if parts > MOST_PARTS {
            let problem =
                format!("different frames and numbers of flows up to second {second} are more than {MOST_PARTS}");
            return Err(self.profile.wrong("at", &parts.to_string(), &problem, "let them change less often"));
        }
        Ok(())
    }

    /// What does not show in one second.
    fn checked(self) -> Result<Timetable, Diagnostic> {
        let wrong =
            |place, value: u64, problem: &str, remedy| Err(self.profile.wrong(place, &value.to_string(), problem, remedy));
        if self.intended() == 0 {
            let remedy = "give a stream a rate in some second";
            return wrong("at", 0, &format!("packets are sent in {} s", self.seconds), remedy);
        }
        let flows: u64 = self.streams.iter().map(|stream| u64::from(stream.flows())).sum();
        if flows > u64::from(MAX_FLOWS) {
            let problem = format!("flows of all streams are more than {MAX_FLOWS}");
            return wrong("streams", flows, &problem, "give the streams fewer flows");
        }
        let sizes = self.streams.iter().flat_map(|s| &s.parts).flat_map(|part| part.mix.entries());
        let sizes = sizes.map(|(size, _)| size.with_fcs()).collect::<BTreeSet<_>>().len();
        if sizes > MOST_SIZES {
            let problem = format!("sizes of frames are more than {MOST_SIZES}");
            return wrong("at", sizes as u64, &problem, "use fewer");
        }
        Ok(self)
    }

    /// The script.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// How long it lasts.
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// 100 % of what is said as a share, bits a second; none where nothing is.
    pub fn line_bps(&self) -> Option<f64> {
        self.line_bps
    }

    /// The streams, 1 to 64.
    pub fn streams(&self) -> &[StreamPlan] {
        &self.streams
    }

    /// Ports that it sends into: 1, or 2 where a stream goes into the second.
    pub fn ports(&self) -> u8 {
        1 + self.streams.iter().map(|stream| stream.port).max().unwrap_or(0)
    }

    /// Packets of all streams in all seconds.
    pub fn intended(&self) -> u64 {
        self.streams.iter().map(StreamPlan::intended).sum()
    }

    /// Packets a second on average.
    pub fn mean_pps(&self) -> f64 {
        self.intended() as f64 / f64::from(self.seconds)
    }

    /// Packets a second of all streams in the second that has most.
    pub fn highest_pps(&self) -> f64 {
        let sum = |second: usize| self.streams.iter().map(|s| s.seconds[second].pps).sum::<f64>();
        (0..self.seconds as usize).map(sum).fold(0.0, f64::max)
    }

    /// For each size of frames, bytes with FCS, about how many packets have it.
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
            "{}: {} s of {}, {:.3} Mpps on average, {:.3} at most",
            self.profile.name(),
            self.seconds,
            names.join(", "),
            self.mean_pps() / 1e6,
            self.highest_pps() / 1e6
        )
    }
}
