//! Buffers of application protocols.

use super::bytes::{JumpFrom, Match, parse_pcre, without_captures};
use super::content::{Content, parse_bytes};
use super::number::Comparison;
use super::state::FlowOption;
use super::text::unquote;
use super::transform::Transform;
use std::time::SystemTime;

/// Application protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum AppProtocol {
    Http,
    Tls,
    Dns,
}

impl AppProtocol {
    pub(in crate::ids) const ALL: [AppProtocol; 3] = [AppProtocol::Http, AppProtocol::Tls, AppProtocol::Dns];

    /// Returns the name in rules and alerts.
    pub(in crate::ids) fn name(self) -> &'static str {
        match self {
            AppProtocol::Http => "http",
            AppProtocol::Tls => "tls",
            AppProtocol::Dns => "dns",
        }
    }

    pub(super) fn parse(name: &str) -> Option<AppProtocol> {
        match name {
            "http1" => Some(AppProtocol::Http),
            "ssl" => Some(AppProtocol::Tls),
            name => Self::ALL.into_iter().find(|protocol| protocol.name() == name),
        }
    }
}

/// Direction of the messages that contain a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
    Both,
}

macro_rules! fields {
    ($($variant:ident $protocol:ident $side:ident $name:literal [$($alias:literal)*] $modifier:tt $flag:tt)*) => {
        /// A buffer of an application protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::ids) enum Field {
            $($variant,)*
        }

        impl Field {
            /// Returns the buffer that a keyword in front of its options names.
            fn named(name: &str) -> Option<Field> {
                match name {
                    $($name $(| $alias)* => Some(Field::$variant),)*
                    _ => None,
                }
            }

            /// Returns the buffer that a keyword behind a content names.
            fn of_modifier(name: &str) -> Option<Field> {
                $(if $modifier == name { return Some(Field::$variant); })*
                None
            }

            /// Returns the buffer that a flag of `pcre` names.
            fn of_flag(flag: char) -> Option<Field> {
                $(if $flag == flag { return Some(Field::$variant); })*
                None
            }

            pub(in crate::ids) fn protocol(self) -> AppProtocol {
                match self {
                    $(Field::$variant => AppProtocol::$protocol,)*
                }
            }

            fn side(self) -> Side {
                match self {
                    $(Field::$variant => Side::$side,)*
                }
            }
        }
    };
}

