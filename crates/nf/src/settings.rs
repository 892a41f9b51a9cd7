//! Types and checks that the settings of several NFs share.

mod dscp;
pub(crate) mod line_file;
mod mac;
mod network;
pub(crate) mod port_list;
mod range;

pub(crate) use dscp::Dscp;
pub use mac::Mac;
pub use network::Net;
pub(crate) use range::in_range;
