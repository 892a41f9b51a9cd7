//! Behaviour of idle workers.

/// The behaviour of a worker while no packets arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Poll, and after many polls without packets pause between polls.
    #[default]
    Pause,
    /// Poll without pauses.
    Poll,
    /// Yield the CPU to other threads between polls.
    Yield,
    /// Sleep until an rx interrupt.
    Sleep,
}
