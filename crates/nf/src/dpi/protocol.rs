//! Recognition of application protocols by one message or by the first bytes of a stream.

mod amqp;
mod bgp;
mod bittorrent;
mod bytes;
mod der;
mod dhcp;
mod dns;
mod dtls;
mod ftp;
mod http;
mod imap;
mod ipsec;
mod kerberos;
mod ldap;
mod mqtt;
mod mysql;
mod netbios;
mod ntp;
mod openvpn;
mod pop3;
mod postgresql;
mod quic;
mod radius;
mod rdp;
mod redis;
mod rtcp;
mod rtp;
mod rtsp;
mod sip;
mod smb;
mod smtp;
mod snmp;
mod ssdp;
mod ssh;
mod stun;
mod tls;
mod wireguard;

use super::Application;

/// Result of a recogniser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The payload is a message of the protocol.
    Match,
    /// The payload is not a message of the protocol.
    NoMatch,
    /// The payload may be a message of the protocol; more bytes or another packet decide.
    NeedMore,
}

impl Verdict {
    /// Returns `Match` if a condition holds, otherwise `NoMatch`.
    fn of(condition: bool) -> Verdict {
        if condition { Verdict::Match } else { Verdict::NoMatch }
    }
}

/// Transport protocol of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// Bytes kept of the start of a payload.
const HEAD_BYTES: usize = 28;

/// The start of an earlier payload of a flow.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Head {
    bytes: [u8; HEAD_BYTES],
    kept: u8,
    /// Length of the whole payload in bytes, at most 65535.
    length: u16,
}

impl Head {
    pub(super) fn new(payload: &[u8]) -> Head {
        let kept = payload.len().min(HEAD_BYTES);
        let mut head = Head { kept: kept as u8, length: payload.len().min(0xffff) as u16, ..Head::default() };
        head.bytes[..kept].copy_from_slice(&payload[..kept]);
        head
    }

    /// Returns the bytes kept.
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.kept)).unwrap_or_default()
    }

    /// Returns true if there was no payload.
    fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Facts about a payload beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) transport: Transport,
    /// Source and destination port.
    pub(super) ports: [u16; 2],
    /// Start of the previous payload in the same direction.
    pub(super) previous: Head,
    /// Start of the last payload in the opposite direction.
    pub(super) peer: Head,
}

impl Context {
    /// Returns true if one of the ports is one of these.
    fn uses_port(&self, ports: &[u16]) -> bool {
        self.ports.iter().any(|port| ports.contains(port))
    }
}

/// A recogniser of one protocol.
pub(super) struct Recogniser {
    pub(super) application: Application,
    pub(super) tcp: bool,
    pub(super) udp: bool,
    /// Ports that the protocol uses by default: a hint of the order, and the guess if no payload decides.
    pub(super) ports: &'static [u16],
    pub(super) recognise: fn(&[u8], &Context) -> Verdict,
}

const fn tcp(application: Application, ports: &'static [u16], recognise: fn(&[u8], &Context) -> Verdict) -> Recogniser {
    Recogniser { application, tcp: true, udp: false, ports, recognise }
}

const fn udp(application: Application, ports: &'static [u16], recognise: fn(&[u8], &Context) -> Verdict) -> Recogniser {
    Recogniser { application, tcp: false, udp: true, ports, recognise }
}

const fn both(
    application: Application,
    ports: &'static [u16],
    recognise: fn(&[u8], &Context) -> Verdict,
) -> Recogniser {
    Recogniser { application, tcp: true, udp: true, ports, recognise }
}

/// All recognisers, at most 64. Of several that match the same payload the first decides, so protocols with long fixed
/// values precede those with few.
pub(super) static RECOGNISERS: &[Recogniser] = &[
    tcp(Application::Tls, &[443, 853, 465, 563, 636, 989, 990, 993, 995, 5061, 8443, 8883], tls::recognise),
    udp(Application::Quic, &[443, 80, 784, 853], quic::recognise),
    both(Application::BitTorrent, &[6881, 6882, 6883, 6889, 51413, 6771], bittorrent::recognise),
    tcp(Application::Rtsp, &[554, 8554], rtsp::recognise),
    both(Application::Sip, &[5060], sip::recognise),
    udp(Application::Ssdp, &[1900], ssdp::recognise),
    tcp(Application::Http, &[80, 8080, 8000, 3128], http::recognise),
    tcp(Application::Ssh, &[22], ssh::recognise),
    tcp(Application::Amqp, &[5672], amqp::recognise),
    tcp(Application::Bgp, &[179], bgp::recognise),
    udp(Application::Dhcp, &[67, 68, 546, 547], dhcp::recognise),
    udp(Application::Mdns, &[5353], dns::recognise_mdns),
    udp(Application::Llmnr, &[5355], dns::recognise_llmnr),
    both(Application::NetBios, &[137, 138, 139], netbios::recognise),
    both(Application::Smb, &[139, 445], smb::recognise),
    both(Application::Stun, &[3478, 3479, 5349, 19302], stun::recognise),
    udp(Application::Dtls, &[], dtls::recognise),
    both(Application::Dns, &[53], dns::recognise),
    udp(Application::Ntp, &[123], ntp::recognise),
    udp(Application::Snmp, &[161, 162], snmp::recognise),
    both(Application::Kerberos, &[88, 464], kerberos::recognise),
    both(Application::Ldap, &[389, 3268], ldap::recognise),
    tcp(Application::Rdp, &[3389], rdp::recognise),
    udp(Application::Ipsec, &[500, 4500], ipsec::recognise),
    udp(Application::Radius, &[1812, 1813, 1645, 1646, 3799], radius::recognise),
    udp(Application::WireGuard, &[51820], wireguard::recognise),
    both(Application::OpenVpn, &[1194], openvpn::recognise),
    tcp(Application::Redis, &[6379], redis::recognise),
    tcp(Application::PostgreSql, &[5432], postgresql::recognise),
    tcp(Application::Mysql, &[3306], mysql::recognise),
    tcp(Application::Mqtt, &[1883], mqtt::recognise),
    tcp(Application::Ftp, &[21], ftp::recognise),
    tcp(Application::Smtp, &[25, 587, 2525], smtp::recognise),
    tcp(Application::Pop3, &[110], pop3::recognise),
    tcp(Application::Imap, &[143], imap::recognise),
    udp(Application::Rtcp, &[], rtcp::recognise),
    udp(Application::Rtp, &[], rtp::recognise),
];
const _: () = assert!(RECOGNISERS.len() <= 64, "a set of recognisers is a u64");

/// Recognises a protocol by the first bytes of a stream or by a datagram; `NoMatch` if no recogniser has the protocol.
pub(crate) fn recognise(application: Application, payload: &[u8], transport: Transport, ports: [u16; 2]) -> Verdict {
    let context = Context { transport, ports, previous: Head::default(), peer: Head::default() };
    let recogniser = RECOGNISERS.iter().find(|recogniser| recogniser.application == application);
    recogniser.map_or(Verdict::NoMatch, |recogniser| (recogniser.recognise)(payload, &context))
}

pub(super) use http::host as http_host;
pub(super) use quic::{destination as quic_destination, read_initial as read_quic_initial};
pub(super) use tls::{client_hello_name, server_name as tls_server_name};

#[cfg(test)]
mod tests;
