//! Options about flows, their bits and numbers, and rates of alerts.

use super::bytes::TestOperator;
use super::number::Comparison;

/// Largest number of distinct ports that are counted.
pub(in crate::ids) const UNIQUE_MAX: u32 = 1024;

/// Flow condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum FlowOption {
    Established,
    NotEstablished,
    Stateless,
    ToServer,
    ToClient,
    OnlyStream,
    NoStream,
    OnlyFragments,
    NoFragments,
}

/// Test or change of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum BitCommand {
    IsSet,
    IsNotSet,
    Set,
    Unset,
    Toggle,
}

/// Place of bits: those of flowbits, or of xbits and hostbits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum BitScope {
    Flow,
    Source,
    Destination,
    Pair,
}

/// Option with state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ids) struct StateOption {
    pub(in crate::ids) scope: BitScope,
    pub(in crate::ids) command: BitCommand,
    /// Numbers of the bits; a test is true if it is true for one of them.
    pub(in crate::ids) bits: Vec<u32>,
    /// Lifetime in seconds, of bits of hosts.
    pub(in crate::ids) expire: u32,
}

impl StateOption {
    pub(in crate::ids) fn reads(&self) -> bool {
        matches!(self.command, BitCommand::IsSet | BitCommand::IsNotSet)
    }
}

/// Operand of a number of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum IntegerOperand {
    Value(u32),
    /// Another number of the flow; 0 if it is not set.
    Variable(u32),
}

/// Test or change of a number of a flow.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) enum IntegerCommand {
    IsSet,
    IsNotSet,
    Set(IntegerOperand),
    Add(IntegerOperand),
    Subtract(IntegerOperand),
    Compare { operator: TestOperator, negated: bool, with: IntegerOperand },
}

/// The option `flowint`.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) struct IntegerOption {
    pub(in crate::ids) variable: u32,
    pub(in crate::ids) command: IntegerCommand,
}

impl IntegerOption {
    pub(in crate::ids) fn reads(&self) -> bool {
        matches!(self.command, IntegerCommand::IsSet | IntegerCommand::IsNotSet | IntegerCommand::Compare { .. })
    }

    /// Returns the variables that the option names.
    pub(in crate::ids) fn variables(&self) -> impl Iterator<Item = u32> {
        let operand = match self.command {
            IntegerCommand::IsSet | IntegerCommand::IsNotSet => None,
            IntegerCommand::Set(with)
            | IntegerCommand::Add(with)
            | IntegerCommand::Subtract(with)
            | IntegerCommand::Compare { with, .. } => Some(with),
        };
        let other = operand.and_then(|with| if let IntegerOperand::Variable(n) = with { Some(n) } else { None });
        [self.variable].into_iter().chain(other)
    }
}

/// Property of a flow that rules compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum FlowQuantity {
    /// Seconds since the first packet.
    Age,
    Packets,
    /// Bytes of frames.
    Bytes,
    /// Sequence numbers of a TCP connection that a side has used.
    StreamSize,
}

/// Directions of a flow of which a property is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum FlowSides {
    ToServer,
    ToClient,
    Both,
    Either,
}

/// Condition on a property of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) struct FlowCheck {
    pub(in crate::ids) quantity: FlowQuantity,
    pub(in crate::ids) sides: FlowSides,
    pub(in crate::ids) number: Comparison,
}

