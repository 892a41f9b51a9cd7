//! Connection tracking.

pub(super) mod connection;
pub(super) mod packet;
mod saved_connections;
pub(super) mod settings;
pub(super) mod table;
