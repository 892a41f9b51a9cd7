//! Forwarding by MAC address: a learning bridge, and forwarding by configured addresses.

mod bridge;
mod l2fwd;
mod output_split;

pub use bridge::Bridge;
pub use l2fwd::L2fwd;
