//! `[goal]`.

use super::{Checker, as_text, has_parameter};
use crate::Goal;
use crate::method::{self, Thoroughness};
use crate::scenario::{MeasurementSettings, file};
use crate::search::SearchKind;
use graph::Rate;
use std::ops::Range;
use toml::Spanned;

/// Largest number of measurements of a cell.
const MAX_REPEAT: u32 = 100;

impl Checker<'_> {
    /// Checks `[goal]`; `own_load` is true for captures that keep their timing.
    pub(super) fn goal(&mut self, written: &file::Goal, own_load: bool) -> MeasurementSettings {
        let thoroughness = written.thoroughness.as_ref().map(|value| match value.get_ref().as_str() {
            "quick" => Thoroughness::Quick,
            "standard" => Thoroughness::Standard,
            other => {
                self.error(value.span(), other, "unknown thoroughness", "write \"quick\" or \"standard\"");
                Thoroughness::Quick
            }
        });
        let thoroughness = thoroughness.unwrap_or_default();
        let goal = match thoroughness {
            Thoroughness::Quick => Goal::quick(),
            Thoroughness::Standard => Goal::rfc2544(),
        };
        let goal = self.parse(written.throughput.as_ref(), goal);
        let search = self.parse(written.search.as_ref(), SearchKind::default());
        let mut number = |written: &Option<Spanned<f64>>, from: f64, to: f64| {
            let value = written.as_ref()?;
            if !(from..=to).contains(value.get_ref()) {
                let remedy = format!("write {from} to {to}");
                self.error(value.span(), &value.get_ref().to_string(), "out of range", remedy);
            }
            Some(*value.get_ref())
        };
        let soak_s = number(&written.soak_s, 0.001, 604_800.0);
        let line_rate_bps = written.line_rate_bps.as_ref().and_then(|line| {
            let text = as_text(line);
            let rate = Rate::bits_per_second(&text).filter(|rate| (1e6..=1e13).contains(rate));
            if rate.is_none() {
                let remedy = "write 1e6 to 1e13 bits per second, such as 10e9 or \"10 Gbps\"";
                self.error(line.span(), &text, "is not a line rate", remedy);
            }
            rate
        });
        // a parameter is checked in every cell
        let rate = written.rate.as_ref().filter(|rate| !has_parameter(Some(rate)));
        let rate_pps = rate.and_then(|rate| self.rate(&as_text(rate), rate.span(), &goal));
        let repeat = written.repeat.as_ref().map_or(1, |n| *n.get_ref());
        if let Some(wrong) = written.repeat.as_ref().filter(|_| !(1..=MAX_REPEAT).contains(&repeat)) {
            let remedy = format!("write 1 to {MAX_REPEAT}");
            self.error(wrong.span(), &repeat.to_string(), "number of measurements out of range", remedy);
        }
        let methods = match &written.methods {
            None if written.rate.is_some() || own_load => vec![method::GIVEN_LOAD.to_owned()],
            None => MeasurementSettings::default().methods,
            Some(names) => {
                let all = self.value_texts(names);
                for name in all.iter().filter(|name| method::find(name).is_err()) {
                    let known = method::METHODS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
                    self.error(names.span(), name, "unknown method", format!("known methods: {known}"));
                }
                if written.rate.is_none() && !own_load && all.iter().any(|name| name == method::GIVEN_LOAD) {
                    self.error(names.span(), method::GIVEN_LOAD, "needs a load", "add rate = PACKETS PER SECOND");
                }
                all
            }
        };
        let anatomy = written.anatomy.unwrap_or_default();
        MeasurementSettings { methods, thoroughness, goal, search, rate_pps, line_rate_bps, soak_s, anatomy, repeat }
    }

    /// Parses a load, packets per second.
    pub(super) fn rate(&mut self, text: &str, span: Range<usize>, goal: &Goal) -> Option<f64> {
        let (min, max) = ((1.0 / goal.final_s()).max(1.0), traffic::pace::MAX_PPS);
        let rate = Rate::packets_per_second(text).filter(|rate| (min..=max).contains(rate));
        if rate.is_none() {
            let remedy = format!("write {min} to {max} packets per second, such as 5e6 or \"5 Mpps\"");
            self.error(span, text, "rate out of range", remedy);
        }
        rate
    }
}
