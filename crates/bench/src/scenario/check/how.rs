//! `[goal]`.

use super::{Checker, is_put_in, plain};
use crate::Goal;
use crate::method::{self, Form};
use crate::scenario::{How, file};
use crate::search::SearchKind;
use std::ops::Range;
use toml::Spanned;

/// Repetitions of every cell.
const MOST_REPEATS: u32 = 100;

impl Checker<'_> {
    /// What `[goal]` says; captures that keep their `own` gaps have a load of their own.
    pub(super) fn how(&mut self, written: &file::Goal, own: bool) -> How {
        let standard = written.form.as_ref().map(|form| match form.get_ref().as_str() {
            "quick" => Form::Quick,
            "standard" => Form::Standard,
            other => {
                self.fault(form.span(), other, "is no form", "write \"quick\" or \"standard\"");
                Form::Quick
            }
        });
        let form = standard.unwrap_or_default();
        let goal = match form {
            Form::Quick => Goal::quick(),
            Form::Standard => Goal::rfc2544(),
        };
        let goal = self.parsed(written.throughput.as_ref(), goal);
        let search = self.parsed(written.search.as_ref(), SearchKind::default());
        let mut number = |written: &Option<Spanned<f64>>, from: f64, to: f64| {
            let value = written.as_ref()?;
            if !(from..=to).contains(value.get_ref()) {
                let remedy = format!("write {from} to {to}");
                self.fault(value.span(), &value.get_ref().to_string(), "is out of range", remedy);
            }
            Some(*value.get_ref())
        };
        let line_bps = number(&written.line, 1e6, 1e13);
        let soak_s = number(&written.soak_s, 0.001, 604_800.0);
        // one that the matrix has is looked at in every cell
        let rate = written.rate.as_ref().filter(|rate| !is_put_in(Some(rate)));
        let rate_pps = rate.and_then(|rate| self.rate(&plain(rate), rate.span(), &goal));
        let repeat = written.repeat.as_ref().map_or(1, |n| *n.get_ref());
        if let Some(wrong) = written.repeat.as_ref().filter(|_| !(1..=MOST_REPEATS).contains(&repeat)) {
            let remedy = format!("write 1 to {MOST_REPEATS}");
            self.fault(wrong.span(), &repeat.to_string(), "is no number of repetitions", remedy);
        }
        let methods = match &written.methods {
            None if written.rate.is_some() || own => vec!["load".to_owned()],
            None => How::default().methods,
            Some(names) => {
                let all = self.texts(names);
                for name in all.iter().filter(|name| !method::ALL.iter().any(|m| m.name == **name)) {
                    let known = method::ALL.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
                    self.fault(names.span(), name, "is no method", format!("use some of: {known}"));
                }
                if written.rate.is_none() && !own && all.iter().any(|name| name == "load") {
                    self.fault(names.span(), "load", "has no load", "write rate = PACKETS A SECOND");
                }
                all
            }
        };
        How { methods, form, goal, search, rate_pps, line_bps, soak_s, repeat }
    }

    /// A load, packets a second.
    pub(super) fn rate(&mut self, text: &str, span: Range<usize>, goal: &Goal) -> Option<f64> {
        let (least, most) = ((1.0 / goal.final_s()).max(1.0), traffic::pace::MAX_PPS);
        let rate = text.parse().ok().filter(|rate| (least..=most).contains(rate));
        if rate.is_none() {
            self.fault(span, text, "is no rate", format!("write {least} to {most} packets a second"));
        }
        rate
    }
}
