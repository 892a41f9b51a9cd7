//! Classes of packets.

use super::headers::Headers;
use crate::settings::Dscp;
use crate::{Application, Net};
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use wire::IpProtocol;

/// Largest number of classes of an NF.
pub(super) const MAX_CLASSES: usize = 64;
/// Largest number of matches of all classes: they are searched in order for each packet.
const MAX_MATCHES: usize = 256;

/// Conditions that a packet of a class meets, all of those that are given.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Match {
    /// DSCPs, of which the packet has one: numbers, or names such as "ef" and "af11".
    dscp: Vec<Dscp>,
    /// Network that contains the source address.
    src: Option<Net>,
    /// Network that contains the destination address.
    dst: Option<Net>,
    /// Protocol behind IPv6 extension headers: `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, `gre`, `esp`, or a number from 0
    /// to 255.
    protocol: Option<Protocol>,
    /// Source port of TCP or UDP, or a range such as "1024-65535". Fragments have no ports.
    src_port: Option<Ports>,
    /// Destination port of TCP or UDP, or a range.
    dst_port: Option<Ports>,
    /// Application protocols, such as `dns` and `tls`, of which a classifier in front has found one.
    application: Vec<String>,
}

/// Number or text in settings.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    fn into_text(self) -> String {
        match self {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        }
    }
}

/// An IP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "NumberOrText", into = "u8")]
#[schemars(with = "NumberOrText")]
struct Protocol(u8);

impl TryFrom<NumberOrText> for Protocol {
    type Error = String;

    fn try_from(text: NumberOrText) -> Result<Self, String> {
        let text = text.into_text();
        let protocol = match text.as_str() {
            "tcp" => Some(IpProtocol::TCP.0),
            "udp" => Some(IpProtocol::UDP.0),
            "icmp" => Some(1),
            "icmpv6" => Some(58),
            "gre" => Some(47),
            "esp" => Some(50),
            "sctp" => Some(132),
            number => number.parse().ok(),
        };
        let expected = "expected tcp, udp, icmp, icmpv6, sctp, gre, esp or 0 to 255";
        protocol.map(Protocol).ok_or(format!("invalid value: {text:?} is not a protocol, {expected}"))
    }
}

impl From<Protocol> for u8 {
    fn from(protocol: Protocol) -> u8 {
        protocol.0
    }
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "NumberOrText", into = "String")]
#[schemars(with = "NumberOrText")]
struct Ports {
    first: u16,
    last: u16,
}

impl TryFrom<NumberOrText> for Ports {
    type Error = String;

    fn try_from(text: NumberOrText) -> Result<Self, String> {
        let text = text.into_text();
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Ports { first, last }),
            _ => Err(format!("invalid value: {text:?} is not a port, expected one such as 443, or \"1024-65535\"")),
        }
    }
}

impl From<Ports> for String {
    fn from(Ports { first, last }: Ports) -> String {
        format!("{first}-{last}")
    }
}

impl Ports {
    fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// A match in the form in which packets are compared with it.
struct CompiledMatch {
    /// A bit for each DSCP that matches; all of them, and packets without, if there is no condition.
    dscp: Option<u64>,
    src: Option<Net>,
    dst: Option<Net>,
    protocol: Option<Protocol>,
    src_port: Option<Ports>,
    dst_port: Option<Ports>,
    /// A bit for each number of an application that matches.
    application: Option<u64>,
}

/// The largest number of an application has a bit.
const _: () = assert!((Application::ALL[Application::ALL.len() - 1].number() as u32) < u64::BITS);

impl CompiledMatch {
    fn new(settings: &Match) -> Result<Self, Diagnostic> {
        let Match { dscp, src, dst, protocol, src_port, dst_port, application } = settings;
        let dscp = (!dscp.is_empty()).then(|| dscp.iter().fold(0, |bits, dscp| bits | 1 << dscp.number()));
        let mut applications = None;
        for name in application {
            let application = Application::from_name(name).ok_or_else(|| {
                let names: Vec<_> = Application::ALL.iter().map(|application| application.name()).collect();
                let d = Diagnostic::new("is not an application protocol").key("classes").value(name);
                d.remedy(format!("write one of {}", names.join(", ")))
            })?;
            applications = Some(applications.unwrap_or(0) | 1 << application.number());
        }
        if let (Some(src), Some(dst)) = (src, dst)
            && src.0.addr().is_ipv4() != dst.0.addr().is_ipv4()
        {
            let d = Diagnostic::new("networks of different IP versions never match").key("classes").value(dst.0);
            return Err(d.remedy("write src and dst of the same version"));
        }
        let has_ports =
            protocol.is_none_or(|protocol| matches!(IpProtocol(protocol.0), IpProtocol::TCP | IpProtocol::UDP));
        if !has_ports && (src_port.is_some() || dst_port.is_some()) {
            let d = Diagnostic::new("only TCP and UDP have ports").key("classes").value(protocol.map_or(0, |p| p.0));
            return Err(d.remedy("write protocol = \"tcp\" or \"udp\", or remove src_port and dst_port"));
        }
        let (src, dst, protocol, src_port, dst_port) = (*src, *dst, *protocol, *src_port, *dst_port);
        Ok(CompiledMatch { dscp, src, dst, protocol, src_port, dst_port, application: applications })
    }

