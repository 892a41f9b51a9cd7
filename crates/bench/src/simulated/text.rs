//! Textual form of simulated DUTs.

use super::{Noise, Simulated, Stall};
use std::fmt;
use std::str::FromStr;
use traffic::random::Random;

/// Reason why a text does not describe a simulated DUT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid simulated device: {part}: {problem}; use e.g. `capacity=3.3e6,buffer=512,loss=1e-7,noise=normal:0.01` \
     (keys: capacity, buffer, latency, jitter, noise, loss, flaw, gap, unseen, stall, recovery, reset, change, \
     generator, seed)"
)]
pub struct ParseSimulatedError {
    /// Invalid part.
    pub part: String,
    /// Problem.
    pub problem: &'static str,
}

impl fmt::Display for Simulated {
    /// Formats the device as it is parsed, without the state of the random numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capacity={}", self.capacity_pps)?;
        let defaults = Simulated::with_capacity(self.capacity_pps);
        let mut key = |name: &str, value: f64, default: f64| {
            if value == default { Ok(()) } else { write!(f, ",{name}={value}") }
        };
        key("buffer", self.buffer as f64, defaults.buffer as f64)?;
        key("latency", self.latency_ns, defaults.latency_ns)?;
        key("jitter", self.jitter_ns, defaults.jitter_ns)?;
        key("loss", self.loss_ratio, defaults.loss_ratio)?;
        key("flaw", self.flaw_share, defaults.flaw_share)?;
        key("gap", self.gap_share, defaults.gap_share)?;
        key("unseen", f64::from(u8::from(!self.gaps_detected)), 0.0)?;
        key("recovery", self.recovery_s, defaults.recovery_s)?;
        key("generator", self.generator_pps, defaults.generator_pps)?;
        for (name, value) in [("reset", self.reset_s), ("change", self.change_s)] {
            value.map_or(Ok(()), |value| key(name, value, -1.0))?;
        }
        match self.noise {
            Noise::None => {}
            Noise::Uniform(share) => write!(f, ",noise=uniform:{share}")?,
            Noise::Normal(share) => write!(f, ",noise=normal:{share}")?,
            Noise::Modes(share) => write!(f, ",noise=modes:{share}")?,
        }
        if let Some(Stall { for_s, every_s }) = self.stall {
            write!(f, ",stall={for_s}/{every_s}")?;
        }
        if self.seed == defaults.seed { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}

impl FromStr for Simulated {
    type Err = ParseSimulatedError;

    fn from_str(text: &str) -> Result<Self, ParseSimulatedError> {
        let mut device = Simulated::with_capacity(-1.0);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let error = |problem| ParseSimulatedError { part: part.chars().take(60).collect(), problem };
            let (key, value) = part.split_once('=').ok_or_else(|| error("not KEY=VALUE"))?;
            let number = |text: &str, max: f64| {
                let range = if max == 1.0 { "not a share from 0 to 1" } else { "not a number in range" };
                text.trim().parse::<f64>().ok().filter(|n| (0.0..=max).contains(n)).ok_or_else(|| error(range))
            };
            match key.trim() {
                "capacity" => device.capacity_pps = number(value, 1e12)?,
                "buffer" => device.buffer = number(value, 1e9)? as u64,
                "latency" => device.latency_ns = number(value, 1e10)?,
                "jitter" => device.jitter_ns = number(value, 1e10)?,
                "loss" => device.loss_ratio = number(value, 1.0)?,
                "flaw" => device.flaw_share = number(value, 1.0)?,
                "gap" => device.gap_share = number(value, 1.0)?,
                "unseen" => device.gaps_detected = number(value, 1.0)? == 0.0,
                "recovery" => device.recovery_s = number(value, 86_400.0)?,
                "reset" => device.reset_s = Some(number(value, 86_400.0)?),
                "change" => device.change_s = Some(number(value, 86_400.0)?),
                "generator" => device.generator_pps = number(value, f64::INFINITY)?,
                "seed" => device = device.seeded(value.trim().parse().map_err(|_| error("not a whole number"))?),
                "noise" => {
                    let (kind, share) = value.split_once(':').ok_or_else(|| error("not a distribution and a share"))?;
                    let share = number(share, 1.0)?;
                    device.noise = match kind.trim() {
                        "uniform" => Noise::Uniform(share),
                        "normal" => Noise::Normal(share),
                        "modes" => Noise::Modes(share),
                        _ => return Err(error("unknown distribution; use uniform, normal or modes")),
                    };
                }
                "stall" => {
                    let (for_s, every_s) = value.split_once('/').ok_or_else(|| error("not DURATION/PERIOD"))?;
                    let (for_s, every_s) = (number(for_s, 3600.0)?, number(every_s, 86_400.0)?);
                    if every_s < for_s || every_s < 1e-3 {
                        return Err(error("the period is below 1 ms or below the duration"));
                    }
                    device.stall = Some(Stall { for_s, every_s });
                }
                _ => return Err(error("unknown key")),
            }
        }
        if device.capacity_pps < 0.0 {
            return Err(ParseSimulatedError { part: text.chars().take(60).collect(), problem: "no capacity" });
        }
        device.random = Random::new(device.seed);
        Ok(device)
    }
}
