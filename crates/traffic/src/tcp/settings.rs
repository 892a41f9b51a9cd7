//! Settings of connections, and their text form.

use super::segment::{MSS, MSS_OPTION};
use super::{ClientSettings, MAX_CONNECTIONS, MAX_REQUEST, MAX_RESPONSE, ServerSettings};
use crate::flows::FlowSettings;
use crate::size::{FCS, FrameSize};
use crate::template::headers;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Most requests of a connection.
const MAX_TRANSACTIONS: u32 = 100;
/// Longest hold time and timeout.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// Connections as in `request=100,response=1000,transactions=2,hold=1s`. The text form leaves out defaults but for both
/// sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpSettings {
    /// Bytes of a request, 1 to [`MAX_REQUEST`].
    pub request: u32,
    /// Bytes of a response, 1 to [`MAX_RESPONSE`].
    pub response: u32,
    /// Requests of each connection; 0 opens and closes it only.
    pub transactions: u32,
    /// Time between the last response and the close.
    pub hold: Duration,
    /// Time to wait for an answer; doubled with each retransmission.
    pub timeout: Duration,
    /// Retransmissions before a connection fails.
    pub retries: u8,
    /// True if servers answer the clients directly, without the device (direct server return).
    pub dsr: bool,
}

/// Settings that do not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{setting}`: {problem}; write for example `request=100,response=1000`, with any of `transactions=N` (0 to \
     {MAX_TRANSACTIONS}), `hold=TIME`, `timeout=TIME` (10ms, 2s), `retries=N` and `dsr`"
)]
pub struct TcpSettingsError {
    setting: String,
    problem: String,
}

impl Default for TcpSettings {
    /// Returns one request of 64 and one response of 1024 bytes, and no retransmission after a timeout of 1 s: a lost
    /// segment fails its connection.
    fn default() -> Self {
        TcpSettings {
            request: 64,
            response: 1024,
            transactions: 1,
            hold: Duration::ZERO,
            timeout: Duration::from_secs(1),
            retries: 0,
            dsr: false,
        }
    }
}

impl fmt::Display for TcpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = TcpSettings::default();
        write!(f, "request={},response={}", self.request, self.response)?;
        if self.transactions != default.transactions {
            write!(f, ",transactions={}", self.transactions)?;
        }
        for (name, value, default) in [("hold", self.hold, default.hold), ("timeout", self.timeout, default.timeout)] {
            match value.as_millis() {
                _ if value == default => {}
                ms if ms.is_multiple_of(1000) => write!(f, ",{name}={}s", ms / 1000)?,
                ms => write!(f, ",{name}={ms}ms")?,
            }
        }
        if self.retries != default.retries {
            write!(f, ",retries={}", self.retries)?;
        }
        if self.dsr { f.write_str(",dsr") } else { Ok(()) }
    }
}

impl FromStr for TcpSettings {
    type Err = TcpSettingsError;

    fn from_str(text: &str) -> Result<Self, TcpSettingsError> {
        let mut settings = TcpSettings::default();
        for setting in text.split(',').map(str::trim) {
            settings
                .set(setting)
                .map_err(|problem| TcpSettingsError { setting: setting.chars().take(60).collect(), problem })?;
        }
        Ok(settings)
    }
}

impl TcpSettings {
    fn set(&mut self, setting: &str) -> Result<(), String> {
        let Some((name, value)) = setting.split_once('=') else {
            return match setting {
                "dsr" => {
                    self.dsr = true;
                    Ok(())
                }
                _ => Err("is not a setting".to_owned()),
            };
        };
        let number = |least: u32, most: u32| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("is not a number from {least} to {most}"))
        };
        match name {
            "request" => self.request = number(1, MAX_REQUEST as u32)?,
            "response" => self.response = number(1, MAX_RESPONSE as u32)?,
            "transactions" => self.transactions = number(0, MAX_TRANSACTIONS)?,
            "retries" => self.retries = number(0, 10)? as u8,
            "hold" => self.hold = time(value, Duration::ZERO)?,
            "timeout" => self.timeout = time(value, Duration::from_millis(1))?,
            _ => return Err("is not a setting".to_owned()),
        }
        Ok(())
    }

    /// Returns the frames that a client sends in a connection without loss: SYN, acknowledgment, requests, an
    /// acknowledgment of each segment of a response but the last, FIN and the acknowledgment of the other FIN.
    pub fn client_frames(&self) -> u32 {
        let acknowledged_by_next = self.response.div_ceil(MSS.into()) - 1;
        4 + self.transactions * (1 + acknowledged_by_next) + u32::from(self.hold != Duration::ZERO)
    }

    /// Returns the sizes of these frames in bytes with FCS, each with its number.
    pub fn client_frame_sizes(&self, is_ipv4: bool) -> Vec<(u16, u32)> {
        let headers = headers(is_ipv4, true);
        let size = |len: usize| FrameSize::MIN.with_fcs().max(len as u16 + FCS);
        let acknowledgments = self.client_frames() - 1 - self.transactions;
        let mut sizes = BTreeMap::from([(size(headers + MSS_OPTION), 1)]);
        for (len, frames) in [(headers, acknowledgments), (headers + self.request as usize, self.transactions)] {
            *sizes.entry(size(len)).or_default() += frames;
        }
        sizes.into_iter().filter(|(_, frames)| *frames != 0).collect()
    }

    /// Returns the bytes of the longest frame of clients and servers, without FCS.
    pub fn longest_frame(&self, is_ipv4: bool) -> usize {
        let headers = headers(is_ipv4, true);
        headers + (self.request.max(self.response.min(MSS.into())) as usize).max(MSS_OPTION)
    }

    /// Returns the settings of clients with the addresses and ports of `flows`, whose count is that of the pairs of
    /// client address and port.
    pub fn client(&self, flows: &FlowSettings) -> ClientSettings {
        let ns = |time: Duration| time.as_nanos() as u64;
        ClientSettings {
            src: flows.src,
            src_ports: flows.src_ports.clone(),
            pairs: flows.count.min(MAX_CONNECTIONS),
            dst: flows.dst.clone().into(),
            dst_port: *flows.dst_ports.start(),
            macs: (flows.src_mac, flows.dst_mac),
            request: http_request(self.request as usize).into(),
            response: Some(self.response),
            transactions: self.transactions,
            hold_ns: ns(self.hold),
            timeout_ns: ns(self.timeout),
            retries: self.retries,
            seed: flows.seed,
        }
    }

    /// Returns the settings of servers.
    pub fn server(&self, flows: &FlowSettings) -> ServerSettings {
        ServerSettings { response: http_response(self.response as usize).into(), seed: flows.seed }
    }
}

