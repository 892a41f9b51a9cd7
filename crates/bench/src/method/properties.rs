//! Properties of methods that the session, the generators and the command line depend on.

/// Properties of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Properties {
    /// How the method chooses its loads.
    pub load: LoadChoice,
    /// Traffic that the method requires.
    pub traffic: RequiredTraffic,
    /// True if its result is the throughput of the DUT, which later methods may use.
    pub is_throughput: bool,
    /// True if a throughput measured before with the same frames replaces its own search.
    pub reuses_throughput: bool,
    /// True if its loads are shares of the line rate of the medium.
    pub relative_to_line_rate: bool,
    /// True if a lower bound of 0 in its result means that the goal was not met.
    pub requires_rate: bool,
    /// True if it needs only the counts of a trial, which a generator that is another program provides as well.
    pub counts_only: bool,
}

/// How a method chooses its loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadChoice {
    /// By a throughput search.
    Search,
    /// The load is given.
    Given,
    /// A low load that the method sets, unless one is given.
    Fixed,
    /// By a search for the rate of addresses.
    Addresses,
    /// The highest load that the generator can send.
    Highest,
    /// A profile script specifies it for every second.
    Profile,
}

impl LoadChoice {
    /// Returns its description in a result; `None` for a search, which has its own name.
    pub const fn description(self) -> Option<&'static str> {
        match self {
            LoadChoice::Search => None,
            LoadChoice::Addresses => Some("bisection"),
            LoadChoice::Given | LoadChoice::Fixed => Some("one load"),
            LoadChoice::Highest => Some("the highest load the generator can send"),
            LoadChoice::Profile => Some("a profile"),
        }
    }
}

/// Traffic that a method requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequiredTraffic {
    /// Any traffic except a profile.
    Any,
    /// Synthetic frames of flows.
    Flows,
    /// Short connections, or TCP connections with client and server.
    Connections,
    /// TCP connections with client and server.
    Tcp,
    /// The streams of a profile.
    Profile,
}
