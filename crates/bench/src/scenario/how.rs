//! How the cells of a scenario are measured.

use crate::Goal;
use crate::method::Form;
use crate::search::SearchKind;

/// How a device is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct How {
    /// Names of methods, one after the other.
    pub methods: Vec<String>,
    /// How thoroughly.
    pub form: Form,
    /// What counts as a throughput.
    pub goal: Goal,
    /// How it is searched for.
    pub search: SearchKind,
    /// The load of the method `load`, packets a second.
    pub rate_pps: Option<f64>,
    /// What the medium carries, bits a second.
    pub line_bps: Option<f64>,
    /// How long a soak lasts, seconds.
    pub soak_s: Option<f64>,
    /// How often all of it is done.
    pub repeat: u32,
}

impl Default for How {
    /// A throughput, the short way, once.
    fn default() -> How {
        How {
            methods: vec!["throughput".to_owned()],
            form: Form::Quick,
            goal: Goal::quick(),
            search: SearchKind::default(),
            rate_pps: None,
            line_bps: None,
            soak_s: None,
            repeat: 1,
        }
    }
}
