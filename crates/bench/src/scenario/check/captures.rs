//! Captures of `[traffic]`.

use super::{Any, Checker, Traffic};
use crate::{CaptureFile, CaptureSpec, TrafficSpec};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};
use traffic::{PrefixMap, Rewrite, Tagging};

/// Problem of keys of synthetic traffic.
const SYNTHETIC_ONLY: &str = "cannot be combined with a capture";
/// Problem of keys of captures.
const CAPTURE_ONLY: &str = "is for captures, and no capture is sent";

impl Checker<'_> {
    /// Returns the captures, if `capture` names any.
    pub(super) fn captures(&mut self, traffic: &Traffic, folder: &Path) -> Option<TrafficSpec> {
        let Traffic { capture, rewrite, vlan, gaps, speed, .. } = traffic;
        let Some(capture) = capture else {
            let spans = [rewrite, vlan].into_iter().flatten().map(Spanned::span);
            let spans = spans.chain(gaps.as_ref().map(Spanned::span)).chain(speed.as_ref().map(Spanned::span));
            self.error_at_all(spans.collect(), CAPTURE_ONLY);
            return None;
        };
        let made = [&traffic.frames, &traffic.order, &traffic.trace, &traffic.stack, &traffic.short, &traffic.tcp];
        let made = made.into_iter().flatten().map(|text| text.span());
        let made = made.chain(traffic.vary.as_ref().map(Spanned::span));
        let both = traffic.bidirectional.as_ref().filter(|both| *both.get_ref()).map(Spanned::span);
        self.error_at_all(made.chain(traffic.flows.as_ref().map(Spanned::span)).chain(both).collect(), SYNTHETIC_ONLY);
        let own = gaps.as_ref().is_none_or(|gaps| *gaps.get_ref());
        if let (Some(speed), false) = (speed, own) {
            let remedy = "set gaps = true, or remove it";
            self.error(
                speed.span(),
                &speed.get_ref().to_string(),
                "is the replay speed of a capture with its own timing",
                remedy,
            );
        }
        let captured = CaptureSpec {
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
            self.error(at.unwrap_or(0..0), &value, d.problem, d.remedy.unwrap_or_default());
            fallback
        });
        Some(TrafficSpec::Capture(checked))
    }

    /// Reports the same problem at several locations.
    fn error_at_all(&mut self, spans: Vec<Range<usize>>, problem: &str) {
        for span in spans {
            let written = self.source_text(span.clone());
            self.error(span, &written, problem, "remove it");
        }
    }

    fn capture(&mut self, name: &str, span: Range<usize>, folder: &Path) -> PathBuf {
        let remedy = "name a capture in the directory of the scenario";
        let path = self.file_name(name, span.clone(), folder, remedy).unwrap_or_default();
        if path.is_file()
            && let Err(d) = CaptureFile::check(&path)
        {
            self.error(span, name, d.problem, d.remedy.unwrap_or_default());
        }
        path
    }

    /// Returns a string, or the strings of a list.
    fn list(&mut self, value: &Any) -> Vec<String> {
        let list = match value.get_ref() {
            Value::String(name) => return vec![name.clone()],
            Value::Array(list) => list,
            _ => &vec![],
        };
        let names: Vec<String> = list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        if names.is_empty() || names.len() != list.len() {
            let written = self.source_text(value.span());
            self.error(value.span(), &written, "must be a string or a list of strings", "write one of these");
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
                    self.error(span, &text, e.to_string(), "write another, or remove it");
                }
            }
        }
        let text = vlan.map(|vlan| match vlan.get_ref() {
            Value::String(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            _ => self.source_text(vlan.span()),
        });
        let tagging = text.map_or(Tagging::Keep, |text| {
            text.parse().unwrap_or_else(|e: traffic::rewrite::NotTagging| {
                self.error(vlan.map_or(0..0, Spanned::span), &text, e.to_string(), "write another, or remove it");
                Tagging::Keep
            })
        });
        Rewrite { prefixes, tagging }
    }
}
