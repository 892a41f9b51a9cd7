//! Messages between Bondstone and its agent on a remote host: one line of JSON each.

use crate::dut::context::{Description, DutError, ExpectedTraffic};
use crate::dut::spec::DutSpec;
use crate::trial::{Disturbance, DisturbanceReport};
use ::remote::Files;
use serde::{Deserialize, Serialize};
use std::fs::DirEntry;
use wire::MacAddr;

/// A request to the agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Start this device; the first request, sent once.
    Start(Box<StartRequest>),
    /// Report whether the device still runs.
    Check,
    /// Disturb the device.
    Disturb(Disturbance),
    /// Stop the disturbance.
    StopDisturbance,
    /// Nothing; shows that the sender still runs.
    KeepAlive,
}

/// A response of the agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The device runs.
    Running(Box<Description>),
    /// The disturbance has ended.
    Disturbed(DisturbanceReport),
    /// The request failed, or the device has ended.
    Failed {
        /// Problem.
        problem: String,
        /// Remedy.
        remedy: String,
    },
}

impl From<DutError> for Response {
    fn from(e: DutError) -> Response {
        Response::Failed { problem: e.problem, remedy: e.remedy }
    }
}

/// A device to be started, with the files that its chain names.
#[derive(Serialize, Deserialize)]
pub(crate) struct StartRequest {
    pub(crate) name: String,
    pub(crate) spec: DutSpec,
    dst_mac: [u8; 6],
    longest_frame: usize,
    destinations: Vec<String>,
    trace: Option<String>,
    pub(crate) files: Files,
}

impl StartRequest {
    /// Returns the request for a spec.
    ///
    /// # Errors
    /// If a file of the chain cannot be read, or the files are too many or too large.
    pub(crate) fn new(name: &str, spec: DutSpec, traffic: &ExpectedTraffic) -> Result<StartRequest, String> {
        Ok(StartRequest {
            name: name.to_owned(),
            files: read_files(&spec)?,
            spec,
            dst_mac: traffic.dst_mac.0,
            longest_frame: traffic.longest_frame,
            destinations: traffic.destinations.clone(),
            trace: traffic.trace.map(|t| t.to_string()),
        })
    }

    /// Returns the traffic that the device has to forward.
    pub(crate) fn traffic(&self) -> ExpectedTraffic {
        ExpectedTraffic {
            dst_mac: MacAddr(self.dst_mac),
            longest_frame: self.longest_frame,
            destinations: self.destinations.clone(),
            trace: self.trace.as_ref().and_then(|t| t.parse().ok()),
        }
    }
}

/// Reads the files in the directory of a chain whose names occur in its text.
fn read_files(spec: &DutSpec) -> Result<Files, String> {
    let Some(chain) = &spec.chain else { return Ok(Files::default()) };
    let entries = std::fs::read_dir(&chain.folder).into_iter().flatten().flatten();
    let is_named = |entry: &DirEntry| chain.text.contains(&*entry.file_name().to_string_lossy());
    let paths = entries.filter(is_named).map(|entry| entry.path()).filter(|path| path.is_file());
    Files::read(&chain.folder, paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut::spec::{ChainText, CustomCommands, Env, Forward, Ports};

    #[test]
    fn sends_only_files_named_by_the_chain() {
        let folder = std::env::temp_dir().join(format!("bondstone-message-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("there")).unwrap();
        std::fs::write(folder.join("routes.csv"), "10.0.0.0/8,a").unwrap();
        std::fs::write(folder.join("secret"), "x").unwrap();
        let text = "nf.r.routes = \"routes.csv\"".to_owned();
        let chain = ChainText {
            file: folder.join("chain.toml"),
            folder: folder.clone(),
            ports: vec![],
            text,
            has_sandboxes: false,
        };
        let spec = DutSpec {
            kind: "bondstone".to_owned(),
            ports: Ports::AfPacket,
            cpus: vec![1],
            env: Env::Native,
            forward: Forward::Ports,
            chain: Some(chain),
            commands: CustomCommands::default(),
            interfaces: vec![],
            remote: None,
        };
        let dst_mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let traffic = ExpectedTraffic { dst_mac, destinations: vec![], trace: "l3-10".parse().ok(), longest_frame: 60 };
        let start = StartRequest::new("dut", spec, &traffic).unwrap();
        let start: StartRequest = serde_json::from_str(&serde_json::to_string(&start).unwrap()).unwrap();
        assert_eq!(start.traffic(), traffic);
        start.files.write(&folder.join("there")).unwrap();
        let written: Vec<_> =
            std::fs::read_dir(folder.join("there")).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(written, ["routes.csv"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
