//! Messages of DNS.

use super::{AppOptions, MAX_READY, Message};
use crate::ids::rule::app::{AppProtocol, Field, NumberField};
use std::collections::VecDeque;
use wire::dns::{Message as Dns, Name, Section};

/// Largest number of records of a message that are inspected.
const MAX_RECORDS: usize = 64;

/// Returns a name with dots between its labels.
fn text(name: &Name) -> Vec<u8> {
    name.labels().collect::<Vec<_>>().join(&b'.')
}

/// Parses a message; names behind an error stay out.
pub(super) fn parse(payload: &[u8], options: AppOptions) -> Option<Message> {
    let dns = Dns::new(payload).ok()?;
    let (header, fields) = (dns.header(), options.fields);
    let mut message = Message::new(AppProtocol::Dns, header.is_response());
    message.complete = true;
    if options.raw {
        message.raw = payload.to_vec();
    }
    message.numbers.push((NumberField::DnsOpcode, header.opcode().into()));
    message.numbers.push((NumberField::DnsResponseCode, header.response_code().into()));
    for question in dns.questions().map_while(Result::ok).take(MAX_RECORDS) {
        message.numbers.push((NumberField::DnsRecordType, question.kind.into()));
        if !header.is_response() {
            message.put(fields, Field::DnsQuery, || text(&question.name));
        } else {
            message.put(fields, Field::DnsResponseName, || text(&question.name));
        }
        message.put(fields, Field::DnsQueryName, || text(&question.name));
    }
    for record in dns.records().map_while(Result::ok).take(MAX_RECORDS) {
        let field = match record.section {
            Section::Answer => {
                message.numbers.push((NumberField::DnsRecordType, record.kind.into()));
                Field::DnsAnswerName
            }
            Section::Authority => Field::DnsAuthorityName,
            Section::Additional => Field::DnsAdditionalName,
        };
        message.put(fields, field, || text(&record.name));
        if header.is_response() {
            message.put(fields, Field::DnsResponseName, || text(&record.name));
            // NS, CNAME, SOA and PTR contain a name (RFC 1035 §3.3), MX one behind its preference
            let offset = match record.kind {
                2 | 5 | 6 | 12 => Some(0),
                15 => Some(2),
                _ => None,
            };
            if let Some(name) = offset.and_then(|offset| record.name_at(offset).ok()) {
                message.put(fields, Field::DnsResponseName, || text(&name));
            }
        }
    }
    Some(message)
}

/// Parses the messages of a TCP connection that are complete, each behind its length, and removes them from the input.
pub(super) fn parse_stream(input: &mut Vec<u8>, messages: &mut VecDeque<Message>, options: AppOptions) {
    let mut at = 0;
    while let Some([high, low, rest @ ..]) = input.get(at..)
        && let Some(payload) = rest.get(..usize::from(u16::from_be_bytes([*high, *low])))
        && messages.len() < MAX_READY
    {
        at += 2 + payload.len();
        messages.extend(parse(payload, options));
    }
    input.drain(..at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::rule::app::Fields;

    /// A response with two questions and an answer whose name is compressed.
    fn response() -> Vec<u8> {
        let mut bytes = vec![0, 1, 0x81, 0x83, 0, 2, 0, 1, 0, 0, 0, 0];
        bytes.extend(b"\x03www\x07Example\x03com\0\0\x10\0\x01\x04mail\xc0\x10\0\x01\0\x01");
        bytes.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x02\xc0\x10");
        bytes
    }

    fn options() -> AppOptions {
        let mut fields = Fields::default();
        [Field::DnsQuery, Field::DnsQueryName, Field::DnsAnswerName, Field::DnsResponseName]
            .into_iter()
            .for_each(|field| fields.insert(field));
        AppOptions { fields, ..AppOptions::default() }
    }

    #[test]
    fn names_are_buffers_of_their_own() {
        let values = |message: &Message, field| -> Vec<String> {
            message.values(field).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
        };
        let message = parse(&response(), options()).unwrap();
        assert!(message.to_client && message.complete);
        assert!(values(&message, Field::DnsQuery).is_empty());
        assert_eq!(values(&message, Field::DnsQueryName), ["www.Example.com", "mail.Example.com"]);
        assert_eq!(values(&message, Field::DnsAnswerName), ["www.Example.com"]);
        let names = ["www.Example.com", "mail.Example.com", "www.Example.com", "Example.com"];
        assert_eq!(values(&message, Field::DnsResponseName), names);
        assert_eq!(message.numbers(NumberField::DnsResponseCode).collect::<Vec<_>>(), [3]);
        assert_eq!(message.numbers(NumberField::DnsRecordType).collect::<Vec<_>>(), [16, 1, 5]);
        let mut query = response();
        query[2] = 0x28;
        let message = parse(&query, options()).unwrap();
        assert_eq!(values(&message, Field::DnsQuery), ["www.Example.com", "mail.Example.com"]);
        assert_eq!(message.numbers(NumberField::DnsOpcode).collect::<Vec<_>>(), [5]);
        assert_eq!(message.numbers(NumberField::DnsResponseCode).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn parses_streams_split_at_every_byte() {
        let one = [&(response().len() as u16).to_be_bytes()[..], &response()].concat();
        let stream = [&one[..], &one].concat();
        for split in 0..=stream.len() {
            let (mut input, mut messages) = (stream[..split].to_vec(), VecDeque::new());
            parse_stream(&mut input, &mut messages, options());
            input.extend_from_slice(&stream[split..]);
            parse_stream(&mut input, &mut messages, options());
            assert_eq!((messages.len(), input.len()), (2, 0), "split at {split}");
        }
    }
}
