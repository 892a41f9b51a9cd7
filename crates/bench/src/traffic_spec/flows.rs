//! Flows of the `[traffic]` table of a chain file.

use config::{ChainFile, Traffic};
use diagnostics::Diagnostic;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use traffic::flows::MAX_DESTINATIONS;
use traffic::{AddressRange, FlowSettings, Stack, Transport};
use wire::MacAddr;

/// Returns the settings of `count` flows of a chain file.
///
/// # Errors
/// An invalid value.
pub fn flow_settings(file: &ChainFile, count: u32) -> Result<FlowSettings, Diagnostic> {
    flow_settings_for_stack(file, count, None)
}

/// Returns the flow settings for a stack, which sets the transport protocol and, without addresses in the file, the IP
/// version.
pub(crate) fn flow_settings_for_stack(
    file: &ChainFile,
    count: u32,
    stack: Option<&Stack>,
) -> Result<FlowSettings, Diagnostic> {
    let t = &file.traffic;
    let error = |value: &str, problem: String, remedy: &str| traffic_error(file, value, problem, remedy);
    let range = |text: &str| parse_range(text).map_err(|e| error(text, e, "use a prefix such as 10.0.0.0/8"));
    let (src_mac, dst_mac) = mac_addresses(file)?;
    let dst_macs = t.dst_mac.iter().map(|text| parse_mac(file, text)).collect::<Result<Vec<_>, _>>()?;
    let has_no_addresses = t.src.is_none() && t.dst.is_empty() && t.prefixes.is_none();
    let ipv6 = is_ipv6(t) || has_no_addresses && stack.is_some_and(|stack| stack.ipv6);
    let mut settings = if ipv6 { FlowSettings::v6() } else { FlowSettings::v4() };
    if stack.is_some_and(|stack| stack.tcp) {
        settings.transport = Transport::Tcp;
    }
    settings.count = count;
    settings.src_mac = src_mac.unwrap_or(settings.src_mac);
    settings.dst_mac = dst_mac.unwrap_or(settings.dst_mac);
    if dst_macs.len() > 1 {
        settings.dst_macs = dst_macs;
    }
    if let Some(src) = &t.src {
        settings.src = range(src)?;
    }
    let mut dst = t.dst.iter().map(|d| range(d)).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = &t.prefixes {
        let path = file.folder().join(name);
        let remedy = "use a file with a prefix at the start of each line";
        dst.extend(read_prefixes(&path, settings.src.is_ipv4()).map_err(|e| error(name, e, remedy))?);
    }
    if !dst.is_empty() {
        settings.dst = dst;
    }
    if let Some(port) = t.dst_port {
        settings.dst_ports = port..=port;
    }
    Ok(settings)
}

/// Returns the source and the first destination MAC address of a chain file.
///
/// # Errors
/// An invalid address.
pub(crate) fn mac_addresses(file: &ChainFile) -> Result<(Option<MacAddr>, Option<MacAddr>), Diagnostic> {
    let mac = |text: Option<&String>| text.map(|text| parse_mac(file, text)).transpose();
    Ok((mac(file.traffic.src_mac.as_ref())?, mac(file.traffic.dst_mac.first())?))
}

fn parse_mac(file: &ChainFile, text: &str) -> Result<MacAddr, Diagnostic> {
    text.parse().map_err(|_| {
        traffic_error(file, text, "is not a MAC address".to_owned(), "use an address such as 02:00:00:00:00:01")
    })
}

fn traffic_error(file: &ChainFile, value: &str, problem: String, remedy: &str) -> Diagnostic {
    let d = Diagnostic::new(format!("[traffic]: {problem}")).value(value).remedy(remedy);
    Diagnostic { file: Some(file.file.clone()), ..d }
}

fn is_ipv6(t: &Traffic) -> bool {
    t.src.iter().chain(&t.dst).any(|text| text.contains(':'))
}

/// Parses a prefix or an address.
fn parse_range(text: &str) -> Result<AddressRange, String> {
    let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().map_err(|_| "is not a prefix".to_owned())?;
    match len {
        None => Ok(address.into()),
        Some(len) => {
            let len = len.parse().map_err(|_| "has an invalid prefix length".to_owned())?;
            AddressRange::prefix(address, len).map_err(|e| e.to_string())
        }
    }
}

/// Maximum size of a prefix file, bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Reads the prefixes at the start of the lines of a file, those of one IP version with unicast addresses.
fn read_prefixes(path: &Path, ipv4: bool) -> Result<Vec<AddressRange>, String> {
    let open = || File::open(path).map_err(|e| format!("cannot be read: {e}"));
    let mut file = BufReader::new(open()?);
    let gzipped = file.fill_buf().map_err(|e| e.to_string())?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    let (mut found, mut text) = (vec![], text.take(MAX_FILE_BYTES));
    for line in text.by_ref().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let Some(word) = line.split_ascii_whitespace().next().filter(|w| !w.starts_with('#')) else { continue };
        let range = parse_range(word).map_err(|e| format!("{word:?} {e}"))?;
        if range.is_ipv4() == ipv4 && is_unicast(range.first()) {
            found.push(range);
        }
        if found.len() > MAX_DESTINATIONS {
            return Err(format!("has more than {MAX_DESTINATIONS} prefixes"));
        }
    }
    if text.limit() == 0 {
        return Err(format!("has {MAX_FILE_BYTES} bytes or more"));
    }
    if found.is_empty() {
        return Err(format!("has no unicast IPv{} prefix", if ipv4 { 4 } else { 6 }));
    }
    Ok(found)
}

fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !matches!(a.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(a) => !(a.is_multicast() || a.is_loopback() || a.is_unspecified() || a.is_unicast_link_local()),
    }
}
