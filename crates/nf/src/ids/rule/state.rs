//! Options about flows, their bits, and rates of alerts.

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

/// Place of the bits of xbits and flowbits.
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
    /// Lifetime in seconds, of xbits.
    pub(in crate::ids) expire: u32,
}

impl StateOption {
    pub(in crate::ids) fn reads(&self) -> bool {
        matches!(self.command, BitCommand::IsSet | BitCommand::IsNotSet)
    }
}

/// Kind of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ids) enum ThresholdKind {
    Limit,
    Threshold,
    Both,
    DetectionFilter,
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
    let name = parts.next().unwrap_or("");
    if name.is_empty() || name.contains('|') {
        return Err(format!("{name}: not a name of a bit"));
    }
    let bits = bits(&format!("x:{name}"), number)?;
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

pub(super) fn parse_threshold(value: &str, filter: bool) -> Result<Threshold, String> {
    let mut kind = filter.then_some(ThresholdKind::DetectionFilter);
    let (mut track, mut count, mut seconds, mut unique_on) = (None, None, None, None);
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
            ["unique_on", "src_port"] => unique_on = Some(UniqueOn::SourcePort),
            ["unique_on", "dst_port"] => unique_on = Some(UniqueOn::DestinationPort),
            _ => return Err(format!("{part}: not an option of a threshold")),
        }
    }
    if unique_on.is_some() && (!filter || count.is_some_and(|n| n >= UNIQUE_MAX)) {
        return Err(format!("{value}: unique_on needs detection_filter and a count below {UNIQUE_MAX}"));
    }
    let missing = |name: &str| format!("{value}: no {name} is given");
    Ok(Threshold {
        kind: kind.ok_or_else(|| missing("type"))?,
        track: track.ok_or_else(|| missing("track"))?,
        count: count.ok_or_else(|| missing("count"))?,
        seconds: seconds.ok_or_else(|| missing("seconds"))?,
        unique_on,
    })
}
