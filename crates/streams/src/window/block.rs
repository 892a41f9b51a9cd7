//! Blocks of stream memory.

/// Bytes of a block: the payload of a full Ethernet frame over IPv4 or IPv6.
pub(crate) const BLOCK: usize = 1472;

pub(crate) type Block = Box<[u8; BLOCK]>;
