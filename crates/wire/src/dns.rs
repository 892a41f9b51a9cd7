//! DNS messages (RFC 1035 §4), as in a UDP datagram, or behind the two bytes of length over TCP.

use crate::{Follows, Header, Malformed, Udp, View, fixed, fixed_mut};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// UDP and TCP port.
pub const PORT: u16 = 53;
/// Longest name in bytes, with the length of each label and the empty label at its end (RFC 1035 §3.1).
pub const MAX_NAME: usize = 255;
/// Longest label in bytes.
pub const MAX_LABEL: usize = 63;
/// Most compression pointers that are followed for one name: with one more, a name without empty labels is too long.
const MAX_POINTERS: usize = 126;

/// Bits of the flags field.
const RESPONSE: u16 = 0x8000;
const AUTHORITATIVE: u16 = 0x0400;
const TRUNCATED: u16 = 0x0200;
const RECURSION_DESIRED: u16 = 0x0100;

/// The 12-byte DNS header (RFC 1035 §4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dns {
    id: U16,
    flags: U16,
    questions: U16,
    answers: U16,
    authorities: U16,
    additionals: U16,
}

impl Dns {
    /// Returns the identifier that a response has in common with its query.
    #[inline(always)]
    pub fn id(&self) -> u16 {
        self.id.get()
    }

    /// Returns the flags, opcode and response code as stored.
    #[inline(always)]
    pub fn flags(&self) -> u16 {
        self.flags.get()
    }

    /// Returns true for a response.
    #[inline(always)]
    pub fn is_response(&self) -> bool {
        self.flags() & RESPONSE != 0
    }

    /// Returns the kind of query: 0 for a standard one.
    #[inline(always)]
    pub fn opcode(&self) -> u8 {
        (self.flags() >> 11 & 15) as u8
    }

    /// Returns true if the responder is an authority for the name.
    #[inline(always)]
    pub fn is_authoritative(&self) -> bool {
        self.flags() & AUTHORITATIVE != 0
    }

    /// Returns true if the message was truncated.
    #[inline(always)]
    pub fn is_truncated(&self) -> bool {
        self.flags() & TRUNCATED != 0
    }

    /// Returns true if recursion is desired.
    #[inline(always)]
    pub fn is_recursion_desired(&self) -> bool {
        self.flags() & RECURSION_DESIRED != 0
    }

    /// Returns the response code: 0 for no error, 3 if the name does not exist.
    #[inline(always)]
    pub fn response_code(&self) -> u8 {
        (self.flags() & 15) as u8
    }

    /// Returns the numbers of questions, answers, authority and additional records that the header states.
    #[inline(always)]
    pub fn counts(&self) -> [u16; 4] {
        [self.questions, self.answers, self.authorities, self.additionals].map(U16::get)
    }

    /// Sets the identifier.
    #[inline(always)]
    pub fn set_id(&mut self, id: u16) {
        self.id = U16::new(id);
    }

    /// Sets the flags, opcode and response code.
    #[inline(always)]
    pub fn set_flags(&mut self, flags: u16) {
        self.flags = U16::new(flags);
    }

    /// Sets the numbers of questions, answers, authority and additional records.
    #[inline(always)]
    pub fn set_counts(&mut self, counts: [u16; 4]) {
        [self.questions, self.answers, self.authorities, self.additionals] = counts.map(U16::new);
    }
}

impl Header for Dns {
    const NAME: &'static str = "dns";
    const NOT: &'static str = "not_dns";
    const MALFORMED: &'static str = "malformed_dns";

    /// Accepts every header; [`Message::questions`] and [`Message::records`] check what follows.
    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        fixed::<Self>(bytes).map(|_| size_of::<Self>())
    }
}

impl Follows<Udp> for Dns {
    /// Port 53 on either side announces DNS.
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        fixed::<Udp>(below).is_ok_and(|udp| udp.dst_port() == PORT || udp.src_port() == PORT)
    }
}

/// A DNS message with a complete header.
pub type Message<'a> = View<'a, Dns>;

impl<'a> View<'a, Dns> {
    /// Returns the questions: as many as the header states, up to the first error.
    pub fn questions(&self) -> Questions<'a> {
        Questions { message: self.bytes(), at: Ok(size_of::<Dns>()), left: self.header().counts()[0] }
    }

    /// Returns the records of the answer, authority and additional sections: as many as the header states, up to the
    /// first error. An error in the questions is the first item.
    pub fn records(&self) -> Records<'a> {
        let mut questions = self.questions();
        questions.by_ref().for_each(drop);
        let [_, left @ ..] = self.header().counts();
        Records { message: self.bytes(), at: questions.at, left }
    }
}

/// The questions of a [`Message`].
#[derive(Clone, Debug)]
pub struct Questions<'a> {
    message: &'a [u8],
    /// Position of the next question, or the error that was found there.
    at: Result<usize, Malformed>,
    left: u16,
}

impl Iterator for Questions<'_> {
    type Item = Result<Question, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.ok()?;
        self.left = self.left.checked_sub(1)?;
        let question = Question::parse(self.message, at);
        self.at = question.map(|(_, end)| end);
        Some(question.map(|(question, _)| question))
    }
}