// a space as the modifier and the flag: none
fields! {
    HttpMethod Http Request "http.method" [] "http_method" 'M'
    HttpUri Http Request "http.uri" [] "http_uri" 'U'
    HttpUriRaw Http Request "http.uri.raw" [] "http_raw_uri" 'I'
    HttpHost Http Request "http.host" [] "http_host" 'W'
    HttpHostRaw Http Request "http.host.raw" [] "http_raw_host" 'Z'
    HttpUserAgent Http Request "http.user_agent" [] "http_user_agent" 'V'
    HttpAccept Http Request "http.accept" ["http_accept"] " " ' '
    HttpAcceptLanguage Http Request "http.accept_lang" ["http_accept_lang"] " " ' '
    HttpAcceptEncoding Http Request "http.accept_enc" ["http_accept_enc"] " " ' '
    HttpReferer Http Request "http.referer" ["http_referer"] " " ' '
    HttpRequestLine Http Request "http.request_line" ["http_request_line"] " " ' '
    HttpRequestHeader Http Request "http.request_header" [] " " ' '
    HttpRequestBody Http Request "http.request_body" [] "http_client_body" 'P'
    HttpHeader Http Both "http.header" [] "http_header" 'H'
    HttpHeaderRaw Http Both "http.header.raw" [] "http_raw_header" 'D'
    HttpHeaderNames Http Both "http.header_names" ["http_header_names"] " " ' '
    HttpCookie Http Both "http.cookie" [] "http_cookie" 'C'
    HttpContentType Http Both "http.content_type" ["http_content_type"] " " ' '
    HttpContentLength Http Both "http.content_len" ["http_content_len"] " " ' '
    HttpConnection Http Both "http.connection" ["http_connection"] " " ' '
    HttpProtocol Http Both "http.protocol" ["http_protocol"] " " ' '
    HttpStart Http Both "http.start" ["http_start"] " " ' '
    FileData Http Both "file.data" ["file_data"] " " ' '
    HttpServer Http Response "http.server" ["http_server"] " " ' '
    HttpLocation Http Response "http.location" ["http_location"] " " ' '
    HttpStatusCode Http Response "http.stat_code" [] "http_stat_code" 'S'
    HttpStatusMessage Http Response "http.stat_msg" [] "http_stat_msg" 'Y'
    HttpResponseLine Http Response "http.response_line" ["http_response_line"] " " ' '
    HttpResponseHeader Http Response "http.response_header" [] " " ' '
    HttpResponseBody Http Response "http.response_body" [] "http_server_body" 'Q'
    TlsServerName Tls Request "tls.sni" ["tls_sni"] " " ' '
    Ja3Hash Tls Request "ja3.hash" ["ja3_hash"] " " ' '
    Ja3String Tls Request "ja3.string" ["ja3_string"] " " ' '
    Ja4Hash Tls Request "ja4.hash" [] " " ' '
    Ja3sHash Tls Response "ja3s.hash" [] " " ' '
    Ja3sString Tls Response "ja3s.string" [] " " ' '
    TlsRandom Tls Both "tls.random" [] " " ' '
    TlsRandomTime Tls Both "tls.random_time" [] " " ' '
    TlsRandomBytes Tls Both "tls.random_bytes" [] " " ' '
    TlsAlpn Tls Both "tls.alpn" [] " " ' '
    TlsSubject Tls Both "tls.cert_subject" ["tls_cert_subject"] " " ' '
    TlsIssuer Tls Both "tls.cert_issuer" ["tls_cert_issuer"] " " ' '
    TlsSerial Tls Both "tls.cert_serial" ["tls_cert_serial"] " " ' '
    TlsFingerprint Tls Both "tls.cert_fingerprint" ["tls_cert_fingerprint"] " " ' '
    TlsCertificates Tls Both "tls.certs" [] " " ' '
    TlsSubjectAltName Tls Both "tls.subjectaltname" [] " " ' '
    DnsQuery Dns Request "dns.query" ["dns_query"] " " ' '
    DnsQueryName Dns Both "dns.queries.rrname" ["dns.query.name"] " " ' '
    DnsAnswerName Dns Both "dns.answers.rrname" ["dns.answer.name"] " " ' '
    DnsAuthorityName Dns Both "dns.authorities.rrname" [] " " ' '
    DnsAdditionalName Dns Both "dns.additionals.rrname" [] " " ' '
    DnsResponseName Dns Response "dns.response.rrname" [] " " ' '
}

impl Field {
    /// Returns true if a message may have several buffers of the kind, each of which is inspected on its own.
    fn is_multiple(self) -> bool {
        matches!(
            self,
            Field::HttpRequestHeader
                | Field::HttpResponseHeader
                | Field::TlsAlpn
                | Field::TlsCertificates
                | Field::TlsSubjectAltName
                | Field::DnsQuery
                | Field::DnsQueryName
                | Field::DnsAnswerName
                | Field::DnsAuthorityName
                | Field::DnsAdditionalName
                | Field::DnsResponseName
        )
    }

    /// Returns true for the content of a message, which may be incomplete when it is inspected.
    pub(in crate::ids) fn is_body(self) -> bool {
        matches!(self, Field::HttpRequestBody | Field::HttpResponseBody | Field::FileData)
    }

    /// Returns true if messages in this direction can have the buffer.
    pub(in crate::ids) fn is_in(self, to_client: bool) -> bool {
        match self.side() {
            Side::Both => true,
            Side::Request => !to_client,
            Side::Response => to_client,
        }
    }

    /// Returns true if the buffer is part of a certificate.
    pub(in crate::ids) fn is_of_certificate(self) -> bool {
        matches!(
            self,
            Field::TlsSubject
                | Field::TlsIssuer
                | Field::TlsSerial
                | Field::TlsFingerprint
                | Field::TlsCertificates
                | Field::TlsSubjectAltName
        )
    }

    /// Returns the case of the letters of the buffer, if all have one.
    fn case(self) -> Option<fn(&mut [u8])> {
        match self {
            Field::Ja3Hash | Field::Ja3sHash | Field::TlsFingerprint => Some(<[u8]>::make_ascii_lowercase),
            Field::TlsSerial => Some(<[u8]>::make_ascii_uppercase),
            _ => None,
        }
    }
}

/// A set of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ids) struct Fields(u64);

