//! Flow tables in saved state.

use graph::{InvalidState, StateReader, StateWriter};
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use tables::flow::{FlowKey, FlowTable, Lookup};

/// Flows that are inserted together, so that their cache misses overlap.
const BURST: usize = 32;

/// A key of a flow table, written in its packed form: all bytes of that length are a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedKey<K>(pub(crate) K);

impl<K: FlowKey<Packed: AsRef<[u8]>>> Serialize for SavedKey<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.pack().as_ref())
    }
}

struct PackedKey<K>(PhantomData<K>);

impl<K: FlowKey<Packed: for<'a> TryFrom<&'a [u8]>>> Visitor<'_> for PackedKey<K> {
    type Value = SavedKey<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a packed key")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<SavedKey<K>, E> {
        let packed = bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))?;
        Ok(SavedKey(K::unpack(&packed)))
    }
}

impl<'de, K: FlowKey<Packed: for<'a> TryFrom<&'a [u8]>>> Deserialize<'de> for SavedKey<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(PackedKey(PhantomData))
    }
}

/// Writes the flows of a table, with the times of their last packets.
pub(crate) fn save<K, V>(table: &FlowTable<K, V>, state: &mut StateWriter)
where
    K: FlowKey<Packed: AsRef<[u8]>>,
    V: Copy + Default + Serialize,
{
    state.push(&table.len());
    for (key, value, seen) in table.iter_seen(0..table.buckets()) {
        state.push(&(SavedKey(key), seen, value));
    }
}

/// Inserts flows that were [saved](save) into a table that has none, while there is room. `convert` returns the value in
/// this table, and `None` to leave the flow out.
///
/// # Errors
/// A flow cannot be read, is in the table already, or `convert` returns an error.
pub(crate) fn restore<K, S, V>(
    table: &mut FlowTable<K, V>,
    state: &mut StateReader<'_>,
    mut convert: impl FnMut(&K, S) -> Result<Option<V>, InvalidState>,
) -> Result<(), InvalidState>
where
    K: FlowKey<Packed: for<'a> TryFrom<&'a [u8]>>,
    S: DeserializeOwned,
    V: Copy + Default,
{
    let count = state.read::<usize>()?.ok_or(InvalidState)?;
    let mut burst = Vec::with_capacity(BURST);
    for n in 1..=count {
        let (SavedKey(key), seen, value) = state.read::<(SavedKey<K>, u32, S)>()?.ok_or(InvalidState)?;
        if let Some(value) = convert(&key, value)? {
            burst.push((table.prepare(key), seen, value));
        }
        if burst.len() == BURST || n == count {
            for (key, seen, value) in burst.drain(..) {
                if table.len() == table.capacity() {
                    continue;
                }
                let mut is_known = false;
                let insert = |_, found: Lookup<'_, V>| match found {
                    Lookup::New(new) => *new = value,
                    Lookup::Known(_) => is_known = true,
                    Lookup::Refused => {}
                };
                table.look_up_or_insert(&[key], seen, |_, _| {}, insert);
                if is_known {
                    return Err(InvalidState);
                }
            }
        }
    }
    Ok(())
}
