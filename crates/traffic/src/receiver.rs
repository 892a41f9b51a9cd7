//! The receiver's view of a trial: which frames are probes, what became of each stream, how long packets took.

use crate::density::{Density, Displacements};
use crate::latency::{Delays, Scale};
use crate::losses::Losses;
use crate::order::Turns;
use crate::probe::{self, Probe, Reading, Sample};
use crate::sequence::{self, Sequence};
use crate::template::PATTERN;
use crate::variation::Variation;

/// Most arrivals that are recorded one by one.
pub const MAX_TRACED: usize = 1 << 16;

/// Classification of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// A probe of a known stream, and what its number says.
    Probe(sequence::Arrival),
    /// A probe whose number or, where payloads are checked, payload was damaged. Its packet counts as lost.
    Corrupt,
    /// No probe, or of an unknown stream.
    Foreign,
    /// A probe for another receiver.
    Forwarded,
}

/// Counts of a receiver. Counts of several receivers can be added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Packets sent, as told by who asks.
    pub sent: u64,
    /// Different packets received intact and in time.
    pub received: u64,
    /// Sent and not received.
    pub lost: u64,
    /// Further copies of received packets.
    pub duplicate: u64,
    /// Received below a number seen before. Numbers count for a stream, not a flow: a device that spreads flows over
    /// cores reorders a stream while keeping each flow in order.
    pub reordered: u64,
    /// Damaged, or of a number never sent.
    pub corrupt: u64,
    /// Too far behind to tell whether duplicates; lost.
    pub late: u64,
    /// Left over from before.
    pub stale: u64,
    /// Frames that were no probes.
    pub foreign: u64,
    /// Probes of an unknown stream.
    pub other_stream: u64,
    /// All frames.
    pub frames: u64,
}

/// Takes in frames of one or more streams of probes.
#[derive(Clone, Debug)]
pub struct Receiver {
    at: usize,
    payload: bool,
    /// Packets whose latency is recorded.
    sample: Sample,
    /// By stream.
    streams: Vec<Option<Sequence>>,
    frames: u64,
    foreign: u64,
    other_stream: u64,
    corrupt: u64,
    latency: Delays,
    latency_sum_ns: u64,
    scale: Scale,
    /// True if packets are recorded individually, beyond the counts.
    watched: bool,
    /// Bins of losses for each stream, if these are watched.
    bins: Option<usize>,
    varied: bool,
    displaced: bool,
    /// True if parts of streams are counted separately.
    parted: bool,
    /// True if groups of flows are counted separately.
    grouped: bool,
    /// A packet waited for, and its latency.
    tag: Option<(u64, Option<u64>)>,
    /// Probes whose arrivals are recorded one by one, and the arrivals.
    traced: Option<(Sample, Vec<(Probe, u64)>)>,
    /// By stream.
    watches: Vec<Watch>,
}

/// Records of the packets of a stream.
#[derive(Clone, Default, Debug)]
struct Watch {
    losses: Option<Losses>,
    variation: Option<Variation>,
    density: Option<Density>,
    parts: Option<Parts>,
    groups: Option<Groups>,
}

/// A stream's packets by group of their flows: that of flow `n` is in group `n` modulo the number of groups.
#[derive(Clone, Debug)]
struct Groups {
    turns: Turns,
    groups: Vec<Group>,
}

/// Packets of a group of flows.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Group {
    /// Different packets received.
    pub received: u64,
    /// Latencies of those that the receiver [samples](Receiver::sample).
    pub latency: Delays,
    /// Sum of the absolute values of IPDV, the difference of the delays of packets received one after the other (RFC
    /// 5481 §4.1), nanoseconds.
    pub ipdv_sum_ns: u64,
    /// Number of these differences.
    pub ipdv_count: u64,
    last_ns: Option<u64>,
}

impl Group {
    fn arrive(&mut self, ns: u64, is_sampled: bool) {
        self.received += 1;
        if is_sampled {
            self.latency.record(ns);
        }
        if let Some(last) = self.last_ns.replace(ns) {
            self.ipdv_sum_ns = self.ipdv_sum_ns.saturating_add(last.abs_diff(ns));
            self.ipdv_count += 1;
        }
    }

