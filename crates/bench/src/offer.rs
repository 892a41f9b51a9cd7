//! From a chain file's `[traffic]` table to flows.

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

/// The flows that a file asks for; `count` of them.
///
/// # Errors
/// A value that is none.
pub fn flow_settings(file: &ChainFile, count: u32) -> Result<FlowSettings, Diagnostic> {
    flow_settings_of(file, count, None)
}

/// As [`flow_settings`], for a stack, which says what is above IP, and where the file has no addresses also which IP.
pub(crate) fn flow_settings_of(file: &ChainFile, count: u32, stack: Option<Stack>) -> Result<FlowSettings, Diagnostic> {
    let t = &file.traffic;
    let wrong = |value: &str, problem: String, remedy: &str| wrong(file, value, problem, remedy);
    let net = |text: &str| net(text).map_err(|e| wrong(text, e, "write a prefix such as 10.0.0.0/8"));
    let (src_mac, dst_mac) = macs(file)?;
    let unsaid = t.src.is_none() && t.dst.is_empty() && t.prefixes.is_none();
    let ipv6 = is_ipv6(t) || unsaid && stack.is_some_and(|stack| stack.ipv6);
    let mut settings = if ipv6 { FlowSettings::v6() } else { FlowSettings::v4() };
    if stack.is_some_and(|stack| stack.tcp) {
        settings.transport = Transport::Tcp;
    }
    settings.count = count;
    settings.src_mac = src_mac.unwrap_or(settings.src_mac);
    settings.dst_mac = dst_mac.unwrap_or(settings.dst_mac);
    if let Some(src) = &t.src {
        settings.src = net(src)?;
    }
    let mut dst = t.dst.iter().map(|d| net(d)).collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = &t.prefixes {
        let path = file.folder().join(name);
        let remedy = "name a file with a prefix at the beginning of each line";
        dst.extend(prefixes(&path, settings.src.is_ipv4()).map_err(|e| wrong(name, e, remedy))?);
    }
    if !dst.is_empty() {
        settings.dst = dst;
    }
    if let Some(port) = t.dst_port {
        settings.dst_ports = port..=port;
    }
    Ok(settings)
}

/// The MAC addresses that a file asks for, source and destination.
///
/// # Errors
/// One that is none.
pub(crate) fn macs(file: &ChainFile) -> Result<(Option<MacAddr>, Option<MacAddr>), Diagnostic> {
    let mac = |text: &Option<String>| {
        let mac = text.as_ref().map(|text| text.parse().map_err(|_| text));
        mac.transpose()
            .map_err(|text| wrong(file, text, "is no MAC address".to_owned(), "write one like 02:00:00:00:00:01"))
    };
    Ok((mac(&file.traffic.src_mac)?, mac(&file.traffic.dst_mac)?))
}

fn wrong(file: &ChainFile, value: &str, problem: String, remedy: &str) -> Diagnostic {
    let d = Diagnostic::new(format!("[traffic]: {problem}")).value(value).remedy(remedy);
    Diagnostic { file: Some(file.file.clone()), ..d }
}

fn is_ipv6(t: &Traffic) -> bool {
    t.src.iter().chain(&t.dst).any(|text| text.contains(':'))
}

/// A prefix, or one address.
fn net(text: &str) -> Result<AddressRange, String> {
    let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().map_err(|_| "is no prefix".to_owned())?;
    match len {
        None => Ok(address.into()),
        Some(len) => {
            let len = len.parse().map_err(|_| "has no length that is a number".to_owned())?;
            AddressRange::prefix(address, len).map_err(|e| e.to_string())
        }
    }
}

/// Bytes of a file of prefixes that are read.
const LARGEST: u64 = 64 << 20;

/// The first words of a file's lines, where they are prefixes of that version that packets may go to.
fn prefixes(path: &Path, ipv4: bool) -> Result<Vec<AddressRange>, String> {
    let open = || File::open(path).map_err(|e| format!("cannot be read: {e}"));
    let mut file = BufReader::new(open()?);
    let gzipped = file.fill_buf().map_err(|e| e.to_string())?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    let (mut found, mut text) = (vec![], text.take(LARGEST));
    for line in text.by_ref().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let Some(word) = line.split_ascii_whitespace().next().filter(|w| !w.starts_with('#')) else { continue };
        let range = net(word).map_err(|e| format!("{word:?} {e}"))?;
        if range.is_ipv4() == ipv4 && is_unicast(range.first()) {
            found.push(range);
        }
        if found.len() > MAX_DESTINATIONS {
            return Err(format!("has more than {MAX_DESTINATIONS} prefixes"));
        }
    }
    if text.limit() == 0 {
        return Err(format!("has {LARGEST} bytes or more"));
    }
    if found.is_empty() {
        return Err(format!("has no IPv{} prefix that packets may go to", if ipv4 { 4 } else { 6 }));
    }
    Ok(found)
}

fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !matches!(a.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(a) => !(a.is_multicast() || a.is_loopback() || a.is_unspecified() || a.is_unicast_link_local()),
    }
}
