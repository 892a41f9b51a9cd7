//! Connection tracking.

pub(super) mod connection;
pub(super) mod packet;
pub(super) mod settings;
pub(super) mod table;
