//! Application protocols of packets.

mod application;

pub use application::Application;
