//! Text of a field and its values.

use super::{FieldSpec, Values, layout};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use wire::MacAddr;

/// Most values of a list.
pub const MAX_VALUES: usize = 65_536;

/// The text is no field with values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no field with values; give a name and a range or a list: `ipv4.dscp=0-63`, `udp.dst=random:1024-65535`, \
     `ipv4.src=10.0.0.0-10.0.0.255/4`, `eth.dst=99*02:00:00:00:00:01|ff:ff:ff:ff:ff:ff`; at most {MAX_VALUES} values in a \
     list, and 2^63 in a range"
)]
pub struct NotField(pub(super) String);

impl FromStr for FieldSpec {
    type Err = NotField;

    fn from_str(text: &str) -> Result<Self, NotField> {
        spec(text).ok_or_else(|| NotField(text.chars().take(120).collect()))
    }
}

fn spec(text: &str) -> Option<FieldSpec> {
    let (name, written) = text.split_once('=')?;
    let (name, written) = (name.trim(), written.trim());
    if !layout::is_name(name) {
        return None;
    }
    let values = if let Some(range) = written.strip_prefix("random:") {
        let (first, last, step) = range_of(range)?;
        let count = u64::try_from(last.checked_sub(first)?).ok()?.checked_add(1)?;
        (step == 1 && count <= 1 << 63).then_some(Values::Random { first, count })?
    } else if let Some((first, last, step)) = range_of(written) {
        let span = u64::try_from(first.abs_diff(last)).ok()?;
        let count = span / step + 1;
        (span < 1 << 63).then_some(Values::Range { first, step, count, descending: last < first })?
    } else {
        list(written)?
    };
    // one address of IPv6 has the same upper half as the others
    let crosses = match &values {
        Values::Range { first, descending: false, .. } | Values::Random { first, .. } => {
            first >> 64 != values.max() >> 64
        }
        Values::Range { first, step, count, .. } => {
            first.checked_sub(u128::from(count - 1) * u128::from(*step)).is_none_or(|last| last >> 64 != first >> 64)
        }
        Values::List(_) => false,
    };
    (!crosses).then(|| FieldSpec { name: name.to_owned(), values })
}

/// `FIRST-LAST` or `FIRST-LAST/STEP`
fn range_of(text: &str) -> Option<(u128, u128, u64)> {
    let (range, step) = text.split_once('/').map_or((text, Some(1)), |(range, step)| (range, step.trim().parse().ok()));
    let (first, last) = range.split_once('-')?;
    Some((value(first)?, value(last)?, step.filter(|step| *step != 0)?))
}

/// `A|B|9*C`
fn list(text: &str) -> Option<Values> {
    let mut all = vec![];
    for part in text.split('|') {
        let (times, one) =
            part.split_once('*').map_or((Some(1), part), |(times, one)| (times.trim().parse().ok(), one));
        let times = times.filter(|times| (1..=MAX_VALUES - all.len()).contains(times))?;
        all.extend(std::iter::repeat_n(value(one)?, times));
    }
    Some(Values::List(all.into()))
}

/// A number, an address or a MAC address.
fn value(text: &str) -> Option<u128> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(u128::from);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(u32::from(address).into());
    }
    if let Ok(MacAddr(octets)) = text.parse::<MacAddr>() {
        return Some(octets.iter().fold(0, |sum, octet| sum << 8 | u128::from(*octet)));
    }
    text.parse::<Ipv6Addr>().ok().map(u128::from)
}
