//! The names of the places in the graph of a worker.

use graph::Hop;

/// Names of all that a worker's graph refers to by number.
#[derive(Debug, Default)]
pub(crate) struct WorkerNames {
    /// CPU of the worker.
    pub(crate) cpu: usize,
    /// Ports and links by index of the input.
    pub(crate) inputs: Vec<EndName>,
    /// Ports and links by their number.
    pub(crate) outputs: Vec<EndName>,
    pub(crate) hops: Vec<HopNames>,
}

impl WorkerNames {
    /// Returns the name of the NF of a hop.
    pub(crate) fn nf(&self, hop: Hop) -> String {
        self.hops.get(usize::from(hop.0)).map(|hop| hop.nf.clone()).unwrap_or_default()
    }
}

/// The name of a port, or of a link between chains.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndName {
    pub(crate) name: String,
    pub(crate) is_link: bool,
}

/// The names of a hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct HopNames {
    pub(crate) nf: String,
    /// Name of the input, if the NF has several.
    pub(crate) input: Option<String>,
    pub(crate) outputs: Vec<String>,
}

impl HopNames {
    /// Returns the name of an output.
    pub(crate) fn output(&self, output: u8) -> &str {
        self.outputs.get(usize::from(output)).map_or("out", String::as_str)
    }
}
