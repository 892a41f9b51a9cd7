//! A packet filter with optional connection tracking.

mod conntrack;
mod drop_reason;
pub mod import;
mod key;
mod live_rules;
mod operations;
mod rule;
mod rule_set;
mod stateful;
mod stateless;
mod updates;

use conntrack::settings::ConntrackSettings;
use conntrack::table::Conntrack;
use diagnostics::Diagnostic;
use graph::{BuildContext, Either, Nf, Node, Spread, TakeOver};
pub use live_rules::LiveRules;
use live_rules::RuleSource;
use rule::Action;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stateful::StatefulNode;
use stateless::StatelessNode;
use std::path::PathBuf;

/// `firewall`: passes or drops a packet by the first rule that it matches.
pub struct Firewall;

/// Settings of [`Firewall`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rules; the first match decides: "accept proto tcp dst 192.0.2.0/24 dport 80-443", "drop src 10.0.0.0/8", "accept
    /// proto icmp type 8", "drop proto tcp flags syn,!ack", "drop fragment later". IPv6 extension headers (proto ah, 0,
    /// 43, 44, 60, 135) are skipped, so only rules with an IPv4 address may match them. With track, rules apply to
    /// packets of new connections unless they name other states: "drop state any src 10.66.0.0/16", "accept state
    /// invalid", "drop state established,related dport 23".
    rules: Vec<String>,
    /// File of further rules, one per line, that follow those of rules. It is reloaded when it changes; a file with an
    /// invalid rule is ignored.
    file: Option<PathBuf>,
    /// Action for IP packets that match no rule, with track only those of new connections: accept or drop.
    default: Action,
    /// Action for frames that are not IP, such as ARP: accept or drop.
    other: Action,
    /// Connection tracking: if the rules accept the first packet of a connection, its further packets pass in both
    /// directions while their TCP sequence numbers are within the windows, and so do ICMP errors about them. Without it
    /// every packet is treated as new.
    track: Option<ConntrackSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { rules: vec![], file: None, default: Action::Drop, other: Action::Accept, track: None }
    }
}

impl Nf for Firewall {
    type Settings = Settings;
    const KIND: &'static str = "firewall";
    const ABOUT: &'static str = "Passes or drops IPv4 and IPv6 packets by the first rule that matches addresses, protocol, ports, ICMP type, \
         TCP flags, fragments and, with tracking, connection state, behind up to four VLAN tags. Counts the packets of each rule.";
    const SPREAD: Spread = Spread::Hosts;
    const TAKES_OVER: Option<TakeOver> = Some(TakeOver { state: "connections", unless: &["track"], format: Some(1) });
    const EXAMPLE: &'static str = "rules = [\n  \"accept proto tcp dst 192.0.2.0/24 dport 80-443\",\n  \"accept proto icmp type 8\",\n  \
         \"drop src 10.0.0.0/8\",\n]\ndefault = \"drop\"";

    fn spread(settings: &Settings) -> Spread {
        if settings.track.is_some() { Spread::Hosts } else { Spread::Any }
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let source = RuleSource {
            rules: settings.rules.clone(),
            file: settings.file.as_ref().map(|file| cx.resolve_path(file)),
            files: cx.files.clone(),
            tracked: settings.track.is_some(),
            default_action: settings.default,
        };
        let live = cx.shared(|| LiveRules::new(source))?;
        Ok(match &settings.track {
            Some(track) => Either::A(StatefulNode::new(live, Conntrack::new(track)?, settings.other)),
            None => Either::B(StatelessNode::new(live, settings.other)),
        })
    }
}

#[cfg(test)]
mod tests;
