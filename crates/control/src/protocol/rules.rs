//! Rules of firewalls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change of the list of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RuleChange {
    /// Adds a rule.
    Add {
        /// Text of the rule.
        rule: String,
        /// Number that it is to have, from 1; by default it becomes the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<usize>,
    },
    /// Removes the rule with this number, from 1.
    Remove(usize),
    /// Removes the first rule with this text.
    RemoveText(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleEntry {
    /// Number of the rule, from 1.
    pub number: usize,
    /// Text of the rule.
    pub rule: String,
    /// Packets of which it was the first rule that matched.
    pub packets: u64,
}

/// A part of the rules of a firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesPage {
    /// Name of the NF.
    pub nf: String,
    /// At most 1,000 rules.
    pub rules: Vec<RuleEntry>,
    /// Action for packets that no rule matches.
    pub default: String,
    /// Number of such packets.
    pub default_packets: u64,
    /// Number of all rules.
    pub total: usize,
    /// Number of the next rule, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// The result of changes of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesChanged {
    /// Name of the NF.
    pub nf: String,
    /// Number of rules that were added.
    pub added: usize,
    /// Number of rules that were removed.
    pub removed: usize,
    /// Number of all rules now.
    pub total: usize,
}