    /// Adds the packets of another receiver or trial.
    pub fn add(&mut self, other: &Group) {
        self.received += other.received;
        self.latency.add(&other.latency);
        self.ipdv_sum_ns = self.ipdv_sum_ns.saturating_add(other.ipdv_sum_ns);
        self.ipdv_count += other.ipdv_count;
    }
}

/// A stream's packets told apart by when they were sent.
#[derive(Clone, Debug)]
struct Parts {
    /// For each part its first number, and different packets received of it; numbers go up.
    parts: Vec<(u64, u64)>,
    latency: Delays,
}

impl Receiver {
    /// For stream 0, of which `intended` packets from number `first` on will be sent, with probes at byte `probe_at`
    /// of the frame ([`Template::probe_at`](crate::Template::probe_at)), or where the headers say, for `usize::MAX`;
    /// stamps and arrival times tick `ticks_hz` times a second.
    pub fn new(probe_at: usize, first: u64, intended: u64, ticks_hz: u64) -> Self {
        let mut receiver = Self::without_streams(probe_at, ticks_hz);
        receiver.set_stream(0, Sequence::new(first, intended));
        receiver
    }

    /// Creates a receiver of no stream; see [`set_stream`](Self::set_stream). The arguments are those of
    /// [`new`](Self::new).
    pub fn without_streams(probe_at: usize, ticks_hz: u64) -> Self {
        Self {
            at: probe_at,
            payload: false,
            sample: Sample::one_in(1),
            streams: Vec::new(),
            frames: 0,
            foreign: 0,
            other_stream: 0,
            corrupt: 0,
            latency: Delays::new(),
            latency_sum_ns: 0,
            scale: Scale::new(ticks_hz),
            watched: false,
            bins: None,
            varied: false,
            displaced: false,
            parted: false,
            grouped: false,
            tag: None,
            traced: None,
            watches: Vec::new(),
        }
    }

    /// Adds a stream, or replaces one by one that has seen nothing.
    pub fn set_stream(&mut self, stream: u8, sequence: Sequence) {
        let place = usize::from(stream);
        if self.streams.len() <= place {
            self.streams.resize(place + 1, None);
        }
        self.streams[place] = Some(sequence);
        self.watch();
    }

    /// From now on counts what is received in at most `bins` bins of departure numbers, for each stream; see [`Losses`].
    /// To be asked for before anything has come.
    pub fn watch_losses(&mut self, bins: usize) {
        self.bins = Some(bins);
        self.watch();
    }

    /// From now on keeps how delays vary, of every packet of each stream; see [`Variation`]. Costs two to three entries of a
    /// histogram for each packet, and 0.6 MiB for each stream.
    pub fn watch_variation(&mut self) {
        self.varied = true;
        self.watch();
    }

    /// Records the latency of the packet of this number of stream 0.
    pub fn watch_tag(&mut self, number: u64) {
        self.tag = Some((number, None));
        self.watch();
    }

    /// Returns the latency of the packet that was waited for, nanoseconds, if it came.
    pub fn tag_ns(&self) -> Option<u64> {
        self.tag?.1
    }

    /// Records when each probe of a sample arrives for the first time, of up to [`MAX_TRACED`].
    pub fn trace(&mut self, sample: Sample) {
        self.traced = Some((sample, Vec::with_capacity(MAX_TRACED)));
        self.watch();
    }

    /// Returns the probes whose arrivals were recorded after [`trace`](Self::trace), with the ticks of their arrivals and
    /// whole departure stamps, in the order of arrival.
    pub fn traced(&self) -> &[(Probe, u64)] {
        self.traced.as_ref().map_or(&[], |(_, arrivals)| arrivals)
    }

    /// Records the displacement of packets per stream; see [`Density`].
    pub fn watch_density(&mut self) {
        self.displaced = true;
        self.watch();
    }

    /// From now on tells the packets of each stream apart by [parts](Self::begin_part), and keeps latencies by stream.
    pub fn watch_parts(&mut self) {
        self.parted = true;
        self.watch();
    }

