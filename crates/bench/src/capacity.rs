//! Capacity of a server that runs VNFs behind its ports, by the bounds of a study and by cycles per packet.

use config::Source;
use diagnostics::Diagnostic;
use graph::Rate;
use report::rate::line_pps;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest number of CPUs, ports, VNFs of a port and cycles, so that products are exact.
const MOST: u64 = 1_000_000;

/// A server, the VNFs that run on it and their traffic, as in the file of `bondstone plan --capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Version of the format: 1.
    bondstone: u64,
    /// The server.
    pub server: Server,
    /// The switch between ports and VNFs.
    #[serde(default)]
    pub switch: Switch,
    /// The VNFs, which are equal.
    pub vnf: Vnf,
    /// Forwarding of all VNFs in one table of the host.
    pub split: Option<Split>,
    /// Traffic.
    #[serde(default)]
    pub traffic: Traffic,
}

/// CPUs and ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// CPUs for VNFs and the switch.
    pub cpus: u64,
    /// Sockets.
    #[serde(default = "one")]
    pub sockets: u64,
    /// Clock of cycle counts in GHz, that of the time-stamp counter for cycles that Bondstone has measured.
    pub clock_ghz: f64,
    /// Ports of NICs.
    pub ports: u64,
    /// Ports near each socket; by default they are spread evenly.
    pub ports_per_socket: Option<u64>,
    /// Rate of a port.
    pub port_rate: Rate,
    /// VNFs that a port can have: virtual functions or vNICs.
    pub vnfs_per_port: u64,
}

/// The switch between ports and VNFs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Switch {
    /// CPUs of its own. 0: those of the VNFs, or none if it takes no cycles, as that of a NIC.
    pub cpus: u64,
    /// Cycles per packet on the way to a VNF and back.
    pub cycles: f64,
}

/// A VNF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vnf {
    /// Cycles per packet of the NFs in it.
    pub cycles: f64,
    /// Further cycles per packet to receive and send in the VNF.
    #[serde(default)]
    pub crossing: f64,
    /// True if it polls, and so uses its share of a CPU without packets.
    #[serde(default = "yes")]
    pub polls: bool,
    /// Packets that a queue to it holds.
    #[serde(default = "queue")]
    pub queue: u64,
    /// Milliseconds for which the kernel runs a VNF that polls before others on its CPU.
    #[serde(default = "slice")]
    pub slice_ms: f64,
}

/// Forwarding of all VNFs in one table of the host; the VNFs keep their control planes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Cycles per packet on any CPU of the server.
    pub cycles: f64,
}

/// Traffic, which arrives at the rate of all ports and is shared equally by the VNFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Sizes of frames with FCS in bytes.
    pub frames: Vec<u64>,
    /// Loss that is allowed, as a ratio.
    pub loss: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic { frames: vec![64, 128, 256, 512, 1024, 1518], loss: 0.0 }
    }
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

fn queue() -> u64 {
    1024
}

fn slice() -> f64 {
    3.0
}

/// The part of a server that limits a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The rate of the ports.
    Ports,
    /// The CPUs of the switch.
    Switch,
    /// The CPUs of the VNFs.
    Cpus,
    /// Queues to VNFs that wait for their CPU.
    Queues,
}

impl Limit {
    /// Returns the limit in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::Ports => "ports",
            Limit::Switch => "switch",
            Limit::Cpus => "CPUs of VNFs",
            Limit::Queues => "queues of waiting VNFs",
        }
    }
}

/// Estimate for a number of VNFs and a frame size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// VNFs.
    pub vnfs: u64,
    /// Frame size in bytes.
    pub frame: u64,
    /// Highest rate without loss in packets per second, of all VNFs together.
    pub throughput_pps: f64,
    /// The part that limits it.
    pub limit: Limit,
    /// Loss ratio if the traffic arrives at the rate of the ports.
    pub loss_at_line_rate: f64,
}

impl Capacity {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first error of the syntax with its line, otherwise all values out of range, each with key and remedy.
    pub fn read(file: &Path) -> Result<Capacity, Vec<Diagnostic>> {
        let text = config::read(file, "description of a server").map_err(|d| vec![d])?;
        Capacity::parse(&text, file)
    }

    /// As [`Capacity::read`], from the text of `file`.
    ///
    /// # Errors
    /// As [`Capacity::read`].
    pub fn parse(text: &str, file: &Path) -> Result<Capacity, Vec<Diagnostic>> {
        let source = Source { text, file };
        let parsed: Capacity = toml::from_str(text).map_err(|e| vec![source.toml_error(&e)])?;
        let errors = parsed.errors();
        if errors.is_empty() {
            return Ok(parsed);
        }
        let of_file = |d: Diagnostic| Diagnostic { file: Some(file.to_owned()), ..d };
        Err(errors.into_iter().map(of_file).collect())
    }

