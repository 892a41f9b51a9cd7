//! The frames of a profile, ready to be sent.

use crate::offer::flow_settings_of;
use crate::offered::CannotSend;
use crate::profile::{StreamPlan, Timetable};
use crate::source::{Load, Made};
use config::ChainFile;
use diagnostics::Diagnostic;
use report::{Frames, Mix, MixPart};
use std::sync::Arc;
use traffic::{FlowSettings, Flows, Template};

/// Source ports that streams share out; those below are of services.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;

/// A timetable, and the frames of each of its streams.
pub(crate) struct Programme {
    timetable: Arc<Timetable>,
    /// For each stream, of each of its parts.
    templates: Vec<Vec<Template>>,
}

impl Programme {
    /// Makes the flows between the addresses of a file; each stream has source ports of its own, so that no flow is of two
    /// streams. Those that are sent into the second port come from the other side.
    ///
    /// # Errors
    /// Flows or frames that cannot be; the stream is named.
    pub(crate) fn new(timetable: &Arc<Timetable>, file: &ChainFile) -> Result<Programme, Diagnostic> {
        let all = timetable.streams();
        let ready = |(n, stream): (usize, &StreamPlan)| {
            let wrong = |value: String, problem: String| {
                let d = Diagnostic::new(format!("profile, stream {}: {problem}", stream.name)).value(value);
                let d = d.remedy("change its frames or flows in the script, or [traffic] of the chain file");
                Diagnostic { file: Some(timetable.profile().path().to_owned()), ..d }
            };
            let settings = flow_settings_of(file, stream.flows(), None)?;
            let settings = FlowSettings { src_ports: ports(n, all.len()), ..settings };
            let flows = Flows::new(settings).map_err(|e| wrong(stream.flows().to_string(), e.to_string()))?;
            let flows = if stream.port == 0 { flows } else { flows.reversed() };
            let template = |part: &crate::profile::Part| {
                crate::offered::fits(&part.mix).map_err(|e| wrong(part.frames.clone(), e.to_string()))?;
                let flows = flows.first(part.flows).map_err(|e| wrong(part.flows.to_string(), e.to_string()))?;
                let template = Template::new(&flows, &part.mix, true).map_err(traffic::TemplateError::from);
                template.map_err(|e| wrong(part.frames.clone(), CannotSend::from(e).to_string()))
            };
            stream.parts.iter().map(template).collect::<Result<Vec<_>, _>>()
        };
        let templates = all.iter().enumerate().map(ready).collect::<Result<_, _>>()?;
        Ok(Programme { timetable: timetable.clone(), templates })
    }

    pub(crate) fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// The frames from their beginning. Where no profile is asked for, those of the first stream of each port.
    pub(crate) fn load(&self) -> Load<'_> {
        let streams = self.timetable.streams();
        let made = |stream: usize, part: usize| {
            let template = &self.templates[stream][part];
            Made::flows(template, streams[stream].parts[part].mix.cycle(), Template::flows(template).picker(0, 1))
        };
        let all =
            (0..streams.len()).map(|stream| (0..streams[stream].parts.len()).map(|part| made(stream, part)).collect());
        let first_of = |port: u8| streams.iter().position(|stream| stream.port == port).unwrap_or(0);
        let plain = (0..self.timetable.ports()).map(|port| made(first_of(port), 0)).collect();
        Load::programme(&self.timetable, plain, all.collect())
    }

    /// Sizes of its frames: a mix in which each has the share that it has of all packets.
    pub(crate) fn frames(&self) -> Frames {
        let mut sizes = self.timetable.sizes();
        sizes.retain(|_, packets| *packets > 0.0);
        let all: f64 = sizes.values().sum();
        // of a million packets
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

    /// What a result says of the script.
    pub(crate) fn document(&self) -> report::Profile {
        let profile = self.timetable.profile();
        report::Profile {
            name: profile.name(),
            sha256: report::sha256(profile.text().as_bytes()),
            script: Some(profile.text().to_owned()),
            seconds: self.timetable.seconds(),
            line_bps: self.timetable.line_bps(),
        }
    }

    /// Flows of all streams together.
    pub(crate) fn flows(&self) -> u64 {
        self.timetable.streams().iter().map(|stream| u64::from(stream.flows())).sum()
    }

    /// Of what is random in it.
    pub(crate) fn seed(&self) -> u64 {
        self.templates.first().and_then(|parts| parts.first()).map_or(0, |t| t.flows().settings().seed)
    }

    /// What a reader of a result has to know.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let timetable = self.timetable();
        let mut said = vec![format!(
            "what is sent is that of a script, {}: in each of {} s every stream has a rate of its own; loads, rates and counts \
             are those of all streams together",
            timetable.profile().name(),
            timetable.seconds()
        )];
        if timetable.ports() > 1 {
            said.push("streams of port 1 are sent into a second port, from the other side of their flows".to_owned());
        }
        said
    }
}

/// The part of the source ports of stream `n` of `streams`.
fn ports(n: usize, streams: usize) -> std::ops::RangeInclusive<u16> {
    let (first, all) = (usize::from(*PORTS.start()), PORTS.len());
    let at = |n: usize| (first + all * n / streams) as u16;
    let end = first + all * (n + 1) / streams - 1;
    at(n)..=end as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_out_the_source_ports() {
        assert_eq!(ports(0, 1), PORTS);
        for streams in [1, 2, 3, 63, 64] {
            let all: Vec<u16> = (0..streams).flat_map(|n| ports(n, streams)).collect();
            assert_eq!(all, PORTS.collect::<Vec<_>>(), "{streams}");
        }
    }
}