impl Fields {
    #[cfg(test)]
    pub(in crate::ids) fn all() -> Self {
        Fields(u64::MAX)
    }

    pub(in crate::ids) fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }

    pub(in crate::ids) fn contains(self, field: Field) -> bool {
        self.0 & 1 << field as u32 != 0
    }
}

/// A number of a message that rules compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum NumberField {
    DnsOpcode,
    DnsResponseCode,
    DnsRecordType,
    TlsVersion,
    TlsChainLength,
    /// Seconds since 1970.
    TlsNotBefore,
    TlsNotAfter,
}

impl NumberField {
    fn protocol(self) -> AppProtocol {
        match self {
            NumberField::TlsVersion
            | NumberField::TlsChainLength
            | NumberField::TlsNotBefore
            | NumberField::TlsNotAfter => AppProtocol::Tls,
            _ => AppProtocol::Dns,
        }
    }

    /// Returns true for numbers that are read from a certificate.
    pub(in crate::ids) fn is_of_certificate(self) -> bool {
        matches!(self, NumberField::TlsNotBefore | NumberField::TlsNotAfter)
    }
}

/// Condition on a number of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ids) struct NumberCheck {
    pub(in crate::ids) field: NumberField,
    negated: bool,
    /// Comparisons of which one has to be true.
    any: Vec<Comparison>,
}

impl NumberCheck {
    pub(in crate::ids) fn matches(&self, value: u64) -> bool {
        self.any.iter().any(|comparison| comparison.matches(value)) != self.negated
    }

    /// Parses an option about a number; `None` if the name is that of another option.
    fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let compare = |field, max, names: &[(&str, u64)]| {
            let value = value.trim();
            let (negated, rest) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
            let known = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(rest)).map(|(_, n)| *n);
            let one = known.map_or_else(|| Comparison::parse(rest, max), |n| Ok(Comparison::Equal(n)));
            one.map(|one| NumberCheck { field, negated, any: vec![one] })
        };
        Some(match name {
            "dns.opcode" => compare(NumberField::DnsOpcode, 255, &[]),
            "dns.rcode" => compare(NumberField::DnsResponseCode, 65_535, RESPONSE_CODES),
            "dns.rrtype" => compare(NumberField::DnsRecordType, 65_535, RECORD_TYPES),
            "tls.cert_chain_len" => compare(NumberField::TlsChainLength, u32::MAX.into(), &[]),
            "tls.version" | "ssl_version" => tls_versions(value),
            "tls_cert_notbefore" => dates(NumberField::TlsNotBefore, value),
            "tls_cert_notafter" => dates(NumberField::TlsNotAfter, value),
            _ => return None,
        })
    }
}

/// Names of response codes (RFC 1035 §4.1.1, RFC 2136 §2.2).
const RESPONSE_CODES: &[(&str, u64)] = &[
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
];

/// Names of record types.
const RECORD_TYPES: &[(&str, u64)] = &[
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("NULL", 10),
    ("PTR", 12),
    ("HINFO", 13),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("NAPTR", 35),
    ("DS", 43),
    ("SSHFP", 44),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("TLSA", 52),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("AXFR", 252),
    ("ANY", 255),
];

/// Parses `DATE`, `<DATE`, `>DATE` or `DATE<>DATE`, where the end of a date such as `2008-05-01T10:00:00` may be missing.
fn dates(field: NumberField, value: &str) -> Result<NumberCheck, String> {
    let seconds = |text: &str| {
        let text = text.trim().replace(' ', "T");
        let whole = text.clone() + "0000-01-01T00:00:00".get(text.len()..).unwrap_or_default();
        // the end may be missing in front of a separator only
        let is_complete = matches!(text.len(), 4 | 7 | 10 | 13 | 16 | 19..);
        let date = humantime::parse_rfc3339_weak(&whole).ok().filter(|_| is_complete);
        let seconds = date.and_then(|date| date.duration_since(SystemTime::UNIX_EPOCH).ok());
        seconds.map(|duration| duration.as_secs()).ok_or_else(|| format!("{text}: not a date"))
    };
    let value = value.trim().trim_matches('"');
    let one = match (value.split_once("<>"), value.split_at_checked(1)) {
        (Some((from, to)), _) => Comparison::Between(seconds(from)?, seconds(to)?),
        (_, Some(("<", date))) => Comparison::Below(seconds(date)?),
        (_, Some((">", date))) => Comparison::Above(seconds(date)?),
        _ => Comparison::Equal(seconds(value)?),
    };
    Ok(NumberCheck { field, negated: false, any: vec![one] })
}

