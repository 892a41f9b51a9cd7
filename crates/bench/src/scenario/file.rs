//! The file as it is written, every value that can be wrong with its place.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// A value that may be a number, a text, or a list of such.
pub(super) type Any = Spanned<Value>;
/// For some facts, the values that are meant.
pub(super) type Where = BTreeMap<Spanned<String>, Any>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) bondstone: Option<Spanned<i64>>,
    pub(super) scenario: Head,
    pub(super) dut: Dut,
    #[serde(default)]
    pub(super) traffic: Traffic,
    #[serde(default)]
    pub(super) goal: Goal,
    #[serde(default)]
    pub(super) matrix: BTreeMap<Spanned<String>, Any>,
    pub(super) native: Option<Native>,
    #[serde(default)]
    pub(super) published: Vec<Spanned<Published>>,
    #[serde(default)]
    pub(super) claim: Vec<Spanned<Claim>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) title: Spanned<String>,
    pub(super) figure: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dut {
    pub(super) chain: Spanned<String>,
    #[serde(default)]
    pub(super) needs: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Traffic {
    pub(super) frames: Option<Spanned<String>>,
    pub(super) flows: Option<Spanned<u32>>,
    pub(super) order: Option<Spanned<String>>,
    pub(super) capture: Option<Spanned<String>>,
    pub(super) trace: Option<Spanned<String>>,
    pub(super) stack: Option<Spanned<String>>,
    pub(super) short: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) throughput: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Native {
    pub(super) only: Spanned<String>,
    pub(super) pairs: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) id: Spanned<String>,
    pub(super) figure: Option<String>,
    pub(super) table: Option<String>,
    pub(super) value: Option<Spanned<f64>>,
    pub(super) unit: Option<String>,
    pub(super) conditions: Option<String>,
    pub(super) statement: Option<String>,
    #[serde(default)]
    pub(super) image: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) says: Spanned<String>,
    pub(super) published: Spanned<String>,
    pub(super) note: Option<String>,
    pub(super) measure: Option<Spanned<String>>,
    #[serde(default, rename = "where")]
    pub(super) facts: Where,
    pub(super) over: Option<Spanned<Where>>,
    pub(super) within: Option<Spanned<f64>>,
    pub(super) at_least: Option<Spanned<f64>>,
    pub(super) at_most: Option<Spanned<f64>>,
    pub(super) given: Option<Spanned<String>>,
    pub(super) untestable: Option<Spanned<String>>,
}
