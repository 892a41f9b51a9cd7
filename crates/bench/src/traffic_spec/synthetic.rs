//! Options of synthetic traffic besides sizes: trace, headers, connections, directions.

use super::vary::VariedField;
use diagnostics::Diagnostic;
use std::fmt::Display;
use std::str::FromStr;
use traffic::nfpa::Name;
use traffic::tcp::TcpSettings;
use traffic::{ShortSettings, Stack};

/// Default number of flows, and of pairs of client address and port of TCP connections.
const DEFAULT_FLOWS: u32 = 1024;
const DEFAULT_PAIRS: u32 = 65_536;
/// Seed of the NFPA traces.
pub(crate) const TRACE_SEED: u64 = 0;

/// Options of synthetic traffic; by default UDP over IP.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SyntheticOptions {
    /// NFPA trace in place of flows.
    pub trace: Option<Name>,
    /// Headers; by default UDP over the IP version of the addresses.
    pub stack: Option<Stack>,
    /// Short connections in place of flows.
    pub short: Option<ShortSettings>,
    /// TCP connections with client and server, whose pairs of client address and port are the flows.
    pub tcp: Option<TcpSettings>,
    /// Header fields that change from packet to packet.
    pub vary: Vec<VariedField>,
    /// True if packets are also sent into a second port at the same rate: the same flows with swapped addresses and
    /// ports, or the reverse direction of the trace.
    pub bidirectional: bool,
}

impl SyntheticOptions {
    /// Parses options as written for `--trace`, `--stack`, `--short`, `--tcp` and `--vary`.
    ///
    /// # Errors
    /// Name of an option that does not parse or excludes another one, and a diagnostic.
    pub fn parse(
        trace: Option<&str>,
        stack: Option<&str>,
        short: Option<&str>,
        tcp: Option<&str>,
        vary: &[String],
    ) -> Result<SyntheticOptions, (&'static str, Diagnostic)> {
        let options = SyntheticOptions {
            trace: parse_option("trace", trace)?,
            stack: parse_option("stack", stack)?,
            short: parse_option("short", short)?,
            tcp: parse_option("tcp", tcp)?,
            vary: vary.iter().map(|text| parse_text("vary", text)).collect::<Result<_, _>>()?,
            bidirectional: false,
        };
        options.checked(false, false)
    }

    /// Checks that the options are compatible, also with a number of flows and an order if those are set.
    ///
    /// # Errors
    /// As [`SyntheticOptions::parse`].
    pub fn checked(self, flows: bool, order: bool) -> Result<SyntheticOptions, (&'static str, Diagnostic)> {
        let error = |name, value: String, problem: &str, remedy: &str| {
            Err((name, Diagnostic::new(problem).value(value).remedy(remedy)))
        };
        if let Some(short) = self.short.filter(|_| self.bidirectional) {
            let problem = "short connections have one direction";
            return error("bidirectional", short.to_string(), problem, "leave out short, or both directions");
        }
        if let Some(short) = self.short {
            let problem =
                "short connections exclude a trace, headers, fields that vary, a number of flows and an order";
            if self.trace.is_some() || self.stack.is_some() || !self.vary.is_empty() || flows || order {
                let remedy = "leave out trace, stack, vary, flows and order, or short";
                return error("short", short.to_string(), problem, remedy);
            }
        }
        if let Some(tcp) = self.tcp {
            if self.bidirectional {
                let problem = "TCP connections have answers in the other direction already";
                return error("bidirectional", tcp.to_string(), problem, "leave out tcp, or both directions");
            }
            if self.trace.is_some() || self.stack.is_some() || self.short.is_some() || !self.vary.is_empty() || order {
                let problem =
                    "TCP connections exclude a trace, headers, short connections, fields that vary and an order";
                return error("tcp", tcp.to_string(), problem, "leave out trace, stack, short, vary and order, or tcp");
            }
        }
        match (self.trace, &self.stack) {
            (Some(trace), _) if flows => {
                let problem = "a trace has its own flows";
                error("trace", trace.to_string(), problem, "leave out flows, or the trace")
            }
            (Some(_), Some(stack)) if stack.ipv6 || stack.tcp => {
                let problem = "traces are UDP over IPv4";
                error("stack", stack.to_string(), problem, "use a stack that ends in ipv4/udp, or leave out the trace")
            }
            _ => Ok(self),
        }
    }

