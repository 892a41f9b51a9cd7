//! Cells of a session: what is measured, and with which traffic and methods.

use crate::dut::DutSpec;
use crate::generator::Generator;
use crate::scenario::{self, MeasurementSettings, Scenario};
use crate::simulated::Simulated;
use crate::traffic_spec::{SyntheticOptions, TrafficSpec, parse_frame_sizes};
use config::ChainFile;
use std::collections::BTreeMap;
use traffic::Order;

/// Frame sizes of RFC 2544 §9.1 for Ethernet, bytes with FCS.
const RFC2544_SIZES: &str = "64,128,256,512,1024,1280,1518";
/// DUT to measure.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// A chain in this process.
    InProcess(&'a ChainFile),
    /// Another program.
    External {
        /// Name in messages and results.
        name: &'a str,
        /// MeasurementSettings to start it.
        spec: &'a DutSpec,
        /// Chain file whose `[traffic]` table describes the traffic.
        file: &'a ChainFile,
    },
    /// A simulated device.
    Simulated {
        /// The device.
        device: &'a Simulated,
        /// Chain file whose `[traffic]` table describes the traffic.
        file: &'a ChainFile,
    },
}

impl<'a> Target<'a> {
    /// Returns the chain file whose `[traffic]` table describes the traffic.
    pub fn file(&self) -> &'a ChainFile {
        match self {
            Target::InProcess(file) | Target::External { file, .. } | Target::Simulated { file, .. } => file,
        }
    }
}

/// A target with its traffic and methods.
#[derive(Clone)]
pub struct Run<'a> {
    /// DUT.
    pub target: Target<'a>,
    /// Label in messages.
    pub label: String,
    /// Name of the study in results.
    pub study: String,
    /// Parameters that distinguish it from other runs of the study.
    pub cell: BTreeMap<String, String>,
    /// Traffic.
    pub traffic: TrafficSpec,
    /// Methods and their settings.
    pub settings: MeasurementSettings,
    /// Generator.
    pub generator: Generator,
    /// Frequency to which the DUT's CPUs are fixed.
    pub clock_mhz: Option<u32>,
    /// Number of the repetition, from 1; none without repetitions.
    pub repetition: Option<u32>,
}

impl<'a> Run<'a> {
    /// Returns a throughput measurement of a chain with the frame sizes of RFC 2544 and 1024 flows.
    pub fn new(file: &'a ChainFile) -> Run<'a> {
        Run {
            target: Target::InProcess(file),
            label: file.file.display().to_string(),
            study: "bench".to_owned(),
            cell: BTreeMap::new(),
            traffic: TrafficSpec::Synthetic {
                frames: parse_frame_sizes(RFC2544_SIZES).unwrap_or_default(),
                flows: SyntheticOptions::default().default_flows(),
                order: Order::default(),
                options: SyntheticOptions::default(),
            },
            settings: MeasurementSettings::default(),
            generator: Generator::Bondstone,
            clock_mhz: None,
            repetition: None,
        }
    }
}

/// A cell of a session.
#[derive(Clone)]
pub struct SessionCell<'a> {
    /// Label in messages.
    pub label: String,
    /// Parameters that distinguish it from other cells.
    pub parameters: BTreeMap<String, String>,
    /// The measurement, or the reason why this cell cannot be measured.
    pub run: Result<Run<'a>, String>,
}

impl std::fmt::Debug for SessionCell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionCell").field("label", &self.label).finish_non_exhaustive()
    }
}

impl<'a> SessionCell<'a> {
    /// Returns a cell for one run.
    pub fn new(run: Run<'a>) -> SessionCell<'a> {
        SessionCell { label: run.label.clone(), parameters: run.cell.clone(), run: Ok(run) }
    }

    /// Returns the cells of a scenario.
    pub fn of_scenario(scenario: &'a Scenario) -> Vec<SessionCell<'a>> {
        scenario.cells.iter().map(|cell| SessionCell::of_scenario_cell(scenario, cell)).collect()
    }

    fn of_scenario_cell(scenario: &Scenario, cell: &'a scenario::Cell) -> SessionCell<'a> {
        let label = format!("{}, {}", scenario.name, cell.label());
        let target = match &cell.dut {
            scenario::CellDut::InProcess(file) => Ok(Target::InProcess(file)),
            scenario::CellDut::External(external) => {
                let (spec, file) = &**external;
                let name = cell.parameters.get("dut").map_or(&*spec.kind, String::as_str);
                Ok(Target::External { name, spec, file })
            }
            scenario::CellDut::Simulated(simulated) => {
                let (device, file) = &**simulated;
                Ok(Target::Simulated { device, file })
            }
            scenario::CellDut::Unavailable(reason) => Err(reason.clone()),
        };
        let run = target.map(|target| Run {
            target,
            label: label.clone(),
            study: scenario.name.clone(),
            cell: cell.parameters.clone(),
            traffic: cell.traffic.clone(),
            settings: cell.settings.clone(),
            generator: cell.generator.clone(),
            clock_mhz: cell.clock_mhz,
            repetition: None,
        });
        SessionCell { label, parameters: cell.parameters.clone(), run }
    }
}

/// A result of a cell.
#[derive(Clone, Debug)]
pub struct CellResult {
    /// Frame sizes as they were written.
    pub frames: String,
    /// Result document.
    pub result: report::Result,
}
