//! Other bytes in TCP streams.

mod pattern;
mod rules;

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter, Context, Nf, Node, Spread};
use packet::Batch;
use pattern::Pattern;
use rules::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use streams::packetize::{self, Flow, Packetized, Rewrite};

/// `substitute`: puts other bytes in the place of some in what TCP connections carry.
pub struct Substitute;

/// Settings of [`Substitute`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Server ports whose connections are looked at; all, if none is named.
    ports: Vec<u16>,
    /// What is looked for and what takes its place: { find, replace }, at most 64 of them. \xNN is the byte NN, \\ is \. What
    /// begins first is replaced; of what begins at the same place, the first in this list.
    rules: Vec<Rule>,
    /// In which direction: "both", "to_server" or "to_client".
    direction: Which,
    /// How connections are kept.
    tcp: packetize::Settings,
}

/// A rule.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// 1 to 255 bytes.
    find: Pattern,
    /// 4096 bytes at most.
    replace: Pattern,
}

/// Directions that are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Which {
    /// Both.
    #[default]
    Both,
    /// What clients send.
    ToServer,
    /// What servers send.
    ToClient,
}

impl Nf for Substitute {
    type Settings = Settings;
    const KIND: &'static str = "substitute";
    const ABOUT: &'static str = "Replaces bytes in what TCP connections carry, also where segments part them, and keeps both ends in step when \
         the length changes.";
    const SPREAD: Spread = Spread::Symmetric;
    const EXAMPLE: &'static str = "ports = [80]\nrules = [{ find = \"colour\", replace = \"color\" }]";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let rules = Rules::new(settings.rules.iter().map(|rule| (&rule.find.0[..], &rule.replace.0[..])))?;
        let replaced = Arc::<Counter>::default();
        let mut tcp = settings.tcp.clone();
        tcp.ports.clone_from(&settings.ports);
        tcp.growth = rules.growth();
        tcp.withheld = tcp.withheld.max(rules.longest());
        let which = Replacing { rules, direction: settings.direction, replaced: replaced.clone() };
        let node = packetize::packetize_with(&tcp, which)?;
        Ok(Substituting { node, replaced })
    }
}

/// What is done to streams.
struct Replacing {
    rules: Rules,
    direction: Which,
    replaced: Arc<Counter>,
}

impl Rewrite for Replacing {
    type State = ();

    fn rewrite(&mut self, flow: &Flow<'_>, (): &mut (), bytes: &[u8], more: bool, out: &mut Vec<u8>) -> usize {
        let looks = match self.direction {
            Which::Both => true,
            Which::ToServer => flow.direction() == packetize::Direction::ToServer,
            Which::ToClient => flow.direction() == packetize::Direction::ToClient,
        };
        if !looks {
            out.extend_from_slice(bytes);
            return bytes.len();
        }
        let (used, replaced) = self.rules.apply(bytes, more, out);
        self.replaced.add(replaced);
        used
    }
}

/// The node, with a count of its own.
struct Substituting {
    node: Packetized<Replacing>,
    replaced: Arc<Counter>,
}

impl Node for Substituting {
    fn drops(&self) -> &[&'static str] {
        self.node.drops()
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let mut all = vec![("replaced".to_owned(), self.replaced.clone())];
        all.extend(self.node.counters());
        all
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        self.node.process(cx, input, batch);
    }

    fn interval(&self) -> Option<Duration> {
        self.node.interval()
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.node.on_timer(cx);
    }

    fn finish(&mut self) {
        self.node.finish();
    }
}

#[cfg(test)]
mod tests;