/// The section of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Section {
    /// Answers.
    Answer,
    /// Authority records.
    Authority,
    /// Additional records.
    Additional,
}

/// The records of a [`Message`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    message: &'a [u8],
    at: Result<usize, Malformed>,
    /// Number of further records of each section.
    left: [u16; 3],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let (left, section) = self.left.iter_mut().zip(sections).find(|(left, _)| **left != 0)?;
        *left -= 1;
        let record = self.at.and_then(|at| Record::parse(self.message, at, section));
        match record {
            Ok((_, end)) => self.at = Ok(end),
            Err(_) => self.left = [0; 3],
        }
        Some(record.map(|(record, _)| record))
    }
}

/// A question: a name, and the type and class of the records that are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// Name.
    pub name: Name,
    /// Record type: 1 for A, 28 for AAAA.
    pub kind: u16,
    /// Class: 1 for the Internet.
    pub class: u16,
}

impl Question {
    /// Parses the question at a position of a message; returns it with the position behind it.
    fn parse(message: &[u8], at: usize) -> Result<(Self, usize), Malformed> {
        let (name, at) = Name::parse(message, at)?;
        let [kind, class] = [u16_at(message, at)?, u16_at(message, at + 2)?];
        Ok((Question { name, kind, class }, at + 4))
    }
}

/// A resource record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Section.
    pub section: Section,
    /// Name.
    pub name: Name,
    /// Record type: 1 for A, 5 for CNAME, 28 for AAAA, 41 for OPT.
    pub kind: u16,
    /// Class: 1 for the Internet; in an OPT record the size of UDP datagrams (RFC 6891 §6.1.2).
    pub class: u16,
    /// Time to live in seconds.
    pub ttl: u32,
    /// Data, in which names may be compressed; [`name_at`](Record::name_at) parses one.
    pub data: &'a [u8],
    /// The message, and the position of the data in it.
    message: (&'a [u8], usize),
}

impl<'a> Record<'a> {
    fn parse(message: &'a [u8], at: usize, section: Section) -> Result<(Self, usize), Malformed> {
        let (name, at) = Name::parse(message, at)?;
        let [kind, class] = [u16_at(message, at)?, u16_at(message, at + 2)?];
        let ttl = u32::from(u16_at(message, at + 4)?) << 16 | u32::from(u16_at(message, at + 6)?);
        let from = at + 10;
        let end = from + usize::from(u16_at(message, at + 8)?);
        let data = message.get(from..end).ok_or(Malformed::Short)?;
        Ok((Record { section, name, kind, class, ttl, data, message: (message, from) }, end))
    }

    /// Parses the name at an offset in the data, as in CNAME, NS and PTR records (0) and MX records (2).
    ///
    /// # Errors
    /// The name is malformed or reaches beyond the data.
    pub fn name_at(&self, offset: usize) -> Result<Name, Malformed> {
        let (message, from) = self.message;
        let end = from + self.data.len();
        let (name, behind) = Name::parse(message.get(..end).unwrap_or_default(), from.saturating_add(offset))?;
        if behind > end { Err(Malformed::Short) } else { Ok(name) }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(Malformed::Short)?;
    Ok(u16::from_be_bytes(*word))
}

/// A domain name: labels of 1 to 63 bytes each, at most 255 bytes in all.
///
/// Comparison is exact; use [`eq_ignore_case`](Name::eq_ignore_case) for that of RFC 4343.
#[derive(Clone, Copy)]
pub struct Name {
    /// Labels behind their lengths, with the empty label at the end.
    bytes: [u8; MAX_NAME],
    len: u8,
}

impl Name {
    /// The root.
    pub const ROOT: Name = Name { bytes: [0; MAX_NAME], len: 1 };

    /// Creates a name from text such as `www.example.com`, with or without a dot at the end; the root is a dot or no
    /// text. A backslash escapes a byte, as [`Display`](fmt::Display) writes it: `\.` or `\007`.
    ///
    /// # Errors
    /// [`Malformed::Name`] for an empty or too long label or name, or an incomplete escape.
    pub fn new(text: &str) -> Result<Self, Malformed> {
        let (mut name, mut label, mut text) = (Name { len: 0, ..Name::ROOT }, ([0; MAX_LABEL], 0), text.as_bytes());
        while let [first, rest @ ..] = text {
            let byte = match (first, rest) {
                (b'.', _) => {
                    // the root may be written as a dot
                    if label.1 == 0 && (name.len != 0 || !rest.is_empty()) {
                        return Err(Malformed::Name);
                    }
                    if label.1 != 0 {
                        name.push(label.0.get(..label.1).unwrap_or_default())?;
                    }
                    (label.1, text) = (0, rest);
                    continue;
                }
                (b'\\', [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..]) => {
                    text = rest;
                    let number = [a, b, c].iter().fold(0u32, |number, digit| number * 10 + u32::from(*digit - b'0'));
                    u8::try_from(number).map_err(|_| Malformed::Name)?
                }
                (b'\\', [escaped, rest @ ..]) => {
                    text = rest;
                    *escaped
                }
                (b'\\', []) => return Err(Malformed::Name),
                (byte, rest) => {
                    text = rest;
                    *byte
                }
            };
            *label.0.get_mut(label.1).ok_or(Malformed::Name)? = byte;
            label.1 += 1;
        }
        if label.1 != 0 {
            name.push(label.0.get(..label.1).unwrap_or_default())?;
        }
        name.len += 1;
        Ok(name)
    }

