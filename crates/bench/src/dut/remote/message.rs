//! Messages between Bondstone and its agent on a remote host: one line of JSON each.

use crate::dut::context::{Description, DutError, ExpectedTraffic};
use crate::dut::spec::DutSpec;
use crate::trial::{Disturbance, DisturbanceReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use wire::MacAddr;

/// Largest message, bytes.
pub(crate) const MAX_MESSAGE_BYTES: u64 = 256 << 20;
/// Largest number of files of a chain.
const MAX_FILES: usize = 64;
/// Largest total size of the files of a chain, bytes.
const MAX_FILE_BYTES: usize = 64 << 20;

/// First message of the agent.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the agent.
    pub(crate) bondstone: String,
}

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
    /// Content of the files in hexadecimal, by name.
    files: BTreeMap<String, String>,
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

    /// Writes the files to a directory.
    ///
    /// # Errors
    /// If one cannot be written, or its name is not a plain file name.
    pub(crate) fn write_files(&self, folder: &Path) -> std::io::Result<()> {
        for (name, text) in &self.files {
            let bytes = unhex(text).filter(|_| Path::new(name).file_name().is_some_and(|n| n == name.as_str()));
            let bytes = bytes.ok_or_else(|| std::io::Error::other(format!("invalid file: {name:?}")))?;
            std::fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }
}

/// Reads the files in the directory of a chain whose names occur in its text.
fn read_files(spec: &DutSpec) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    let Some(chain) = &spec.chain else { return Ok(all) };
    let mut bytes = 0;
    for entry in std::fs::read_dir(&chain.folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if !chain.text.contains(&name) || !path.is_file() {
            continue;
        }
        bytes += path.metadata().map_or(0, |m| m.len() as usize);
        if bytes > MAX_FILE_BYTES || all.len() == MAX_FILES {
            let mib = MAX_FILE_BYTES >> 20;
            return Err(format!("files of the chain exceed {MAX_FILES} files or {mib} MiB"));
        }
        let content = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        all.insert(name, hex(&content));
    }
    Ok(all)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n & 15)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(*b)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|n| n as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dut::spec::{ChainText, CustomCommands, Env, Forward, Ports};

    #[test]
    fn hexadecimal_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)).unwrap(), all);
        assert!(unhex("0").is_none() && unhex("0g").is_none() && unhex("").is_some());
    }

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
        let mut start: StartRequest = serde_json::from_str(&serde_json::to_string(&start).unwrap()).unwrap();
        assert_eq!(start.traffic(), traffic);
        start.write_files(&folder.join("there")).unwrap();
        let written: Vec<_> =
            std::fs::read_dir(folder.join("there")).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(written, ["routes.csv"]);
        start.files.insert("../out".to_owned(), "00".to_owned());
        assert!(start.write_files(&folder.join("there")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