    fn errors(&self) -> Vec<Diagnostic> {
        let mut errors = vec![];
        let mut check = |is_valid: bool, key: &'static str, value: &dyn std::fmt::Display, remedy: &str| {
            if !is_valid {
                errors.push(Diagnostic::new("is out of range").key(key).value(value).remedy(remedy));
            }
        };
        let Capacity { server, switch, vnf, split, traffic, .. } = self;
        let count = |n: u64| (1..=MOST).contains(&n);
        let cycles = |n: f64| (0.0..=1e9).contains(&n);
        check(self.bondstone == 1, "bondstone", &self.bondstone, "write 1");
        let whole = "write 1 to 1000000";
        check(count(server.cpus), "server.cpus", &server.cpus, whole);
        check(count(server.sockets), "server.sockets", &server.sockets, whole);
        check(count(server.ports), "server.ports", &server.ports, whole);
        if let Some(ports) = server.ports_per_socket {
            check(
                (1..=server.ports).contains(&ports),
                "server.ports_per_socket",
                &ports,
                "write 1 to the number of ports",
            );
        }
        check(count(server.vnfs_per_port), "server.vnfs_per_port", &server.vnfs_per_port, whole);
        check((0.1..=20.0).contains(&server.clock_ghz), "server.clock_ghz", &server.clock_ghz, "write 0.1 to 20");
        let bits = matches!(server.port_rate, Rate::Bits(_));
        check(bits, "server.port_rate", &server.port_rate, "write bits per second, such as \"10 Gbps\"");
        check(switch.cpus < server.cpus, "switch.cpus", &switch.cpus, "leave a CPU of the server to the VNFs");
        let number = "write 0 to 1e9 cycles per packet";
        check(cycles(switch.cycles), "switch.cycles", &switch.cycles, number);
        check(
            switch.cpus == 0 || switch.cycles > 0.0,
            "switch.cycles",
            &switch.cycles,
            "write the cycles of the switch",
        );
        check(cycles(vnf.cycles), "vnf.cycles", &vnf.cycles, number);
        check(cycles(vnf.crossing), "vnf.crossing", &vnf.crossing, number);
        check(vnf.cycles + vnf.crossing > 0.0, "vnf.cycles", &vnf.cycles, "write more than 0 for a VNF");
        check(count(vnf.queue), "vnf.queue", &vnf.queue, whole);
        check((0.001..=1000.0).contains(&vnf.slice_ms), "vnf.slice_ms", &vnf.slice_ms, "write 0.001 to 1000");
        if let Some(split) = split {
            check(
                cycles(split.cycles) && split.cycles > 0.0,
                "split.cycles",
                &split.cycles,
                "write more than 0, to 1e9",
            );
        }
        check(!traffic.frames.is_empty(), "traffic.frames", &"[]", "write sizes, such as [64, 1518]");
        for frame in &traffic.frames {
            check((64..=16_384).contains(frame), "traffic.frames", frame, "write 64 to 16384 bytes");
        }
        check(
            (0.0..1.0).contains(&traffic.loss),
            "traffic.loss",
            &traffic.loss,
            "write a ratio below 1, such as 0.0001",
        );
        errors
    }

    /// Returns the CPUs that run VNFs: all but those of the switch.
    fn cpus_of_vnfs(&self) -> u64 {
        self.server.cpus.saturating_sub(self.switch.cpus).max(1)
    }

    /// Returns the most VNFs of a port that have a CPU each near it, min{c/(d·e), b}: c CPUs of d sockets with e ports
    /// each, and b VNFs per port (IEEE Internet Computing 2016).
    #[must_use]
    pub fn vnfs_of_port(&self) -> u64 {
        let Server { sockets, ports, ports_per_socket, vnfs_per_port, .. } = self.server;
        let ports_per_socket = ports_per_socket.unwrap_or_else(|| ports.div_ceil(sockets));
        (self.cpus_of_vnfs() / (sockets * ports_per_socket)).min(vnfs_per_port)
    }

    /// Returns the most VNFs that have a CPU each, min{a·b, c}, with a ports (as above).
    #[must_use]
    pub fn vnfs_of_server(&self) -> u64 {
        self.vnfs_at_most().min(self.cpus_of_vnfs())
    }

    /// Returns the most VNFs that the ports can have.
    #[must_use]
    pub fn vnfs_at_most(&self) -> u64 {
        self.server.ports * self.server.vnfs_per_port
    }

    /// Returns the packets per second of `ports` at their rate.
    #[must_use]
    pub fn line_rate(&self, ports: u64, frame: u64) -> f64 {
        let (Rate::Bits(rate) | Rate::Packets(rate)) = self.server.port_rate;
        ports as f64 * line_pps(rate, frame as f64)
    }

    /// Returns the packets per second of a CPU that runs VNFs.
    #[must_use]
    pub fn rate_of_cpu(&self) -> f64 {
        let shares_with_switch = self.switch.cpus == 0;
        let of_switch = if shares_with_switch { self.switch.cycles } else { 0.0 };
        self.server.clock_ghz * 1e9 / (self.vnf.cycles + self.vnf.crossing + of_switch)
    }

    fn rate_of_switch(&self) -> f64 {
        match self.switch.cpus {
            0 => f64::INFINITY,
            cpus => cpus as f64 * self.server.clock_ghz * 1e9 / self.switch.cycles,
        }
    }

    /// Estimates the throughput of `vnfs` VNFs, at least 1, which are spread over ports and CPUs evenly.
    ///
    /// VNFs that share a CPU and poll run in turn. While one waits for k - 1 others, its queue of q packets fills: without
    /// loss it gets at most q / ((k - 1) · slice) packets per second, and a k-th of its CPU.
    #[must_use]
    pub fn estimate(&self, vnfs: u64, frame: u64) -> Estimate {
        let vnfs = vnfs.max(1);
        let line = self.line_rate(self.server.ports.min(vnfs), frame);
        let cpus = self.cpus_of_vnfs();
        // on the CPU with most of them
        let sharing = vnfs.div_ceil(cpus);
        let (of_cpu, slice) = (self.rate_of_cpu(), self.vnf.slice_ms / 1e3);
        // one that does not wait has no such limit: a division by 0
        let queue = if self.vnf.polls { self.vnf.queue as f64 } else { f64::INFINITY };
        let of_queue = queue / ((sharing - 1) as f64 * slice);
        let limits = [
            (line, Limit::Ports),
            (self.rate_of_switch(), Limit::Switch),
            (vnfs as f64 * of_cpu / sharing as f64, Limit::Cpus),
            (vnfs as f64 * of_queue, Limit::Queues),
        ];
        let least = limits.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
        let (throughput_pps, limit) = least.unwrap_or(limits[0]);
        // packets of each VNF's share of the line rate that it forwards in a turn of all that share its CPU
        let each = line.min(self.rate_of_switch()) / vnfs as f64;
        let forwards = |sharing: u64| {
            let round = sharing as f64 * slice;
            (each * round).min(of_cpu * slice).min(queue + each * slice) / round
        };
        let (fewer, with_more) = (vnfs / cpus, vnfs % cpus);
        let of_fewer = if fewer == 0 { 0.0 } else { ((cpus - with_more) * fewer) as f64 * forwards(fewer) };
        let forwarded = of_fewer + (with_more * (fewer + 1)) as f64 * forwards(fewer + 1);
        Estimate { vnfs, frame, throughput_pps, limit, loss_at_line_rate: (1.0 - forwarded / line).max(0.0) }
    }

    /// Returns the numbers of VNFs that forward the rate of all ports with no more than the loss allowed, as ranges with both
    /// ends. There may be several: more VNFs that share CPUs each have less traffic, for which their queues may suffice.
    #[must_use]
    pub fn vnfs_at_line_rate(&self, frame: u64) -> Vec<(u64, u64)> {
        let suffices = |vnfs: u64| self.estimate(vnfs, frame).loss_at_line_rate <= self.traffic.loss + 1e-12;
        let mut ranges: Vec<(u64, u64)> = vec![];
        // fewer than there are ports leave some without traffic
        for vnfs in (self.server.ports..=self.vnfs_at_most().min(MOST)).filter(|vnfs| suffices(*vnfs)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == vnfs => *last = vnfs,
                _ => ranges.push((vnfs, vnfs)),
            }
        }
        ranges
    }

    /// Returns the packets per second with the forwarding of all VNFs in one table of the host.
    #[must_use]
    pub fn split_throughput(&self, frame: u64) -> Option<f64> {
        let split = self.split.as_ref()?;
        let of_cpus = self.server.cpus as f64 * self.server.clock_ghz * 1e9 / split.cycles;
        Some(of_cpus.min(self.line_rate(self.server.ports, frame)))
    }
}

#[cfg(test)]
mod tests;
