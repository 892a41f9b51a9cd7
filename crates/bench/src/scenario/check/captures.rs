//! Captures of `[traffic]`.

use super::{Any, Checker, Traffic};
use crate::{Captured, Sent, Trace};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};
use traffic::{PrefixMap, Rewrite, Tagging};

/// What is said of keys that ask for made frames.
const MADE: &str = "does not go with a capture, whose frames are what they are";
/// And of those that ask for captures.
const REPLAYED: &str = "is of captures, and no capture is sent";

impl Checker<'_> {
    /// The captures that are sent, if any are.
    pub(super) fn captures(&mut self, traffic: &Traffic, folder: &Path) -> Option<Sent> {
        let Traffic { capture, rewrite, vlan, gaps, speed, .. } = traffic;
        let Some(capture) = capture else {
            let spans = [rewrite, vlan].into_iter().flatten().map(Spanned::span);
            let spans = spans.chain(gaps.as_ref().map(Spanned::span)).chain(speed.as_ref().map(Spanned::span));
            self.all_at_fault(spans.collect(), REPLAYED);
            return None;
        };
        let made = [&traffic.frames, &traffic.order, &traffic.trace, &traffic.stack, &traffic.short];
        let made = made.into_iter().flatten().map(|text| text.span());
        let both = traffic.both_ways.as_ref().filter(|both| *both.get_ref()).map(Spanned::span);
        self.all_at_fault(made.chain(traffic.flows.as_ref().map(Spanned::span)).chain(both).collect(), MADE);
        let own = gaps.as_ref().is_none_or(|gaps| *gaps.get_ref());
        if let (Some(speed), false) = (speed, own) {
            let remedy = "write gaps = true, or remove it";
            self.fault(speed.span(), &speed.get_ref().to_string(), "is the speed of a capture's own gaps", remedy);
        }
        let captured = Captured {
            files: self.list(capture).into_iter().map(|name| self.capture(&name, capture.span(), folder)).collect(),
            rewrite: self.rewrite(rewrite.as_ref(), vlan.as_ref()),
            speed: traffic.keeps_gaps().then(|| speed.as_ref().map_or(1.0, |speed| *speed.get_ref())),
        };
        let fallback = captured.clone();
        let checked = captured.checked().unwrap_or_else(|(name, d)| {
            let at = match name {
                "rewrite" => rewrite.as_ref().map(Spanned::span),
                "speed" => speed.as_ref().map(Spanned::span),
                _ => Some(capture.span()),
            };
            let value = d.value.unwrap_or_default();
            self.fault(at.unwrap_or(0..0), &value, d.problem, d.remedy.unwrap_or_default());
            fallback
        });
        Some(Sent::Capture(checked))
    }

    fn all_at_fault(&mut self, spans: Vec<Range<usize>>, problem: &str) {
        for span in spans {
            let written = self.written(span.clone());
            self.fault(span, &written, problem, "remove it");
        }
    }

    fn capture(&mut self, name: &str, span: Range<usize>, folder: &Path) -> PathBuf {
        let remedy = "name a capture in the scenario's folder";
        let path = self.file_name(name, span.clone(), folder, remedy).unwrap_or_default();
        if path.is_file()
            && let Err(d) = Trace::look(&path)
        {
            self.fault(span, name, d.problem, d.remedy.unwrap_or_default());
        }
        path
    }

    /// A text, or a list of such.
    fn list(&mut self, value: &Any) -> Vec<String> {
        let list = match value.get_ref() {
            Value::String(name) => return vec![name.clone()],
            Value::Array(list) => list,
            _ => &vec![],
        };
        let names: Vec<String> = list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        if names.is_empty() || names.len() != list.len() {
            let written = self.written(value.span());
            self.fault(value.span(), &written, "is neither a text nor a list of texts", "write one of these");
            return vec![];
        }
        names
    }

    fn rewrite(&mut self, rewrite: Option<&Any>, vlan: Option<&Any>) -> Rewrite {
        let mut prefixes: Vec<PrefixMap> = vec![];
        for text in rewrite.map(|value| self.list(value)).unwrap_or_default() {
            match text.parse() {
                Ok(map) => prefixes.push(map),
                Err(e) => {
                    let span = rewrite.map_or(0..0, Spanned::span);
                    self.fault(span, &text, e.to_string(), "write another, or none");
                }
            }
        }
        let text = vlan.map(|vlan| match vlan.get_ref() {
            Value::String(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            _ => self.written(vlan.span()),
        });
        let tagging = text.map_or(Tagging::Keep, |text| {
            text.parse().unwrap_or_else(|e: traffic::rewrite::NotTagging| {
                self.fault(vlan.map_or(0..0, Spanned::span), &text, e.to_string(), "write another, or none");
                Tagging::Keep
            })
        });
        Rewrite { prefixes, tagging }
    }
}
