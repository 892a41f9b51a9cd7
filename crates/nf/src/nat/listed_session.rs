//! A session as requests list it.

use super::flow::Flow;
use super::sessions::SessionState;
use control::NatSession;
use graph::Named;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use wire::IpProtocol;

/// A session as it is read in a visit.
pub(super) struct ListedSession {
    /// Flow of untranslated packets from inside.
    pub(super) flow: Flow,
    pub(super) host: IpAddr,
    pub(super) external: (u32, u16),
    pub(super) state: SessionState,
    pub(super) expires_s: u64,
}

impl ListedSession {
    pub(super) fn inside(&self) -> SocketAddr {
        (self.host, self.flow.src_port).into()
    }

    pub(super) fn external(&self) -> SocketAddr {
        (Ipv4Addr::from_bits(self.external.0), self.external.1).into()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        (Ipv4Addr::from_bits(self.flow.dst), self.flow.dst_port).into()
    }
}

impl From<&ListedSession> for NatSession {
    fn from(session: &ListedSession) -> Self {
        NatSession {
            protocol: match IpProtocol(session.flow.protocol) {
                IpProtocol::TCP => "tcp".to_owned(),
                IpProtocol::UDP => "udp".to_owned(),
                IpProtocol::ICMPV4 => "icmp".to_owned(),
                IpProtocol(number) => number.to_string(),
            },
            inside: session.inside().to_string(),
            outside: session.external().to_string(),
            peer: session.peer().to_string(),
            state: session.state.name().to_owned(),
            expires_s: session.expires_s,
        }
    }
}
