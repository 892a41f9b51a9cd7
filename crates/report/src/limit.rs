//! How much of anything a document may hold. Documents come from strangers.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Longest document that is read, bytes.
pub const DOCUMENT_BYTES: usize = 16 << 20;
/// Most values (members, elements) of a document that is read.
pub const VALUES: usize = 500_000;
/// Largest number: 2^53 - 1, up to which every JSON reader keeps counts exactly (RFC 7493 §2.2).
pub const COUNT: u64 = (1 << 53) - 1;
/// Longest name, characters.
pub const NAME: usize = 256;
/// Longest free text, characters.
pub const TEXT: usize = 4096;
/// Longest chain file, characters.
pub const CHAIN: usize = 256 << 10;
/// Longest script of a profile, characters.
pub const SCRIPT: usize = 64 << 10;
/// Longest histogram, base64 characters.
pub const HDR: usize = 128 << 10;
/// Most trials.
pub const TRIALS: usize = 4096;
/// Most loads at which latency was measured.
pub const LATENCIES: usize = 64;
/// Most quantities.
pub const QUANTITIES: usize = 256;
/// Most curves.
pub const SERIES: usize = 16;
/// Most points of a curve.
pub const POINTS: usize = 10_000;
/// Most phases of a trial.
pub const PHASES: usize = 64;
/// Most streams of a profile.
pub const STREAMS: usize = 64;
/// Most seconds that are told apart of all streams of a profile together.
pub const STREAM_SECONDS: usize = 20_000;
/// Most nodes.
pub const NODES: usize = 1024;
/// Most reasons for which one node drops.
pub const REASONS: usize = 256;
/// Most deviations from the method.
pub const DEVIATIONS: usize = 64;
/// Most NFs and most ports.
pub const PARTS: usize = 1024;
/// Most CPUs.
pub const CPUS: usize = 4096;
/// Most frame sizes of a mix.
pub const SIZES: usize = 256;
/// Most parameters of a cell, and most further facts of an environment.
pub const FACTS: usize = 64;

/// The longest text that a member of this name may hold, characters.
pub(crate) fn text(member: &str) -> usize {
    match member {
        "latency_hdr" | "late_hdr" => HDR,
        "chain" => CHAIN,
        "script" => SCRIPT,
        "deviations" | "command" | "more" => TEXT,
        _ => NAME,
    }
}

/// Reads a list of at most `MOST` elements; stops at the first beyond.
pub(crate) fn list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} elements")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut out = Vec::new();
            while let Some(element) = seq.next_element()? {
                if out.len() == MOST {
                    return Err(de::Error::invalid_length(MOST + 1, &self));
                }
                out.push(element);
            }
            Ok(out)
        }
    }
    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

/// Reads a map of at most `MOST` entries, none twice; stops at the first beyond.
pub(crate) fn map<'de, D, T, const MOST: usize>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Map<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Map<T, MOST> {
        type Value = BTreeMap<String, T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a map of at most {MOST} entries")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut out = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, T>()? {
                if out.len() == MOST {
                    return Err(de::Error::invalid_length(MOST + 1, &self));
                }
                if out.contains_key(&name) {
                    return Err(de::Error::custom(format_args!("duplicate entry `{}`", name.escape_debug())));
                }
                out.insert(name, value);
            }
            Ok(out)
        }
    }
    deserializer.deserialize_map(Map::<T, MOST>(PhantomData))
}
