//! The file as it is written, every value with its place.

use crate::wall::{Idle, Over};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeTable;

/// All of the file but its `[nf]` tables, which each kind of NF reads by itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) bondstone: Option<Spanned<i64>>,
    #[serde(default)]
    pub(crate) port: BTreeMap<Spanned<String>, Port>,
    #[serde(default)]
    pub(crate) chain: Vec<Spanned<Chain>>,
    #[serde(default)]
    pub(crate) edge: Vec<Edge>,
    pub(crate) traffic: Option<Spanned<Traffic>>,
    #[serde(default)]
    pub(crate) wall: BTreeMap<Spanned<String>, Wall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) device: Spanned<String>,
    pub(crate) descriptors: Option<Spanned<u16>>,
    pub(crate) repeat: Option<Spanned<u64>>,
    pub(crate) timed: Option<Spanned<bool>>,
    pub(crate) wall: Option<Spanned<String>>,
}

#[derive(Deserialize)]
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
}

/// What a wall's process may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wall {
    #[serde(default)]
    pub(crate) cores: Vec<Spanned<usize>>,
    pub(crate) memory_mib: Option<Spanned<u64>>,
    pub(crate) idle: Option<Idle>,
    pub(crate) transport: Option<Spanned<String>>,
    pub(crate) interfaces: Option<Spanned<usize>>,
    pub(crate) queues: Option<Spanned<usize>>,
    #[serde(default)]
    pub(crate) spread: Over,
}

/// How the packets of a chain that begins with an NF's output are spread over its cores.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// Both directions of a flow to one core.
    #[default]
    Flow,
    /// To the core of the number that the NF has noted ([`graph::ShuffleTo`]).
    Noted,
}

/// What becomes of the packets that come to an NF which has panicked, until it has been built anew.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnPanic {
    /// They are dropped.
    #[default]
    Closed,
    /// They pass.
    Open,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
}

/// What a benchmark sends: the `[traffic]` table, which a plain run leaves alone. Every key may be left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Port that packets go into; the first chain's, if left out.
    pub into: Option<String>,
    /// Source MAC address of the frames.
    pub src_mac: Option<String>,
    /// Destination MAC address of the frames: that of a router's interface, where there is one.
    pub dst_mac: Option<String>,
    /// Source addresses, a prefix.
    pub src: Option<String>,
    /// Destination addresses, prefixes.
    pub dst: Vec<String>,
    /// A file whose first words are further prefixes of destinations, plain or gzipped: a router's file of routes.
    pub prefixes: Option<String>,
    /// Destination port.
    pub dst_port: Option<u16>,
}

/// The `[nf]` tables, taken out of the rest.
pub(crate) fn take_nfs<'i>(table: &mut DeTable<'i>) -> Option<Spanned<toml::de::DeValue<'i>>> {
    table.remove("nf")
}