    /// Begins a part of a stream: packets from this number on belong to it, until another begins. To be told before the first
    /// of them comes; numbers have to go up.
    pub fn begin_part(&mut self, stream: u8, number: u64) {
        let watch = self.watches.get_mut(usize::from(stream));
        if let Some(parts) = watch.and_then(|watch| watch.parts.as_mut()) {
            parts.parts.push((number, 0));
        }
    }

    /// Returns the different packets received of each part of a stream, in the order in which they were begun.
    pub fn parts(&self, stream: u8) -> impl Iterator<Item = u64> {
        let watch = self.watches.get(usize::from(stream));
        watch.and_then(|watch| watch.parts.as_ref()).into_iter().flat_map(|parts| &parts.parts).map(|(_, n)| *n)
    }

    /// Latencies of one stream, where parts are told apart.
    pub fn stream_latency(&self, stream: u8) -> Option<&Delays> {
        Some(&self.watches.get(usize::from(stream))?.parts.as_ref()?.latency)
    }

    /// Counts the packets of a stream by group of flows: `turns` are the flows of its packets from the first number on,
    /// and flow `n` is in group `n` modulo `count`. Each group takes the memory of a histogram.
    pub fn watch_groups(&mut self, stream: u8, turns: Turns, count: usize) {
        self.grouped = true;
        self.watch();
        if let Some(watch) = self.watches.get_mut(usize::from(stream)) {
            watch.groups = Some(Groups { turns, groups: vec![Group::default(); count.max(1)] });
        }
    }

    /// Returns the packets of each group of all streams together; none without [`watch_groups`](Self::watch_groups).
    pub fn groups(&self) -> Vec<Group> {
        let mut all: Vec<Group> = vec![];
        for groups in self.watches.iter().filter_map(|watch| watch.groups.as_ref()) {
            all.resize(groups.groups.len().max(all.len()), Group::default());
            all.iter_mut().zip(&groups.groups).for_each(|(sum, group)| sum.add(group));
        }
        all
    }

    /// Sets up what is watched for streams that nothing has come of yet.
    fn watch(&mut self) {
        let single = self.tag.is_some() || self.traced.is_some();
        self.watched = self.bins.is_some() || self.varied || self.displaced || self.parted || self.grouped || single;
        if !self.watched {
            return;
        }
        self.watches.resize_with(self.streams.len(), Watch::default);
        let streams = self.streams.iter().zip(&mut self.watches);
        for (sequence, watch) in streams.filter_map(|(s, watch)| Some((s.as_ref()?, watch))) {
            if sequence.totals().received != 0 {
                continue;
            }
            watch.losses = self.bins.map(|bins| Losses::new(sequence.first(), sequence.intended(), bins));
            watch.variation = self.varied.then(Variation::new);
            // kept where there are some: another stream may be added after parts have begun
            if self.parted && watch.parts.is_none() {
                watch.parts = Some(Parts { parts: vec![], latency: Delays::new() });
            }
            watch.density = self.displaced.then(|| Density::new(sequence.first()));
        }
    }

    /// Also compares the payload behind the probe, which only serves frames of a [`Template`](crate::Template).
    pub fn check_payload(&mut self) {
        self.payload = true;
    }

    /// Records the latency of one packet in `every` on average, as an entry in a histogram costs as much as all else.
    pub fn sample(&mut self, every: u64) {
        self.sample = Sample::one_in(every);
    }

    /// Takes in a frame that arrived at tick `now`.
    #[inline(always)]
    pub fn take(&mut self, frame: &[u8], now: u64) -> Arrival {
        self.take_or(frame, now, |_| false)
    }

    /// As [`take`](Self::take), but calls `forward` with an intact probe of a stream that this receiver does not have;
    /// if that returns true, another receiver [takes](Self::take_probe) the probe, and it is not counted here as of an
    /// unknown stream.
    #[inline(always)]
    pub fn take_or(&mut self, frame: &[u8], now: u64, forward: impl FnOnce(Probe) -> bool) -> Arrival {
        self.frames += 1;
        let probe = match Probe::read_at(frame, self.at) {
            (Reading::Probe(probe), place) => {
                if self.payload && !payload_intact(frame, place) {
                    return self.damaged_payload(probe);
                }
                probe
            }
            (Reading::Corrupt, _) => return self.damaged(),
            (Reading::Foreign, _) => {
                self.foreign += 1;
                return Arrival::Foreign;
            }
        };
        if !matches!(self.streams.get(usize::from(probe.stream)), Some(Some(_))) && forward(probe) {
            return Arrival::Forwarded;
        }
        self.take_probe(probe, now)
    }

