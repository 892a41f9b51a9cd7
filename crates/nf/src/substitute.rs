//! Replacement of bytes in TCP streams.

mod pattern;
mod rules;

use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Nf, Node, Spread};
use packet::Batch;
use pattern::Pattern;
use rules::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use streams::packetize::{self, Flow, Packetized, Rewrite};

/// `substitute`: replaces bytes in the payload of TCP connections.
pub struct Substitute;

/// Settings of [`Substitute`].
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Server ports whose connections are processed; empty: all.
    ports: Vec<u16>,
    /// Replacements { find, replace }, at most 64. \xNN is the byte NN, \\ is \. Of overlapping matches the leftmost is
    /// replaced; of matches at the same position, the first in this list.
    rules: Vec<Rule>,
    /// Direction: both, to_server or to_client.
    direction: Directions,
    /// Handling of TCP connections.
    tcp: packetize::Settings,
}

/// A replacement.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Bytes to find, 1 to 255.
    find: Pattern,
    /// Bytes to insert, at most 4096.
    replace: Pattern,
}

/// Directions that are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Directions {
    /// Both directions.
    #[default]
    Both,
    /// Data sent by clients.
    ToServer,
    /// Data sent by servers.
    ToClient,
}

impl Nf for Substitute {
    type Settings = Settings;
    const KIND: &'static str = "substitute";
    const ABOUT: &'static str = "Replaces bytes in the payload of TCP connections, also across segment boundaries, and adjusts sequence numbers when \
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
        let replacer = Replacer { rules, direction: settings.direction, replaced: replaced.clone() };
        let node = packetize::packetize_with(&tcp, replacer)?;
        Ok(SubstituteNode { node, replaced })
    }
}

/// Stream rewriter that applies the rules.
struct Replacer {
    rules: Rules,
    direction: Directions,
    replaced: Arc<Counter>,
}

impl Rewrite for Replacer {
    type State = ();

    fn rewrite(&mut self, flow: &Flow<'_>, (): &mut (), bytes: &[u8], more: bool, out: &mut Vec<u8>) -> usize {
        let selected = match self.direction {
            Directions::Both => true,
            Directions::ToServer => flow.direction() == packetize::Direction::ToServer,
            Directions::ToClient => flow.direction() == packetize::Direction::ToClient,
        };
        if !selected {
            out.extend_from_slice(bytes);
            return bytes.len();
        }
        let (used, replaced) = self.rules.apply(bytes, more, out);
        self.replaced.add(replaced);
        used
    }
}

/// The node, which adds a counter to those of [`Packetized`].
struct SubstituteNode {
    node: Packetized<Replacer>,
    replaced: Arc<Counter>,
}

impl Node for SubstituteNode {
    fn drops(&self) -> &[&'static str] {
        self.node.drops()
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let mut all = vec![("replaced".to_owned(), self.replaced.clone())];
        all.extend(self.node.counters());
        all
    }

    fn gauges(&self) -> Vec<&'static str> {
        self.node.gauges()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.node.bounded_tables()
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
