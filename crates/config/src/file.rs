//! Syntax of the chain file: every value with its span.

use crate::reader::Reader;
use crate::sandbox::{Idle, SpreadBy};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::DeTable;

/// The file except its `[nf]` tables, which are parsed by the kinds of NF.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) bondstone: Option<Spanned<i64>>,
    pub(crate) clock: Option<Spanned<Clock>>,
    pub(crate) max_frame: Option<Spanned<i64>>,
    pub(crate) idle: Option<Idle>,
    pub(crate) port: BTreeMap<Spanned<String>, Port>,
    pub(crate) chain: Vec<Spanned<Chain>>,
    pub(crate) edge: Vec<Edge>,
    pub(crate) traffic: Option<Spanned<Traffic>>,
    pub(crate) sandbox: BTreeMap<Spanned<String>, Sandbox>,
    pub(crate) host: BTreeMap<Spanned<String>, Host>,
    pub(crate) link: BTreeMap<Spanned<String>, HostLink>,
}

/// Devices of a link between two hosts, by host.
pub(crate) type HostLink = BTreeMap<String, Spanned<String>>;

/// The clock that NFs read.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// That of the machine.
    #[default]
    System,
    /// The timestamps of the captures that are read.
    Capture,
}

/// Parts of a file with errors, which may cause further ones.
#[derive(Default)]
pub(crate) struct Invalid {
    /// True if the format version is invalid.
    pub(crate) version: bool,
    /// Names of ports.
    pub(crate) ports: BTreeSet<String>,
    /// True if a chain or an edge is incomplete.
    pub(crate) paths: bool,
}

impl File {
    /// Reads a file without its `[nf]` tables. Invalid values are left out.
    pub(crate) fn read(mut table: DeTable<'_>, reader: &mut Reader<'_>) -> (File, Invalid) {
        let before = reader.errors.len();
        let misspelt = !table.contains_key("bondstone") && Reader::has_or_misspells(&table, "bondstone");
        let bondstone = table.remove("bondstone").and_then(|value| reader.value(value));
        let version = misspelt || reader.errors.len() != before;
        let clock = table.remove("clock").and_then(|value| reader.value(value));
        let max_frame = table.remove("max_frame").and_then(|value| reader.value(value));
        let idle = table.remove("idle").and_then(|value| reader.value(value));
        let remedy = "write [port.NAME] and below it device = \"...\"";
        let (port, ports) = reader.table("port", table.remove("port"), remedy);
        let before = reader.errors.len();
        let chain = reader.list("chain", table.remove("chain"), "write [[chain]]");
        let edge = reader.list("edge", table.remove("edge"), "write [[edge]]");
        let paths = reader.errors.len() != before;
        let traffic = table.remove("traffic").and_then(|value| {
            let span = value.span();
            Some(Spanned::new(span, reader.value(value)?))
        });
        let remedy = "write [sandbox.NAME] and below it its settings";
        let (sandbox, _) = reader.table("sandbox", table.remove("sandbox"), remedy);
        let (host, _) = reader.table("host", table.remove("host"), "write [host.NAME] and below it ssh = \"...\"");
        let remedy = "write [link.NAME] and below it the device of each of its two hosts: HOST = \"...\"";
        let (link, _) = reader.table("link", table.remove("link"), remedy);
        let keys = [
            "bondstone",
            "copies",
            "clock",
            "max_frame",
            "idle",
            "port",
            "nf",
            "chain",
            "edge",
            "traffic",
            "sandbox",
            "host",
            "link",
        ];
        reader.unknown_keys(&table, &keys);
        let edge = edge.into_iter().map(Spanned::into_inner).collect();
        let file = File { bondstone, clock, max_frame, idle, port, chain, edge, traffic, sandbox, host, link };
        (file, Invalid { version, ports, paths })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) device: Spanned<String>,
    pub(crate) descriptors: Option<Spanned<u16>>,
    pub(crate) repeat: Option<Spanned<u64>>,
    pub(crate) timed: Option<Spanned<bool>>,
    pub(crate) existing: Option<Spanned<bool>>,
    pub(crate) namespace: Option<Spanned<String>>,
    pub(crate) sandbox: Option<Spanned<String>>,
    pub(crate) host: Option<Spanned<String>>,
}

