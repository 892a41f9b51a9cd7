//! Generators: the built-in packet generator, and other programs in its place.

pub(crate) mod capture_timing;
mod external;
pub(crate) mod packet_generator;
pub(crate) mod packet_source;
pub(crate) mod schedule;
pub(crate) mod unnumbered;

pub use external::{ExternalGenerator, Generator};
pub use packet_source::PacketSource;
