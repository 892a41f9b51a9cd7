//! Results of classification that later NFs of a chain use.

use packet::Metadata;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Classification of a packet: metadata that classifiers set and schedulers, meters and `monitor` read. An NF that sets one
/// field keeps the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Classification {
    /// Number of the application protocol, 0 if it is not known.
    pub application: u16,
    /// Colour of a meter (RFC 2697 §3): 0 green, 1 yellow, 2 red.
    pub colour: u8,
    reserved: [u8; 5],
}

impl Metadata for Classification {
    const NAME: &'static str = "bondstone/classification";
}
