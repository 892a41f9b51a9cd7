//! Groups of host names.

use diagnostics::Diagnostic;
use std::collections::{BTreeMap, HashMap};

/// Most groups.
const GROUPS_MAX: usize = 200;
/// Longest host name in bytes.
const NAME_MAX: usize = 255;

/// Groups by the host names that they contain.
#[derive(Default)]
pub(super) struct Hosts {
    /// Number of the group by host name.
    exact: HashMap<Box<[u8]>, u8>,
    /// Number of the group by parent domain.
    below: HashMap<Box<[u8]>, u8>,
    /// Names of the groups: group 1 is the first.
    pub(super) names: Vec<String>,
}

impl Hosts {
    /// Reads groups from settings.
    ///
    /// # Errors
    /// If there are too many groups or a pattern is not a host name, with or without `*.` in front of it.
    pub(super) fn new(groups: &BTreeMap<String, Vec<String>>) -> Result<Hosts, Diagnostic> {
        if groups.len() > GROUPS_MAX {
            let d = Diagnostic::new("too many groups of hosts").key("hosts").value(groups.len());
            return Err(d.remedy(format!("write {GROUPS_MAX} or fewer")));
        }
        let mut hosts = Hosts::default();
        for (name, patterns) in groups {
            hosts.names.push(name.clone());
            let number = hosts.names.len() as u8;
            for pattern in patterns {
                let (domain, table) = match pattern.strip_prefix("*.") {
                    Some(domain) => (domain, &mut hosts.below),
                    None => (&**pattern, &mut hosts.exact),
                };
                let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
                if domain.is_empty() || domain.len() > NAME_MAX || !domain.bytes().all(valid) {
                    let d = Diagnostic::new("not a host name").key("hosts").value(pattern);
                    return Err(
                        d.remedy("write a name such as \"www.example.com\" or, for all below it, \"*.example.com\"")
                    );
                }
                table.insert(domain.to_ascii_lowercase().into_bytes().into(), number);
            }
        }
        Ok(hosts)
    }

    /// Returns true if there are no groups.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the number of the group with this host, 0 if there is none. A pattern for the host itself precedes
    /// patterns for its parents, nearest first.
    pub(super) fn group(&self, host: &[u8]) -> u8 {
        let mut name = [0; NAME_MAX];
        let host = host.strip_suffix(b".").unwrap_or(host);
        let Some(name) = name.get_mut(..host.len()) else { return 0 };
        name.copy_from_slice(host);
        name.make_ascii_lowercase();
        if let Some(group) = self.exact.get(&*name) {
            return *group;
        }
        let mut rest = &*name;
        while let Some(dot) = rest.iter().position(|byte| *byte == b'.') {
            rest = rest.get(dot + 1..).unwrap_or_default();
            if let Some(group) = self.below.get(rest) {
                return *group;
            }
        }
        0
    }
}
