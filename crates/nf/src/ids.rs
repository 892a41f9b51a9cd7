//! Signature-based intrusion detection with rules of the Snort and Suricata language.

mod app;
mod engine;
mod eve;
mod reject;
mod rule;

use crate::settings::in_range;
use diagnostics::Diagnostic;
use engine::{Alert, Engine, Options, RuleSet, Verdict};
use eve::EveLog;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Named, Nf, Node, Spread, TakeOver};
use packet::Batch;
use reject::Replies;
use rule::Action;
use rule::address::Variables;
use rule::parser::{Parser, remove_duplicates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::cell::RefCell;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use streams::window::Overlap;

/// `ids`: matches packets and TCP streams with rules.
pub struct Ids;

/// Settings of [`Ids`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Files of rules. A rule that is malformed or has an unsupported option is reported and refused; the others are in
    /// effect.
    rules: Vec<PathBuf>,
    /// Further rules, in effect after those of the files.
    inline: Vec<String>,
    /// Values of variables that rules refer to, by name without $: { HOME_NET = "[10.0.0.0/8]" }.
    variables: Variables,
    /// File to which alerts are appended as JSON lines, or UNIX stream socket to which they are written.
    alerts: Option<PathBuf>,
    /// Largest number of alerts logged per second and core, 0: no limit. Further ones are counted as lost.
    alert_rate: u32,
    /// Largest number of alerts per packet, 1 to 255.
    alerts_per_packet: u8,
    /// Mode: detect (all packets pass) or prevent (rules with drop and reject drop packets).
    mode: Mode,
    /// Order in which rules are evaluated by their actions.
    action_order: Vec<Action>,
    /// Verification of checksums: TCP segments with wrong ones are not added to streams.
    checksums: bool,
    /// Reassembly of TCP connections whose start was not seen.
    midstream: bool,
    /// Search for the contents of rules: hyperscan, aho_corasick, or auto, which is hyperscan if its library is installed.
    matcher: Matcher,
    /// Maximum number of flows per core, 1 to 16777216. If the table is full, the flow that was idle longest is evicted.
    flows: u32,
    /// Maximum number of bytes of streams that are kept per core. Beyond, segments are inspected one by one.
    stream_memory: u64,
    /// Choice of bytes where segments overlap that wait for missing ones: first, last or linux.
    overlap: Overlap,
}

/// Treatment of packets that match rules with drop or reject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// All packets pass.
    #[default]
    Detect,
    /// Packets are dropped.
    Prevent,
}

/// Search for the contents of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Matcher {
    /// Hyperscan or Vectorscan if it is installed, otherwise Aho-Corasick.
    #[default]
    Auto,
    /// Hyperscan or Vectorscan.
    Hyperscan,
    /// An Aho-Corasick automaton.
    AhoCorasick,
}

