//! Settings of the scheduler.

use super::subscribers::{Rank, SubscriberLimits};
use crate::qos::class::Match;
use crate::qos::pacer::Pacer;
use crate::qos::queue::{CoDelParameters, Discipline, FqCoDelParameters, Parameters, RedParameters, TailDrop};
use crate::qos::rates::bits_per_second;
use crate::qos::subscriber::{Grouping, Per};
use crate::settings::in_range;
use diagnostics::Diagnostic;
use graph::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of [`Schedule`](super::Schedule).
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rate of the port, such as "1 Gbps"; without it there is no limit.
    rate: Option<Rate>,
    /// Bytes that the port may send at once after a pause, up to 4294967295.
    burst: u32,
    /// Packets of one subscriber: `all` packets, or those of a `source` or `destination` network.
    per: Per,
    /// Prefix length of subscribers with IPv4 addresses, 0 to 32.
    prefix4: u8,
    /// Prefix length of subscribers with IPv6 addresses, 0 to 128.
    prefix6: u8,
    /// Rate limit of each subscriber, such as "50 Mbps"; without it there is no limit.
    subscriber_rate: Option<Rate>,
    /// Bytes that a subscriber may send at once after a pause, up to 4294967295.
    subscriber_burst: u32,
    /// Maximum number of subscribers per core, 1 to 16777216; packets of further ones are dropped.
    subscribers: u32,
    /// Maximum number of packets in all queues, per core, 1 to 16777216; each of them occupies a buffer. Beyond it, the
    /// oldest packet of the subscriber with most packets is dropped.
    packets: u32,
    /// Bytes that are added to the length of each frame, 0 to 64: 24 for the rate on the link, with FCS, preamble and gap.
    overhead: u8,
    /// Bytes that a subscriber, or a class with weight 1, sends in its turn, 64 to 65535.
    quantum: u32,
    /// Classes of each subscriber, up to 64. A packet belongs to the first one that matches, and if none matches, to the
    /// last. Without classes there is one with FQ-CoDel.
    classes: Vec<ClassSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rate: None,
            burst: 0,
            per: Per::All,
            prefix4: 32,
            prefix6: 64,
            subscriber_rate: None,
            subscriber_burst: 15_000,
            subscribers: 65_536,
            packets: 4096,
            overhead: 0,
            quantum: 1514,
            classes: vec![],
        }
    }
}

/// A class of each subscriber.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClassSettings {
    /// Name: up to 32 letters, digits, - and _.
    name: String,
    /// Matches, one of which a packet meets. Without matches the class receives all other packets.
    #[serde(rename = "match")]
    matches: Vec<Match>,
    /// Priority, 0 to 255: classes with smaller numbers are served first.
    priority: u8,
    /// Share among the classes of the same priority, 1 to 1000; 1 if it is not given.
    weight: Option<u16>,
    /// Queue of the class.
    queue: QueueSettings,
}

impl ClassSettings {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn matches(&self) -> &[Match] {
        &self.matches
    }
}

/// A queue discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DisciplineKind {
    /// Drops packets that arrive when the queue is full.
    TailDrop,
    /// Random early detection (RFC 2309).
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// Flow queue CoDel (RFC 8290).
    FqCodel,
}

/// Queue of a class.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct QueueSettings {
    /// Queue discipline: `tail_drop`, `red`, `codel` or `fq_codel`.
    discipline: DisciplineKind,
    /// Maximum number of packets, 1 to 1048576.
    packets: u32,
    /// Maximum number of bytes, 2048 to 4294967295.
    bytes: u32,
    /// True if `red`, `codel` and `fq_codel` mark packets that are capable of ECN instead of dropping them.
    ecn: bool,
    /// Acceptable delay of `codel` and `fq_codel` in microseconds, 1 to 1000000.
    target: u32,
    /// Time for which the delay may exceed `target`, in microseconds, 1 to 10000000: a worst-case round-trip time.
    interval: u32,
    /// Number of queues of `fq_codel`, 1 to 65536.
    flows: u32,
    /// Bytes that a flow of `fq_codel` sends in its turn, 64 to 65535.
    quantum: u32,
    /// Average number of packets from which `red` drops packets, less than `max`.
    min: u32,
    /// Average number of packets at which `red` drops packets with `probability`; from twice as many on it drops all.
    max: u32,
    /// Probability of `red` at `max`, above 0, up to 1.
    probability: f64,
    /// Weight of the present number of packets in the average of `red`: 2 to the power of minus this, 0 to 16.
    weight: u8,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings {
            discipline: DisciplineKind::FqCodel,
            packets: 1024,
            bytes: 4 << 20,
            ecn: true,
            target: 5000,
            interval: 100_000,
            flows: 1024,
            quantum: 1514,
            min: 50,
            max: 150,
            probability: 0.1,
            weight: 9,
        }
    }
}

