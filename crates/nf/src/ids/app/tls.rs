//! Handshakes of TLS.

use super::{AppOptions, Message};
use crate::dpi::protocol::Verdict;
use crate::ids::rule::app::{AppProtocol, Field, NumberField};
use md5::{Digest, Md5};
use ring::digest;
use std::collections::VecDeque;
use wire::tls::{ClientHello, MAX_RECORD};
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode, asn1::ObjectIdentifier};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::time::Time;

/// Longest handshake message in bytes; that of OpenSSL for a ClientHello is 131,396.
const MAX_HANDSHAKE: usize = 132 << 10;
/// Largest number of names of a list that are inspected.
const MAX_NAMES: usize = 256;
/// Largest number of certificates of a chain that are inspected.
const MAX_CERTIFICATES: usize = 16;

/// Types of records.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Types of handshake messages.
const CLIENT_HELLO: u8 = 1;
pub(super) const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
const SERVER_HELLO_DONE: u8 = 14;

/// Numbers of extensions.
const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const APPLICATION_PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// Recognises the first record of a handshake, of whatever length.
pub(super) fn recognise(payload: &[u8], verdict: Verdict) -> Verdict {
    match payload {
        [HANDSHAKE, 3, 0..=4, _, _, CLIENT_HELLO | SERVER_HELLO, ..] => Verdict::Match,
        _ => verdict,
    }
}

/// Parser of one direction.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Handshake messages without the headers of records.
    handshake: Vec<u8>,
    /// True once what follows is encrypted or not parsed.
    done: bool,
}

impl Parser {
    /// Returns true once what follows is encrypted or not parsed.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn held(&self) -> usize {
        self.handshake.capacity()
    }

    /// Parses the records that are complete and removes them from the input.
    pub(super) fn parse(
        &mut self,
        input: &mut Vec<u8>,
        messages: &mut VecDeque<Message>,
        to_client: bool,
        ended: bool,
        options: AppOptions,
    ) {
        let mut at = 0;
        while !self.done {
            let rest = input.get(at..).unwrap_or_default();
            let [kind, high_version, _, high, low, ..] = *rest else { break };
            let len = usize::from(u16::from_be_bytes([high, low]));
            if high_version != 3 || len > MAX_RECORD {
                self.finish(messages);
                break;
            }
            let Some(payload) = rest.get(5..5 + len) else { break };
            at += 5 + len;
            match kind {
                HANDSHAKE => {
                    self.handshake.extend_from_slice(payload);
                    self.messages(messages, to_client, options);
                }
                // messages behind it are encrypted
                CHANGE_CIPHER_SPEC | APPLICATION_DATA => self.finish(messages),
                ALERT => {}
                _ => self.finish(messages),
            }
        }
        if ended {
            self.finish(messages);
        }
        if self.done {
            at = input.len();
        }
        input.drain(..at);
    }

    fn finish(&mut self, messages: &mut VecDeque<Message>) {
        if let Some(message) = messages.back_mut().filter(|message| !message.complete) {
            message.complete();
        }
        (self.done, self.handshake) = (true, vec![]);
    }

    /// Parses the handshake messages that are complete.
    fn messages(&mut self, messages: &mut VecDeque<Message>, to_client: bool, options: AppOptions) {
        let mut at = 0;
        while let Some([kind, a, b, c, ..]) = self.handshake.get(at..) {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if len > MAX_HANDSHAKE {
                return self.finish(messages);
            }
            let kind = *kind;
            let Some(whole) = self.handshake.get(at..at + 4 + len) else { break };
            at += whole.len();
            let body = whole.get(4..).unwrap_or_default();
            if messages.is_empty() && matches!(kind, CLIENT_HELLO | SERVER_HELLO | CERTIFICATE) {
                messages.push_back(Message::new(AppProtocol::Tls, to_client));
            }
            let Some(message) = messages.back_mut() else { continue };
            if options.raw && message.raw.len() + whole.len() <= MAX_HANDSHAKE {
                message.raw.extend_from_slice(whole);
            }
            match kind {
                CLIENT_HELLO => client_hello(whole, message, options),
                SERVER_HELLO => server_hello(body, message, options),
                CERTIFICATE => certificates(body, message, options),
                _ => {}
            }
            message.fresh = true;
            if matches!(kind, SERVER_HELLO_DONE) {
                return self.finish(messages);
            }
        }
        self.handshake.drain(..at.min(self.handshake.len()));
    }
}

