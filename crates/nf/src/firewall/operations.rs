//! Listing and changing the rules of a running firewall.

use super::live_rules::LiveRules;
use super::rule::{Action, FirewallRule, too_many_rules};
use super::rule_set::Edit;
use control::{RuleChange, RuleEntry, RulesChanged, RulesPage};
use diagnostics::Diagnostic;
use std::sync::Arc;
use tables::classifier::MAX_RULES;

/// Most rules of a page.
const PAGE: usize = 1000;
const LIST: &str = "list the rules and their numbers: bondstone rules list";

impl LiveRules {
    /// Returns a page of the rules from number `from` on, with the packets of all copies.
    pub fn page(&self, from: usize) -> RulesPage {
        let first = from.saturating_sub(1);
        self.with_counts(|rules, default_packets| {
            let total = rules.len();
            let page = (first.saturating_add(1)..).zip(rules.skip(first).take(PAGE));
            let rules: Vec<RuleEntry> =
                page.map(|(number, (rule, packets))| RuleEntry { number, rule: rule.text.clone(), packets }).collect();
            let next = rules.last().map(|last| last.number + 1).filter(|next| *next <= total);
            let default = if self.default_action() == Action::Accept { "accept" } else { "drop" }.to_owned();
            RulesPage { nf: String::new(), rules, default, default_packets, total, next }
        })
    }

    /// Applies changes, each to the result of the previous one; workers apply all of them between two batches.
    ///
    /// # Errors
    /// The first invalid change; nothing has changed then.
    pub fn change(self: &Arc<Self>, changes: &[RuleChange]) -> Result<RulesChanged, Diagnostic> {
        // parsed before the rules are locked
        let parse = |(n, change): (usize, &RuleChange)| match change {
            RuleChange::Add { rule, .. } => self.parse(rule).map(Some).map_err(|e| numbered(e, n, changes.len())),
            RuleChange::Remove(_) | RuleChange::RemoveText(_) => Ok(None),
        };
        let parsed = changes.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>();
        self.edit(|rules| {
            let mut list: Vec<Arc<FirewallRule>> = rules.cloned().collect();
            let edits = changes.iter().zip(parsed?).enumerate();
            edits
                .map(|(n, (change, rule))| {
                    let edit = edit(&list, change, rule).map_err(|e| numbered(e, n, changes.len()))?;
                    match &edit {
                        Edit::Insert(at, rule) => list.insert(*at, rule.clone()),
                        Edit::Remove(at) => drop(list.remove(*at)),
                    }
                    Ok(edit)
                })
                .collect()
        })
    }
}

/// Returns the edit of a list that a change stands for; `rule` is the parsed one of an addition.
fn edit(list: &[Arc<FirewallRule>], change: &RuleChange, rule: Option<Arc<FirewallRule>>) -> Result<Edit, Diagnostic> {
    let rules = list.len();
    let no_such = |number: usize| {
        let problem = format!("is not the number of a rule: there are {rules} rules");
        Diagnostic::new(problem).value(number).remedy(LIST)
    };
    match (change, rule) {
        (RuleChange::Add { .. }, Some(_)) if rules == MAX_RULES => Err(too_many_rules(rules + 1)),
        (RuleChange::Add { number, .. }, Some(rule)) => match number.unwrap_or(rules + 1) {
            number if (1..=rules + 1).contains(&number) => Ok(Edit::Insert(number - 1, rule)),
            number => Err(no_such(number)),
        },
        (RuleChange::Remove(number), _) if (1..=rules).contains(number) => Ok(Edit::Remove(number - 1)),
        (RuleChange::Remove(number), _) => Err(no_such(*number)),
        (RuleChange::RemoveText(text), _) => match list.iter().position(|rule| rule.text == text.trim()) {
            Some(at) => Ok(Edit::Remove(at)),
            None => Err(Diagnostic::new("is not in the list of rules").value(text).remedy(LIST)),
        },
        (RuleChange::Add { rule, .. }, None) => Err(Diagnostic::new("was not parsed").value(rule)),
    }
}

/// Adds the number of the change to an error if there are several.
fn numbered(e: Diagnostic, n: usize, changes: usize) -> Diagnostic {
    let problem = if changes == 1 { e.problem } else { format!("{} (change {} of {changes})", e.problem, n + 1) };
    Diagnostic { problem, ..e }
}
