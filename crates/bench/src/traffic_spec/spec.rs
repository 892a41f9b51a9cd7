//! Traffic specs.

use super::capture_spec::CaptureSpec;
use super::error::PrepareError;
use super::flows::{flow_settings_for_stack, mac_addresses};
use super::prepared::PreparedTraffic;
use super::profile::Timetable;
use super::profile_streams::ProfileStreams;
use super::replay::Replay;
use super::synthetic::{SyntheticOptions, TRACE_SEED};
use config::ChainFile;
use diagnostics::Diagnostic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use traffic::nfpa::{Direction, Name};
use traffic::{FlowError, FlowSettings, Flows, Mix, Order};

/// Traffic for a chain. Addresses are those of the `[traffic]` table of the chain file.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficSpec {
    /// Synthetic frames.
    Synthetic {
        /// Frame sizes and mixes with their names; each is measured separately.
        frames: Vec<(String, Mix)>,
        /// Number of flows.
        flows: u32,
        /// Order of the flows.
        order: Order,
        /// Trace, headers and directions.
        options: SyntheticOptions,
    },
    /// Frames of captures.
    Capture(CaptureSpec),
    /// Streams of a profile.
    Profile(Arc<Timetable>),
}

impl TrafficSpec {
    /// Returns the packets of each connection that a rate counts, if it consists of connections.
    pub fn packets_per_connection(&self) -> Option<u32> {
        match self {
            TrafficSpec::Synthetic { options: SyntheticOptions { short: Some(short), .. }, .. } => Some(short.packets),
            TrafficSpec::Synthetic { options: SyntheticOptions { tcp: Some(tcp), .. }, .. } => {
                Some(tcp.client_frames())
            }
            _ => None,
        }
    }

    /// Returns the NFPA trace, if it is one.
    pub fn trace(&self) -> Option<Name> {
        match self {
            TrafficSpec::Synthetic { options: SyntheticOptions { trace: Some(trace), .. }, .. } => Some(*trace),
            _ => None,
        }
    }

    /// Returns the names of the frame sizes and mixes.
    pub fn frame_names(&self) -> Vec<String> {
        match self {
            TrafficSpec::Synthetic { options: SyntheticOptions { tcp: Some(_), .. }, .. } => vec!["tcp".to_owned()],
            TrafficSpec::Synthetic { frames, .. } => frames.iter().map(|(name, _)| name.clone()).collect(),
            TrafficSpec::Profile(timetable) => vec![timetable.profile().name()],
            TrafficSpec::Capture(captured) => {
                let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                vec![captured.files.iter().map(name).collect::<Vec<_>>().join(",")]
            }
        }
    }

    /// Removes frame sizes whose names are not selected.
    pub(crate) fn retain_frames(&mut self, is_selected: impl Fn(&str) -> bool) {
        if let TrafficSpec::Synthetic { frames, .. } = self {
            frames.retain(|(name, _)| is_selected(name));
        }
    }

    /// Returns true if packets are sent into two ports: both directions, or the answers of servers.
    pub fn is_bidirectional(&self) -> bool {
        match self {
            TrafficSpec::Synthetic { options, .. } => {
                options.bidirectional || options.tcp.is_some_and(|settings| !settings.dsr)
            }
            TrafficSpec::Capture(captured) => captured.files.len() > 1,
            TrafficSpec::Profile(timetable) => timetable.ports() > 1,
        }
    }

    /// Returns the captures, if it has any.
    pub fn captures(&self) -> Option<&CaptureSpec> {
        match self {
            TrafficSpec::Capture(captured) => Some(captured),
            TrafficSpec::Synthetic { .. } | TrafficSpec::Profile(_) => None,
        }
    }

    /// Returns true for captures that are sent with their gaps.
    pub fn keeps_gaps(&self) -> bool {
        matches!(self, TrafficSpec::Capture(CaptureSpec { speed: Some(_), .. }))
    }