    /// Appends a label to a name without the empty label at its end, for which room stays.
    fn push(&mut self, label: &[u8]) -> Result<(), Malformed> {
        let at = usize::from(self.len);
        let end = at + 1 + label.len();
        if end >= MAX_NAME || label.is_empty() || label.len() > MAX_LABEL {
            return Err(Malformed::Name);
        }
        self.bytes[at] = label.len() as u8;
        self.bytes[at + 1..end].copy_from_slice(label);
        self.len = end as u8;
        Ok(())
    }

    /// Parses the name at a position of a message, which may be compressed (RFC 1035 §4.1.4); returns it with the
    /// position behind it. A pointer has to refer to an earlier position than the labels before it, so parsing ends.
    ///
    /// # Errors
    /// [`Malformed::Short`] if the message ends in the name, [`Malformed::Name`] if the name is too long, has a label
    /// of an unknown type, or a pointer that does not refer backwards.
    pub fn parse(message: &[u8], at: usize) -> Result<(Self, usize), Malformed> {
        let mut name = Name { len: 0, ..Name::ROOT };
        // the labels from `start` on are being read; behind the first pointer, the end is known
        let (mut start, mut at, mut end, mut pointers) = (at, at, None, 0);
        loop {
            let length = *message.get(at).ok_or(Malformed::Short)?;
            match length {
                0 => {
                    name.len += 1;
                    return Ok((name, end.unwrap_or(at + 1)));
                }
                1..=63 => {
                    let next = at + 1 + usize::from(length);
                    name.push(message.get(at + 1..next).ok_or(Malformed::Short)?)?;
                    at = next;
                }
                0xc0.. => {
                    let target = usize::from(u16_at(message, at)? & 0x3fff);
                    end.get_or_insert(at + 2);
                    pointers += 1;
                    if target >= start || pointers > MAX_POINTERS {
                        return Err(Malformed::Name);
                    }
                    (start, at) = (target, target);
                }
                _ => return Err(Malformed::Name),
            }
        }
    }

    /// Returns the name without compression, as in a message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the labels, without the empty one at the end.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_bytes();
        core::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(usize::from(*length)).filter(|(label, _)| !label.is_empty())?;
            rest = after;
            Some(label)
        })
    }

    /// Returns true if the names are equal regardless of the case of ASCII letters (RFC 4343).
    pub fn eq_ignore_case(&self, other: &Name) -> bool {
        // the lengths of labels are no letters
        self.as_bytes().eq_ignore_ascii_case(other.as_bytes())
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Name {}

impl fmt::Display for Name {
    /// Writes the labels with a dot between them, the root as a dot. Dots, backslashes, spaces and unprintable bytes
    /// are escaped (RFC 4343 §2.1).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.labels().next().is_none() {
            return f.write_str(".");
        }
        for (n, label) in self.labels().enumerate() {
            if n != 0 {
                f.write_str(".")?;
            }
            for byte in label {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                    0x21..=0x7e => write!(f, "{}", char::from(*byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A message with one question and no records, such as a query without EDNS, as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Identifier.
    pub id: u16,
    /// Flags, opcode and response code; 0x0100 for a query that desires recursion.
    pub flags: u16,
    /// Question.
    pub question: Question,
}

impl Repr {
    /// Parses a message.
    ///
    /// # Errors
    /// [`Malformed::Kind`] if it has not one question or has records, or the error of the question.
    pub fn parse(message: &Message<'_>) -> Result<Self, Malformed> {
        let header = message.header();
        if header.counts() != [1, 0, 0, 0] {
            return Err(Malformed::Kind);
        }
        let question = message.questions().next().ok_or(Malformed::Short)??;
        Ok(Repr { id: header.id(), flags: header.flags(), question })
    }

    /// Returns the length of the message in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Dns>() + self.question.name.as_bytes().len() + 4
    }

    /// Writes the message to the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there are fewer than [`len`](Repr::len) bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Malformed> {
        let bytes = bytes.get_mut(..self.len()).ok_or(Malformed::Short)?;
        let header = fixed_mut::<Dns>(bytes)?;
        header.set_id(self.id);
        header.set_flags(self.flags);
        header.set_counts([1, 0, 0, 0]);
        let name = self.question.name.as_bytes();
        let (to, rest) = bytes[size_of::<Dns>()..].split_at_mut(name.len());
        to.copy_from_slice(name);
        rest[..2].copy_from_slice(&self.question.kind.to_be_bytes());
        rest[2..].copy_from_slice(&self.question.class.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