impl QueueSettings {
    fn parameters(&self, packet_time: u64) -> Result<Parameters, Diagnostic> {
        let check = |value: u32, range, name| in_range(value.into(), range, "classes", name);
        let limit = TailDrop {
            packets: check(self.packets, 1..=1 << 20, "packets")? as u32,
            bytes: check(self.bytes, 2048..=u32::MAX.into(), "bytes")?,
        };
        let codel = CoDelParameters {
            target: check(self.target, 1..=1_000_000, "target")? * 1000,
            interval: check(self.interval, 1..=10_000_000, "interval")? * 1000,
            ecn: self.ecn,
        };
        let fq_codel = FqCoDelParameters {
            codel,
            flows: check(self.flows, 1..=65_536, "flows")? as u32,
            quantum: check(self.quantum, 64..=65_535, "quantum")? as u32,
        };
        check(self.weight.into(), 0..=16, "weight")?;
        if self.min >= self.max {
            let d = Diagnostic::new("min is not less than max").key("classes").value(self.min);
            return Err(d.remedy("write min = 50, max = 150, for example"));
        }
        if !(self.probability > 0.0 && self.probability <= 1.0) {
            let d = Diagnostic::new("probability is out of range").key("classes").value(self.probability);
            return Err(d.remedy("write a probability above 0, up to 1"));
        }
        let red = RedParameters {
            min: self.min,
            max: self.max,
            probability: self.probability,
            weight: self.weight,
            packet_time,
            ecn: self.ecn,
        };
        let discipline = match self.discipline {
            DisciplineKind::TailDrop => Discipline::TailDrop,
            DisciplineKind::Red => Discipline::Red(red),
            DisciplineKind::Codel => Discipline::CoDel(codel),
            DisciplineKind::FqCodel => Discipline::FqCoDel(fq_codel),
        };
        Ok(Parameters { discipline, limit })
    }
}

/// Settings on which packets and subscribers depend: if they differ, a node cannot take them over.
#[derive(PartialEq)]
pub(super) struct Structure {
    grouping: Grouping,
    subscribers: u32,
    /// Name, priority and discipline of each class.
    classes: Box<[(String, u8, DisciplineKind)]>,
}

/// Checked settings.
pub(super) struct Plan {
    pub(super) port: Option<Pacer>,
    pub(super) limits: SubscriberLimits,
    pub(super) grouping: Grouping,
    /// Maximum number of subscribers.
    pub(super) subscribers: u32,
    /// Maximum number of packets in all queues.
    pub(super) packets: usize,
    pub(super) overhead: u32,
    /// At least one.
    pub(super) names: Box<[String]>,
    pub(super) ranks: Box<[Rank]>,
    pub(super) queues: Box<[Parameters]>,
    pub(super) structure: Structure,
}

impl Settings {
    pub(super) fn classes(&self) -> &[ClassSettings] {
        &self.classes
    }

    /// Checks the settings.
    pub(super) fn plan(&self) -> Result<Plan, Diagnostic> {
        let rate = |rate: Option<Rate>, key| rate.map(|rate| bits_per_second(rate, key, "the rate")).transpose();
        let (port, own) = (rate(self.rate, "rate")?, rate(self.subscriber_rate, "subscriber_rate")?);
        let check = |value: u32, range, key| in_range(value.into(), range, key, "the value");
        check(self.prefix4.into(), 0..=32, "prefix4")?;
        check(self.prefix6.into(), 0..=128, "prefix6")?;
        check(self.overhead.into(), 0..=64, "overhead")?;
        let quantum = check(self.quantum, 64..=65_535, "quantum")? as u32;
        // 1000 bytes at the rate of a subscriber or of the port
        let packet_time = own.or(port).map_or(1000, |rate| 8_000_000_000_000 / rate.max(1));
        let default = [ClassSettings { name: "default".to_owned(), ..Default::default() }];
        let classes = if self.classes.is_empty() { &default[..] } else { &self.classes };
        let rank = |class: &ClassSettings| -> Result<Rank, Diagnostic> {
            let weight = check(class.weight.unwrap_or(1).into(), 1..=1000, "classes")? as u32;
            Ok(Rank { priority: class.priority, quantum: quantum * weight })
        };
        let grouping = Grouping { per: self.per, prefix4: self.prefix4, prefix6: self.prefix6 };
        let subscribers = check(self.subscribers, 1..=1 << 24, "subscribers")? as u32;
        let class = |class: &ClassSettings| (class.name.clone(), class.priority, class.queue.discipline);
        let pacer = |rate: Option<u64>, burst: u32| rate.map(|rate| Pacer::new(rate, burst.into()));
        Ok(Plan {
            port: pacer(port, self.burst),
            limits: SubscriberLimits { pacer: pacer(own, self.subscriber_burst), quantum },
            grouping,
            subscribers,
            packets: check(self.packets, 1..=1 << 24, "packets")? as usize,
            overhead: self.overhead.into(),
            names: classes.iter().map(|class| class.name.clone()).collect(),
            ranks: classes.iter().map(rank).collect::<Result<_, _>>()?,
            queues: classes.iter().map(|class| class.queue.parameters(packet_time)).collect::<Result<_, _>>()?,
            structure: Structure { grouping, subscribers, classes: classes.iter().map(class).collect() },
        })
    }
}
