//! What is to be sent, as asked for.

use crate::flow_settings;
use crate::offered::Offered;
use crate::trace::Trace;
use chain::ChainFile;
use graph::Diagnostic;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use traffic::{FlowSettings, Flows, Mix, Order};

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
    },
    /// The frames of a capture file.
    Capture(PathBuf),
}

impl Sent {
    /// The names of its sorts of frames.
    pub fn names(&self) -> Vec<String> {
        match self {
            Sent::Made { frames, .. } => frames.iter().map(|(name, _)| name.clone()).collect(),
            Sent::Capture(path) => vec![path.file_name().unwrap_or_default().to_string_lossy().into_owned()],
        }
    }

    /// Makes it ready to be sent into a chain. Reading a capture, which may be long, ends when `stop` is set.
    ///
    /// # Errors
    /// A value of `[traffic]` that is none, flows or frames that cannot be, a file that is no capture; when stopped.
    pub fn ready(&self, file: &ChainFile, stop: &AtomicBool) -> Result<Vec<Offered>, Diagnostic> {
        match self {
            Sent::Made { frames, flows, order } => {
                let wrong = |what: &str, value: &str, problem: String| {
                    let cure = format!("change the {what}: --{what}, or [traffic] of a scenario or of the chain file");
                    Diagnostic::new(problem).value(value).cure(cure)
                };
                let settings = FlowSettings { order: *order, ..flow_settings(file, *flows)? };
                let flows = Flows::new(settings).map_err(|e| wrong("flows", &flows.to_string(), e.to_string()))?;
                let ready = |(name, mix): &(String, Mix)| {
                    Offered::made(name, &flows, mix).map_err(|e| wrong("frames", name, e.to_string()))
                };
                frames.iter().map(ready).collect()
            }
            Sent::Capture(path) => Ok(vec![Offered::captured(Trace::open(path, file, stop)?)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Registry;
    use std::path::Path;

    fn ready(frames: &str, flows: u32) -> Result<Vec<Offered>, Diagnostic> {
        let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\n";
        let file = ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap();
        let sent = Sent::Made { frames: crate::frames(frames).unwrap(), flows, order: Order::Uniform };
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
        assert!(offered.iter().all(|o| o.remarks().is_empty() && o.trace().is_none()));
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
}
