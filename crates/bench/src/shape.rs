//! What made frames are, beyond their sizes: a trace by name, headers, short flows.

use diagnostics::Diagnostic;
use std::fmt::Display;
use std::str::FromStr;
use traffic::nfpa::Name;
use traffic::{ShortSettings, Stack};

/// What made frames are; by default UDP over IP for flows over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shape {
    /// One of NFPA's traces in the place of flows.
    pub trace: Option<Name>,
    /// Headers; else UDP over the IP version of the addresses.
    pub stack: Option<Stack>,
    /// Connections that end after a few packets, in the place of flows.
    pub short: Option<ShortSettings>,
    /// Whether packets are sent into a second port as well, at the same time and at the same rate: the same flows from their
    /// other side, or a trace's own reverse direction.
    pub both_ways: bool,
}

impl Shape {
    /// From texts as `--trace`, `--stack` and `--short` or a scenario have them.
    ///
    /// # Errors
    /// The name of the text at fault, and what is wrong with it: one that does not parse, or goes with no other.
    pub fn parse(
        trace: Option<&str>,
        stack: Option<&str>,
        short: Option<&str>,
    ) -> Result<Shape, (&'static str, Diagnostic)> {
        let shape = Shape {
            trace: parsed("trace", trace)?,
            stack: parsed("stack", stack)?,
            short: parsed("short", short)?,
            both_ways: false,
        };
        shape.checked(false, false)
    }

    /// The same, if its parts go together and with flows and an order that are asked for.
    ///
    /// # Errors
    /// As [`Shape::parse`].
    pub fn checked(self, flows: bool, order: bool) -> Result<Shape, (&'static str, Diagnostic)> {
        let wrong = |name, value: String, problem: &str, remedy: &str| {
            Err((name, Diagnostic::new(problem).value(value).remedy(remedy)))
        };
        if let Some(short) = self.short.filter(|_| self.both_ways) {
            let problem = "short flows are opened from one side: they do not go both ways";
            return wrong("both_ways", short.to_string(), problem, "leave out short, or both ways");
        }
        if let Some(short) = self.short {
            let problem = "short flows are TCP over IP without tags, each once: no trace, no headers, no number of flows and no \
                           order go with them";
            if self.trace.is_some() || self.stack.is_some() || flows || order {
                return wrong("short", short.to_string(), problem, "leave out trace, stack, flows and order, or short");
            }
        }
        match (self.trace, self.stack) {
            (Some(trace), _) if flows => {
                let problem = "a trace has the flows that it has";
                wrong("trace", trace.to_string(), problem, "leave out flows, or the trace")
            }
            (Some(_), Some(stack)) if stack.ipv6 || stack.tcp => {
                let problem = "traces are UDP over IPv4";
                wrong("stack", stack.to_string(), problem, "let the stack end in ipv4/udp, or leave out the trace")
            }
            _ => Ok(self),
        }
    }

    /// What tells a measurement of it from others, by name.
    pub(crate) fn cell(&self) -> impl Iterator<Item = (String, String)> {
        let named = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
        let trace = named("trace", self.trace.map(|trace| trace.to_string()));
        let stack = named("stack", self.stack.map(|stack| stack.to_string()));
        let short = named("short", self.short.map(|short| short.to_string()));
        [trace, stack, short].into_iter().flatten()
    }
}

fn parsed<T: FromStr<Err: Display>>(
    name: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, (&'static str, Diagnostic)> {
    let wrong = |text: &str, why: T::Err| {
        let shown: String = text.chars().take(120).collect();
        (name, Diagnostic::new(why.to_string()).value(shown).remedy(format!("write another {name}, or none")))
    };
    text.map(|text| text.parse().map_err(|why| wrong(text, why))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_together_comes_back() {
        for (trace, stack, short) in [
            (None, None, None),
            (Some("tr2e"), None, None),
            (Some("l3-500"), Some("eth/vlan:7/ipv4/udp"), None),
            (None, Some("vxlan:5@192.0.2.1-192.0.2.2(eth/ipv6/tcp)"), None),
            (None, None, Some("10x64,syn-data")),
        ] {
            let shape = Shape::parse(trace, stack, short).unwrap();
            let cell: std::collections::BTreeMap<_, _> = shape.cell().collect();
            let text = |name: &str| cell.get(name).map(String::as_str);
            assert_eq!((text("trace"), text("stack"), text("short")), (trace, stack, short));
            assert_eq!(Shape::parse(text("trace"), text("stack"), text("short")).unwrap(), shape);
        }
    }

    #[test]
    fn what_does_not_is_named_with_a_cure() {
        for (trace, stack, short, name, value) in [
            (Some("tr9"), None, None, "trace", "tr9"),
            (None, Some("eth/udp"), None, "stack", "eth/udp"),
            (None, None, Some("1"), "short", "1"),
            (Some("tr2e"), Some("eth/ipv6/udp"), None, "stack", "eth/ipv6/udp"),
            (Some("tr2e"), None, Some("10"), "short", "10x1024"),
            (None, Some("eth/ipv4/tcp"), Some("10x7"), "short", "10x7"),
        ] {
            let (at, d) = Shape::parse(trace, stack, short).unwrap_err();
            assert_eq!((at, d.value.as_deref()), (name, Some(value)), "{d}");
            assert!(d.remedy.is_some());
        }
        let both = Shape { both_ways: true, ..Shape::parse(None, None, Some("10x7")).unwrap() };
        let (at, d) = both.checked(false, false).unwrap_err();
        assert_eq!((at, d.value.as_deref(), d.remedy.is_some()), ("both_ways", Some("10x7"), true));
        let shape = Shape::parse(Some("simple"), None, None).unwrap();
        assert!(shape.checked(false, true).is_ok() && shape.checked(true, false).is_err());
        assert!(Shape::parse(None, None, Some("10")).unwrap().checked(false, true).is_err());
    }
}