impl Matcher {
    fn engine(self) -> Result<multi_pattern::Engine, Diagnostic> {
        match self {
            Matcher::Auto => Ok(multi_pattern::Engine::best()),
            Matcher::AhoCorasick => Ok(multi_pattern::Engine::AhoCorasick),
            Matcher::Hyperscan => {
                match multi_pattern::hyperscan_version() {
                    Ok(_) => Ok(multi_pattern::Engine::Hyperscan),
                    Err(e) => {
                        let d = Diagnostic::new(e.to_string()).key("matcher").value("hyperscan");
                        Err(d.remedy("write \"auto\", or install libhyperscan5 or libvectorscan5 (in a container or VM: its image)"))
                    }
                }
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules: vec![],
            inline: vec![],
            variables: Variables::from([
                ("HOME_NET".to_owned(), "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]".to_owned()),
                ("EXTERNAL_NET".to_owned(), "any".to_owned()),
            ]),
            alerts: None,
            alert_rate: 0,
            alerts_per_packet: 15,
            mode: Mode::Detect,
            action_order: Action::ALL.to_vec(),
            checksums: true,
            midstream: false,
            matcher: Matcher::Auto,
            flows: 65_536,
            stream_memory: 256 << 20,
            overlap: Overlap::First,
        }
    }
}

/// Maximum of the setting `flows`.
const FLOWS_MAX: u64 = 1 << 24;

impl Nf for Ids {
    type Settings = Settings;
    const KIND: &'static str = "ids";
    const ABOUT: &'static str = "Matches packets and reassembled TCP streams with rules of the Snort and Suricata language, logs alerts as JSON lines \
         and, in prevent mode, drops packets.";
    const SPREAD: Spread = Spread::Hosts;
    const TAKES_OVER: Option<TakeOver> =
        Some(TakeOver { state: "flows, streams, bits, thresholds", unless: &[], format: None });
    const EXAMPLE: &'static str = "inline = ['alert tcp any any -> any 80 (msg:\"traversal\"; flow:to_server; content:\"/etc/passwd\"; sid:1;)']\nmode = \"detect\"";

    fn preload() {
        // without the library its own search is used
        let _ = multi_pattern::hyperscan_version();
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        in_range(settings.flows.into(), 1..=FLOWS_MAX, "flows", "number of flows")?;
        in_range(settings.alerts_per_packet.into(), 1..=u8::MAX.into(), "alerts_per_packet", "number of alerts")?;
        let order = &settings.action_order;
        if order.len() != Action::ALL.len() || Action::ALL.iter().any(|action| !order.contains(action)) {
            let d = Diagnostic::new("actions are missing or repeated").key("action_order").value(format!("{order:?}"));
            return Err(d.remedy("write pass, drop, reject and alert in the order wanted"));
        }
        let counters = Counters::<CounterId>::default();
        let engine = settings.matcher.engine()?;
        let loaded = if cx.check_only {
            Arc::new(LoadedRules::new(settings, cx, None)?)
        } else {
            cx.shared(|| LoadedRules::new(settings, cx, Some(engine)))?
        };
        if cx.copy.0 == 0 {
            counters[CounterId::Refused].set(loaded.refused);
            counters[CounterId::Rules].set(loaded.rule_set.rules().len() as u64);
            counters[CounterId::Patterns].set(loaded.rule_set.pattern_count() as u64);
            counters[CounterId::PatternBytes].set(loaded.rule_set.pattern_memory() as u64);
            counters[CounterId::Hyperscan].set((engine == multi_pattern::Engine::Hyperscan).into());
        }
        let engine = Engine::new(
            loaded.rule_set.clone(),
            Options {
                prevent: settings.mode == Mode::Prevent,
                checksums: settings.checksums,
                midstream: settings.midstream,
                flows: settings.flows as usize,
                stream_bytes: usize::try_from(settings.stream_memory).unwrap_or(usize::MAX),
                overlap: settings.overlap,
                max_alerts: settings.alerts_per_packet.into(),
            },
        )?;
        let lost = Arc::<Counter>::default();
        let log = match &settings.alerts {
            Some(path) if !cx.check_only => {
                let signatures = loaded.rule_set.rules().iter().map(Into::into);
                Some(EveLog::new(&cx.resolve_path(path), signatures, settings.alert_rate, lost.clone())?)
            }
            _ => None,
        };
        let table = BoundedTable::new("flows", settings.flows.into());
        let replies = engine.rejects().then(Replies::new);
        Ok(IdsNode { engine, replies, log, counters, lost, alerts: vec![], table, last: Duration::ZERO })
    }
}

/// The rules that all copies of an NF share.
struct LoadedRules {
    rule_set: Arc<RuleSet>,
    /// Number of rules that were refused.
    refused: u64,
}

impl LoadedRules {
    /// Reads and parses the rules, and compiles them for an engine, if one is given.
    fn new(settings: &Settings, cx: &BuildContext, engine: Option<multi_pattern::Engine>) -> Result<Self, Diagnostic> {
        // bits and thresholds of flows stay valid
        let before = cx.before::<LoadedRules>();
        let before = before.as_ref().map(|before| &*before.rule_set);
        let bits = before.map_or_else(Default::default, |before| before.bits().clone());
        // variables that the settings do not have keep their defaults
        let mut variables = Settings::default().variables;
        variables.extend(settings.variables.clone());
        let mut parser = Parser::with_bits(variables, bits);
        let (mut rules, mut refused) = (vec![], vec![]);
        for file in &settings.rules {
            let path = cx.resolve_path(file);
            let mut bytes = vec![];
            cx.open(file).and_then(|mut opened| opened.read_to_end(&mut bytes)).map_err(|e| {
                let d = Diagnostic::new(format!("rules cannot be read: {e}")).key("rules").value(path.display());
                d.remedy("name a readable file of rules")
            })?;
            let (more, bad) = parser.parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
            rules.extend(more);
            refused.extend(bad);
        }
        let (more, bad) = parser.parse("inline", &settings.inline.join("\n"));
        rules.extend(more);
        refused.extend(bad);
        refused.extend(remove_duplicates(&mut rules));
        for diagnostic in &refused {
            tracing::warn!(target: "nf", "ids: {diagnostic}");
        }
        let rule_set = RuleSet::new(rules, parser.into_bits(), before, &settings.action_order, engine)?;
        if let Some(engine) = engine {
            let version = match engine {
                multi_pattern::Engine::Hyperscan => multi_pattern::hyperscan_version().unwrap_or_default(),
                multi_pattern::Engine::AhoCorasick => "",
            };
            let (rules, bytes) = (rule_set.rules().len(), rule_set.pattern_memory());
            tracing::info!(target: "nf", nf = cx.name, ?engine, version, rules, bytes, "ids: rules loaded");
        }
        Ok(LoadedRules { rule_set: Arc::new(rule_set), refused: refused.len() as u64 })
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        Rules = "rules",
        Refused = "refused_rules",
        Patterns = "patterns",
        PatternBytes = "pattern_bytes",
        Hyperscan = "hyperscan",
        Inspected = "inspected",
        NotIp = "not_ip",
        Alerts = "alerts",
        AlertsDrop = "alerts_drop",
        AlertsReject = "alerts_reject",
        Flows = "flows",
        NotReassembled = "not_reassembled",
        /// Counts of thresholds and bits of hosts for which there was no room.
        StateRefused = "state_refused",
        Replies = "replies",
        AppTruncated = "app_truncated",
        AppAbandoned = "app_abandoned",
    }
}

graph::named_enum! {
    enum DropReason {
        DropRule = "drop_rule",
        RejectRule = "reject_rule",
    }
}

struct IdsNode {
    engine: Engine,
    /// Replies to rejected packets, if there can be any.
    replies: Option<Replies>,
    log: Option<EveLog>,
    counters: Counters<CounterId>,
    lost: Arc<Counter>,
    alerts: Vec<Alert>,
    table: BoundedTable,
    last: Duration,
}

impl IdsNode {
    fn publish_counts(&self) {
        self.counters[CounterId::NotReassembled].set(self.engine.not_reassembled);
        self.counters[CounterId::StateRefused].set(self.engine.state_refused());
        let statistics = self.engine.app_statistics();
        self.counters[CounterId::AppTruncated].set(statistics.truncated());
        self.counters[CounterId::AppAbandoned].set(statistics.abandoned());
    }