impl Port {
    pub(crate) fn new(device: Spanned<String>) -> Port {
        Port {
            device,
            descriptors: None,
            repeat: None,
            timed: None,
            existing: None,
            namespace: None,
            sandbox: None,
            host: None,
        }
    }
}

/// A host that runs a part of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) ssh: Spanned<String>,
    pub(crate) program: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chain {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) path: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(crate) cores: Vec<Spanned<usize>>,
    #[serde(default)]
    pub(crate) on_panic: OnPanic,
    pub(crate) shuffle: Option<Spanned<Shuffle>>,
    #[serde(default)]
    pub(crate) priority: u8,
    pub(crate) share: Option<Spanned<u32>>,
    pub(crate) rate: Option<Spanned<String>>,
    pub(crate) isolation: Option<Spanned<String>>,
    pub(crate) host: Option<Spanned<String>>,
}

impl Chain {
    pub(crate) fn new(name: Spanned<String>, path: Spanned<Vec<Spanned<String>>>) -> Chain {
        Chain {
            name: Some(name),
            path,
            cores: vec![],
            on_panic: OnPanic::default(),
            shuffle: None,
            priority: 0,
            share: None,
            rate: None,
            isolation: None,
            host: None,
        }
    }
}

/// Resources and interfaces of a sandbox.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sandbox {
    #[serde(default)]
    pub(crate) cores: Vec<Spanned<usize>>,
    pub(crate) memory_mib: Option<Spanned<u64>>,
    pub(crate) idle: Option<Idle>,
    pub(crate) transport: Option<Spanned<String>>,
    pub(crate) interfaces: Option<Spanned<usize>>,
    pub(crate) queues: Option<Spanned<usize>>,
    #[serde(default)]
    pub(crate) spread: SpreadBy,
}

/// Distribution of the packets of a chain that begins with an NF's output over its cores.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// Both directions of a flow go to one core.
    #[default]
    Flow,
    /// To the core that an NF chose by the operator `shuffle` ([`graph::ShuffleTo`]).
    Metadata,
}

/// Treatment of packets that reach an NF in quarantine.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnPanic {
    /// Packets are dropped.
    #[default]
    Closed,
    /// Packets bypass the NF.
    Open,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
}

/// Traffic of a benchmark: the `[traffic]` table, which `bondstone run` ignores. All keys are optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Port that receives the packets; by default that of the first chain.
    pub into: Option<String>,
    /// Source MAC address of the frames.
    pub src_mac: Option<String>,
    /// Destination MAC address of the frames, such as that of a router's interface, or several that flows have in turn.
    #[serde(deserialize_with = "one_or_several")]
    pub dst_mac: Vec<String>,
    /// Prefix of the source addresses.
    pub src: Option<String>,
    /// Prefixes of the destination addresses.
    pub dst: Vec<String>,
    /// File of further destination prefixes, the first word of each line, plain or gzipped; such as a file of routes.
    pub prefixes: Option<String>,
    /// Destination port.
    pub dst_port: Option<u16>,
}

/// Reads a text or a list of texts.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a list of texts")]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(match OneOrSeveral::deserialize(deserializer)? {
        OneOrSeveral::One(text) => vec![text],
        OneOrSeveral::Several(texts) => texts,
    })
}

/// Removes the `[nf]` tables from a file and returns them.
pub(crate) fn take_nfs<'i>(table: &mut DeTable<'i>) -> Option<Spanned<toml::de::DeValue<'i>>> {
    table.remove("nf")
}