/// Returns true for the values that clients send to keep servers tolerant (RFC 8701).
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Returns numbers with dashes between them.
fn list(numbers: impl Iterator<Item = u16>) -> String {
    numbers.filter(|number| !is_grease(*number)).map(|number| number.to_string()).collect::<Vec<_>>().join("-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random(bytes: &[u8], message: &mut Message, options: AppOptions) {
    message.put(options.fields, Field::TlsRandom, || bytes.to_vec());
    message.put(options.fields, Field::TlsRandomTime, || bytes.get(..4).unwrap_or_default().to_vec());
    message.put(options.fields, Field::TlsRandomBytes, || bytes.get(4..).unwrap_or_default().to_vec());
}

/// Adds the names of a list of application protocols (RFC 7301).
fn alpn(data: &[u8], message: &mut Message, options: AppOptions) {
    let mut rest = data.get(2..).unwrap_or_default();
    for _ in 0..MAX_NAMES {
        let [len, after @ ..] = rest else { break };
        let Some((name, behind)) = after.split_at_checked(usize::from(*len)) else { break };
        message.put(options.fields, Field::TlsAlpn, || name.to_vec());
        rest = behind;
    }
}

fn client_hello(whole: &[u8], message: &mut Message, options: AppOptions) {
    let Ok(hello) = ClientHello::new(whole) else { return };
    // after a HelloRetryRequest, the first one counts
    if message.numbers(NumberField::TlsVersion).next().is_some() {
        return;
    }
    let offered = hello.supported_versions().filter(|version| !is_grease(*version)).max();
    message.numbers.push((NumberField::TlsVersion, offered.unwrap_or(hello.version()).into()));
    random(hello.random(), message, options);
    if let Some(name) = hello.server_name() {
        message.put(options.fields, Field::TlsServerName, || name.to_vec());
    }
    if let Some(data) = hello.extension(APPLICATION_PROTOCOLS) {
        alpn(data, message, options);
    }
    let groups = hello.extension(SUPPORTED_GROUPS).and_then(|data| data.get(2..)).unwrap_or_default();
    let formats = hello.extension(POINT_FORMATS).and_then(|data| data.get(1..)).unwrap_or_default();
    let ja3 = || {
        let formats: Vec<String> = formats.iter().map(u8::to_string).collect();
        format!(
            "{},{},{},{},{}",
            hello.version(),
            list(hello.cipher_suites()),
            list(hello.extensions().map(|(kind, _)| kind)),
            list(words(groups)),
            formats.join("-")
        )
    };
    message.put(options.fields, Field::Ja3String, || ja3().into_bytes());
    message.put(options.fields, Field::Ja4Hash, || ja4(&hello, offered.unwrap_or(hello.version())).into_bytes());
    message.put(options.fields, Field::Ja3Hash, || hex(&Md5::digest(ja3())).into_bytes());
}

/// Returns the JA4 fingerprint of a client: version, whether it names a server, the numbers of cipher suites and extensions, and
/// the first application protocol, then hashes of both lists.
fn ja4(hello: &ClientHello<'_>, version: u16) -> String {
    let version = match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0200 => "s2",
        _ => "00",
    };
    let list = |numbers: &[u16]| numbers.iter().map(|number| format!("{number:04x}")).collect::<Vec<_>>().join(",");
    let hash = |text: String| {
        let digest = hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        if text.is_empty() { "0".repeat(12) } else { digest.chars().take(12).collect() }
    };
    let sorted = |numbers: &mut dyn Iterator<Item = u16>| {
        let mut numbers: Vec<u16> = numbers.filter(|number| !is_grease(*number)).collect();
        numbers.sort_unstable();
        numbers
    };
    let suites = sorted(&mut hello.cipher_suites());
    let mut kinds = sorted(&mut hello.extensions().map(|(kind, _)| kind));
    let n = kinds.len();
    let server = if kinds.contains(&SERVER_NAME) { 'd' } else { 'i' };
    kinds.retain(|kind| !matches!(*kind, SERVER_NAME | APPLICATION_PROTOCOLS));
    let alpn = match hello.application_protocols().next() {
        Some(name) if !name.is_empty() => {
            let (first, last) = (name[0], name[name.len() - 1]);
            match first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
                true => format!("{}{}", char::from(first), char::from(last)),
                false => format!("{:x}{:x}", first >> 4, last & 15),
            }
        }
        _ => "00".to_owned(),
    };
    let algorithms: Vec<u16> =
        words(hello.extension(SIGNATURE_ALGORITHMS).and_then(|data| data.get(2..)).unwrap_or_default())
            .filter(|number| !is_grease(*number))
            .collect();
    let extensions =
        if algorithms.is_empty() { list(&kinds) } else { format!("{}_{}", list(&kinds), list(&algorithms)) };
    let suites_hash = hash(list(&suites));
    format!("t{version}{server}{:02}{:02}{alpn}_{suites_hash}_{}", suites.len().min(99), n.min(99), hash(extensions))
}