impl FlowCheck {
    /// Parses an option about a property of a flow; `None` if the name is that of another option.
    pub(super) fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let (quantity, max) = match name {
            "flow.age" => (FlowQuantity::Age, u32::MAX.into()),
            "flow.pkts" | "flow.pkts_toserver" | "flow.pkts_toclient" => (FlowQuantity::Packets, u32::MAX.into()),
            "flow.bytes" | "flow.bytes_toserver" | "flow.bytes_toclient" => (FlowQuantity::Bytes, u64::MAX),
            "stream_size" => (FlowQuantity::StreamSize, u32::MAX.into()),
            _ => return None,
        };
        let (side, number) = match (name.rsplit_once('_'), quantity) {
            (Some((_, side @ ("toserver" | "toclient"))), _) => (side, value),
            (_, FlowQuantity::Age) => ("both", value),
            _ => value.split_once(',').unwrap_or((value, "")),
        };
        let sides = match side.trim() {
            "toserver" | "client" => FlowSides::ToServer,
            "toclient" | "server" => FlowSides::ToClient,
            "both" => FlowSides::Both,
            "either" => FlowSides::Either,
            other => return Some(Err(format!("{other}: not a side of a flow"))),
        };
        let number = match number.split_once(',') {
            Some((operator, number)) if quantity == FlowQuantity::StreamSize => {
                format!("{}{}", operator.trim(), number.trim())
            }
            _ => number.trim().to_owned(),
        };
        Some(Comparison::parse(&number, max).map(|number| FlowCheck { quantity, sides, number }))
    }

    /// Compares the values of the directions to the server and to the client.
    pub(in crate::ids) fn matches(&self, values: [u64; 2]) -> bool {
        let [to_server, to_client] = values.map(|value| self.number.matches(value));
        match self.sides {
            FlowSides::ToServer => to_server,
            FlowSides::ToClient => to_client,
            FlowSides::Both => to_server && to_client,
            FlowSides::Either => to_server || to_client,
        }
    }
}

/// Seconds without a match after which `backoff` counts from the beginning: flows end after such a time without a packet.
const BACKOFF_SECONDS: u32 = 3600;

/// Kind of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ids) enum ThresholdKind {
    Limit,
    Threshold,
    Both,
    DetectionFilter,
    /// Alerts at a count that is multiplied each time.
    Backoff {
        multiplier: u32,
    },
}

/// Key of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ids) enum Track {
    Source,
    Destination,
    Rule,
    Both,
    Flow,
}

/// Port whose distinct values are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ids) enum UniqueOn {
    SourcePort,
    DestinationPort,
}

/// Limit on the alerts of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ids) struct Threshold {
    pub(in crate::ids) kind: ThresholdKind,
    pub(in crate::ids) track: Track,
    pub(in crate::ids) count: u32,
    /// Period of the count in seconds; that of `backoff` begins again with each match.
    pub(in crate::ids) seconds: u32,
    pub(in crate::ids) unique_on: Option<UniqueOn>,
}

pub(super) fn parse_flow(value: &str) -> Result<Vec<FlowOption>, String> {
    let option = |word: &str| {
        Ok(match word.trim().to_ascii_lowercase().as_str() {
            "established" => FlowOption::Established,
            "not_established" => FlowOption::NotEstablished,
            "stateless" => FlowOption::Stateless,
            "to_server" | "from_client" => FlowOption::ToServer,
            "to_client" | "from_server" => FlowOption::ToClient,
            "only_stream" => FlowOption::OnlyStream,
            "no_stream" => FlowOption::NoStream,
            "only_frag" => FlowOption::OnlyFragments,
            "no_frag" => FlowOption::NoFragments,
            _ => return Err(format!("{word}: not an option of flow")),
        })
    };
    let all = value.split(',').map(option).collect::<Result<Vec<_>, _>>()?;
    for (one, other) in [
        (FlowOption::ToServer, FlowOption::ToClient),
        (FlowOption::Established, FlowOption::NotEstablished),
        (FlowOption::OnlyStream, FlowOption::NoStream),
        (FlowOption::OnlyFragments, FlowOption::NoFragments),
    ] {
        if all.contains(&one) && all.contains(&other) {
            return Err(format!("{value}: options of flow contradict each other"));
        }
    }
    Ok(all)
}

