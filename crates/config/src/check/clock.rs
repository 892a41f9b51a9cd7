//! Checks that captures can give the time of a run.

use super::paths::Builder;
use crate::device::Device;
use crate::file::{Clock, File};
use crate::plan::{Chain, ServiceClass, Start};
use crate::sandbox::Sandbox;

impl Builder<'_> {
    /// Returns the clock of the NFs. With [`Clock::Capture`], one worker has to receive all packets, from captures.
    pub(super) fn clock(&mut self, file: &File, chains: &[Chain], sandboxes: &[Sandbox]) -> Clock {
        let Some(clock) = file.clock.as_ref().filter(|clock| *clock.get_ref() == Clock::Capture) else {
            return Clock::default();
        };
        const KEY: &str = "clock = \"capture\"";
        for port in self.ports.iter().filter(|port| port.received_from) {
            let Some((_, written)) = file.port.iter().find(|(name, _)| *name.get_ref() == port.name) else { continue };
            if !matches!(port.device, Device::Pcap(_)) {
                let problem = format!("{KEY} takes the time from captures, and packets are received from this device");
                let remedy = "receive packets from captures only, or remove the key clock";
                self.checker.error(written.device.span(), written.device.get_ref(), problem, remedy);
            } else if let (true, Some(timed)) = (port.timed, &written.timed) {
                let problem = format!("timed keeps the gaps of the capture in real time, and {KEY} does not");
                self.checker.error(timed.span(), "timed", problem, "remove one of them");
            }
        }
        let mut cpus: Vec<usize> = vec![];
        for (chain, written) in chains.iter().zip(&file.chain) {
            let written = written.get_ref();
            if let (Start::Link(_), Some(first)) = (chain.from, written.path.get_ref().first()) {
                let problem = format!("with {KEY}, chains are not joined by rings, whose readers have no timestamps");
                self.checker.error(first.span(), first.get_ref(), problem, "continue the path instead");
            }
            for core in &written.cores {
                if !cpus.is_empty() && !cpus.contains(core.get_ref()) {
                    let problem = format!("with {KEY}, all chains run on one CPU, which merges captures by timestamp");
                    let value = core.get_ref().to_string();
                    self.checker.error(core.span(), &value, problem, format!("write {}", cpus[0]));
                } else {
                    cpus = vec![*core.get_ref()];
                }
            }
            if chain.class != ServiceClass::DEFAULT {
                let problem = format!("priority, share and rate are measured in real time, which {KEY} replaces");
                self.checker.error(written.path.span(), &chain.name, problem, "remove them");
            }
        }
        if let Some(sandbox) = sandboxes.first() {
            let problem = format!("{KEY} is for NFs in this process, and sandbox {:?} has its own clock", sandbox.name);
            self.checker.error(clock.span(), "clock", problem, "remove the key isolation, or the key clock");
        }
        Clock::Capture
    }
}