/// Parses a ServerHello (RFC 8446 §4.1.3); fields behind an error stay out.
fn server_hello(body: &[u8], message: &mut Message, options: AppOptions) {
    if message.numbers(NumberField::TlsVersion).next().is_some() {
        return;
    }
    let (Some(version), Some(random_bytes)) = (body.first_chunk::<2>(), body.get(2..34)) else { return };
    let version = u16::from_be_bytes(*version);
    let session = usize::from(body.get(34).copied().unwrap_or(0));
    let rest = body.get(35 + session..).unwrap_or_default();
    let Some(suite) = rest.first_chunk::<2>().map(|suite| u16::from_be_bytes(*suite)) else { return };
    random(random_bytes, message, options);
    let (mut extensions, mut kinds, mut selected) = (rest.get(5..).unwrap_or_default(), vec![], None);
    while let [a, b, c, d, after @ ..] = extensions {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        let Some((data, behind)) = after.split_at_checked(len) else { break };
        let kind = u16::from_be_bytes([*a, *b]);
        kinds.push(kind);
        match (kind, data) {
            (SUPPORTED_VERSIONS, [high, low]) => selected = Some(u16::from_be_bytes([*high, *low])),
            (APPLICATION_PROTOCOLS, data) => alpn(data, message, options),
            _ => {}
        }
        extensions = behind;
    }
    message.numbers.push((NumberField::TlsVersion, selected.unwrap_or(version).into()));
    let ja3s = || format!("{version},{suite},{}", list(kinds.iter().copied()));
    message.put(options.fields, Field::Ja3sString, || ja3s().into_bytes());
    message.put(options.fields, Field::Ja3sHash, || hex(&Md5::digest(ja3s())).into_bytes());
}

/// Parses a chain of certificates (RFC 5246 §7.4.2).
fn certificates(body: &[u8], message: &mut Message, options: AppOptions) {
    if message.numbers(NumberField::TlsChainLength).next().is_some() {
        return;
    }
    let (mut rest, mut count) = (body.get(3..).unwrap_or_default(), 0);
    while let [a, b, c, after @ ..] = rest {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some((der, behind)) = after.split_at_checked(len) else { break };
        if count == 0 {
            certificate(der, message, options);
        }
        if count < MAX_CERTIFICATES {
            message.put(options.fields, Field::TlsCertificates, || der.to_vec());
        }
        (rest, count) = (behind, count + 1);
    }
    message.numbers.push((NumberField::TlsChainLength, count as u64));
}

fn certificate(der: &[u8], message: &mut Message, options: AppOptions) {
    let fields = options.fields;
    let pairs = |bytes: &[u8], upper: bool| {
        let pair = |byte: &u8| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
        bytes.iter().map(pair).collect::<Vec<_>>().join(":").into_bytes()
    };
    message.put(fields, Field::TlsFingerprint, || {
        pairs(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der).as_ref(), false)
    });
    let needed = [Field::TlsSubject, Field::TlsIssuer, Field::TlsSerial, Field::TlsSubjectAltName];
    if !options.validity && !needed.iter().any(|field| fields.contains(*field)) {
        return;
    }
    let Ok(certificate) = Certificate::from_der(der) else { return };
    let certificate = certificate.tbs_certificate;
    let seconds = |time: Time| time.to_unix_duration().as_secs();
    if options.validity {
        message.numbers.push((NumberField::TlsNotBefore, seconds(certificate.validity.not_before)));
        message.numbers.push((NumberField::TlsNotAfter, seconds(certificate.validity.not_after)));
    }
    message.put(fields, Field::TlsSubject, || distinguished_name(&certificate.subject));
    message.put(fields, Field::TlsIssuer, || distinguished_name(&certificate.issuer));
    message.put(fields, Field::TlsSerial, || {
        let der = certificate.serial_number.to_der().unwrap_or_default();
        // type and length precede; serial numbers have at most 20 bytes
        pairs(der.get(2..).unwrap_or_default(), true)
    });
    if fields.contains(Field::TlsSubjectAltName)
        && let Ok(Some((_, SubjectAltName(names)))) = certificate.get::<SubjectAltName>()
    {
        for name in names.iter().take(MAX_NAMES) {
            let name = match name {
                GeneralName::DnsName(name) => name.as_str(),
                GeneralName::Rfc822Name(name) => name.as_str(),
                GeneralName::UniformResourceIdentifier(name) => name.as_str(),
                _ => continue,
            };
            message.put(fields, Field::TlsSubjectAltName, || name.as_bytes().to_vec());
        }
    }
}

/// Returns a name in the order of the certificate: `C=DE, O=Example, CN=example.com`.
fn distinguished_name(name: &Name) -> Vec<u8> {
    let mut out: Vec<u8> = vec![];
    for attribute in name.0.iter().flat_map(|part| part.0.iter()) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(attribute_name(attribute.oid).as_bytes());
        out.push(b'=');
        out.extend_from_slice(attribute.value.value());
    }
    out
}

/// Returns the short name of an attribute (RFC 4519 §2), or its object identifier.
fn attribute_name(oid: ObjectIdentifier) -> String {
    let text = oid.to_string();
    let known = match text.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.42" => "GN",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return text,
    };
    known.to_owned()
}

#[cfg(test)]
pub(super) mod tests;
