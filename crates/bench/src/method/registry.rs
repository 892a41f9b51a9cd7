//! The list of methods.

use super::changes::Changes;
use super::concurrent_connections::ConcurrentConnections;
use super::connections::Connections;
use super::delay_variation::DelayVariation;
use super::given_load::GivenLoad;
use super::procedure::{MethodRunner, Procedure};
use super::profile::Profile;
use super::properties::{LoadChoice, Properties, RequiredTraffic};
use super::receive_rate::ReceiveRate;
use super::rfc2544::back_to_back::BackToBack;
use super::rfc2544::latency::LatencyAtThroughput;
use super::rfc2544::loss::LossCurve;
use super::rfc2544::recovery::Recovery;
use super::rfc2544::reset::Reset;
use super::rfc2544::throughput::Throughput;
use super::rfc2889::address_table::AddressTable;
use super::rfc2889::learning_rate::LearningRate;
use super::soak::Soak;
use super::{Method, MethodSettings};
use crate::search::SearchError;

/// All methods, in the order of the documentation.
pub const METHODS: &[MethodInfo] = &[
    info::<Throughput>(),
    info::<ReceiveRate>(),
    info::<GivenLoad>(),
    info::<LatencyAtThroughput>(),
    info::<LossCurve>(),
    info::<BackToBack>(),
    info::<Recovery>(),
    info::<Reset>(),
    info::<DelayVariation>(),
    info::<Soak>(),
    info::<Changes>(),
    info::<Connections>(),
    info::<ConcurrentConnections>(),
    info::<AddressTable>(),
    info::<LearningRate>(),
    info::<Profile>(),
];

/// Name of the method that searches the throughput.
pub const THROUGHPUT: &str = Throughput::NAME;
/// Name of the method that offers one given load.
pub const GIVEN_LOAD: &str = GivenLoad::NAME;
/// Name of the method that sends a profile.
pub const PROFILE: &str = Profile::NAME;
/// Names of the methods for the tests of RFC 2544 §26 without reset.
pub const RFC2544: [&str; 5] =
    [Throughput::NAME, LatencyAtThroughput::NAME, LossCurve::NAME, BackToBack::NAME, Recovery::NAME];

/// Description of a method.
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo {
    /// Name.
    pub name: &'static str,
    /// Standard that defines it, if any.
    pub standard: Option<&'static str>,
    /// Question that it answers.
    pub question: &'static str,
    /// Approximate duration of its quick form without repeated trials, seconds, including a search with the goal
    /// `quick` if it needs one.
    pub quick_s: f64,
    /// Approximate duration of its standard form, seconds, including a search with the goal `rfc2544` if it needs one.
    pub standard_s: f64,
    /// Properties.
    pub properties: Properties,
    start: fn(&MethodSettings) -> Result<Box<dyn Method>, MethodError>,
}

const fn info<P: Procedure + Default + 'static>() -> MethodInfo {
    MethodInfo {
        name: P::NAME,
        standard: P::STANDARD,
        question: P::QUESTION,
        quick_s: P::DURATION_S.0,
        standard_s: P::DURATION_S.1,
        properties: P::PROPERTIES,
        start: |settings| Ok(Box::new(MethodRunner::new(P::default(), *settings)?)),
    }
}

/// Reason why a method cannot start.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// Unknown name.
    #[error("unknown method `{0}`; the methods are {names}", names = names())]
    Unknown(String),
    /// A setting out of range.
    #[error("{what} of {value} is out of range; {remedy}")]
    OutOfRange {
        /// Setting.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Valid values.
        remedy: &'static str,
    },
    /// The method needs a load.
    #[error("the method `load` needs a load; set one, in packets per second")]
    MissingLoad,
    /// The method needs a profile.
    #[error("the method `profile` needs a profile; name a script that describes what is sent in each second")]
    MissingProfile,
    /// The search cannot start.
    #[error(transparent)]
    Search(#[from] SearchError),
}

fn names() -> String {
    METHODS.iter().map(|method| format!("`{}`", method.name)).collect::<Vec<_>>().join(", ")
}

/// Finds a method by its name.
///
/// # Errors
/// [`MethodError::Unknown`].
pub fn find(name: &str) -> Result<&'static MethodInfo, MethodError> {
    METHODS
        .iter()
        .find(|method| method.name == name)
        .ok_or_else(|| MethodError::Unknown(name.chars().take(60).collect()))
}

/// Starts the method of [`METHODS`] with this name.
///
/// # Errors
/// [`MethodError`].
pub fn start(name: &str, settings: &MethodSettings) -> Result<Box<dyn Method>, MethodError> {
    let out_of_range = |what, value, remedy| Err(MethodError::OutOfRange { what, value, remedy });
    let MethodSettings { line_pps, throughput_pps, packets_per_connection, soak_s, soak_share, .. } = *settings;
    let rates = [("line rate", line_pps), ("throughput", throughput_pps), ("load", settings.rate_pps)];
    for (what, value) in rates {
        if let Some(value) = value.filter(|value| !(1.0..=traffic::pace::MAX_PPS).contains(value)) {
            return out_of_range(what, value, "use 1 to 200 million packets/s");
        }
    }
    if !(1.0..=1e6).contains(&packets_per_connection) {
        return out_of_range("packets per connection", packets_per_connection, "use 1 to 1000000");
    }
    if let Some(value) = soak_s.filter(|value| !(0.001..=604_800.0).contains(value)) {
        return out_of_range("soak duration in seconds", value, "use 1 ms to a week");
    }
    if !(soak_share > 0.0 && soak_share <= 1.0) {
        return out_of_range("soak load as a share of the throughput", soak_share, "use more than 0, up to 1");
    }
    let method = find(name)?;
    if method.properties.load == LoadChoice::Given && settings.rate_pps.is_none() {
        return Err(MethodError::MissingLoad);
    }
    if method.properties.traffic == RequiredTraffic::Profile && settings.profile.is_none() {
        return Err(MethodError::MissingProfile);
    }
    (method.start)(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Thoroughness;
    use crate::search::{Goal, Limits};

    #[test]
    fn every_method_starts() {
        let settings = MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e6).unwrap());
        assert!(matches!(start(GIVEN_LOAD, &settings), Err(MethodError::MissingLoad)));
        assert!(matches!(start(PROFILE, &settings), Err(MethodError::MissingProfile)));
        let profile = Some(crate::method::ProfileSummary { mean_pps: 1e3, seconds: 1 });
        let settings = MethodSettings { rate_pps: Some(1e3), profile, ..settings };
        for info in METHODS {
            let method = start(info.name, &settings).unwrap();
            assert_eq!(method.output().method.name, info.name);
            assert!(info.quick_s < info.standard_s);
        }
        let error = start("speed", &settings).err().unwrap().to_string();
        assert!(error.contains("`speed`") && error.contains("`back-to-back`"), "{error}");
        for bad in [
            MethodSettings { line_pps: Some(0.0), ..settings },
            MethodSettings { throughput_pps: Some(f64::NAN), ..settings },
            MethodSettings { packets_per_connection: 0.0, ..settings },
            MethodSettings { soak_s: Some(-1.0), ..settings },
            MethodSettings { soak_share: 1.1, ..settings },
        ] {
            assert!(matches!(start("soak", &bad), Err(MethodError::OutOfRange { .. })));
        }
    }
}
