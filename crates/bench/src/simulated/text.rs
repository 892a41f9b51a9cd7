//! Simulated devices as text.

use super::{Noise, Simulated, Stall};
use std::fmt;
use std::str::FromStr;
use traffic::random::Random;

/// Not the text of a simulated device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` of a simulated device: {problem}; give e.g. `capacity=3.3e6,buffer=512,loss=1e-7,noise=normal:0.01` \
     (keys: capacity, buffer, latency, jitter, noise, loss, flaw, gap, unseen, stall, recovery, reset, change, generator, \
     seed)"
)]
pub struct NotSimulated {
    /// What is wrong.
    pub part: String,
    /// Why.
    pub problem: &'static str,
}

impl fmt::Display for Simulated {
    /// As it is parsed; random numbers begin anew.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capacity={}", self.capacity_pps)?;
        let plain = Simulated::hard(self.capacity_pps);
        let mut key = |name: &str, value: f64, usual: f64| {
            if value == usual { Ok(()) } else { write!(f, ",{name}={value}") }
        };
        key("buffer", self.buffer as f64, plain.buffer as f64)?;
        key("latency", self.latency_ns, plain.latency_ns)?;
        key("jitter", self.jitter_ns, plain.jitter_ns)?;
        key("loss", self.loss_ratio, plain.loss_ratio)?;
        key("flaw", self.flaw_share, plain.flaw_share)?;
        key("gap", self.gap_share, plain.gap_share)?;
        key("unseen", f64::from(u8::from(!self.gaps_seen)), 0.0)?;
        key("recovery", self.recovery_s, plain.recovery_s)?;
        key("generator", self.generator_pps, plain.generator_pps)?;
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
        if self.seed == plain.seed { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}

impl FromStr for Simulated {
    type Err = NotSimulated;

    fn from_str(text: &str) -> Result<Self, NotSimulated> {
        let mut device = Simulated::hard(-1.0);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |problem| NotSimulated { part: part.chars().take(60).collect(), problem };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("no key and value"))?;
            let number = |text: &str, most: f64| {
                let range = if most == 1.0 { "not a share from 0 to 1" } else { "not a number in range" };
                text.trim().parse::<f64>().ok().filter(|n| (0.0..=most).contains(n)).ok_or_else(|| wrong(range))
            };
            match key.trim() {
                "capacity" => device.capacity_pps = number(value, 1e12)?,
                "buffer" => device.buffer = number(value, 1e9)? as u64,
                "latency" => device.latency_ns = number(value, 1e10)?,
                "jitter" => device.jitter_ns = number(value, 1e10)?,
                "loss" => device.loss_ratio = number(value, 1.0)?,
                "flaw" => device.flaw_share = number(value, 1.0)?,
                "gap" => device.gap_share = number(value, 1.0)?,
                "unseen" => device.gaps_seen = number(value, 1.0)? == 0.0,
                "recovery" => device.recovery_s = number(value, 86_400.0)?,
                "reset" => device.reset_s = Some(number(value, 86_400.0)?),
                "change" => device.change_s = Some(number(value, 86_400.0)?),
                "generator" => device.generator_pps = number(value, f64::INFINITY)?,
                "seed" => device = device.seeded(value.trim().parse().map_err(|_| wrong("not a whole number"))?),
                "noise" => {
                    let (sort, share) = value.split_once(':').ok_or_else(|| wrong("no sort and share"))?;
                    let share = number(share, 1.0)?;
                    device.noise = match sort.trim() {
                        "uniform" => Noise::Uniform(share),
                        "normal" => Noise::Normal(share),
                        "modes" => Noise::Modes(share),
                        _ => return Err(wrong("sorts of noise are uniform, normal, modes")),
                    };
                }
                "stall" => {
                    let (for_s, every_s) = value.split_once('/').ok_or_else(|| wrong("no length/distance"))?;
                    let (for_s, every_s) = (number(for_s, 3600.0)?, number(every_s, 86_400.0)?);
                    if every_s < for_s || every_s < 1e-3 {
                        return Err(wrong("stalls less than 1 ms apart, or longer than that"));
                    }
                    device.stall = Some(Stall { for_s, every_s });
                }
                _ => return Err(wrong("not a key")),
            }
        }
        if device.capacity_pps < 0.0 {
            return Err(NotSimulated { part: text.chars().take(60).collect(), problem: "no capacity" });
        }
        device.random = Random::new(device.seed);
        Ok(device)
    }
}
