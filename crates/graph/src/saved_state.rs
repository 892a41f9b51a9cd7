//! The state of a node in a form that leaves its process.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Records that a node [saves](crate::Node::save).
#[derive(Debug, Default)]
pub struct StateWriter(Vec<u8>);

impl StateWriter {
    /// Appends a record.
    ///
    /// # Panics
    /// If the record contains a sequence of unknown length.
    pub fn push(&mut self, record: &impl Serialize) {
        let bytes = core::mem::take(&mut self.0);
        self.0 = postcard::to_extend(record, bytes).expect("sequences in records have known lengths");
    }

    /// Returns the records as bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Records that a node [restores](crate::Node::restore).
///
/// ```
/// use graph::{InvalidState, StateReader, StateWriter};
///
/// let mut writer = StateWriter::default();
/// writer.push(&(7_u32, true));
/// let bytes = writer.into_bytes();
/// let mut reader = StateReader::new(&bytes);
/// assert_eq!(reader.read()?, Some((7_u32, true)));
/// assert_eq!(reader.read::<(u32, bool)>()?, None);
/// # Ok::<(), InvalidState>(())
/// ```
#[derive(Debug)]
pub struct StateReader<'a>(&'a [u8]);

impl<'a> StateReader<'a> {
    /// Returns a reader of the bytes of a [`StateWriter`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        StateReader(bytes)
    }

    /// Reads the next record; returns `None` at the end.
    ///
    /// # Errors
    /// The bytes are no record of this type.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, InvalidState> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (record, rest) = postcard::take_from_bytes(self.0).map_err(|_| InvalidState)?;
        self.0 = rest;
        Ok(Some(record))
    }
}

/// The error for a state that this version of a node has not saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved state is not valid")]
pub struct InvalidState;
