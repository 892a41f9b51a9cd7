//! Ports between generator and device: namespaces, veth pairs, existing interfaces and sockets.

mod attachment;
mod links;
mod namespace;
mod passthrough;

pub(crate) use attachment::{Attachment, sockets};
pub(crate) use links::Links;