    /// Returns the default number of flows.
    pub fn default_flows(&self) -> u32 {
        if self.tcp.is_some() { DEFAULT_PAIRS } else { DEFAULT_FLOWS }
    }

    /// Returns the options that are set, with their names.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        let named = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
        let trace = named("trace", self.trace.map(|trace| trace.to_string()));
        let stack = named("stack", self.stack.as_ref().map(Stack::to_string));
        let short = named("short", self.short.map(|short| short.to_string()));
        let tcp = named("tcp", self.tcp.map(|tcp| tcp.to_string()));
        [trace, stack, short, tcp].into_iter().flatten()
    }
}

fn parse_option<T: FromStr<Err: Display>>(
    name: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, (&'static str, Diagnostic)> {
    text.map(|text| parse_text(name, text)).transpose()
}

fn parse_text<T: FromStr<Err: Display>>(name: &'static str, text: &str) -> Result<T, (&'static str, Diagnostic)> {
    text.parse().map_err(|cause: T::Err| {
        let shown: String = text.chars().take(120).collect();
        (name, Diagnostic::new(cause.to_string()).value(shown).remedy(format!("use another {name}, or leave it out")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_compatible_options() {
        for (trace, stack, short) in [
            (None, None, None),
            (Some("tr2e"), None, None),
            (Some("l3-500"), Some("eth/vlan:7/ipv4/udp"), None),
            (None, Some("vxlan:5@192.0.2.1-192.0.2.2(eth/ipv6/tcp)"), None),
            (None, None, Some("10x64,syn-data")),
        ] {
            let options = SyntheticOptions::parse(trace, stack, short, None, &[]).unwrap();
            let cell: std::collections::BTreeMap<_, _> = options.parameters().collect();
            let text = |name: &str| cell.get(name).map(String::as_str);
            assert_eq!((text("trace"), text("stack"), text("short")), (trace, stack, short));
            assert_eq!(
                SyntheticOptions::parse(text("trace"), text("stack"), text("short"), None, &[]).unwrap(),
                options
            );
        }
    }

    #[test]
    fn errors_have_a_remedy() {
        for (trace, stack, short, name, value) in [
            (Some("tr9"), None, None, "trace", "tr9"),
            (None, Some("eth/udp"), None, "stack", "eth/udp"),
            (None, None, Some("1"), "short", "1"),
            (Some("tr2e"), Some("eth/ipv6/udp"), None, "stack", "eth/ipv6/udp"),
            (Some("tr2e"), None, Some("10"), "short", "10x1024"),
            (None, Some("eth/ipv4/tcp"), Some("10x7"), "short", "10x7"),
        ] {
            let (at, d) = SyntheticOptions::parse(trace, stack, short, None, &[]).unwrap_err();
            assert_eq!((at, d.value.as_deref()), (name, Some(value)), "{d}");
            assert!(d.remedy.is_some());
        }
        let both = SyntheticOptions {
            bidirectional: true,
            ..SyntheticOptions::parse(None, None, Some("10x7"), None, &[]).unwrap()
        };
        let (at, d) = both.checked(false, false).unwrap_err();
        assert_eq!((at, d.value.as_deref(), d.remedy.is_some()), ("bidirectional", Some("10x7"), true));
        let options = SyntheticOptions::parse(Some("simple"), None, None, None, &[]).unwrap();
        assert!(options.clone().checked(false, true).is_ok() && options.checked(true, false).is_err());
        assert!(SyntheticOptions::parse(None, None, Some("10"), None, &[]).unwrap().checked(false, true).is_err());
    }
}
