//! How a packet leaves a chain of operators before its end.

/// The result of an operator that ends the processing of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The packet skips the remaining operators and stays in the batch.
    Pass,
    /// The packet is dropped for the reason with this index.
    Drop(u8),
    /// The packet is emitted to the output with this index.
    Emit(u8),
}
