//! The file as it is written, every value with its place.

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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Port {
    pub(crate) device: Spanned<String>,
    pub(crate) descriptors: Option<Spanned<u16>>,
    pub(crate) repeat: Option<Spanned<u64>>,
    pub(crate) timed: Option<Spanned<bool>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chain {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) path: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(crate) cores: Vec<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) from: Spanned<String>,
    pub(crate) to: Spanned<String>,
}

/// The `[nf]` tables, taken out of the rest.
pub(crate) fn take_nfs<'i>(table: &mut DeTable<'i>) -> Option<Spanned<toml::de::DeValue<'i>>> {
    table.remove("nf")
}
