//! Destination of the log.

use std::net::SocketAddr;

/// Server and protocol that events are sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogTarget {
    Syslog(SocketAddr),
    Ipfix(SocketAddr),
}

impl LogTarget {
    /// Parses the setting `log`: "192.0.2.1:514" or "ipfix://192.0.2.1:4739".
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("ipfix://") {
            Some(address) => address.parse().ok().map(LogTarget::Ipfix),
            None => text.parse().ok().map(LogTarget::Syslog),
        }
    }

    pub(super) fn address(self) -> SocketAddr {
        match self {
            LogTarget::Syslog(address) | LogTarget::Ipfix(address) => address,
        }
    }
}
