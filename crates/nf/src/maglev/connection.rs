//! The value of a connection in the tables.

use serde::{Deserialize, Serialize};

/// Number that is not a destination.
const NO_DESTINATION: u32 = u32::MAX;
/// First value of [`Connection::destination`] of a fragment that is a reply: the number of the reply rewrite is added.
pub(super) const FIRST_REPLY: u32 = 1 << 31;

/// Destination of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub(super) struct Connection {
    /// Number of the destination, or [`NO_DESTINATION`] if no backend was up.
    pub(super) destination: u32,
    /// Generation of the number. Another one than that of the destination means that the backend has been removed.
    pub(super) generation: u32,
}

impl Connection {
    pub(super) const NONE: Connection = Connection { destination: NO_DESTINATION, generation: 0 };
}
