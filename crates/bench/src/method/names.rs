//! Which methods there are.

use super::back_to_back::BackToBack;
use super::changes::Changes;
use super::connections::Connections;
use super::course::{Course, Plan};
use super::delay_variation::DelayVariation;
use super::latency::AtThroughput;
use super::load::Load;
use super::loss::LossCurve;
use super::profile::Profile;
use super::receive_rate::ReceiveRate;
use super::recovery::Recovery;
use super::reset::Reset;
use super::soak::Soak;
use super::throughput::Throughput;
use super::{Method, Settings};
use crate::search::SearchError;

/// A method, for those who choose one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What defines it, where something does.
    pub standard: Option<&'static str>,
    /// Which question it answers.
    pub says: &'static str,
    /// About how many seconds its quick form takes where nothing has to be repeated, with a search for the throughput by
    /// `quick` where it needs one.
    pub quick_s: f64,
    /// About how many seconds its standard form takes, with a search by `rfc2544` for one that needs it.
    pub standard_s: f64,
}

/// Why there is no such method.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Its name.
    #[error("`{0}` is no method; there are {names}", names = names())]
    Name(String),
    /// A setting out of range.
    #[error("{what} of {value}; {remedy}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it should be.
        remedy: &'static str,
    },
    /// There is no load.
    #[error("the method `load` has no load; name one, in packets a second")]
    Rate,
    /// There is no profile.
    #[error("the method `profile` has no profile; name a script that says what is sent in each second")]
    Profile,
    /// Its search.
    #[error(transparent)]
    Search(#[from] SearchError),
}

const fn about<P: Plan>(says: &'static str, quick_s: f64, standard_s: f64) -> About {
    About { name: P::NAME, standard: P::STANDARD, says, quick_s, standard_s }
}

/// All methods, in the order in which they are explained.
pub const ALL: &[About] = &[
    about::<Throughput>("how many packets a second it forwards, and how late they are below that", 3.0, 600.0),
    about::<ReceiveRate>("how much comes back of all that the generator can send, whatever is lost", 1.0, 80.0),
    about::<Load>("whether one load holds, which has to be named", 1.0, 60.0),
    about::<AtThroughput>("how long a packet takes at the highest rate", 5.0, 2800.0),
    about::<LossCurve>("what share is lost at each load", 2.5, 350.0),
    about::<BackToBack>("how long a burst at full rate may be, and so how large the buffer is", 4.0, 1700.0),
    about::<Recovery>("how long after an overload packets are still lost", 5.0, 900.0),
    about::<Reset>("how long a reset interrupts it", 8.0, 650.0),
    about::<DelayVariation>("how evenly packets come", 4.0, 5600.0),
    about::<Soak>("whether a load stays without loss for hours", 12.0, 7400.0),
    about::<Changes>("what changes of rules or routes cost while packets are forwarded", 20.0, 4300.0),
    about::<Connections>("how many connections a second it stands", 2.0, 250.0),
    about::<Profile>("what becomes of streams whose rates change every second, as a script says", 60.0, 60.5),
];

fn names() -> String {
    ALL.iter().map(|about| format!("`{}`", about.name)).collect::<Vec<_>>().join(", ")
}

fn course<P: Plan + Default + 'static>(settings: &Settings) -> Result<Box<dyn Method>, Refused> {
    Ok(Box::new(Course::new(P::default(), *settings)?))
}

/// Begins a method of [`ALL`].
///
/// # Errors
/// [`Refused`].
pub fn by_name(name: &str, settings: &Settings) -> Result<Box<dyn Method>, Refused> {
    let refuse = |what, value, remedy| Err(Refused::Setting { what, value, remedy });
    let Settings { line_pps, throughput_pps, packets_per_connection, soak_s, soak_share, .. } = *settings;
    let rates = [("rate of the medium", line_pps), ("throughput", throughput_pps), ("load", settings.rate_pps)];
    for (what, value) in rates {
        if let Some(value) = value.filter(|value| !(1.0..=traffic::pace::MAX_PPS).contains(value)) {
            return refuse(what, value, "give 1 to 200 million packets/s");
        }
    }
    if !(1.0..=1e6).contains(&packets_per_connection) {
        return refuse("number of packets of a connection", packets_per_connection, "give 1 to 1000000");
    }
    if let Some(value) = soak_s.filter(|value| !(0.001..=604_800.0).contains(value)) {
        return refuse("soak in seconds", value, "give 1 ms to a week");
    }
    if !(soak_share > 0.0 && soak_share <= 1.0) {
        return refuse("share of the throughput to soak at", soak_share, "give above 0 and up to 1");
    }
    match name {
        Throughput::NAME => course::<Throughput>(settings),
        Load::NAME if settings.rate_pps.is_none() => Err(Refused::Rate),
        Load::NAME => course::<Load>(settings),
        ReceiveRate::NAME => course::<ReceiveRate>(settings),
        AtThroughput::NAME => course::<AtThroughput>(settings),
        LossCurve::NAME => course::<LossCurve>(settings),
        BackToBack::NAME => course::<BackToBack>(settings),
        Recovery::NAME => course::<Recovery>(settings),
        Reset::NAME => course::<Reset>(settings),
        DelayVariation::NAME => course::<DelayVariation>(settings),
        Soak::NAME => course::<Soak>(settings),
        Changes::NAME => course::<Changes>(settings),
        Connections::NAME => course::<Connections>(settings),
        Profile::NAME if settings.profile.is_none() => Err(Refused::Profile),
        Profile::NAME => course::<Profile>(settings),
        _ => Err(Refused::Name(name.chars().take(60).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use crate::method::Form;
    use crate::search::Limits;

    #[test]
    fn all_can_be_begun() {
        let settings = Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 1e6).unwrap());
        assert!(matches!(by_name("load", &settings), Err(Refused::Rate)));
        assert!(matches!(by_name("profile", &settings), Err(Refused::Profile)));
        let profile = Some(crate::method::Outline { mean_pps: 1e3, seconds: 1 });
        let settings = Settings { rate_pps: Some(1e3), profile, ..settings };
        for about in ALL {
            let method = by_name(about.name, &settings).unwrap();
            assert_eq!(method.findings().method.name, about.name);
            assert!(about.quick_s < about.standard_s);
        }
        let why = by_name("speed", &settings).err().unwrap().to_string();
        assert!(why.contains("`speed`") && why.contains("`back-to-back`"), "{why}");
        for bad in [
            Settings { line_pps: Some(0.0), ..settings },
            Settings { throughput_pps: Some(f64::NAN), ..settings },
            Settings { packets_per_connection: 0.0, ..settings },
            Settings { soak_s: Some(-1.0), ..settings },
            Settings { soak_share: 1.1, ..settings },
        ] {
            assert!(matches!(by_name("soak", &bad), Err(Refused::Setting { .. })));
        }
    }
}