fn tls_versions(value: &str) -> Result<NumberCheck, String> {
    let mut negated = false;
    let version = |text: &str| {
        let text = text.trim().trim_matches('"').trim();
        let text = match text.strip_prefix('!') {
            Some(rest) => {
                negated = true;
                rest
            }
            None => text,
        };
        let version = match text.to_ascii_lowercase().as_str() {
            "sslv2" => 0x0200,
            "sslv3" => 0x0300,
            "1.0" | "tls1.0" => 0x0301,
            "1.1" | "tls1.1" => 0x0302,
            "1.2" | "tls1.2" => 0x0303,
            "1.3" | "tls1.3" => 0x0304,
            other => {
                let number = other.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
                number.ok_or_else(|| format!("{text}: not a version of TLS such as 1.2"))?
            }
        };
        Ok(Comparison::Equal(version.into()))
    };
    let any = value.split(',').map(version).collect::<Result<_, String>>()?;
    Ok(NumberCheck { field: NumberField::TlsVersion, negated, any })
}

/// Treatment of a buffer that a message does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Absence {
    /// The options do not match.
    Fails,
    /// The buffer has to be absent.
    Required,
    /// The options match, as they do with a buffer that fulfils them.
    Accepted,
}

/// Options about one buffer.
#[derive(Clone, Debug)]
pub(in crate::ids) struct BufferOptions {
    pub(in crate::ids) field: Field,
    pub(in crate::ids) transforms: Vec<Transform>,
    pub(in crate::ids) absence: Absence,
    pub(in crate::ids) options: Vec<Match>,
}

impl BufferOptions {
    fn new(field: Field, transforms: Vec<Transform>) -> Self {
        BufferOptions { field, transforms, absence: Absence::Fails, options: vec![] }
    }

    /// Returns true if further bytes at the end of a buffer may change that the options match.
    pub(in crate::ids) fn depends_on_end(&self) -> bool {
        self.absence != Absence::Fails || !self.transforms.is_empty() || self.options.iter().any(depends_on_end)
    }
}

/// Returns true if further bytes at the end of a buffer may change that an option matches.
fn depends_on_end(option: &Match) -> bool {
    match option {
        Match::Content(content) => content.negated || content.endswith,
        Match::IsDataAt { negated, .. } => *negated,
        Match::Pcre { regex, negated, .. } => {
            *negated || ["$", "\\z", "\\b", "\\B"].iter().any(|end| regex.as_str().contains(end))
        }
        Match::BufferSize(_) | Match::ByteJump { from: JumpFrom::End, .. } => true,
        Match::Base64Decode { options, .. } => options.iter().any(depends_on_end),
        _ => false,
    }
}

/// Conditions of a rule on the application protocol and its messages.
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct AppRule {
    /// Protocol of the header, or that of the buffers.
    pub(in crate::ids) protocol: Option<AppProtocol>,
    /// Protocol that is excluded.
    pub(in crate::ids) excluded: Option<AppProtocol>,
    /// True for `app-layer-protocol`.
    pub(in crate::ids) detection: bool,
    pub(in crate::ids) buffers: Vec<BufferOptions>,
    pub(in crate::ids) numbers: Vec<NumberCheck>,
}

impl AppRule {
    /// Returns true if the rule has no condition on the application protocol.
    pub(in crate::ids) fn is_empty(&self) -> bool {
        self.protocol.is_none() && self.excluded.is_none() && !self.is_about_messages()
    }

    /// Returns true if the rule is matched with messages.
    pub(in crate::ids) fn is_about_messages(&self) -> bool {
        !self.buffers.is_empty() || !self.numbers.is_empty()
    }