    /// Prepares the traffic for a chain. Setting `stop` ends the reading of a capture.
    ///
    /// # Errors
    /// An invalid value of `[traffic]`, flows or frames that cannot be built, a file that is not a capture, or an end
    /// by `stop`.
    pub fn prepare(&self, file: &ChainFile, stop: &AtomicBool) -> Result<Vec<PreparedTraffic>, Diagnostic> {
        match self {
            TrafficSpec::Synthetic { frames, flows, order, options } => {
                let error = |what: &str, value: &str, problem: String| {
                    let remedy =
                        format!("change the {what}: --{what}, or [traffic] of a scenario or of the chain file");
                    Diagnostic::new(problem).value(value).remedy(remedy)
                };
                if let Some(settings) = options.tcp {
                    let flows = flow_settings_for_stack(file, *flows, None)?;
                    return Ok(vec![PreparedTraffic::tcp(flows, settings)]);
                }
                if let Some(settings) = options.short {
                    let settings_of_flows = flow_settings_for_stack(file, 1, None)?;
                    let prepare = |(name, mix): &(String, Mix)| {
                        PreparedTraffic::connections(name, &settings_of_flows, mix, settings)
                            .map_err(|e| error("frames", name, e.to_string()))
                    };
                    return frames.iter().map(prepare).collect();
                }
                let forward = match options.trace {
                    Some(trace) => flows_of_trace(trace, Direction::Forward, *order, file)?
                        .map_err(|e| error("trace", &trace.to_string(), e.to_string()))?,
                    None => {
                        let settings = FlowSettings {
                            order: *order,
                            ..flow_settings_for_stack(file, *flows, options.stack.as_ref())?
                        };
                        Flows::new(settings).map_err(|e| error("flows", &flows.to_string(), e.to_string()))?
                    }
                };
                if let Some(stack) = options.stack.as_ref().filter(|stack| stack.ipv6 == forward.is_ipv4()) {
                    let problem = "has another IP version than the addresses in [traffic]".to_owned();
                    return Err(error("stack", &stack.to_string(), problem));
                }
                let reverse = match (options.bidirectional, options.trace) {
                    (false, _) => None,
                    (true, None) => Some(forward.reversed()),
                    (true, Some(trace)) => {
                        let flows = flows_of_trace(trace, Direction::Reverse, *order, file)?;
                        Some(flows.map_err(|e| error("trace", &trace.to_string(), e.to_string()))?)
                    }
                };
                let prepare = |(name, mix): &(String, Mix)| {
                    PreparedTraffic::synthetic_with_options(name, &forward, reverse.as_ref(), mix, options).map_err(
                        |e| {
                            let vary = || options.vary.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                            match e {
                                PrepareError::Field(e) => error("vary", &vary(), e.to_string()),
                                e => error("frames", name, e.to_string()),
                            }
                        },
                    )
                };
                frames.iter().map(prepare).collect()
            }
            TrafficSpec::Profile(timetable) => {
                Ok(vec![PreparedTraffic::from_profile(ProfileStreams::new(timetable, file)?)])
            }
            TrafficSpec::Capture(captured) => {
                Ok(vec![PreparedTraffic::from_replay(Replay::open(captured, file, stop)?)])
            }
        }
    }
}

