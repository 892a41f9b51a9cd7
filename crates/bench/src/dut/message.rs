//! What this program and the same one on another machine tell each other: a line of JSON each.

use super::{About, DutError, Plan, SentTo};
use crate::bed::{Act, Acted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use wire::MacAddr;

/// Bytes of a line.
pub(crate) const LONGEST: u64 = 256 << 20;
/// Files of a chain, and bytes of all of them.
const MOST_FILES: usize = 64;
const MOST_BYTES: usize = 64 << 20;

/// What the other side says first.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Its version.
    pub(crate) bondstone: String,
}

/// What it is told.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Start this device; comes first, and once.
    Start(Box<Start>),
    /// Does it still run?
    Check,
    /// Do something to it.
    Act(Act),
    /// Make an end of that.
    Halt,
    /// Nothing; who sends it is alive.
    Alive,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It runs, or still does.
    Runs(Box<About>),
    /// That was done.
    Acted(Acted),
    /// It cannot be, or is over.
    Wrong {
        /// What is wrong.
        problem: String,
        /// What mends it.
        remedy: String,
    },
}

impl From<DutError> for Answer {
    fn from(e: DutError) -> Answer {
        Answer::Wrong { problem: e.problem, remedy: e.remedy }
    }
}

/// A device to be started.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    dst_mac: [u8; 6],
    destinations: Vec<String>,
    trace: Option<String>,
    /// Files that the chain names, hexadecimal.
    files: BTreeMap<String, String>,
}

impl Start {
    /// Of a plan.
    ///
    /// # Errors
    /// When a file that the chain names cannot be read, or there is too much in them.
    pub(crate) fn new(name: &str, plan: Plan, sent: &SentTo) -> Result<Start, String> {
        Ok(Start {
            name: name.to_owned(),
            files: files(&plan)?,
            plan,
            dst_mac: sent.dst_mac.0,
            destinations: sent.destinations.clone(),
            trace: sent.trace.map(|t| t.to_string()),
        })
    }

    /// What it is to forward.
    pub(crate) fn sent(&self) -> SentTo {
        SentTo {
            dst_mac: MacAddr(self.dst_mac),
            destinations: self.destinations.clone(),
            trace: self.trace.as_ref().and_then(|t| t.parse().ok()),
        }
    }

    /// Writes the files into a folder.
    ///
    /// # Errors
    /// When one cannot be written, or has no name of a file.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        for (name, text) in &self.files {
            let bytes = unhex(text).filter(|_| Path::new(name).file_name().is_some_and(|n| n == name.as_str()));
            let bytes = bytes.ok_or_else(|| std::io::Error::other(format!("{name:?} is no file")))?;
            std::fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }
}

/// The files in a chain's folder whose names its text has.
fn files(plan: &Plan) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    let Some(chain) = &plan.chain else { return Ok(all) };
    let mut bytes = 0;
    for entry in std::fs::read_dir(&chain.folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if !chain.text.contains(&name) || !path.is_file() {
            continue;
        }
        bytes += path.metadata().map_or(0, |m| m.len() as usize);
        if bytes > MOST_BYTES || all.len() == MOST_FILES {
            return Err(format!("the chain's files are more than {MOST_FILES}, or than {} MiB", MOST_BYTES >> 20));
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
    use crate::dut::{ChainText, Env, Forward, Hooks, Kind, Ports};

    #[test]
    fn bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)).unwrap(), all);
        assert!(unhex("0").is_none() && unhex("0g").is_none() && unhex("").is_some());
    }

    #[test]
    fn a_chain_goes_with_its_files_and_no_others() {
        let folder = std::env::temp_dir().join(format!("bondstone-message-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("there")).unwrap();
        std::fs::write(folder.join("routes.csv"), "10.0.0.0/8,a").unwrap();
        std::fs::write(folder.join("secret"), "x").unwrap();
        let text = "nf.r.routes = \"routes.csv\"".to_owned();
        let chain = ChainText { file: folder.join("chain.toml"), folder: folder.clone(), ports: vec![], text };
        let plan = Plan {
            kind: Kind::Bondstone,
            ports: Ports::AfPacket,
            cpus: vec![1],
            env: Env::Native,
            forward: Forward::Ports,
            chain: Some(chain),
            hooks: Hooks::default(),
            inner: vec![],
            elsewhere: None,
        };
        let sent = SentTo { dst_mac: MacAddr([2, 0, 0, 0, 0, 1]), destinations: vec![], trace: "l3-10".parse().ok() };
        let start = Start::new("dut", plan, &sent).unwrap();
        let mut start: Start = serde_json::from_str(&serde_json::to_string(&start).unwrap()).unwrap();
        assert_eq!(start.sent(), sent);
        start.write(&folder.join("there")).unwrap();
        let written: Vec<_> =
            std::fs::read_dir(folder.join("there")).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(written, ["routes.csv"]);
        start.files.insert("../out".to_owned(), "00".to_owned());
        assert!(start.write(&folder.join("there")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
