//! Prepared streams of a profile.

use super::flows::flow_settings_for_stack;
use super::prepared_frames::PreparedFrames;
use super::profile::{StreamTimetable, Timetable};
use crate::generator::packet_source::PacketSource;
use config::ChainFile;
use diagnostics::Diagnostic;
use report::{Frames, Mix, MixPart};
use std::sync::Arc;
use traffic::{FieldSpec, FlowSettings, Flows, Stack};

/// Source ports that are divided among the streams; those below are well-known ports.
const SRC_PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;

/// A timetable with the frames of its streams.
pub(crate) struct ProfileStreams {
    timetable: Arc<Timetable>,
    /// Frames of each part of each stream.
    frames: Vec<Vec<PreparedFrames>>,
}

impl ProfileStreams {
    /// Builds the flows between the addresses of a chain file. Each stream has separate source ports, so that streams
    /// share no flows. Streams of the second port have swapped addresses.
    ///
    /// # Errors
    /// Flows or frames that cannot be built; the diagnostic names the stream.
    pub(crate) fn new(timetable: &Arc<Timetable>, file: &ChainFile) -> Result<ProfileStreams, Diagnostic> {
        let all = timetable.streams();
        let prepare = |(n, stream): (usize, &StreamTimetable)| {
            let error = |value: String, problem: String| {
                let d = Diagnostic::new(format!("profile, stream {}: {problem}", stream.name)).value(value);
                let d = d.remedy("change its frames or flows in the script, or [traffic] of the chain file");
                Diagnostic { file: Some(timetable.profile().path().to_owned()), ..d }
            };
            let settings = flow_settings_for_stack(file, stream.flows(), stream.stack.as_ref())?;
            let settings = FlowSettings { src_ports: src_ports(n, all.len()), ..settings };
            let flows = Flows::new(settings).map_err(|e| error(stream.flows().to_string(), e.to_string()))?;
            let flows = if stream.port == 0 { flows } else { flows.reversed() };
            let mut stack = stream.stack.clone();
            let mut fields: Vec<_> = stream.vary.iter().map(|field| field.spec().clone()).collect();
            if stream.port != 0 {
                stack = stack.map(Stack::reversed);
                fields = fields.iter().map(FieldSpec::reversed).collect();
            }
            let frames = |part: &super::profile::StreamTraffic| {
                let flows = flows.first(part.flows).map_err(|e| error(part.flows.to_string(), e.to_string()))?;
                let frames = PreparedFrames::new(&flows, &part.mix, stack.as_ref(), &fields);
                frames.map_err(|e| error(part.frames.clone(), e.to_string()))
            };
            stream.parts.iter().map(frames).collect::<Result<Vec<_>, _>>()
        };
        let frames = all.iter().enumerate().map(prepare).collect::<Result<_, _>>()?;
        Ok(ProfileStreams { timetable: timetable.clone(), frames })
    }

    pub(crate) fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Returns a source of packets. Trials without a profile get those of the first stream of each port.
    pub(crate) fn packet_source(&self) -> PacketSource<'_> {
        let streams = self.timetable.streams();
        let frames =
            |stream: usize, part: usize| self.frames[stream][part].source(&streams[stream].parts[part].mix, 0, 1);
        let all = (0..streams.len())
            .map(|stream| (0..streams[stream].parts.len()).map(|part| frames(stream, part)).collect());
        let first_of = |port: u8| streams.iter().position(|stream| stream.port == port).unwrap_or(0);
        let plain = (0..self.timetable.ports()).map(|port| frames(first_of(port), 0)).collect();
        PacketSource::profile(&self.timetable, plain, all.collect())
    }

    /// Returns the bytes of the longest frame without FCS.
    pub(crate) fn longest_frame(&self) -> usize {
        let parts = self.timetable.streams().iter().flat_map(|stream| &stream.parts);
        parts.map(|part| part.mix.largest().without_fcs()).max().unwrap_or(0)
    }

    /// Returns the frame sizes as a mix, weighted by packets.
    pub(crate) fn frames(&self) -> Frames {
        let mut sizes = self.timetable.sizes();
        sizes.retain(|_, packets| *packets > 0.0);
        let all: f64 = sizes.values().sum();
        // weights are packets in a million
        let weight = |packets: f64| ((packets / all * 1e6).round() as u32).max(1);
        match sizes.iter().collect::<Vec<_>>()[..] {
            [(size, _)] => Frames::FrameBytes(*size),
            _ => Frames::Mix(Mix {
                name: self.timetable.profile().name(),
                parts: sizes
                    .iter()
                    .map(|(size, packets)| MixPart { frame_bytes: *size, weight: weight(*packets) })
                    .collect(),
            }),
        }
    }

    /// Returns the description of the script in a result.
    pub(crate) fn document(&self) -> report::Profile {
        let profile = self.timetable.profile();
        report::Profile {
            name: profile.name(),
            sha256: report::sha256(profile.text().as_bytes()),
            script: Some(profile.text().to_owned()),
            duration_s: self.timetable.seconds(),
            line_rate_bps: self.timetable.line_bps(),
        }
    }

    /// Returns the number of flows of all streams.
    pub(crate) fn flows(&self) -> u64 {
        self.timetable.streams().iter().map(|stream| u64::from(stream.flows())).sum()
    }

    /// Returns the seed of the flows.
    pub(crate) fn seed(&self) -> u64 {
        self.frames.first().and_then(|parts| parts.first()).map_or(0, |frames| frames.flows().settings().seed)
    }

    /// Returns deviations of a result.
    pub(crate) fn deviations(&self) -> Vec<String> {
        let timetable = self.timetable();
        let mut deviations = vec![format!(
            "the script {} sets the rate of every stream for each of {} s; loads, rates and counts are sums over all \
             streams",
            timetable.profile().name(),
            timetable.seconds()
        )];
        if timetable.ports() > 1 {
            deviations.push("streams of port 1 are sent into the second port, with swapped addresses".to_owned());
        }
        deviations
    }
}

/// Returns the source ports of stream `n` of `streams`.
fn src_ports(n: usize, streams: usize) -> std::ops::RangeInclusive<u16> {
    let (first, all) = (usize::from(*SRC_PORTS.start()), SRC_PORTS.len());
    let at = |n: usize| (first + all * n / streams) as u16;
    let end = first + all * (n + 1) / streams - 1;
    at(n)..=end as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_divide_the_source_ports() {
        assert_eq!(src_ports(0, 1), SRC_PORTS);
        for streams in [1, 2, 3, 63, 64] {
            let all: Vec<u16> = (0..streams).flat_map(|n| src_ports(n, streams)).collect();
            assert_eq!(all, SRC_PORTS.collect::<Vec<_>>(), "{streams}");
        }
    }
}
