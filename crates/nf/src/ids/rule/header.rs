//! Options about header fields.

use super::number::{Comparison, parse_number};

/// Combination of bits of a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum BitTest {
    /// Exactly these bits are set.
    Exact,
    /// All of these bits are set.
    All,
    /// At least one of these bits is set.
    Any,
    /// Not all of these bits are set.
    Not,
}

impl BitTest {
    pub(in crate::ids) fn matches(self, bits: u8, value: u8) -> bool {
        match self {
            BitTest::Exact => value == bits,
            BitTest::All => value & bits == bits,
            BitTest::Any => value & bits != 0,
            BitTest::Not => value & bits != bits,
        }
    }
}

/// A condition on the headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum HeaderCheck {
    TcpFlags { test: BitTest, bits: u8, ignored: u8 },
    Seq(Comparison),
    Ack(Comparison),
    Window(Comparison),
    Mss(Comparison),
    WindowScale(Comparison),
    Ttl(Comparison),
    Tos(Comparison),
    Id(Comparison),
    IpOption(u8),
    AnyIpOption,
    FragmentBits { test: BitTest, bits: u8 },
    FragmentOffset(Comparison),
    IpProtocol(Comparison),
    SameIp,
    PayloadSize(Comparison),
    IcmpType(Comparison),
    IcmpCode(Comparison),
    IcmpId(Comparison),
    IcmpSeq(Comparison),
    Icmpv6Mtu(Comparison),
}

impl HeaderCheck {
    /// Parses an option about header fields; `None` if the name is that of another option.
    pub(super) fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let compare = |max, make: fn(Comparison) -> HeaderCheck| Comparison::parse(value, max).map(make);
        Some(match name {
            "flags" | "tcp.flags" => tcp_flags(value),
            "seq" | "tcp.seq" => compare(u32::MAX.into(), HeaderCheck::Seq),
            "ack" | "tcp.ack" => compare(u32::MAX.into(), HeaderCheck::Ack),
            "window" | "tcp.window" => compare(u16::MAX.into(), HeaderCheck::Window),
            "tcp.mss" => compare(u16::MAX.into(), HeaderCheck::Mss),
            "tcp.wscale" => compare(255, HeaderCheck::WindowScale),
            "icmpv6.mtu" => compare(u32::MAX.into(), HeaderCheck::Icmpv6Mtu),
            "ttl" => compare(255, HeaderCheck::Ttl),
            "tos" => tos(value),
            "id" => compare(u16::MAX.into(), HeaderCheck::Id),
            "ipopts" => ip_option(value),
            "fragbits" => fragment_bits(value),
            "fragoffset" => compare(8191, HeaderCheck::FragmentOffset),
            "ip_proto" => ip_protocol(value),
            "sameip" => Ok(HeaderCheck::SameIp),
            "dsize" => compare(u16::MAX.into(), HeaderCheck::PayloadSize),
            "itype" => compare(255, HeaderCheck::IcmpType),
            "icode" => compare(255, HeaderCheck::IcmpCode),
            "icmp_id" => compare(u16::MAX.into(), HeaderCheck::IcmpId),
            "icmp_seq" => compare(u16::MAX.into(), HeaderCheck::IcmpSeq),
            _ => return None,
        })
    }
}

/// Parses a modifier before or after the letters.
fn modifier(text: &str) -> (BitTest, String) {
    let mut test = BitTest::Exact;
    let letters = text.chars().filter(|c| match c {
        '+' => {
            test = BitTest::All;
            false
        }
        '*' => {
            test = BitTest::Any;
            false
        }
        '!' | '-' => {
            test = BitTest::Not;
            false
        }
        '=' => false,
        c => !c.is_whitespace(),
    });
    let letters = letters.collect();
    (test, letters)
}

fn letters(text: &str) -> Result<u8, String> {
    text.chars().try_fold(0, |bits, letter| {
        Ok(bits
            | match letter.to_ascii_uppercase() {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                'A' => 16,
                'U' => 32,
                'E' | '2' => 64,
                'C' | '1' => 128,
                '0' => 0,
                _ => return Err(format!("{letter}: not a TCP flag")),
            })
    })
}

fn tcp_flags(value: &str) -> Result<HeaderCheck, String> {
    let (flags, ignored) = value.split_once(',').unwrap_or((value, ""));
    let (test, flags) = modifier(flags);
    if flags.is_empty() {
        return Err("no TCP flag is named".into());
    }
    let ignored = letters(&ignored.replace([' ', ','], ""))?;
    Ok(HeaderCheck::TcpFlags { test, bits: letters(&flags)?, ignored })
}

fn fragment_bits(value: &str) -> Result<HeaderCheck, String> {
    let (test, names) = modifier(value);
    let bits = names.chars().try_fold(0, |bits, letter| {
        Ok::<u8, String>(
            bits | match letter.to_ascii_uppercase() {
                'M' => 1,
                'D' => 2,
                'R' => 4,
                _ => return Err(format!("{letter}: not one of M, D and R")),
            },
        )
    })?;
    if names.is_empty() { Err("no bit is named".into()) } else { Ok(HeaderCheck::FragmentBits { test, bits }) }
}

fn tos(value: &str) -> Result<HeaderCheck, String> {
    let (negated, text) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
    let n = match text.strip_prefix(['x', 'X']) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => parse_number(text),
    };
    match n {
        Some(n) if n < 256 => {
            Ok(HeaderCheck::Tos(if negated { Comparison::NotEqual(n) } else { Comparison::Equal(n) }))
        }
        _ => Err(format!("{value}: not a number from 0 to 255")),
    }
}

fn ip_option(value: &str) -> Result<HeaderCheck, String> {
    let kind = match value.trim().to_ascii_lowercase().as_str() {
        "any" => return Ok(HeaderCheck::AnyIpOption),
        "eol" => 0,
        "nop" => 1,
        "rr" => 7,
        "qs" => 0x19,
        "ts" => 0x44,
        "sec" => 0x82,
        "lsrr" => 0x83,
        "esec" => 0x85,
        "cipso" => 0x86,
        "satid" => 0x88,
        "ssrr" => 0x89,
        "rtralt" => 0x94,
        _ => return Err(format!("{value}: not an IPv4 option")),
    };
    Ok(HeaderCheck::IpOption(kind))
}

fn ip_protocol(value: &str) -> Result<HeaderCheck, String> {
    let (prefix, name) = value.split_at(value.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(0));
    let number = match name.to_ascii_lowercase().as_str() {
        "icmp" => "1",
        "igmp" => "2",
        "ipip" => "4",
        "tcp" => "6",
        "udp" => "17",
        "ipv6" => "41",
        "gre" => "47",
        "esp" => "50",
        "ah" => "51",
        "icmpv6" | "ipv6-icmp" => "58",
        "ospf" => "89",
        "pim" => "103",
        "sctp" => "132",
        _ => name,
    };
    Comparison::parse(&format!("{prefix}{number}"), 255).map(HeaderCheck::IpProtocol)
}