    fn report(&mut self, now: Duration) {
        for alert in self.alerts.drain(..) {
            self.counters[CounterId::Alerts].add(1);
            match self.engine.rule(alert.rule).map(|rule| rule.action) {
                Some(Action::Drop) => self.counters[CounterId::AlertsDrop].add(1),
                Some(Action::Reject) => self.counters[CounterId::AlertsReject].add(1),
                _ => {}
            }
            if let Some(log) = &mut self.log {
                log.send(now, alert);
            }
        }
    }
}

impl Node for IdsNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let mut all = self.counters.named();
        all.push(("lost_alerts".to_owned(), self.lost.clone()));
        all
    }

    fn gauges(&self) -> Vec<&'static str> {
        use CounterId::{Flows, Hyperscan, PatternBytes, Patterns, Refused, Rules};
        [Rules, Refused, Patterns, PatternBytes, Hyperscan, Flows].iter().map(|counter| counter.name()).collect()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        vec![self.table.clone()]
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        if let Some(old) = old.downcast_mut::<IdsNode>() {
            self.engine.take_over(&mut old.engine);
            self.last = old.last;
        }
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let now = cx.now();
        self.last = now;
        let (engine, alerts, counters, path) = (&mut self.engine, &mut self.alerts, &self.counters, cx.path());
        let replies = RefCell::new(&mut self.replies);
        batch.extract_if(
            |packet| {
                let frame = packet.data();
                let Some(packet) = engine.decode(frame) else {
                    counters[CounterId::NotIp].add(1);
                    return None;
                };
                counters[CounterId::Inspected].add(1);
                if let Some(replies) = &mut **replies.borrow_mut() {
                    replies.learn(path, frame, &packet);
                }
                match engine.inspect(now, &packet, alerts) {
                    Verdict::Forward => None,
                    Verdict::Drop => Some((DropReason::DropRule, None)),
                    Verdict::Reject(to) => Some((DropReason::RejectRule, Some(to))),
                }
            },
            |(reason, to), packet| {
                if let Some((replies, to)) = replies.borrow_mut().as_mut().zip(to) {
                    counters[CounterId::Replies].add(replies.send(cx, to, packet.data()));
                }
                cx.drop(reason, packet);
            },
        );
        self.report(now);
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.last = cx.now();
        self.engine.age(self.last, &mut self.alerts);
        self.report(self.last);
        let flows = self.engine.flow_count() as u64;
        self.counters[CounterId::Flows].set(flows);
        self.publish_counts();
        self.table.entries.set(flows);
        if let Some(log) = &self.log {
            log.update_counter();
        }
    }

    fn finish(&mut self) {
        self.engine.finish(self.last, &mut self.alerts);
        self.report(self.last);
        self.publish_counts();
        self.counters[CounterId::Flows].set(0);
        self.table.entries.set(0);
        if let Some(log) = &self.log {
            log.update_counter();
        }
    }
}

#[cfg(test)]
mod tests;
