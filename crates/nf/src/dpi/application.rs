//! Names and numbers of application protocols.

/// Name of flows whose application is not known.
pub(super) const UNKNOWN: &str = "unknown";

macro_rules! applications {
    ($($number:literal $variant:ident $name:literal)*) => {
        /// An application protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "the names of the protocols")]
        pub enum Application {
            $($variant = $number,)*
        }

        impl Application {
            /// All protocols.
            pub const ALL: &[Application] = &[$(Application::$variant,)*];

            /// Returns the name in settings and statistics: `tls`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Application::$variant => $name,)*
                }
            }

            /// Returns the protocol with this number.
            pub const fn from_number(number: u16) -> Option<Application> {
                match number {
                    $($number => Some(Application::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

applications! {
    1 Amqp "amqp"
    2 Bgp "bgp"
    3 BitTorrent "bittorrent"
    4 Dhcp "dhcp"
    5 Dns "dns"
    6 Ftp "ftp"
    7 Http "http"
    8 Imap "imap"
    9 Ipsec "ipsec"
    10 Kerberos "kerberos"
    11 Ldap "ldap"
    12 Mdns "mdns"
    13 Mqtt "mqtt"
    14 Mysql "mysql"
    15 Ntp "ntp"
    16 OpenVpn "openvpn"
    17 Pop3 "pop3"
    18 PostgreSql "postgresql"
    19 Quic "quic"
    20 Radius "radius"
    21 Rdp "rdp"
    22 Redis "redis"
    23 Rtp "rtp"
    24 Rtsp "rtsp"
    25 Sip "sip"
    26 Smb "smb"
    27 Smtp "smtp"
    28 Snmp "snmp"
    29 Ssdp "ssdp"
    30 Ssh "ssh"
    31 Stun "stun"
    32 Tls "tls"
    33 WireGuard "wireguard"
    34 Dtls "dtls"
    35 Rtcp "rtcp"
    36 NetBios "netbios"
    37 Llmnr "llmnr"
}

impl Application {
    /// Returns the protocol with this name.
    pub fn from_name(name: &str) -> Option<Application> {
        Self::ALL.iter().find(|application| application.name() == name).copied()
    }

    /// Returns its number, which is never 0.
    pub const fn number(self) -> u16 {
        self as u16
    }
}