    /// Takes in the probe of a frame that arrived at tick `now` and was counted by another receiver.
    #[inline(always)]
    pub fn take_probe(&mut self, probe: Probe, now: u64) -> Arrival {
        let Some(Some(sequence)) = self.streams.get_mut(usize::from(probe.stream)) else { return self.stranger() };
        let arrival = sequence.arrive(probe.sequence);
        let first = matches!(arrival, sequence::Arrival::New | sequence::Arrival::Reordered);
        if first && self.sample.contains(probe) {
            let ns = self.scale.ns(probe.age(now));
            self.latency.record(ns);
            self.latency_sum_ns = self.latency_sum_ns.wrapping_add(ns);
        }
        if self.watched && first {
            // Field by field: a probe handed over whole would have to be in memory, watched or not.
            self.observe(probe.stream, probe.sequence, probe.age(now), now);
        }
        Arrival::Probe(arrival)
    }

    #[cold]
    fn observe(&mut self, stream: u8, number: u64, age: u64, now: u64) {
        let place = usize::from(stream);
        let probe = Probe { stream, sequence: number, stamp: now.wrapping_sub(age) };
        let is_sampled = self.sample.contains(probe);
        if let Some((traced, arrivals)) = &mut self.traced
            && traced.contains(probe)
            && arrivals.len() < MAX_TRACED
        {
            arrivals.push((probe, now));
        }
        let Some(Some(sequence)) = self.streams.get(place) else { return };
        let number = sequence.whole(number);
        if let Some((tag, ns)) = &mut self.tag
            && *tag == number
            && stream == 0
        {
            *ns = Some(self.scale.ns(age));
        }
        let Some(watch) = self.watches.get_mut(place) else { return };
        if let Some(parts) = &mut watch.parts {
            if is_sampled {
                parts.latency.record(self.scale.ns(age));
            }
            // nearly always the last, or the one before
            if let Some((_, received)) = parts.parts.iter_mut().rev().find(|(first, _)| *first <= number) {
                *received += 1;
            }
        }
        if let Some(Groups { turns, groups }) = &mut watch.groups {
            let group = turns.flow(number.saturating_sub(sequence.first())) as usize % groups.len();
            groups[group].arrive(self.scale.ns(age), is_sampled);
        }
        if let Some(losses) = &mut watch.losses {
            losses.arrive(number);
        }
        if let Some(density) = &mut watch.density {
            density.arrive(number);
        }
        if let Some(variation) = &mut watch.variation {
            variation.arrive(number, self.scale.ns(age));
        }
    }

    /// A packet of an earlier trial that was held up is no corrupt one of this trial.
    #[cold]
    fn damaged_payload(&mut self, probe: Probe) -> Arrival {
        match self.streams.get_mut(usize::from(probe.stream)) {
            Some(Some(sequence)) if sequence.is_stale(probe.sequence) => {
                Arrival::Probe(sequence.arrive(probe.sequence))
            }
            _ => self.damaged(),
        }
    }

    #[cold]
    fn damaged(&mut self) -> Arrival {
        self.corrupt += 1;
        Arrival::Corrupt
    }

    #[cold]
    fn stranger(&mut self) -> Arrival {
        self.other_stream += 1;
        Arrival::Foreign
    }

    /// Returns the counts of all streams for `sent` packets. To be called after the sender has stopped and the path is
    /// drained.
    pub fn totals(&self, sent: u64) -> Totals {
        let all = self.streams.iter().flatten().map(Sequence::totals);
        let sum = all.fold(sequence::Totals::default(), sequence::Totals::plus);
        Totals {
            sent,
            received: sum.received,
            lost: sum.lost(sent),
            duplicate: sum.duplicate,
            reordered: sum.reordered,
            corrupt: self.corrupt + sum.impossible,
            late: sum.late,
            stale: sum.stale,
            foreign: self.foreign,
            other_stream: self.other_stream,
            frames: self.frames,
        }
    }

