//! What is to be sent, as asked for.

use crate::offer::{flow_settings_of, macs};
use crate::offered::Offered;
use crate::profile::Timetable;
use crate::programme::Programme;
use crate::replayed::Replayed;
use crate::{Captured, Shape};
use config::ChainFile;
use diagnostics::Diagnostic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use traffic::nfpa::{Direction, Name};
use traffic::{FlowError, FlowSettings, Flows, Mix, Order};

/// Traffic for a chain; its `[traffic]` says the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Sent {
    /// Frames made for flows.
    Made {
        /// Sorts of frames with their names, one measured after the other.
        frames: Vec<(String, Mix)>,
        /// Different flows.
        flows: u32,
        /// In which order they take turns.
        order: Order,
        /// What else they are.
        shape: Shape,
    },
    /// The frames of capture files.
    Capture(Captured),
    /// The streams of a profile.
    Profile(Arc<Timetable>),
}

impl Sent {
    /// Whether it is connections that end after a few packets.
    pub fn is_short(&self) -> bool {
        matches!(self, Sent::Made { shape: Shape { short: Some(_), .. }, .. })
    }

    /// Which of NFPA's traces it is, if it is one.
    pub fn trace(&self) -> Option<Name> {
        match self {
            Sent::Made { shape: Shape { trace: Some(trace), .. }, .. } => Some(*trace),
            _ => None,
        }
    }

    /// The names of its sorts of frames.
    pub fn names(&self) -> Vec<String> {
        match self {
            Sent::Made { frames, .. } => frames.iter().map(|(name, _)| name.clone()).collect(),
            Sent::Profile(timetable) => vec![timetable.profile().name()],
            Sent::Capture(captured) => {
                let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                vec![captured.files.iter().map(name).collect::<Vec<_>>().join(",")]
            }
        }
    }

    /// Whether packets go both ways at once.
    pub fn is_both_ways(&self) -> bool {
        match self {
            Sent::Made { shape, .. } => shape.both_ways,
            Sent::Capture(captured) => captured.files.len() > 1,
            Sent::Profile(timetable) => timetable.ports() > 1,
        }
    }

    /// The captures, if they are sent.
    pub fn captured(&self) -> Option<&Captured> {
        match self {
            Sent::Capture(captured) => Some(captured),
            Sent::Made { .. } | Sent::Profile(_) => None,
        }
    }

    /// Whether it is captures that keep their own gaps.
    pub fn keeps_gaps(&self) -> bool {
        matches!(self, Sent::Capture(Captured { speed: Some(_), .. }))
    }

    /// Makes it ready to be sent into a chain. Reading a capture, which may be long, ends when `stop` is set.
    ///
    /// # Errors
    /// A value of `[traffic]` that is none, flows or frames that cannot be, a file that is no capture; when stopped.
    pub fn ready(&self, file: &ChainFile, stop: &AtomicBool) -> Result<Vec<Offered>, Diagnostic> {
        match self {
            Sent::Made { frames, flows, order, shape } => {
                let wrong = |what: &str, value: &str, problem: String| {
                    let remedy = format!("change the {what}: --{what}, or [traffic] of a scenario or of the chain file");
                    Diagnostic::new(problem).value(value).remedy(remedy)
                };
                if let Some(settings) = shape.short {
                    let from = flow_settings_of(file, 1, None)?;
                    let ready = |(name, mix): &(String, Mix)| {
                        Offered::short(name, &from, mix, settings).map_err(|e| wrong("frames", name, e.to_string()))
                    };
                    return frames.iter().map(ready).collect();
                }
                let all = match shape.trace {
                    Some(trace) => trace_flows(trace, Direction::Forward, *order, file)?
                        .map_err(|e| wrong("trace", &trace.to_string(), e.to_string()))?,
                    None => {
                        let settings = FlowSettings { order: *order, ..flow_settings_of(file, *flows, shape.stack)? };
                        Flows::new(settings).map_err(|e| wrong("flows", &flows.to_string(), e.to_string()))?
                    }
                };
                if let Some(stack) = shape.stack.filter(|stack| stack.ipv6 == all.is_ipv4()) {
                    let problem = "is not of the IP version of the addresses in [traffic]".to_owned();
                    return Err(wrong("stack", &stack.to_string(), problem));
                }
                let back = match (shape.both_ways, shape.trace) {
                    (false, _) => None,
                    (true, None) => Some(all.reversed()),
                    (true, Some(trace)) => {
                        let back = trace_flows(trace, Direction::Reverse, *order, file)?;
                        Some(back.map_err(|e| wrong("trace", &trace.to_string(), e.to_string()))?)
                    }
                };
                let ready = |(name, mix): &(String, Mix)| {
                    Offered::stacked(name, &all, back.as_ref(), mix, *shape)
                        .map_err(|e| wrong("frames", name, e.to_string()))
                };
                frames.iter().map(ready).collect()
            }
            Sent::Profile(timetable) => Ok(vec![Offered::profile(Programme::new(timetable, file)?)]),
            Sent::Capture(captured) => Ok(vec![Offered::replayed(Replayed::open(captured, file, stop)?)]),
        }
    }
}