    fn matches(&self, headers: &Headers) -> bool {
        let bit_is_set = |bits: Option<u64>, number: Option<u32>| {
            bits.is_none_or(|bits| number.and_then(|number| bits.checked_shr(number)).is_some_and(|bits| bits & 1 != 0))
        };
        let in_net = |net: Option<Net>, address: IpAddr| net.is_none_or(|net| net.0.contains(&address));
        let tuple_matches = || match &headers.tuple {
            None => {
                self.src.is_none()
                    && self.dst.is_none()
                    && self.protocol.is_none()
                    && self.src_port.is_none()
                    && self.dst_port.is_none()
            }
            Some(tuple) => {
                let has_ports = matches!(tuple.protocol, IpProtocol::TCP | IpProtocol::UDP);
                let in_range = |ports: Option<Ports>, port| ports.is_none_or(|ports| has_ports && ports.contains(port));
                self.protocol.is_none_or(|protocol| protocol.0 == tuple.protocol.0)
                    && in_range(self.src_port, tuple.src_port)
                    && in_range(self.dst_port, tuple.dst_port)
                    && in_net(self.src, tuple.src)
                    && in_net(self.dst, tuple.dst)
            }
        };
        bit_is_set(self.dscp, headers.dscp.map(u32::from))
            && bit_is_set(self.application, Some(headers.classification.application.into()))
            && tuple_matches()
    }
}

/// Matches of all classes of an NF, in order.
pub(super) struct Classes {
    matches: Box<[(CompiledMatch, u8)]>,
    /// Class of all packets that match nothing: the first one without matches.
    others: Option<u8>,
}

impl Classes {
    /// Compiles the names and matches of classes. A class without matches receives all packets that no earlier class
    /// matches.
    ///
    /// # Errors
    /// A name is missing or used twice, a match is invalid, there are too many, or a class cannot receive packets.
    pub(super) fn new<'a>(classes: impl Iterator<Item = (&'a str, &'a [Match])>) -> Result<Self, Diagnostic> {
        let (mut names, mut matches, mut others) = (vec![], vec![], None::<u8>);
        for (class, (name, of_class)) in classes.enumerate() {
            let invalid =
                |problem: &str, remedy: &str| Err(Diagnostic::new(problem).key("classes").value(name).remedy(remedy));
            if class >= MAX_CLASSES {
                return invalid("too many classes", &format!("write at most {MAX_CLASSES} classes"));
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 32 || !name.chars().all(is_name) {
                return invalid(
                    "is not the name of a class",
                    "write name = \"...\" with 1 to 32 letters, digits, - or _ for each class",
                );
            }
            if names.contains(&name) {
                return invalid("names two classes", "give each class a name of its own");
            }
            if others.is_some() {
                return invalid(
                    "follows a class without matches, which receives all packets",
                    "write the class without matches last",
                );
            }
            names.push(name);
            if of_class.is_empty() {
                others = Some(class as u8);
            }
            for settings in of_class {
                matches.push((CompiledMatch::new(settings)?, class as u8));
            }
            if matches.len() > MAX_MATCHES {
                return invalid("too many matches", &format!("write at most {MAX_MATCHES} matches in all classes"));
            }
        }
        Ok(Classes { matches: matches.into(), others })
    }

    /// Returns the number of the first class that matches.
    #[inline(always)]
    pub(super) fn find(&self, headers: &Headers) -> Option<usize> {
        // a copy, so that fields which only matches need are not stored if there are none
        if self.matches.is_empty() { self.others.map(usize::from) } else { self.find_match(*headers) }
    }