    /// Adds the counts and streams of another receiver, whose streams are others.
    pub fn absorb(&mut self, other: Self) {
        let Self { streams, watches, frames, foreign, other_stream, corrupt, latency, latency_sum_ns, tag, .. } = other;
        self.frames += frames;
        self.foreign += foreign;
        self.other_stream += other_stream;
        self.corrupt += corrupt;
        self.latency.add(&latency);
        self.latency_sum_ns = self.latency_sum_ns.wrapping_add(latency_sum_ns);
        self.tag = self.tag.or(tag);
        let count = self.streams.len().max(streams.len());
        self.streams.resize(count, None);
        self.watches.resize_with(count, Watch::default);
        let mut watches = watches.into_iter();
        for (stream, sequence) in streams.into_iter().enumerate() {
            let watch = watches.next();
            if sequence.is_some() {
                self.streams[stream] = sequence;
                self.watches[stream] = watch.unwrap_or_default();
            }
        }
    }

    /// Returns a stream's own counts.
    pub fn stream(&self, stream: u8) -> Option<sequence::Totals> {
        self.streams.get(usize::from(stream))?.as_ref().map(Sequence::totals)
    }

    /// Returns the losses of a stream by sequence number, after [`watch_losses`](Self::watch_losses).
    pub fn losses(&self, stream: u8) -> Option<&Losses> {
        self.watches.get(usize::from(stream))?.losses.as_ref()
    }

    /// Returns the delay variation of a stream, after [`watch_variation`](Self::watch_variation).
    pub fn variation(&self, stream: u8) -> Option<&Variation> {
        self.watches.get(usize::from(stream))?.variation.as_ref()
    }

    /// Returns the displacement of the packets of a stream, after [`watch_density`](Self::watch_density).
    pub fn displacements(&self, stream: u8) -> Option<Displacements> {
        self.watches.get(usize::from(stream))?.density.as_ref().map(Density::displacements)
    }

    /// Returns the sum of the recorded latencies, nanoseconds, modulo 2⁶⁴.
    pub fn latency_sum_ns(&self) -> u64 {
        self.latency_sum_ns
    }

    /// From stamp to arrival, of packets received for the first time. Software stamps: neither the store-and-forward
    /// nor the bit-forwarding latency of RFC 1242, but from before the sender's port to behind the receiver's.
    pub fn latency(&self) -> &Delays {
        &self.latency
    }
}