/// A trace's flows; those that all go to one MAC address, or come from one, get the file's, which are swapped on the way
/// back.
fn trace_flows(
    trace: Name,
    direction: Direction,
    order: Order,
    file: &ChainFile,
) -> Result<Result<Flows, FlowError>, Diagnostic> {
    let (src_mac, dst_mac) = match (direction, macs(file)?) {
        (Direction::Forward, macs) => macs,
        (Direction::Reverse, (src, dst)) => (dst, src),
    };
    let mut list = trace.list(direction, SEED);
    let one_src = list.iter().all(|flow| flow.src_mac == list[0].src_mac);
    let one_dst = list.iter().all(|flow| flow.dst_mac == list[0].dst_mac);
    for flow in &mut list {
        flow.src_mac = src_mac.filter(|_| one_src).unwrap_or(flow.src_mac);
        flow.dst_mac = dst_mac.filter(|_| one_dst).unwrap_or(flow.dst_mac);
    }
    Ok(Flows::listed(&list, FlowSettings { order, seed: SEED, ..FlowSettings::v4() }))
}

/// Of what is random in a trace.
pub(crate) const SEED: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Registry;
    use std::path::Path;

    fn ready(frames: &str, flows: u32) -> Result<Vec<Offered>, Diagnostic> {
        ready_as(frames, flows, Shape::default(), "")
    }

    fn ready_as(frames: &str, flows: u32, shape: Shape, more: &str) -> Result<Vec<Offered>, Diagnostic> {
        let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\n";
        let text = &format!("{text}{more}");
        let file = ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap();
        let sent = Sent::Made { frames: crate::frames(frames).unwrap(), flows, order: Order::Uniform, shape };
        sent.ready(&file, &AtomicBool::new(false))
    }

    #[test]
    fn frames_become_what_a_result_says_of_them() {
        let offered = ready("64,(64:1,1518:3)", 7).unwrap();
        let documents: Vec<_> = offered.iter().map(Offered::document).collect();
        assert_eq!(documents[0].frames, report::Frames::FrameBytes(64));
        assert_eq!((documents[1].frames.label(), documents[1].frames.mean_bytes()), ("64:1,1518:3".to_owned(), 1154.5));
        assert!(documents.iter().all(|d| (d.flows, d.trace_sha256.is_none()) == (7, true)));
        let cell = offered[0].cell();
        assert_eq!((cell["flows"].as_str(), cell["order"].as_str()), ("7", "uniform"));
        assert!(offered.iter().all(|o| o.remarks().is_empty() && o.traces().is_empty()));
    }

    #[test]
    fn frames_that_no_buffer_holds_are_refused() {
        assert!(ready("2052", 1).is_ok());
        for (frames, flows, value, words) in
            [("64,2053", 1, "2053", "2052"), ("(64:9,9000:1)", 1, "64:9,9000:1", "9000"), ("64", 0, "0", "flows")]
        {
            let d = ready(frames, flows).err().unwrap();
            assert_eq!(d.value.as_deref(), Some(value));
            assert!(d.to_string().contains(words), "{d}");
        }
    }

    #[test]
    fn traces_stacks_and_short_flows_become_what_a_result_says_of_them() {
        let shape = |trace, stack, short| Shape::parse(trace, stack, short).unwrap();
        let one = |shape, frames, more| ready_as(frames, 9, shape, more).unwrap().remove(0);
        let trace = one(shape(Some("tr2e"), None, None), "64", "traffic.dst_mac = \"02:00:00:00:00:07\"\n");
        assert_eq!((trace.document().flows, trace.cell()["trace"].as_str()), (100, "tr2e"));
        assert_eq!(trace.cell()["order"].as_str(), "uniform");
        assert!(!trace.cell().contains_key("flows"));
        let simple = Name::Simple.sha256(Direction::Forward, SEED);
        let offered = one(shape(Some("simple"), None, None), "64", "");
        assert_eq!(offered.document().trace_sha256, Some(simple));
        let tagged = one(shape(None, Some("eth/vlan:7/ipv4/tcp"), None), "128", "");
        assert_eq!((tagged.document().protocol.as_str(), tagged.document().flows), ("eth/vlan:7/ipv4/tcp", 9));
        let v6 = one(shape(None, Some("eth/ipv6/udp"), None), "128", "");
        assert_eq!(v6.document().protocol, "eth/ipv6/udp");
        let short = one(shape(None, None, Some("10x64")), "128", "");
        assert_eq!((short.document().protocol.as_str(), short.document().flows), ("tcp", 64));
        assert_eq!(short.cell()["short"].as_str(), "10x64");
        assert_eq!(short.remarks().len(), 1);
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let shape = |stack, short| Shape::parse(None, stack, short).unwrap();
        for (frames, shape, more, value, words) in [
            ("64", shape(Some("eth/vlan/ipv4/udp"), None), "", "64", "68 bytes"),
            ("64", shape(None, Some("10")), "", "64", "76 bytes"),
            ("9000", shape(None, Some("10")), "", "9000", "buffer"),
            ("128", shape(Some("eth/ipv6/udp"), None), "traffic.dst = [\"10.0.0.0/8\"]\n", "eth/ipv6/udp", "version"),
        ] {
            let d = ready_as(frames, 1, shape, more).err().unwrap();
            assert_eq!(d.value.as_deref().map(|v| v.starts_with(value)), Some(true), "{d}");
            assert!(d.to_string().contains(words) && d.remedy.is_some(), "{d}");
        }
    }

    #[test]
    fn both_ways_are_two_streams_of_which_one_is_the_other_reversed() {
        let offered = |trace| {
            let shape = Shape { both_ways: true, ..Shape::parse(trace, None, None).unwrap() };
            ready_as("64,imix", 5, shape, "").unwrap().remove(1)
        };
        for trace in [None, Some("tr2i")] {
            let offered = offered(trace);
            assert_eq!((offered.directions(), offered.document().directions, offered.load().streams.len()), (2, 2, 2));
            assert!(offered.remarks()[0].contains("both ways"), "{:?}", offered.remarks());
        }
        let one = ready("64", 5).unwrap().remove(0);
        assert_eq!((one.document().directions, one.load().streams.len()), (1, 1));
    }

    #[test]
    fn a_second_port_is_where_the_chain_ends() {
        let read = |ports: &str, chains: &str| {
            let text = format!("bondstone = 1\n{ports}\nchain = [{chains}]\n");
            ChainFile::parse(&text, Path::new("chain.toml"), &Registry::default()).unwrap()
        };
        let port = |name: &str| format!("port.{name}.device = \"ring:{name}\"\n");
        let three = ["a", "b", "c"].map(port).concat();
        let file = read(&three, "{ path = [\"a\", \"c\"] }, { path = [\"b\", \"a\"] }");
        let names = |both| {
            crate::wired::entries(&file, both).unwrap().iter().map(|n| &*file.ports[*n].name).collect::<Vec<_>>()
        };
        assert_eq!((names(false), names(true)), (vec!["a"], vec!["a", "c"]));
        let file = read(&port("a"), "{ path = [\"a\", \"a\"] }");
        let d = crate::wired::entries(&file, true).unwrap_err();
        assert_eq!((d.value.as_deref(), d.file.is_some(), d.remedy.is_some()), (Some("a"), true, true));
    }
}