/// Parses flowbits; `None` is `noalert`.
pub(super) fn parse_flowbits(value: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<Option<StateOption>, String> {
    let (command, names) = value.split_once(',').unwrap_or((value, ""));
    if command.trim() == "noalert" && names.is_empty() {
        return Ok(None);
    }
    let (command, bits) = (bit_command(command)?, bits(names, number)?);
    if bits.len() > 1 && !matches!(command, BitCommand::IsSet | BitCommand::IsNotSet) {
        return Err(format!("{names}: only tests accept several bits"));
    }
    Ok(Some(StateOption { scope: BitScope::Flow, command, bits, expire: 0 }))
}

fn bits(names: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<Vec<u32>, String> {
    let mut bits = vec![];
    for name in names.split('|') {
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("{name}: not a name of a bit"));
        }
        bits.push(number(name));
    }
    Ok(bits)
}

fn bit_command(text: &str) -> Result<BitCommand, String> {
    Ok(match text.trim() {
        "isset" => BitCommand::IsSet,
        "isnotset" => BitCommand::IsNotSet,
        "set" => BitCommand::Set,
        "unset" => BitCommand::Unset,
        "toggle" => BitCommand::Toggle,
        other => return Err(format!("{other}: not a command of bits")),
    })
}

pub(super) fn parse_xbits(value: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<Option<StateOption>, String> {
    let mut parts = value.split(',').map(str::trim);
    let command = parts.next().unwrap_or("");
    if command == "noalert" {
        return Ok(None);
    }
    let command = bit_command(command)?;
    let bits = host_bit(parts.next().unwrap_or(""), number)?;
    let (mut scope, mut expire) = (None, 30);
    for part in parts {
        match part.split_whitespace().collect::<Vec<_>>()[..] {
            ["track", "ip_src"] => scope = Some(BitScope::Source),
            ["track", "ip_dst"] => scope = Some(BitScope::Destination),
            ["track", "ip_pair"] => scope = Some(BitScope::Pair),
            ["expire", seconds] => {
                let parsed = seconds.parse().ok().filter(|n| *n > 0);
                expire = parsed.ok_or_else(|| format!("{seconds}: not a number of seconds"))?;
            }
            _ => return Err(format!("{part}: not an option of xbits")),
        }
    }
    let scope = scope.ok_or("xbits need a track")?;
    Ok(Some(StateOption { scope, command, bits, expire }))
}

/// Returns the number of a bit of hosts, which xbits and hostbits share.
fn host_bit(name: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<Vec<u32>, String> {
    if name.is_empty() || name.contains('|') {
        return Err(format!("{name}: not a name of a bit"));
    }
    bits(&format!("x:{name}"), number)
}

/// Parses hostbits; `None` is `noalert`.
pub(super) fn parse_hostbits(value: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<Option<StateOption>, String> {
    let parts: Vec<_> = value.split(',').map(str::trim).collect();
    let (command, name, scope) = match parts[..] {
        ["noalert"] => return Ok(None),
        [command, name] | [command, name, "src"] => (command, name, BitScope::Source),
        [command, name, "dst"] => (command, name, BitScope::Destination),
        _ => return Err(format!("{value}: write COMMAND,NAME,src or dst")),
    };
    let command = bit_command(command)?;
    Ok(Some(StateOption { scope, command, bits: host_bit(name, number)?, expire: 300 }))
}

pub(super) fn parse_flowint(value: &str, number: &mut dyn FnMut(&str) -> u32) -> Result<IntegerOption, String> {
    let parts: Vec<_> = value.split(',').map(str::trim).collect();
    let (name, command, operand) = match parts[..] {
        [name, command] => (name, command, None),
        [name, command, operand] => (name, command, Some(operand)),
        _ => return Err(format!("{value}: write NAME,COMMAND or NAME,COMMAND,NUMBER")),
    };
    let mut variable = |name: &str| match name.is_empty() || name.contains(char::is_whitespace) {
        true => Err(format!("{name}: not a name of a number")),
        false => Ok(number(&format!("i:{name}"))),
    };
    let first = variable(name)?;
    let operand = operand.map(|text| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => text.parse().map(IntegerOperand::Value).map_err(|_| format!("{text}: not a number of 32 bits")),
        false => variable(text).map(IntegerOperand::Variable),
    });
    let operand = operand.transpose()?;
    let command = match (command, operand) {
        ("isset", None) => IntegerCommand::IsSet,
        ("notset" | "isnotset", None) => IntegerCommand::IsNotSet,
        ("=", Some(with)) => IntegerCommand::Set(with),
        ("+", Some(with)) => IntegerCommand::Add(with),
        ("-", Some(with)) => IntegerCommand::Subtract(with),
        ("==" | "!=" | "<" | "<=" | ">" | ">=", Some(with)) => {
            let operator = TestOperator::parse(command.trim_start_matches('!'))?;
            IntegerCommand::Compare { operator, negated: command.starts_with('!'), with }
        }
        _ => return Err(format!("{command}: not a command of flowint, or a wrong number of values")),
    };
    Ok(IntegerOption { variable: first, command })
}

pub(super) fn parse_threshold(value: &str, filter: bool) -> Result<Threshold, String> {
    let mut kind = filter.then_some(ThresholdKind::DetectionFilter);
    let (mut track, mut count, mut seconds, mut unique_on, mut multiplier) = (None, None, None, None, None);
    for part in value.split(',') {
        let number = |text: &str| match text.parse::<u32>() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(format!("{text}: not a positive number")),
        };
        match part.split_whitespace().collect::<Vec<_>>()[..] {
            ["type", name] if !filter => {
                kind = Some(match name {
                    "limit" => ThresholdKind::Limit,
                    "threshold" => ThresholdKind::Threshold,
                    "both" => ThresholdKind::Both,
                    "backoff" => ThresholdKind::Backoff { multiplier: 0 },
                    _ => return Err(format!("{name}: not a type of threshold")),
                });
            }
            ["track", name] => {
                track = Some(match name {
                    "by_src" => Track::Source,
                    "by_dst" => Track::Destination,
                    "by_rule" => Track::Rule,
                    "by_both" => Track::Both,
                    "by_flow" => Track::Flow,
                    _ => return Err(format!("{name}: not a track")),
                });
            }
            ["count", n] => count = number(n)?,
            ["seconds", n] => seconds = number(n)?,
            ["multiplier", n] if !filter => multiplier = number(n)?.filter(|n| (2..65_536).contains(n)),
            ["unique_on", "src_port"] => unique_on = Some(UniqueOn::SourcePort),
            ["unique_on", "dst_port"] => unique_on = Some(UniqueOn::DestinationPort),
            _ => return Err(format!("{part}: not an option of a threshold")),
        }
    }
    if unique_on.is_some() && (!filter || count.is_some_and(|n| n >= UNIQUE_MAX)) {
        return Err(format!("{value}: unique_on needs detection_filter and a count below {UNIQUE_MAX}"));
    }
    let missing = |name: &str| format!("{value}: no {name} is given");
    if kind == Some(ThresholdKind::Backoff { multiplier: 0 }) {
        if track != Some(Track::Flow) || seconds.is_some() {
            return Err(format!("{value}: backoff needs track by_flow and a multiplier in place of seconds"));
        }
        let multiplier = multiplier.take().ok_or_else(|| missing("multiplier from 2 to 65535"))?;
        (kind, seconds) = (Some(ThresholdKind::Backoff { multiplier }), Some(BACKOFF_SECONDS));
    }
    if multiplier.is_some() {
        return Err(format!("{value}: only backoff has a multiplier"));
    }
    Ok(Threshold {
        kind: kind.ok_or_else(|| missing("type"))?,
        track: track.ok_or_else(|| missing("track"))?,
        count: count.ok_or_else(|| missing("count"))?,
        seconds: seconds.ok_or_else(|| missing("seconds"))?,
        unique_on,
    })
}