/// Returns true if the payload that starts at `place` is a template's, from behind the probe to where the packet ends.
fn payload_intact(frame: &[u8], place: usize) -> bool {
    let Some(payload) = probe::payload(frame).filter(|payload| payload.start == place) else { return false };
    match (frame.get(place + probe::LEN..payload.end), PATTERN.get(probe::LEN..payload.end - payload.start)) {
        (Some(is), Some(should)) => is == should,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowSettings, Flows, Mix, Template};

    fn template(flows: u32) -> Template {
        let flows = Flows::new(FlowSettings { count: flows, ..FlowSettings::v4() }).unwrap();
        Template::new(&flows, &Mix::imix(), true).unwrap()
    }

    fn frame(template: &Template, size: usize, flow: u32, probe: Probe) -> Vec<u8> {
        let mut frame = vec![0; 2000];
        let len = template.fill(size, flow, probe, &mut frame);
        frame.truncate(len);
        frame
    }

    #[test]
    fn a_trial_with_everything() {
        let template = template(10);
        let mut receiver = Receiver::new(template.probe_at(), 100, 10, 2_000_000_000);
        let mut take = |number: u64, now: u64| {
            let probe = Probe { stream: 0, sequence: number, stamp: 50 };
            receiver.take(&frame(&template, number as usize % 3, 1, probe), now)
        };
        use sequence::Arrival as Is;
        assert_eq!(take(100, 2_050), Arrival::Probe(Is::New));
        assert_eq!(take(103, 4_050), Arrival::Probe(Is::New));
        assert_eq!(take(103, 4_050), Arrival::Probe(Is::Duplicate));
        assert_eq!(take(102, 6_050), Arrival::Probe(Is::Reordered));
        assert_eq!(take(99, 6_050), Arrival::Probe(Is::Stale));
        assert_eq!(take(110, 6_050), Arrival::Probe(Is::Impossible));
        assert_eq!(receiver.take(&[0; 60], 0), Arrival::Foreign);
        let other = Probe { stream: 9, sequence: 101, stamp: 0 };
        assert_eq!(receiver.take(&frame(&template, 0, 0, other), 0), Arrival::Foreign);
        let mut damaged = frame(&template, 0, 0, Probe { sequence: 101, ..Probe::default() });
        damaged[50] ^= 1;
        assert_eq!(receiver.take(&damaged, 0), Arrival::Corrupt);
        receiver.check_payload();
        for (number, expected) in [(101, Arrival::Corrupt), (98, Arrival::Probe(Is::Stale))] {
            let mut damaged = frame(&template, 2, 0, Probe { sequence: number, ..Probe::default() });
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(receiver.take(&damaged, 0), expected);
        }
        let expected = Totals {
            sent: 10,
            received: 3,
            lost: 7,
            duplicate: 1,
            reordered: 1,
            corrupt: 3,
            late: 0,
            stale: 2,
            foreign: 1,
            other_stream: 1,
            frames: 11,
        };
        assert_eq!(receiver.totals(10), expected);
        // 2 GHz: 2000, 4000 and 6000 ticks.
        assert_eq!((receiver.latency().min_ns(), receiver.latency().count()), (Some(1000), 3));
    }

    #[test]
    fn groups_are_those_of_flows() {
        let template = template(7);
        let mut picker = template.flows().picker(0, 1);
        (0..3).for_each(|_| assert!(picker.next_flow() < 3));
        let mut receiver = Receiver::new(template.probe_at(), 100, 1000, 1_000_000_000);
        receiver.watch_groups(0, picker.turns().unwrap(), 3);
        let mut expected = [0; 3];
        for sequence in 100..1100 {
            let flow = picker.next_flow();
            // every tenth is lost
            if sequence % 10 != 0 {
                let group = flow % 3;
                expected[group as usize] += 1;
                let delay = u64::from(1000 * (group + 1)) + if sequence % 4 < 2 { 0 } else { 10 * u64::from(group) };
                let probe = Probe { stream: 0, sequence, stamp: 0 };
                receiver.take(&frame(&template, 0, flow, probe), delay);
                // copies do not count
                receiver.take(&frame(&template, 0, flow, probe), delay);
            }
        }
        let mut groups = receiver.groups();
        assert_eq!(groups.iter().map(|group| group.received).collect::<Vec<_>>(), expected);
        for (n, group) in groups.iter().enumerate() {
            let n = n as u64 + 1;
            assert!((1000 * n..=1010 * n).contains(&group.latency.quantile_ns(0.5).unwrap()), "{n}");
            assert_eq!((group.latency.count(), group.ipdv_count), (group.received, group.received - 1));
            assert!(group.ipdv_sum_ns <= 10 * (n - 1) * group.ipdv_count && (group.ipdv_sum_ns != 0) == (n != 1));
        }
        let other = groups[1].clone();
        groups[0].add(&other);
        assert_eq!(groups[0].received, expected[0] + expected[1]);
        assert!(Receiver::new(template.probe_at(), 0, 10, 1).groups().is_empty());
    }

    #[test]
    fn samples_are_independent_of_periods() {
        let template = template(1);
        let mut frame = frame(&template, 0, 0, Probe::default());
        let periods = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 20, 21, 24, 25, 31, 32, 33, 34, 40, 48, 50, 55];
        for (every, period) in [2, 8, 15].into_iter().flat_map(|every| periods.map(|period| (every, period))) {
            let packets = 20_000 * every;
            let mut receiver = Receiver::new(template.probe_at(), 0, packets, 1_000_000_000);
            receiver.sample(every);
            for sequence in 0..packets {
                let age = if sequence.is_multiple_of(period) { 4_000_000 } else { 1000 };
                template.fill(0, 0, Probe { stream: 0, sequence, stamp: 0 }, &mut frame);
                receiver.take(&frame, age);
            }
            let latency = receiver.latency();
            let (all, share) = (latency.count() as f64, 1.0 / period as f64);
            let late = latency.histogram().count_between(2_000_000, u64::MAX) as f64;
            // five standard deviations of a random sample
            let mean = packets as f64 / every as f64;
            assert!((all - mean).abs() < 5.0 * mean.sqrt(), "one in {every}: {all} samples of {packets}");
            let deviation = (all * share * (1.0 - share)).sqrt();
            assert!((late - all * share).abs() < 5.0 * deviation, "one in {every}, period {period}: {late} of {all}");
        }
    }

    #[test]
    fn functions_may_change_headers() {
        let template = template(1);
        let mut receiver = Receiver::new(template.probe_at(), 0, 100, 1_000_000_000);
        receiver.check_payload();
        for number in 0..3 {
            let mut frame = frame(&template, number, 0, Probe { sequence: number as u64, ..Probe::default() });
            // MACs, TTL and checksum, addresses, ports.
            for at in (0..12).chain([22, 24, 25]).chain(26..38) {
                frame[at] = frame[at].wrapping_add(1);
            }
            if number == 2 {
                // A VLAN tag pushed on the way.
                frame.splice(12..12, [0x81, 0, 0, 5]);
            }
            assert_eq!(receiver.take(&frame, 1), Arrival::Probe(sequence::Arrival::New), "{number}");
        }
        assert_eq!(receiver.totals(3).lost, 0);
    }

    #[test]
    fn payload_damage_shows_where_asked() {
        let template = template(1);
        for checked in [false, true] {
            let mut receiver = Receiver::new(template.probe_at(), 0, 2, 1_000_000_000);
            if checked {
                receiver.check_payload();
            }
            let mut frame = frame(&template, 2, 0, Probe::default());
            *frame.last_mut().unwrap() ^= 0x80;
            let expected = if checked { Arrival::Corrupt } else { Arrival::Probe(sequence::Arrival::New) };
            assert_eq!(receiver.take(&frame, 0), expected);
            assert_eq!(receiver.totals(1).lost, u64::from(checked));
        }
    }

    #[test]
    fn parts_of_a_stream_are_told_apart_by_number() {
        let template = template(1);
        let mut receiver = Receiver::new(template.probe_at(), 10, 30, 1_000_000_000);
        receiver.set_stream(3, Sequence::new(0, 5));
        receiver.watch_parts();
        receiver.begin_part(0, 10);
        receiver.begin_part(3, 0);
        let take = |receiver: &mut Receiver, stream: u8, sequence: u64, age: u64| {
            receiver.take(&frame(&template, 0, 0, Probe { stream, sequence, stamp: 100 }), 100 + age)
        };
        for number in 10..15 {
            take(&mut receiver, 0, number, 7);
        }
        // a part without packets, and one whose first packet overtakes the last of the part before
        receiver.begin_part(0, 20);
        receiver.begin_part(0, 20);
        for number in [20, 21, 19, 19, 21] {
            take(&mut receiver, 0, number, 7);
        }
        take(&mut receiver, 3, 4, 9);
        receiver.begin_part(9, 1);
        assert_eq!(receiver.parts(0).collect::<Vec<_>>(), [6, 0, 2]);
        assert_eq!(receiver.parts(0).sum::<u64>(), receiver.stream(0).unwrap().received);
        assert_eq!(receiver.parts(3).collect::<Vec<_>>(), [1]);
        assert_eq!((receiver.parts(9).count(), receiver.stream_latency(9).is_none()), (0, true));
        assert_eq!(receiver.stream_latency(3).unwrap().max_ns(), Some(9));
        assert_eq!(receiver.stream_latency(0).unwrap().count(), 8);
    }

    #[test]
    fn what_is_watched_is_of_packets_received_for_the_first_time() {
        let template = template(1);
        let mut receiver = Receiver::new(template.probe_at(), (1 << 40) - 2, 8, 1_000_000_000);
        assert!(receiver.losses(0).is_none() && receiver.variation(0).is_none() && receiver.displacements(0).is_none());
        receiver.watch_losses(100);
        receiver.watch_variation();
        receiver.watch_density();
        receiver.set_stream(1, Sequence::new(0, 1));
        // The numbers that travel start over; 2 is lost, 4 overtakes 3, 4 comes twice.
        for (number, delay) in [(0, 100), (1, 150), (4, 90), (3, 120), (4, 999), (5, 100), (8, 5), (u64::MAX, 5)] {
            let sequence = number.wrapping_add((1 << 40) - 2);
            receiver.take(&frame(&template, 0, 0, Probe { stream: 0, sequence, stamp: 1000 }), 1000 + delay);
        }
        let losses = receiver.losses(0).unwrap();
        assert_eq!(losses.received(), [1, 1, 0, 1, 1, 1, 0, 0]);
        assert_eq!(losses.lost(6).sum::<u64>(), receiver.totals(6).lost);
        let variation = receiver.variation(0).unwrap();
        assert_eq!((variation.count(), variation.min_ns(), variation.max_ns()), (5, Some(90), Some(150)));
        assert_eq!((variation.ipdv().count(), variation.ipdv().min_ns()), (3, Some(-30)));
        let displaced = receiver.displacements(0).unwrap();
        assert_eq!([0, -1, 1].map(|places| displaced.count(places)), [3, 1, 1]);
        assert_eq!(receiver.losses(1).map(Losses::received), Some(&[0][..]));
        assert_eq!(receiver.variation(1).map(Variation::count), Some(0));
    }

    #[test]
    fn receivers_of_two_cores_count_as_one() {
        let template = template(1);
        let mut one = Receiver::new(template.probe_at(), 0, 10, 1_000_000_000);
        one.watch_losses(10);
        let mut alone = one.clone();
        alone.set_stream(1, Sequence::new(0, 10));
        let mut cores = [one, Receiver::without_streams(template.probe_at(), 1_000_000_000)];
        cores[1].set_stream(1, Sequence::new(0, 10));
        cores[1].watch_losses(10);
        // core, stream, number: a copy arrives at another core than its original, and streams change cores
        let arrivals =
            [(0, 0, 0), (1, 0, 1), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 3), (0, 0, 2), (0, 9, 0), (1, 1, 1)];
        for (core, stream, sequence) in arrivals {
            let frame = frame(&template, 0, 0, Probe { stream, sequence, stamp: 0 });
            let mut forwarded = None;
            let [first, second] = &mut cores;
            let (own, other) = if core == 0 { (first, second) } else { (second, first) };
            own.take_or(&frame, 10, |probe| {
                forwarded = Some(probe).filter(|probe| probe.stream < 2);
                forwarded.is_some()
            });
            if let Some(probe) = forwarded {
                other.take_probe(probe, 10);
            }
            alone.take(&frame, 10);
        }
        let [mut all, second] = cores;
        all.absorb(second);
        assert_eq!(all.totals(8), alone.totals(8));
        assert_eq!((alone.totals(8).lost, alone.totals(8).duplicate, alone.totals(8).reordered), (2, 2, 1));
        assert_eq!(all.latency().count(), alone.latency().count());
        for stream in 0..2 {
            assert_eq!(all.losses(stream).map(Losses::received), alone.losses(stream).map(Losses::received));
        }
    }

    #[test]
    fn streams_are_counted_apart() {
        let template = template(1);
        let mut receiver = Receiver::new(template.probe_at(), 0, 5, 1_000_000_000);
        receiver.set_stream(3, Sequence::new(50, 5));
        for (stream, sequence) in [(0, 0), (3, 50), (0, 1), (3, 52)] {
            receiver.take(&frame(&template, 0, 0, Probe { stream, sequence, stamp: 0 }), 10);
        }
        assert_eq!(receiver.stream(0).map(|totals| totals.lost(2)), Some(0));
        assert_eq!(receiver.stream(3).map(|totals| totals.lost(3)), Some(1));
        assert_eq!(receiver.stream(1), None);
        assert_eq!((receiver.totals(5).lost, receiver.totals(5).reordered), (1, 0));
    }
}
