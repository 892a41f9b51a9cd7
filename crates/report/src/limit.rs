//! Size limits of documents, which may come from untrusted sources.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Maximum size of a document, bytes.
pub const DOCUMENT_BYTES: usize = 16 << 20;
/// Maximum number of values (members, elements) of a document.
pub const VALUES: usize = 500_000;
/// Largest number: 2^53 - 1, up to which every JSON reader represents integers exactly (RFC 7493 §2.2).
pub const COUNT: u64 = (1 << 53) - 1;
/// Maximum length of a name, characters.
pub const NAME: usize = 256;
/// Maximum length of free text, characters.
pub const TEXT: usize = 4096;
/// Maximum length of a chain file, characters.
pub const CHAIN: usize = 256 << 10;
/// Maximum length of a profile script, characters.
pub const SCRIPT: usize = 64 << 10;
/// Maximum length of a histogram, base64 characters.
pub const HDR: usize = 128 << 10;
/// Maximum number of trials.
pub const TRIALS: usize = 4096;
/// Maximum number of loads at which latency was measured.
pub const LATENCIES: usize = 64;
/// Maximum number of VNFs.
pub const VNFS: usize = 256;
/// Maximum number of quantities.
pub const QUANTITIES: usize = 256;
/// Maximum number of curves.
pub const SERIES: usize = 16;
/// Maximum number of points of a curve.
pub const POINTS: usize = 10_000;
/// Maximum number of phases of a trial.
pub const PHASES: usize = 64;
/// Maximum number of streams of a profile.
pub const STREAMS: usize = 64;
/// Maximum number of per-second counters of all streams of a profile together.
pub const STREAM_SECONDS: usize = 20_000;
/// Maximum number of nodes.
pub const NODES: usize = 1024;
/// Maximum number of drop reasons of a node.
pub const REASONS: usize = 256;
/// Maximum number of deviations from the method.
pub const DEVIATIONS: usize = 64;
/// Maximum number of NFs, and of ports.
pub const PARTS: usize = 1024;
/// Maximum number of header fields that change from packet to packet.
pub const FIELDS: usize = 16;
/// Maximum number of CPUs.
pub const CPUS: usize = 4096;
/// Maximum number of frame sizes of a mix.
pub const SIZES: usize = 256;
/// Maximum number of parameters of a cell, and of extra facts of an environment.
pub const FACTS: usize = 64;

/// Returns the maximum length of a string member, characters.
pub(crate) fn text(member: &str) -> usize {
    match member {
        "latency_hdr" | "lateness_hdr" | "late_hdr" => HDR,
        "chain" => CHAIN,
        "script" => SCRIPT,
        "deviations" | "command" | "extra" | "more" | "vary" => TEXT,
        _ => NAME,
    }
}

/// Deserialises a list of up to `MAX` elements; fails at the first element beyond.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MAX: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} elements")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut out = Vec::new();
            while let Some(element) = seq.next_element()? {
                if out.len() == MAX {
                    return Err(de::Error::invalid_length(MAX + 1, &self));
                }
                out.push(element);
            }
            Ok(out)
        }
    }
    deserializer.deserialize_seq(List::<T, MAX>(PhantomData))
}

/// Deserialises a map of up to `MAX` distinct entries; fails at the first entry beyond.
pub(crate) fn map<'de, D, T, const MAX: usize>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Map<T, const MAX: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Map<T, MAX> {
        type Value = BTreeMap<String, T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a map of at most {MAX} entries")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut out = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                if out.len() == MAX {
                    return Err(de::Error::invalid_length(MAX + 1, &self));
                }
                if out.contains_key(&name) {
                    return Err(de::Error::custom(format_args!("duplicate entry `{}`", name.escape_debug())));
                }
                out.insert(name, value);
            }
            Ok(out)
        }
    }
    deserializer.deserialize_map(Map::<T, MAX>(PhantomData))
}
