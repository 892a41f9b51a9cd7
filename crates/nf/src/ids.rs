//! Signature-based intrusion detection with rules of the Snort and Suricata language.

mod app;
mod engine;
mod eve;
mod rule;

use diagnostics::Diagnostic;
use engine::{Alert, Engine, Options, Verdict};
use eve::EveLog;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Named, Nf, Node, Spread};
use packet::Batch;
use rule::Action;
use rule::address::Variables;
use rule::parser::Parser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// Maximum number of flows per core, 1 to 16777216. If the table is full, the oldest flow is evicted.
    flows: u32,
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
            action_order: vec![Action::Pass, Action::Drop, Action::Reject, Action::Alert],
            checksums: true,
            midstream: false,
            flows: 65_536,
        }
    }
}

/// Maximum of the setting `flows`.
const FLOWS_MAX: u32 = 1 << 24;

impl Nf for Ids {
    type Settings = Settings;
    const KIND: &'static str = "ids";
    const ABOUT: &'static str = "Matches packets and reassembled TCP streams with rules of the Snort and Suricata language, logs alerts as JSON lines \
         and, in prevent mode, drops packets.";
    const SPREAD: Spread = Spread::Symmetric;
    const EXAMPLE: &'static str = "inline = ['alert tcp any any -> any 80 (msg:\"traversal\"; flow:to_server; content:\"/etc/passwd\"; sid:1;)']\nmode = \"detect\"";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        if settings.flows == 0 || settings.flows > FLOWS_MAX {
            let d = Diagnostic::new("number of flows is out of range").key("flows").value(settings.flows);
            return Err(d.remedy(format!("write 1 to {FLOWS_MAX}")));
        }
        if settings.alerts_per_packet == 0 {
            let d = Diagnostic::new("number of alerts is out of range").key("alerts_per_packet").value(0);
            return Err(d.remedy("write 1 to 255"));
        }
        let counters = Counters::<CounterId>::default();
        let mut parser = Parser::new(settings.variables.clone());
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
        for diagnostic in &refused {
            tracing::warn!(target: "nf", "ids: {diagnostic}");
        }
        counters[CounterId::Refused].set(refused.len() as u64);
        counters[CounterId::Rules].set(rules.len() as u64);
        let engine = Engine::new(
            rules,
            Options {
                prevent: settings.mode == Mode::Prevent,
                checksums: settings.checksums,
                midstream: settings.midstream,
                flows: settings.flows as usize,
                max_alerts: settings.alerts_per_packet.into(),
                action_order: settings.action_order.clone(),
            },
        )?;
        let lost = Arc::<Counter>::default();
        let log = match &settings.alerts {
            Some(path) if !cx.check_only => {
                let signatures = (0..).map_while(|n| engine.rule(n).map(Into::into));
                Some(EveLog::new(&cx.resolve_path(path), signatures, settings.alert_rate, lost.clone())?)
            }
            _ => None,
        };
        let table = BoundedTable::new("flows", settings.flows.into());
        Ok(IdsNode { engine, log, counters, lost, alerts: vec![], table, last: Duration::ZERO })
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        Rules = "rules",
        Refused = "refused_rules",
        Inspected = "inspected",
        NotIp = "not_ip",
        Alerts = "alerts",
        AlertsDrop = "alerts_drop",
        AlertsReject = "alerts_reject",
        Flows = "flows",
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
    log: Option<EveLog>,
    counters: Counters<CounterId>,
    lost: Arc<Counter>,
    alerts: Vec<Alert>,
    table: BoundedTable,
    last: Duration,
}

impl IdsNode {
    fn count_app(&self) {
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
        vec![CounterId::Rules.name(), CounterId::Refused.name(), CounterId::Flows.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        vec![self.table.clone()]
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let now = cx.now();
        self.last = now;
        let (engine, alerts, counters) = (&mut self.engine, &mut self.alerts, &self.counters);
        batch.extract_if(
            |packet| {
                let verdict = engine.inspect(now, packet.data(), alerts);
                counters[if verdict.is_some() { CounterId::Inspected } else { CounterId::NotIp }].add(1);
                match verdict {
                    None | Some(Verdict::Forward) => None,
                    Some(Verdict::Drop) => Some(DropReason::DropRule),
                    Some(Verdict::Reject) => Some(DropReason::RejectRule),
                }
            },
            |reason, packet| cx.drop(reason, packet),
        );
        self.report(now);
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn on_timer(&mut self, _: &mut Context<'_>) {
        let flows = self.engine.flow_count() as u64;
        self.counters[CounterId::Flows].set(flows);
        self.count_app();
        self.table.entries.set(flows);
        if let Some(log) = &self.log {
            log.update_counter();
        }
    }

    fn finish(&mut self) {
        self.engine.finish(self.last, &mut self.alerts);
        self.report(self.last);
        self.count_app();
        self.counters[CounterId::Flows].set(0);
        self.table.entries.set(0);
        if let Some(log) = &self.log {
            log.update_counter();
        }
    }
}
