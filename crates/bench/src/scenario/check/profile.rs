//! `profile` and `seconds` of `[traffic]`.

use super::Checker;
use crate::Sent;
use crate::profile::{Profile, Timetable};
use crate::scenario::{How, file};
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use traffic::Order;

/// The method that sends it.
const METHOD: &str = "profile";

impl Checker<'_> {
    /// The streams of a script, if one is named; every second of it is looked at.
    pub(super) fn profile(&mut self, traffic: &file::Traffic, folder: &Path, how: &How) -> Option<Sent> {
        let Some(name) = &traffic.profile else {
            if let Some(seconds) = &traffic.seconds {
                let problem = "is the length of a profile, and there is none";
                let remedy = "write profile = \"SCRIPT.rhai\", or soak_s in [goal] for a soak";
                self.fault(seconds.span(), &seconds.get_ref().to_string(), problem, remedy);
            }
            return None;
        };
        let made = [&traffic.frames, &traffic.order, &traffic.trace, &traffic.stack, &traffic.short];
        let made = made.into_iter().flatten().map(Spanned::span);
        let captures = [&traffic.capture, &traffic.rewrite, &traffic.vlan].into_iter().flatten().map(Spanned::span);
        let made = made.chain(captures).chain(traffic.gaps.as_ref().map(Spanned::span));
        let both = traffic.both_ways.as_ref().filter(|both| *both.get_ref()).map(Spanned::span);
        for span in made.chain(traffic.flows.as_ref().map(Spanned::span)).chain(both) {
            let written = self.written(span.clone());
            self.fault(span, &written, "does not go with a profile, whose script says what is sent", "remove it");
        }
        let nothing = Sent::Made { frames: vec![], flows: 1, order: Order::default(), shape: Default::default() };
        let remedy = "name a script in the scenario's folder";
        let Some(path) = self.file_name(name.get_ref(), name.span(), folder, remedy) else { return Some(nothing) };
        let seconds = traffic.seconds.as_ref().map(|n| *n.get_ref());
        let table = Profile::open(&path).and_then(|profile| Timetable::of(Arc::new(profile), seconds, how.line_bps));
        match (table, &traffic.seconds) {
            (Ok(table), _) => Some(Sent::Profile(Arc::new(table))),
            // of this file, and not of the script
            (Err(d), Some(seconds)) if d.file.is_none() => {
                self.fault(
                    seconds.span(),
                    d.value.as_deref().unwrap_or_default(),
                    d.problem,
                    d.remedy.unwrap_or_default(),
                );
                Some(nothing)
            }
            (Err(d), _) => {
                self.others.push(d);
                Some(nothing)
            }
        }
    }

    /// A profile is sent by one method, and by no other.
    pub(super) fn methods_of_profile(&mut self, file: &file::File, how: &mut How) {
        let span = file.goal.methods.as_ref().map_or(0..0, Spanned::span);
        let is_one = file.traffic.profile.is_some();
        if is_one && file.goal.methods.is_none() && file.goal.rate.is_none() {
            how.methods = vec![METHOD.to_owned()];
        }
        match how.methods.iter().find(|name| (*name == METHOD) != is_one) {
            Some(other) if is_one => {
                let span = file.goal.methods.as_ref().map(Spanned::span).or(file.goal.rate.as_ref().map(Spanned::span));
                let remedy = "leave methods and rate out, or the profile";
                self.fault(
                    span.unwrap_or(0..0),
                    &other.clone(),
                    "does not send a profile: the method profile does",
                    remedy,
                );
            }
            Some(_) => {
                let remedy = "write profile = \"SCRIPT.rhai\" into [traffic]";
                self.fault(span, METHOD, "has no profile", remedy);
            }
            None => {}
        }
    }
}