/// Parses `1500ms`, `2s` or `1m`.
fn time(text: &str, least: Duration) -> Result<Duration, String> {
    let unit = |suffix: &str, ms: u64| Some(text.strip_suffix(suffix)?.parse::<u64>().ok()?.checked_mul(ms));
    let ms = unit("ms", 1).or_else(|| unit("s", 1000)).or_else(|| unit("m", 60_000)).flatten();
    let time = ms.map(Duration::from_millis).filter(|time| (least..=MAX_TIME).contains(time));
    time.ok_or_else(|| format!("is not a time from {} ms to 1 h, such as 10ms or 2s", least.as_millis()))
}

/// Returns an HTTP request of this length (RFC 9112), or a letter repeated if it is too short for one.
fn http_request(len: usize) -> Vec<u8> {
    padded(len, "GET / HTTP/1.1\r\nHost: bondstone.test\r\nX-Padding: ", "\r\n\r\n")
}

/// Returns an HTTP response of this length, with a body that fills it.
fn http_response(len: usize) -> Vec<u8> {
    // the number of digits of the length depends on the length
    let head = |body: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n");
    let body = (0..=len).rev().find(|body| head(*body).len() + body <= len);
    match body.map(|body| (head(body), body)) {
        Some((head, body)) if head.len() + body == len => padded(len, &head, ""),
        // one digit less
        Some((_, body)) => padded(len, &head(body).replace("Length: ", "Length:  "), ""),
        None => vec![b'.'; len],
    }
}

/// Returns both parts with a letter repeated between them, so that the length is `len`.
fn padded(len: usize, start: &str, end: &str) -> Vec<u8> {
    let Some(padding) = len.checked_sub(start.len() + end.len()) else { return vec![b'.'; len] };
    let mut bytes = start.as_bytes().to_vec();
    bytes.resize(start.len() + padding, b'x');
    bytes.extend(end.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_round_trip() {
        for text in [
            "request=64,response=1024",
            "request=1,response=64000,transactions=10,hold=2s,timeout=20ms,retries=3,dsr",
            "request=1440,response=1,transactions=0,hold=1500ms",
        ] {
            assert_eq!(text.parse::<TcpSettings>().unwrap().to_string(), text);
        }
        assert_eq!("response=5,hold=1m".parse::<TcpSettings>().unwrap().to_string(), "request=64,response=5,hold=60s");
        for (bad, problem) in [
            ("", "not a setting"),
            ("fast", "not a setting"),
            ("request=0", "1 to 1440"),
            ("request=1441", "1 to 1440"),
            ("response=64001", "1 to 64000"),
            ("hold=2h", "10ms or 2s"),
            ("hold=18446744073709551615m", "10ms or 2s"),
            ("timeout=0s", "from 1 ms"),
            ("request=5,retries=11", "0 to 10"),
            ("speed=1", "not a setting"),
        ] {
            let error = bad.parse::<TcpSettings>().unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("request=100"), "{bad}: {error}");
        }
    }

    #[test]
    fn frames_of_a_connection() {
        let settings: TcpSettings = "request=100,response=1440".parse().unwrap();
        assert_eq!(settings.client_frames(), 5);
        assert_eq!(settings.client_frame_sizes(true), [(64, 4), (158, 1)]);
        assert_eq!(settings.client_frame_sizes(false), [(78, 3), (82, 1), (178, 1)]);
        let long: TcpSettings = "response=64000,transactions=3,hold=1s".parse().unwrap();
        assert_eq!(long.client_frames(), 5 + 3 * 45);
        assert_eq!((settings.longest_frame(true), long.longest_frame(false)), (1494, 1514));
    }

    proptest! {
        #[test]
        fn messages_have_the_length(len in 1_usize..=MAX_RESPONSE) {
            let (request, response) = (http_request(len), http_response(len));
            prop_assert_eq!((request.len(), response.len()), (len, len));
            if let Some((head, body)) = String::from_utf8(response).unwrap().split_once("\r\n\r\n") {
                let length: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
                prop_assert_eq!(length, body.len());
            } else {
                prop_assert!(len < 40);
            }
        }
    }
}
