//! Selection of sessions by address, port and protocol.

use super::listed_session::ListedSession;
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use wire::IpProtocol;

/// Most terms of a filter.
const TERMS_MAX: usize = 16;

/// Conditions that a session meets all.
pub(super) struct SessionFilter(Vec<Term>);

enum Term {
    Protocol(u8),
    /// A network of the inside host, the peer or the external address.
    Net(IpNet),
    /// An address and port of one of them.
    Endpoint(SocketAddr),
    /// A port of one of them.
    Port(u16),
}

impl SessionFilter {
    /// Parses terms such as `tcp`, `10.0.0.0/8`, `2001:db8::1`, `198.51.100.7:443` and `:443`.
    ///
    /// # Errors
    /// The first invalid term.
    pub(super) fn parse(terms: &[String]) -> Result<Self, Diagnostic> {
        if terms.len() > TERMS_MAX {
            let d = Diagnostic::new("terms are more than a filter can have").value(terms.len());
            return Err(d.remedy(format!("write at most {TERMS_MAX}")));
        }
        terms.iter().map(|term| parse_term(term)).collect::<Result<_, _>>().map(SessionFilter)
    }

    /// Returns true if a session meets all conditions.
    pub(super) fn matches(&self, session: &ListedSession) -> bool {
        let ends = [session.inside(), session.external(), session.peer()];
        self.0.iter().all(|term| match term {
            Term::Protocol(protocol) => session.flow.protocol == *protocol,
            Term::Net(net) => ends.iter().any(|end| net.contains(&end.ip())),
            Term::Endpoint(endpoint) => ends.contains(endpoint),
            Term::Port(port) => ends.iter().any(|end| end.port() == *port),
        })
    }
}

fn parse_term(term: &str) -> Result<Term, Diagnostic> {
    let term = term.trim();
    let protocol = match term {
        "tcp" => Some(IpProtocol::TCP),
        "udp" => Some(IpProtocol::UDP),
        "icmp" => Some(IpProtocol::ICMPV4),
        _ => None,
    };
    let port = || term.strip_prefix(':').and_then(|port| port.parse().ok()).map(Term::Port);
    let net = || term.parse().ok().or_else(|| term.parse::<IpAddr>().ok().map(IpNet::from)).map(Term::Net);
    protocol
        .map(|protocol| Term::Protocol(protocol.0))
        .or_else(port)
        .or_else(net)
        .or_else(|| term.parse().ok().map(Term::Endpoint))
        .ok_or_else(|| {
            let remedy = "write tcp, udp, icmp, an address, a network, ADDRESS:PORT, [ADDRESS]:PORT or :PORT";
            Diagnostic::new("is not a filter of sessions").value(term).remedy(remedy)
        })
}
