//! The control socket: a UNIX socket by which a running instance is observed and operated.
//!
//! Requests and responses are JSON, one per line. The server sends a [`Hello`] to each client, and then one response
//! per request, in order. A stream follows the result of [`Request::Capture`] and [`Request::Trace`]. The permissions of
//! the socket decide who may use it: it is created with mode 0600, or 0660 for a group.
//!
//! ```
//! use control::{Client, Counters, Hello, Refusal, Request, Server};
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("edge.sock");
//! let hello = Hello::new("edge.toml".into());
//! let server = Server::start(&path, hello, |request: Request, _: &Counters| match request {
//!     Request::Stats {} => Ok(serde_json::json!({ "received": 7 }).into()),
//!     _ => Err(Refusal::new("is not possible in an example")),
//! })?;
//!
//! let mut client = Client::connect(&path)?;
//! assert_eq!(client.hello().file, "edge.toml");
//! let stats: serde_json::Value = client.call(&Request::Stats {})?;
//! assert_eq!(stats["received"], 7);
//! let refused = client.call::<serde_json::Value>(&Request::Stop { drain: None }).unwrap_err();
//! assert_eq!(refused.to_string(), "is not possible in an example");
//! assert!(Client::connect(&path.with_file_name("other.sock")).is_err());
//! # drop(server);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod client;
mod directory;
mod group;
pub mod line;
mod protocol;
mod server;
pub mod socket;

pub use client::{Client, ClientError, ResultStream, StreamEnder};
pub use directory::{directories, instances, own_socket, runtime_directory};
pub use group::Group;
pub use protocol::{
    Capture, CaptureStarted, DRAIN_MAX, Direction, Hello, LogLevels, MAX_LINE_LEN, MaglevBackend, MaglevBackends,
    MaglevDrained, NatClosed, NatSession, NatSessions, NextHop, Refusal, Request, Route, RouteChange, RoutesChanged,
    RoutesPage, RuleChange, RuleEntry, RulesChanged, RulesPage, Tenant, TenantDaemon, TenantInterface, Tenants,
    Upgraded, VERSION, schema,
};
pub use server::{Connection, Counters, MAX_CLIENTS, Reply, Server, Stream};