    fn find_match(&self, headers: Headers) -> Option<usize> {
        let first = self.matches.iter().find(|(of_class, _)| of_class.matches(&headers));
        first.map(|(_, class)| *class).or(self.others).map(usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Classification;
    use testkit::wire::build;

    fn classes(text: &str) -> Result<Classes, String> {
        #[derive(Deserialize)]
        struct Class {
            name: String,
            #[serde(default, rename = "match")]
            matches: Vec<Match>,
        }
        #[derive(Deserialize)]
        struct All {
            classes: Vec<Class>,
        }
        let all: All = toml::from_str(text).map_err(|e| e.to_string())?;
        let classes = all.classes.iter().map(|class| (class.name.as_str(), class.matches.as_slice()));
        Classes::new(classes).map_err(|e| e.to_string())
    }

    fn find(classes: &Classes, frame: &[u8], application: u16) -> Option<usize> {
        let mut classification = Classification::default();
        classification.application = application;
        classes.find(&Headers::of_frame(frame, classification))
    }

    #[test]
    fn the_first_match_wins() {
        let classes = classes(
            r#"classes = [
              { name = "voice", match = [{ dscp = ["ef", 44] }, { protocol = "udp", dst_port = "5000-5010" }] },
              { name = "web", match = [{ protocol = 6, dst_port = 443, src = "10.0.0.0/8" }, { application = ["tls"] }] },
              { name = "six", match = [{ dst = "2001:db8::/32" }] },
              { name = "rest" },
            ]"#,
        )
        .unwrap();
        let udp = |port| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, port);
        let tcp = |src: [u8; 4]| build::tcp4(src, [10, 0, 0, 2], 1000, 443).to_vec();
        assert_eq!(find(&classes, &udp(1).dscp(46).to_vec(), 0), Some(0));
        assert_eq!(find(&classes, &udp(1).dscp(44).to_vec(), 0), Some(0));
        assert_eq!(find(&classes, &udp(5010).to_vec(), 0), Some(0));
        assert_eq!(find(&classes, &udp(5011).to_vec(), 0), Some(3));
        assert_eq!(find(&classes, &tcp([10, 9, 0, 1]), 0), Some(1));
        assert_eq!(find(&classes, &tcp([11, 9, 0, 1]), 0), Some(3));
        assert_eq!(find(&classes, &tcp([11, 9, 0, 1]), Application::Tls.number()), Some(1));
        let six = build::udp6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2], 1, 2).to_vec();
        assert_eq!(find(&classes, &six, 0), Some(2));
        assert_eq!(find(&classes, &[0; 60], 0), Some(3), "not IP");
        assert_eq!(find(&classes, &[0; 60], u16::MAX), Some(3), "unknown application");
    }

    #[test]
    fn packets_may_have_no_class() {
        let classes = classes(r#"classes = [{ name = "a", match = [{ dscp = [0] }] }]"#).unwrap();
        assert_eq!(find(&classes, &[0; 60], 0), None);
        assert_eq!(find(&classes, &build::udp4([1; 4], [2; 4], 1, 2).to_vec(), 0), Some(0));
    }

    #[test]
    fn rejects_invalid_classes() {
        for (text, problem) in [
            (r#"classes = [{ name = "" }]"#, "is not the name of a class"),
            (r#"classes = [{ name = "a b" }]"#, "is not the name of a class"),
            (r#"classes = [{ name = "a", match = [{}] }, { name = "a" }]"#, "names two classes"),
            (r#"classes = [{ name = "a" }, { name = "b" }]"#, "follows a class without matches"),
            (r#"classes = [{ name = "a", match = [{ application = ["x"] }] }]"#, "is not an application protocol"),
            (r#"classes = [{ name = "a", match = [{ src = "10.0.0.0/8", dst = "::/0" }] }]"#, "never match"),
            (r#"classes = [{ name = "a", match = [{ protocol = "gre", dst_port = 1 }] }]"#, "have ports"),
            (r#"classes = [{ name = "a", match = [{ protocol = 256 }] }]"#, "is not a protocol"),
            (r#"classes = [{ name = "a", match = [{ dst_port = "9-1" }] }]"#, "is not a port"),
            (r#"classes = [{ name = "a", match = [{ dst_port = 65536 }] }]"#, "is not a port"),
            (r#"classes = [{ name = "a", match = [{ dscp = [64] }] }]"#, "is not a DSCP"),
            (r#"classes = [{ name = "a", match = [{ port = 1 }] }]"#, "unknown field"),
        ] {
            let error = classes(text).err().unwrap_or_default();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let many: String = (0..65).map(|n| format!("{{ name = \"c{n}\", match = [{{}}] }},")).collect();
        assert!(classes(&format!("classes = [{many}]")).err().unwrap().contains("too many classes"));
    }
}
