//! `profile` and `duration_s` of `[traffic]`.

use super::Checker;
use crate::TrafficSpec;
use crate::scenario::{MeasurementSettings, file};
use crate::traffic_spec::profile::{Profile, Timetable};
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use traffic::Order;

/// The method that sends it.
const METHOD: &str = crate::method::PROFILE;

impl Checker<'_> {
    /// Returns the streams of a script, if `profile` names one; every second of it is checked.
    pub(super) fn profile(
        &mut self,
        traffic: &file::Traffic,
        folder: &Path,
        settings: &MeasurementSettings,
    ) -> Option<TrafficSpec> {
        let Some(name) = &traffic.profile else {
            if let Some(seconds) = &traffic.duration_s {
                let problem = "is the length of a profile, and no profile is sent";
                let remedy = "add profile = \"SCRIPT.rhai\", or set soak_s in [goal] for a soak";
                self.error(seconds.span(), &seconds.get_ref().to_string(), problem, remedy);
            }
            return None;
        };
        let made = [&traffic.frames, &traffic.order, &traffic.trace, &traffic.stack, &traffic.short, &traffic.tcp];
        let made = made.into_iter().flatten().map(Spanned::span);
        let captures = [&traffic.capture, &traffic.rewrite, &traffic.vlan].into_iter().flatten().map(Spanned::span);
        let captures = captures.chain(traffic.vary.as_ref().map(Spanned::span));
        let made = made.chain(captures).chain(traffic.gaps.as_ref().map(Spanned::span));
        let both = traffic.bidirectional.as_ref().filter(|both| *both.get_ref()).map(Spanned::span);
        for span in made.chain(traffic.flows.as_ref().map(Spanned::span)).chain(both) {
            let written = self.source_text(span.clone());
            self.error(span, &written, "cannot be combined with a profile", "remove it");
        }
        let empty =
            TrafficSpec::Synthetic { frames: vec![], flows: 1, order: Order::default(), options: Default::default() };
        let remedy = "name a script in the directory of the scenario";
        let Some(path) = self.file_name(name.get_ref(), name.span(), folder, remedy) else { return Some(empty) };
        let seconds = traffic.duration_s.as_ref().map(|n| *n.get_ref());
        let table =
            Profile::open(&path).and_then(|profile| Timetable::new(Arc::new(profile), seconds, settings.line_rate_bps));
        match (table, &traffic.duration_s) {
            (Ok(table), _) => Some(TrafficSpec::Profile(Arc::new(table))),
            // an error of this file, not of the script
            (Err(d), Some(seconds)) if d.file.is_none() => {
                self.error(
                    seconds.span(),
                    d.value.as_deref().unwrap_or_default(),
                    d.problem,
                    d.remedy.unwrap_or_default(),
                );
                Some(empty)
            }
            (Err(d), _) => {
                self.errors_elsewhere.push(d);
                Some(empty)
            }
        }
    }

    /// Checks that a profile is sent by the method `profile`, and that this method has a profile.
    pub(super) fn profile_methods(&mut self, file: &file::File, settings: &mut MeasurementSettings) {
        let span = file.goal.methods.as_ref().map_or(0..0, Spanned::span);
        let has_profile = file.traffic.profile.is_some();
        if has_profile && file.goal.methods.is_none() && file.goal.rate.is_none() {
            settings.methods = vec![METHOD.to_owned()];
        }
        match settings.methods.iter().find(|name| (*name == METHOD) != has_profile) {
            Some(other) if has_profile => {
                let span = file.goal.methods.as_ref().map(Spanned::span).or(file.goal.rate.as_ref().map(Spanned::span));
                let remedy = "remove methods and rate, or the profile";
                self.error(
                    span.unwrap_or(0..0),
                    &other.clone(),
                    "cannot send a profile; the method profile can",
                    remedy,
                );
            }
            Some(_) => {
                let remedy = "add profile = \"SCRIPT.rhai\" to [traffic]";
                self.error(span, METHOD, "needs a profile", remedy);
            }
            None => {}
        }
    }
}
