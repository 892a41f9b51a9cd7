//! Reassembly and rewriting of byte streams inside a network function.
//!
//! [`window()`] passes the bytes of a TCP connection, in order, or the datagrams of a UDP flow to a closure and forwards the
//! packets unchanged. [`packetize()`] lets a closure rewrite the bytes of a TCP connection and sends the result in new segments.
#![forbid(unsafe_code)]

mod counts;
pub mod packetize;
pub mod window;

pub use packetize::packetize;
pub use window::window;
