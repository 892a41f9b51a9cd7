//! Settings of connection tracking.

use super::connection::State;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of connection tracking.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConntrackSettings {
    /// Largest number of connections per core and IP version; each takes 64 bytes with IPv4, 128 with IPv6.
    pub(crate) connections: u32,
    /// Treatment of a new connection when the table is full: refuse (its packet is dropped) or evict (the connection
    /// that has been idle longest among up to sixteen candidates is removed).
    pub(crate) full: FullPolicy,
    /// Tracks TCP connections whose start was not seen, if the rules accept a packet; their windows are not checked.
    pub(crate) loose: bool,
    /// Largest number of datagrams, per core and IP version, whose later fragments pass because the first has passed.
    /// When it is exceeded, an old one is removed.
    pub(crate) fragments: u32,
    /// Time in seconds for which later fragments may follow a first fragment, 1 to 2000000.
    pub(crate) fragment_time: u32,
    /// Idle timeout of an established TCP connection in seconds, 1 to 2000000 (RFC 5382 REQ-5: not less than 7440).
    pub(crate) tcp_established: u32,
    /// Idle timeout of a TCP connection that is opening or closing, in seconds (RFC 5382 REQ-5: not less than 240).
    pub(crate) tcp_transitory: u32,
    /// Idle timeout of a closed or reset TCP connection in seconds.
    pub(crate) tcp_closed: u32,
    /// Idle timeout of UDP and similar protocols in seconds, once both sides have sent (RFC 4787 REQ-5: 300).
    pub(crate) udp: u32,
    /// Idle timeout of UDP and similar protocols in seconds, while only one side has sent.
    pub(crate) udp_one_way: u32,
    /// Idle timeout of an ICMP query in seconds (RFC 5508 REQ-2: not less than 60).
    pub(crate) icmp: u32,
    /// Idle timeout of protocols without ports, such as GRE and ESP, in seconds.
    pub(crate) other: u32,
}

impl Default for ConntrackSettings {
    fn default() -> Self {
        ConntrackSettings {
            connections: 65_536,
            full: FullPolicy::Refuse,
            loose: false,
            fragments: 1024,
            fragment_time: 30,
            tcp_established: 7440,
            tcp_transitory: 240,
            tcp_closed: 60,
            udp: 300,
            udp_one_way: 30,
            icmp: 60,
            other: 600,
        }
    }
}

/// Treatment of a new connection when the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FullPolicy {
    /// Its packet is dropped.
    Refuse,
    /// The connection that has been idle longest among the candidates is removed.
    Evict,
}

/// The tables count time in units of 2^10 ms, about a second, so that the time stamp of a busy connection is rarely
/// written.
pub(super) const TICK_SHIFT: u32 = 10;
/// Largest timeout in seconds; the clock of the tables covers twice that.
const MAX_TIMEOUT: u32 = 2_000_000;
/// Idle timeouts in units of 2^[`TICK_SHIFT`] ms, by state.
pub(super) type Timers = [u32; 16];

impl ConntrackSettings {
    fn timeouts(&self) -> [(&'static str, u32); 8] {
        [
            ("track.fragment_time", self.fragment_time),
            ("track.tcp_established", self.tcp_established),
            ("track.tcp_transitory", self.tcp_transitory),
            ("track.tcp_closed", self.tcp_closed),
            ("track.udp", self.udp),
            ("track.udp_one_way", self.udp_one_way),
            ("track.icmp", self.icmp),
            ("track.other", self.other),
        ]
    }

    pub(super) fn timers(&self) -> Timers {
        let mut timers = [ticks(self.other); 16];
        let mut set = |states: &[State], seconds| states.iter().for_each(|s| timers[*s as usize] = ticks(seconds));
        set(&[State::SynSent, State::SynSent2, State::SynRecv], self.tcp_transitory);
        set(&[State::Fin0, State::Fin1, State::Closing], self.tcp_transitory);
        set(&[State::Established], self.tcp_established);
        set(&[State::Closed], self.tcp_closed);
        set(&[State::OneWay], self.udp_one_way);
        set(&[State::TwoWay], self.udp);
        set(&[State::Query], self.icmp);
        timers
    }

    /// Returns the timeouts that apply while the table is full: at most five seconds for unanswered and closed
    /// connections.
    pub(super) fn pressure_timers(&self) -> Timers {
        let mut timers = self.timers();
        for state in [State::SynSent, State::SynSent2, State::SynRecv, State::Closed, State::OneWay, State::Query] {
            let timer = &mut timers[state as usize];
            *timer = (*timer).min(ticks(5));
        }
        timers
    }

    pub(crate) fn check(&self) -> Result<(), Diagnostic> {
        for (key, seconds) in self.timeouts() {
            if seconds == 0 || seconds > MAX_TIMEOUT {
                let d = Diagnostic::new(format!("{key} is not a valid timeout")).key("track").value(seconds);
                return Err(d.remedy(format!("write 1 to {MAX_TIMEOUT} seconds")));
            }
        }
        Ok(())
    }
}

/// Converts seconds to units of the tables' time, rounded up and one more, so that nothing expires early.
pub(super) fn ticks(seconds: u32) -> u32 {
    ((u64::from(seconds) * 1000).div_ceil(1 << TICK_SHIFT) + 1) as u32
}
