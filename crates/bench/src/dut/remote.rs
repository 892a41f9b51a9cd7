//! Devices on a remote host: Bondstone starts itself there by ssh as an agent, which runs the driver.

mod agent;
mod connection;
mod device;
mod message;

pub use agent::agent;
pub(crate) use connection::AgentConnection;
pub(crate) use device::RemoteDevice;
pub(crate) use message::Request;
