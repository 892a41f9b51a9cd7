//! Types and checks that the settings of several NFs share.

pub(crate) mod line_file;
mod mac;
mod network;
pub(crate) mod port_list;

pub use mac::Mac;
pub use network::Net;