    fn require(&mut self, protocol: AppProtocol) -> Result<(), String> {
        match self.protocol.replace(protocol) {
            Some(other) if other != protocol => {
                Err(format!("the rule is about {} and {}", other.name(), protocol.name()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the position of a buffer and the content that is searched for in it, and whether without regard to case.
    pub(in crate::ids) fn pattern(&self) -> Option<(usize, (&[u8], bool))> {
        let buffers = self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.absence == Absence::Fails);
        let contents = buffers.flat_map(|(n, buffer)| {
            buffer
                .options
                .iter()
                .filter_map(move |option| if let Match::Content(c) = option { Some((n, c)) } else { None })
        });
        let best = contents.filter(|(_, c)| !c.negated).max_by_key(|(_, c)| (c.fast_pattern, c.bytes.len()));
        let (n, content) = best?;
        let (at, len) = content.chop.unwrap_or((0, content.bytes.len()));
        Some((n, (content.bytes.get(at..at + len)?, content.nocase)))
    }
}

/// Effect of an option on the rule under construction.
pub(super) enum Parsed {
    /// The option is complete.
    Done,
    /// The last content is moved to the buffer.
    Move(Field),
    /// A payload option to add to a buffer.
    PushTo(Field, Match),
}

/// The buffer that payload options are applied to.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    /// Buffer that a keyword has selected, with transformations.
    sticky: Option<(Field, Vec<Transform>)>,
    /// Position of the selected buffer, once an option is in it.
    current: Option<usize>,
    /// Position of the buffer with the last content; `None` if that is a buffer of packets.
    pub(super) last: Option<usize>,
    /// True if the bytes that base64_decode has decoded are selected.
    pub(super) in_decoded: bool,
}

impl Cursor {
    /// Selects the buffers of packets.
    pub(super) fn leave(&mut self) -> Result<(), String> {
        let empty = self.sticky.is_some() && self.current.is_none();
        (self.sticky, self.current, self.in_decoded) = (None, None, false);
        if empty { Err("no option follows the buffer".into()) } else { Ok(()) }
    }

    /// Parses an option about application protocols; `None` if the name is that of another option.
    pub(super) fn option(
        &mut self,
        rule: &mut AppRule,
        name: &str,
        value: Option<&str>,
    ) -> Option<Result<Parsed, String>> {
        let text = value.unwrap_or("");
        if let Some(check) = NumberCheck::parse(name, text) {
            return Some(check.and_then(|check| {
                rule.require(check.field.protocol())?;
                rule.numbers.push(check);
                Ok(Parsed::Done)
            }));
        }
        if let Some(transform) = Transform::parse(name, value) {
            return Some(transform.and_then(|transform| match (&mut self.sticky, self.current) {
                (Some((_, transforms)), None) => {
                    transforms.push(transform);
                    Ok(Parsed::Done)
                }
                _ => Err("a transformation follows the keyword of a buffer directly".into()),
            }));
        }
        if let Some(field) = Field::named(name) {
            let entered = self.leave().and_then(|()| rule.require(field.protocol()));
            self.sticky = Some((field, vec![]));
            return Some(entered.map(|()| Parsed::Done));
        }
        if let Some(field) = Field::of_modifier(name).filter(|_| name != " ") {
            return Some(rule.require(field.protocol()).map(|()| Parsed::Move(field)));
        }
        let content = |field| {
            let (negated, quoted) = unquote(text)?;
            Ok(Parsed::PushTo(
                field,
                Match::Content(Content { bytes: parse_bytes(quoted)?, negated, ..Content::default() }),
            ))
        };
        Some(match name {
            "app-layer-protocol" => self.protocol(rule, text),
            "absent" => self.absent(rule, text),
            "urilen" => {
                let (length, kind) = text.split_once(',').unwrap_or((text, "norm"));
                match (Comparison::parse(&length.replace(' ', ""), u64::MAX), kind.trim()) {
                    (Ok(length), "norm") => Ok(Parsed::PushTo(Field::HttpUri, Match::BufferSize(length))),
                    (Ok(length), "raw") => Ok(Parsed::PushTo(Field::HttpUriRaw, Match::BufferSize(length))),
                    (Ok(_), other) => Err(format!("{other}: write norm or raw")),
                    (Err(problem), _) => Err(problem),
                }
            }
            "uricontent" => content(Field::HttpUri),
            "tls.subject" => content(Field::TlsSubject),
            "tls.issuerdn" => content(Field::TlsIssuer),
            "tls.fingerprint" => content(Field::TlsFingerprint),
            "pcre" => return self.pcre(text),
            _ => return None,
        })
    }

    fn protocol(&mut self, rule: &mut AppRule, text: &str) -> Result<Parsed, String> {
        let text = text.trim();
        let (negated, name) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim()));
        let protocol = AppProtocol::parse(name).ok_or_else(|| format!("{name}: this protocol is not supported"))?;
        rule.detection = true;
        match negated {
            false => rule.require(protocol)?,
            true if rule.excluded.is_some() => return Err("only one protocol can be excluded".into()),
            true => rule.excluded = Some(protocol),
        }
        Ok(Parsed::Done)
    }

    fn absent(&mut self, rule: &mut AppRule, text: &str) -> Result<Parsed, String> {
        let absence = match text.trim() {
            "" => Absence::Required,
            "or_else" => Absence::Accepted,
            other => return Err(format!("{other}: write or_else or nothing")),
        };
        if self.sticky.is_none() {
            return Err("no keyword of a buffer precedes".into());
        }
        match self.place(rule).and_then(|n| rule.buffers.get_mut(n)) {
            Some(buffer) if buffer.options.is_empty() => buffer.absence = absence,
            _ => return Err("other options precede it".into()),
        }
        Ok(Parsed::Done)
    }

    /// Parses a regular expression with the flag of a buffer; `None` without one.
    fn pcre(&self, text: &str) -> Option<Result<Parsed, String>> {
        let (negated, quoted) = match unquote(text) {
            Ok(parts) => parts,
            Err(problem) => return Some(Err(problem)),
        };
        let (expression, flags) = without_captures(quoted).rsplit_once('/')?;
        let field = flags.chars().filter(|flag| *flag != ' ').find_map(Field::of_flag)?;
        let rest: String = flags.chars().filter(|flag| Field::of_flag(*flag).is_none()).collect();
        if flags.chars().filter(|flag| Field::of_flag(*flag).is_some()).count() > 1 {
            return Some(Err("the expression has the flags of two buffers".into()));
        }
        if self.sticky.as_ref().is_some_and(|(sticky, _)| *sticky != field) {
            return Some(Err("the flag of the expression contradicts the buffer".into()));
        }
        Some(parse_pcre(&format!("{expression}/{rest}"), negated).map(|option| Parsed::PushTo(field, option)))
    }

    /// Returns the position of the selected buffer, which is added if it is not there.
    fn place(&mut self, rule: &mut AppRule) -> Option<usize> {
        if self.current.is_none()
            && let Some((field, transforms)) = &self.sticky
        {
            let same = |buffer: &BufferOptions| {
                buffer.field == *field && buffer.transforms == *transforms && buffer.absence == Absence::Fails
            };
            let known = rule.buffers.iter().position(same).filter(|_| !field.is_multiple());
            self.current = Some(known.unwrap_or_else(|| {
                rule.buffers.push(BufferOptions::new(*field, transforms.clone()));
                rule.buffers.len() - 1
            }));
        }
        self.current
    }

    /// Adds an option to the selected buffer; returns it if the buffers of packets are selected.
    pub(super) fn push(&mut self, rule: &mut AppRule, option: Match) -> Option<Match> {
        // without a selected buffer, a relative option refers to the last content
        let follows = (!matches!(option, Match::Content(_)) && option.is_relative()).then_some(self.last).flatten();
        let place = if self.sticky.is_some() { self.place(rule) } else { follows };
        if matches!(option, Match::Content(_)) {
            self.last = place;
        }
        let Some(buffer) = place.and_then(|n| rule.buffers.get_mut(n)) else { return Some(option) };
        buffer.options.push(option);
        None
    }

    /// Adds an option to a buffer.
    pub(super) fn push_to(&mut self, rule: &mut AppRule, field: Field, option: Match) -> Result<(), String> {
        rule.require(field.protocol())?;
        let same = |buffer: &BufferOptions| buffer.field == field && buffer.transforms.is_empty();
        let n = rule.buffers.iter().position(same).unwrap_or_else(|| {
            rule.buffers.push(BufferOptions::new(field, vec![]));
            rule.buffers.len() - 1
        });
        if matches!(option, Match::Content(_)) {
            self.last = Some(n);
        }
        if let Some(buffer) = rule.buffers.get_mut(n) {
            buffer.options.push(option);
        }
        Ok(())
    }

    /// Checks the complete rule.
    pub(super) fn finish(&mut self, rule: &mut AppRule, flow: &[FlowOption]) -> Result<(), String> {
        self.leave()?;
        let sides = [Side::Request, Side::Response].map(|side| {
            let excluded = match side {
                Side::Request => FlowOption::ToClient,
                _ => FlowOption::ToServer,
            };
            let fits =
                |buffer: &BufferOptions| matches!(buffer.field.side(), Side::Both) || buffer.field.side() == side;
            !flow.contains(&excluded) && rule.buffers.iter().all(fits)
        });
        if !rule.buffers.is_empty() && sides == [false; 2] {
            return Err("the rule has buffers of both directions".into());
        }
        for buffer in &mut rule.buffers {
            if let Some(case) = buffer.field.case().filter(|_| buffer.transforms.is_empty()) {
                for option in &mut buffer.options {
                    if let Match::Content(content) = option {
                        case(&mut content.bytes);
                    }
                }
            }
            if buffer.options.is_empty() && buffer.absence != Absence::Required {
                return Err(format!("{:?}: no option follows the buffer", buffer.field));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::rule::address::Variables;
    use crate::ids::rule::parser::Parser;

    fn parse(options: &str) -> Result<AppRule, String> {
        let rule = format!("alert tcp any any -> any any ({options} sid:1;)");
        Parser::new(Variables::new()).rule(&rule).map(|rule| rule.app)
    }

    #[test]
    fn contents_are_in_the_buffers_that_rules_name() {
        let rule = "content:\"a\"; http_uri; nocase; content:\"b\"; distance:0; http_uri; content:\"c\"; isdataat:!1,relative; \
                    http.host; content:\"d\"; bsize:1; http.uri; content:\"e\"; pkt_data; content:\"f\"; \
                    pcre:\"/g/Ui\"; urilen:>3; uricontent:\"h\";";
        let rule =
            Parser::new(Variables::new()).rule(&format!("alert http any any -> any any ({rule} sid:1;)")).unwrap();
        let lens: Vec<_> = rule.app.buffers.iter().map(|buffer| (buffer.field, buffer.options.len())).collect();
        assert_eq!(lens, [(Field::HttpUri, 6), (Field::HttpHost, 2)]);
        assert_eq!(rule.buffers[0].1.len(), 3);
        assert!(matches!(&rule.app.buffers[0].options[0], Match::Content(content) if content.nocase));
        assert_eq!(rule.app.protocol, Some(AppProtocol::Http));
    }

    #[test]
    fn buffers_of_several_instances_are_separate() {
        let rule = parse("dns.query; content:\"a\"; content:\"b\"; dns.query; content:\"c\";").unwrap();
        assert_eq!(rule.buffers.iter().map(|buffer| buffer.options.len()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn parses_dates() {
        for (text, matching) in [
            ("tls_cert_notafter:>1970;", [false, true, true]),
            ("tls_cert_notafter:<1970-01-02;", [true, true, false]),
            ("tls_cert_notafter:1970-01-01 00:00:01;", [false, true, false]),
            ("tls_cert_notbefore:1970-01-01T00<>1970-02;", [false, true, true]),
        ] {
            let check = &parse(text).unwrap().numbers[0];
            assert_eq!([0, 1, 86_400].map(|seconds| check.matches(seconds)), matching, "{text}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for options in [
            "http.uri;",
            "http.uri; http.host; content:\"a\";",
            "http.uri; content:\"a\"; to_md5;",
            "http.uri; content:\"a\"; tls.sni; content:\"b\";",
            "http.uri; content:\"a\"; http.stat_code; content:\"b\";",
            "flow:to_client; http.uri; content:\"a\";",
            "http_uri;",
            "to_lowercase;",
            "absent;",
            "http.uri; absent:x;",
            "http.uri; xor:\"abc\"; content:\"a\";",
            "http.uri; pcre:\"/a/H\";",
            "pcre:\"/a/UH\";",
            "urilen:3,x;",
            "app-layer-protocol:ssh;",
            "tls.version:2.0;",
            "tls_cert_notbefore:>20;",
            "tls_cert_notafter:2015-13;",
            "tls_cert_notafter:2015-1;",
            "tls_cert_notafter:<2015-01-2;",
            "http.uri; gunzip:max-size 1048577; content:\"a\";",
            "base64_decode; base64_data; content:\"a\"; fast_pattern;",
            "hostbits:isset,a|b;",
            "hostbits:set,;",
            "flow.pkts:toserver,3,4;",
            "http.unknown; content:\"a\";",
            "lua:x;",
        ] {
            assert!(parse(options).is_err(), "{options}");
        }
    }
}