/// Returns the flows of a trace. If all have the same source or destination MAC address, it is replaced by that of the
/// file, swapped in the reverse direction.
fn flows_of_trace(
    trace: Name,
    direction: Direction,
    order: Order,
    file: &ChainFile,
) -> Result<Result<Flows, FlowError>, Diagnostic> {
    let (src_mac, dst_mac) = match (direction, mac_addresses(file)?) {
        (Direction::Forward, macs) => macs,
        (Direction::Reverse, (src, dst)) => (dst, src),
    };
    let mut list = trace.list(direction, TRACE_SEED);
    let one_src = list.iter().all(|flow| flow.src_mac == list[0].src_mac);
    let one_dst = list.iter().all(|flow| flow.dst_mac == list[0].dst_mac);
    for flow in &mut list {
        flow.src_mac = src_mac.filter(|_| one_src).unwrap_or(flow.src_mac);
        flow.dst_mac = dst_mac.filter(|_| one_dst).unwrap_or(flow.dst_mac);
    }
    Ok(Flows::listed(&list, FlowSettings { order, seed: TRACE_SEED, ..FlowSettings::v4() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Registry;
    use std::path::Path;

    fn prepare(frames: &str, flows: u32) -> Result<Vec<PreparedTraffic>, Diagnostic> {
        prepare_with(frames, flows, SyntheticOptions::default(), "")
    }

    fn prepare_with(
        frames: &str,
        flows: u32,
        options: SyntheticOptions,
        more: &str,
    ) -> Result<Vec<PreparedTraffic>, Diagnostic> {
        let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\n";
        let text = &format!("{text}{more}");
        let file = ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap();
        let spec = TrafficSpec::Synthetic {
            frames: crate::parse_frame_sizes(frames).unwrap(),
            flows,
            order: Order::Uniform,
            options,
        };
        spec.prepare(&file, &AtomicBool::new(false))
    }

    #[test]
    fn documents_of_sizes_and_mixes() {
        let traffic = prepare("64,(64:1,1518:3)", 7).unwrap();
        let documents: Vec<_> = traffic.iter().map(PreparedTraffic::document).collect();
        assert_eq!(documents[0].frames, report::Frames::FrameBytes(64));
        assert_eq!((documents[1].frames.label(), documents[1].frames.mean_bytes()), ("64:1,1518:3".to_owned(), 1154.5));
        assert!(documents.iter().all(|d| (d.flows, d.trace_sha256.is_none()) == (7, true)));
        let cell = traffic[0].cell();
        assert_eq!((cell["flows"].as_str(), cell["order"].as_str()), ("7", "uniform"));
        assert!(traffic.iter().all(|o| o.deviations().is_empty() && o.captures().is_empty()));
    }

    #[test]
    fn returns_the_longest_frame() {
        let longest =
            |frames| prepare(frames, 1).unwrap().iter().map(PreparedTraffic::longest_frame).collect::<Vec<_>>();
        assert_eq!(longest("64,(64:9,9018:1),aj"), [60, 9014, 15_996]);
        let d = prepare("64", 0).err().unwrap();
        assert!(d.value.as_deref() == Some("0") && d.to_string().contains("flows"), "{d}");
    }

    #[test]
    fn documents_of_traces_stacks_and_connections() {
        let options = |trace, stack, short| SyntheticOptions::parse(trace, stack, short, None, &[]).unwrap();
        let one = |options, frames, more| prepare_with(frames, 9, options, more).unwrap().remove(0);
        let trace = one(options(Some("tr2e"), None, None), "64", "traffic.dst_mac = \"02:00:00:00:00:07\"\n");
        assert_eq!((trace.document().flows, trace.cell()["trace"].as_str()), (100, "tr2e"));
        assert_eq!(trace.cell()["order"].as_str(), "uniform");
        assert!(!trace.cell().contains_key("flows"));
        let simple = Name::Simple.sha256(Direction::Forward, TRACE_SEED);
        let traffic = one(options(Some("simple"), None, None), "64", "");
        assert_eq!(traffic.document().trace_sha256, Some(simple));
        let tagged = one(options(None, Some("eth/vlan:7/ipv4/tcp"), None), "128", "");
        assert_eq!((tagged.document().protocol.as_str(), tagged.document().flows), ("eth/vlan:7/ipv4/tcp", 9));
        let v6 = one(options(None, Some("eth/ipv6/udp"), None), "128", "");
        assert_eq!(v6.document().protocol, "eth/ipv6/udp");
        let short = one(options(None, None, Some("10x64")), "128", "");
        assert_eq!((short.document().protocol.as_str(), short.document().flows), ("tcp", 64));
        assert_eq!(short.cell()["short"].as_str(), "10x64");
        assert_eq!(short.deviations().len(), 1);
    }

    #[test]
    fn errors_name_the_value() {
        let options = |stack, short| SyntheticOptions::parse(None, stack, short, None, &[]).unwrap();
        for (frames, options, more, value, words) in [
            ("64", options(Some("eth/vlan/ipv4/udp"), None), "", "64", "68 bytes"),
            ("64", options(None, Some("10")), "", "64", "76 bytes"),
            ("128", options(Some("eth/ipv6/udp"), None), "traffic.dst = [\"10.0.0.0/8\"]\n", "eth/ipv6/udp", "version"),
        ] {
            let d = prepare_with(frames, 1, options, more).err().unwrap();
            assert_eq!(d.value.as_deref().map(|v| v.starts_with(value)), Some(true), "{d}");
            assert!(d.to_string().contains(words) && d.remedy.is_some(), "{d}");
        }
    }

    #[test]
    fn both_directions_are_two_streams() {
        let traffic = |trace| {
            let options = SyntheticOptions {
                bidirectional: true,
                ..SyntheticOptions::parse(trace, None, None, None, &[]).unwrap()
            };
            prepare_with("64,imix", 5, options, "").unwrap().remove(1)
        };
        for trace in [None, Some("tr2i")] {
            let traffic = traffic(trace);
            assert_eq!(
                (traffic.directions(), traffic.document().directions, traffic.packet_source().streams.len()),
                (2, 2, 2)
            );
            assert!(traffic.deviations()[0].contains("both directions"), "{:?}", traffic.deviations());
        }
        let one = prepare("64", 5).unwrap().remove(0);
        assert_eq!((one.document().directions, one.packet_source().streams.len()), (1, 1));
    }

    #[test]
    fn the_second_port_is_the_end_of_the_chain() {
        let read = |ports: &str, chains: &str| {
            let text = format!("bondstone = 1\n{ports}\nchain = [{chains}]\n");
            ChainFile::parse(&text, Path::new("chain.toml"), &Registry::default()).unwrap()
        };
        let port = |name: &str| format!("port.{name}.device = \"ring:{name}\"\n");
        let three = ["a", "b", "c"].map(port).concat();
        let file = read(&three, "{ path = [\"a\", \"c\"] }, { path = [\"b\", \"a\"] }");
        let names = |both| {
            crate::dut::entry_ports(&file, both).unwrap().iter().map(|n| &*file.ports[*n].name).collect::<Vec<_>>()
        };
        assert_eq!((names(false), names(true)), (vec!["a"], vec!["a", "c"]));
        let file = read(&port("a"), "{ path = [\"a\", \"a\"] }");
        let d = crate::dut::entry_ports(&file, true).unwrap_err();
        assert_eq!((d.value.as_deref(), d.file.is_some(), d.remedy.is_some()), (Some("a"), true, true));
    }
}
