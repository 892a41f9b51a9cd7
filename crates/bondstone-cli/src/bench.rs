//! `bondstone bench`.

use crate::captures::{Captures, no_made_frames};
use crate::exit::Exit;
use crate::measuring::{Desk, Job, Keep, Rounds, Task, Under, task, wrong};
use bench::method::{self, Form};
use bench::profile::{MAX_SECONDS, Profile, Timetable};
use bench::scenario::How;
use bench::search::SearchKind;
use bench::{Generator, Goal, Scenario, Sent, Shape};
use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use traffic::flows::MAX_FLOWS;
use traffic::{Mix, Order};

/// Frame sizes of RFC 2544 §9.1 for Ethernet, bytes with FCS.
const SIZES: &str = "64,128,256,512,1024,1280,1518";

/// Measures a chain: the highest rate without loss for each frame size, latency below it, cycles of each NF.
///
/// The chains of the file run as they do with `run`, but with a wire in memory in the place of each port; a generator on a
/// core of its own sends into one and takes back what comes out of any. Every packet carries a number and its time of
/// departure. The table [traffic] of the file says what is sent. Of a scenario, every cell is measured; `reproduce` judges
/// its findings as well.
///
/// With --pcap the frames of a capture are sent in their place, over and over and at the load's pace, or with --gaps with
/// their own gaps. They go as they are, but for the MAC addresses that [traffic] gives and what --rewrite and --vlan say; about one in 32 carries a number, in the first 18 bytes of its UDP or TCP
/// payload. Latency, order and copies are those of these frames. The others are counted, and what is missing is lost.
#[derive(clap::Args)]
#[command(after_help = "\
The goal says what counts as throughput: how long trials last, how much trial time decides about a rate, the loss allowed,
the share of the time that may have more, and how near the bounds must come.
  quick    trials of 50 ms, 1 s in sum, no loss, exceeded in at most 50 % of it, bounds within 2 %
  ndr, pdr, rfc2544, tst009, and after a comma what differs: ndr,final=100ms,sum=2s,width=1%

Mixes of sizes that have a name, and their mean in bytes:
  imix         361.8  64, 594, 1518 at 7:4:1
  imix-csit    353.8  64, 570, 1518 at 28:16:4
  imix-vsperf  334.5  64, 512, 1518, the genome aaaaaaaddddg
  imix-384     384.4  64, 594, 1518 at 11:6:2, as the study of concurrent VNFs implies
  dc           124.3  64 to 1518, median 120, as in the data centre of the study of SoftNIC
Letters of a genome: a 64, b 128, c 256, d 512, e 1024, f 1280, g and z 1518; capitals as said behind it: (aaAg,A=74).

Examples:
  bondstone bench examples/router.toml
  bondstone bench examples/router.toml --frames 64,512,imix --flows 10000 --loss 0.1% --report router.html
  bondstone bench examples/router.toml --rate 5e6 --frames 64 --json
  bondstone bench examples/router.toml --method rfc2544 --frames 64,1518
  bondstone bench examples/router.toml --method flow-scale --frames 64
  bondstone bench examples/router.toml --method soak --soak 2h --frames imix
  bondstone bench examples/router.toml --pcap lunch.pcapng.gz --loss 0.1%
  bondstone bench examples/router.toml --pcap lunch.pcapng.gz --rewrite 192.168.0.0/16=198.18.0.0/16 --vlan strip --gaps --speed 2
  bondstone bench examples/router.toml --pcap client.pcap,server.pcap --rate 1e5
  bondstone bench examples/router.toml --profile examples/profiles/day.rhai --seconds 48
  bondstone bench scenarios/netbricks/lpm.toml")]
pub(crate) struct Bench {
    /// The chain file, or a scenario.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Frame sizes in bytes with FCS, and mixes by name, in parentheses such as (64:1,1518:1), or by genome (RFC 6985) such as
    /// aaaaaaaddddg; see below. By default the scenario's, or the sizes of RFC 2544.
    #[arg(long)]
    frames: Option<String>,
    /// Different flows that are sent, in turn, such as 10k; of several numbers, 1,1k,1M, each is measured. By default the
    /// scenario's, or 1024.
    #[arg(long, value_delimiter = ',', value_parser = flows, value_name = "N")]
    flows: Vec<u32>,
    /// Order of the flows: round-robin, trains:8 with that many packets of a flow in a row, uniform, or zipf:1.1 with an
    /// exponent. By default the scenario's, or round-robin.
    #[arg(long)]
    order: Option<Order>,
    #[command(flatten)]
    made: Box<Made>,
    #[command(flatten)]
    captures: Box<Captures>,
    /// Sends the streams of this script (Rhai), which says for each second how much each sends: the method `profile`. See
    /// examples/profiles.
    #[arg(long, value_name = "SCRIPT", conflicts_with_all = [
        "frames", "flows", "order", "trace", "stack", "short", "both_ways", "pcap", "rate", "method"
    ])]
    profile: Option<PathBuf>,
    /// How many seconds a profile lasts, 1 to 10000. By default what its script says, or 60.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    seconds: Option<u32>,
    /// What counts as throughput. By default what the scenario says, or quick.
    #[arg(long)]
    goal: Option<Goal>,
    /// Loss that a trial may have, such as 0, 0.1% or 0.001; the goal's, if left out.
    #[arg(long)]
    loss: Option<String>,
    /// Offers this many packets a second for the goal's sum of time, instead of a search: the method `load`.
    #[arg(long, value_name = "PPS", conflicts_with = "method")]
    rate: Option<f64>,
    /// Methods, separated by commas, one after the other; rfc2544 stands for throughput,latency,loss,back-to-back,recovery,
    /// and flow-scale for a throughput with 1 to 10M flows, or with those of --flows.
    /// By default throughput, which also measures latency below it.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    method: Vec<String>,
    /// As the standards have it, in minutes or hours, with trials of 60 s; the short forms, of seconds, say where they differ.
    #[arg(long)]
    full: bool,
    /// How a throughput is searched for: mlr, binary or verified; with parameters binary,step=10000 and verified,r=2,z=5000.
    #[arg(long, value_name = "NAME")]
    search: Option<SearchKind>,
    /// What the medium carries, such as 10G or 2.5G: 100 % of the methods loss and back-to-back. By default 10 Gbit/s, or more
    /// where the device is faster.
    #[arg(long, value_name = "BITS", value_parser = bits)]
    line: Option<f64>,
    /// How long the method soak lasts, such as 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = soak)]
    soak: Option<Duration>,
    /// CPU of the generator; by default the last that no chain uses.
    #[arg(long)]
    core: Option<usize>,
    /// Goes on with the last run of the same command, if it was interrupted: what it measured is not measured again.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    keep: Keep,
    /// Prints the result documents as JSON.
    #[arg(long)]
    json: bool,
}

/// What stands for the tests of RFC 2544 §26.
const RFC2544: &str = "rfc2544";
/// What stands for a throughput at several numbers of flows.
const FLOW_SCALE: &str = "flow-scale";

/// A number of flows, as in `10k`.
fn flows(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |number| (number, 1_000_000)),
    };
    let number: u32 = number.trim().parse().map_err(|e| format!("{e}; write it as 1024, 10k or 1M"))?;
    let flows = number.checked_mul(unit).filter(|n| (1..=MAX_FLOWS).contains(n));
    flows.ok_or_else(|| format!("is not 1 to {MAX_FLOWS}"))
}

/// Bits a second, as in `2.5G`.
fn bits(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix(['G', 'g']) {
        Some(number) => (number, 1e9),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    let number: f64 = number.trim().parse().map_err(|e| format!("{e}; write it as 10G"))?;
    let bits = number * unit;
    if (1e6..=1e13).contains(&bits) { Ok(bits) } else { Err("is not 1M to 10000G bits a second".to_owned()) }
}

/// How long a soak may last.
fn soak(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| format!("{e}; write it as 10m or 2h"))?;
    let within = (Duration::from_millis(10)..=Duration::from_secs(604_800)).contains(&time);
    if within { Ok(time) } else { Err("is not 10 ms to a week".to_owned()) }
}

/// What made frames are beyond their sizes.
#[derive(clap::Args)]
struct Made {
    /// One of NFPA's traces in the place of flows: simple, tr2e, tr2i, tr3e, tr3i, tr4e, tr5ul, tr5dl, or l2-1000, l3-1000,
    /// lb-1000, gw-1000 with 1 to 100000 entries.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["flows", "short"])]
    trace: Option<String>,
    /// Headers: eth/ipv4/udp, with /vlan:7 once or twice behind eth, ipv6 or tcp instead, or all of it in a tunnel:
    /// vxlan:5(eth/ipv4/udp), vxlan:5@192.0.2.1-192.0.2.2(...).
    #[arg(long, value_name = "STACK", conflicts_with = "short")]
    stack: Option<String>,
    /// Short flows: connections of TCP with this many packets, of which so many are open at a time, such as 10x1024. With
    /// ,syn-data behind it SYNs carry data.
    #[arg(long, value_name = "PACKETS[xOPEN]", conflicts_with_all = ["flows", "order"])]
    short: Option<String>,
    /// Sends both ways at once, at the same rate: into a second port the same flows from their other side, with addresses,
    /// ports and MAC addresses swapped, or the trace's reverse direction. Rates are those of one direction.
    #[arg(long, conflicts_with = "short")]
    both_ways: bool,
}

impl Bench {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let text = config::read(&self.file, "chain file").map_err(|d| Diagnostics(vec![d]))?;
        if Scenario::is(&text) {
            let scenario = Scenario::parse(&text, &self.file, registry).map_err(Diagnostics)?;
            let asked = [
                ("flows", !self.flows.is_empty() || self.method.iter().any(|name| name == FLOW_SCALE)),
                ("rate", self.rate.is_some()),
                ("trace", self.made.trace.is_some()),
            ];
            if let Some((name, _)) = asked.iter().find(|(name, asked)| *asked && scenario.changed.contains(name)) {
                return Err(wrong(name, self.file.display(), "the scenario's matrix says that; leave it out"));
            }
            eprintln!("{}: {}", scenario.name, scenario.title);
            let cells: Vec<Task<'_>> = scenario.cells.iter().map(|cell| task(&scenario, cell)).collect();
            return self.measure(&cells, scenario.how.repeat, &scenario.name, registry);
        }
        let file = ChainFile::parse(&text, &self.file, registry).map_err(Diagnostics)?;
        for warning in &file.warnings {
            eprintln!("warning: {warning}");
        }
        let sent = Sent::Made { frames: parse(SIZES)?, flows: 1024, order: Order::default(), shape: Shape::default() };
        let label = self.file.display().to_string();
        let job = Job {
            dut: Under::Chain(&file),
            label: label.clone(),
            study: "bench".to_owned(),
            cell: Default::default(),
            sent,
            how: How::default(),
            generator: Generator::Bondstone,
            clock_mhz: None,
            round: None,
        };
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        self.measure(&[Task { label, cell: Default::default(), job: Ok(job) }], 1, &name, registry)
    }

    /// Measures cells as the command line says, and shows what came of them.
    fn measure(&self, cells: &[Task<'_>], rounds: u32, name: &str, registry: &Registry) -> anyhow::Result<Exit> {
        let mut tasks = vec![];
        for cell in cells {
            match &cell.job {
                Err(_) => tasks.push(cell.clone()),
                Ok(job) => {
                    for flows in self.flow_counts() {
                        tasks.push(self.task(cell, job, flows)?);
                    }
                }
            }
        }
        let mut desk = Desk::open(&self.keep, self.core, registry)?;
        let mut all = vec![];
        let how = Rounds { rounds, resume: self.resume };
        let exit = desk.measure_all(&tasks, how, |_, came| {
            all.extend(came.unwrap_or_default().iter().map(|measured| measured.result.clone()));
        })?;
        desk.show(&all, name, self.json)?;
        Ok(exit)
    }

    /// Numbers of flows of the cells that each cell becomes; none is the cell's own.
    fn flow_counts(&self) -> Vec<Option<u32>> {
        match &self.flows[..] {
            [] if self.method.iter().any(|name| name == FLOW_SCALE) => (0..8).map(|n| Some(10_u32.pow(n))).collect(),
            [] => vec![None],
            all => all.iter().copied().map(Some).collect(),
        }
    }

    /// A cell as the command line has it.
    fn task<'a>(&self, cell: &Task<'a>, job: &Job<'a>, flows: Option<u32>) -> anyhow::Result<Task<'a>> {
        let own =
            self.captures.asked(job.sent.captured())?.is_some_and(|c| c.speed.is_some()) && !job.sent.keeps_gaps();
        let how = self.how(job.how.clone(), own)?;
        let sent = self.sent(job.sent.clone(), flows, &how)?;
        let how = self.settled(&sent, how)?;
        job.generator
            .fits(&sent, &how)
            .map_err(|(problem, remedy)| Diagnostics(vec![Diagnostic::new(problem).value(&job.generator).remedy(remedy)]))?;
        let mut job = Job { sent, how, ..job.clone() };
        let mut label = cell.label.clone();
        if let Some(flows) = flows.filter(|_| self.flow_counts().len() > 1) {
            label += &format!(", flows {flows}");
            job.label.clone_from(&label);
            job.cell.insert("flows".to_owned(), flows.to_string());
        }
        Ok(Task { label, cell: job.cell.clone(), job: Ok(job) })
    }

    /// How it is measured, where the command line says otherwise; captures that are now to keep their `own` gaps have a load.
    fn how(&self, default: How, own: bool) -> anyhow::Result<How> {
        let mut how = default;
        if self.full {
            how = How { form: Form::Standard, goal: Goal::rfc2544(), ..how };
        }
        how.goal = self.goal(how.goal)?;
        self.check_rate(how.goal)?;
        for name in &self.method {
            let known = method::ALL.iter().any(|m| m.name == name) || name == RFC2544 || name == FLOW_SCALE;
            if !known || name == "load" {
                let names = method::ALL.iter().map(|m| m.name).filter(|n| *n != "load").collect::<Vec<_>>().join(", ");
                let problem =
                    format!("is no method; there are {names}, rfc2544 and flow-scale; for one load say --rate");
                return Err(wrong("method", name, problem));
            }
        }
        match &self.method[..] {
            [] if own || self.rate.is_some() => how.methods = vec!["load".to_owned()],
            [] => {}
            names => {
                let one = |name: &String| match &**name {
                    RFC2544 => {
                        ["throughput", "latency", "loss", "back-to-back", "recovery"].map(str::to_owned).to_vec()
                    }
                    FLOW_SCALE => vec!["throughput".to_owned()],
                    _ => vec![name.clone()],
                };
                how.methods = names.iter().flat_map(one).collect();
            }
        }
        how.rate_pps = self.rate.or(how.rate_pps.filter(|_| !own));
        how.search = self.search.unwrap_or(how.search);
        how.line_bps = self.line.or(how.line_bps);
        how.soak_s = self.soak.map(|t| t.as_secs_f64()).or(how.soak_s);
        Ok(how)
    }

    /// The same, as it goes with what is sent.
    fn settled(&self, sent: &Sent, how: How) -> anyhow::Result<How> {
        let is_profile = matches!(sent, Sent::Profile(_));
        if is_profile && (self.rate.is_some() || self.method.iter().any(|name| name != "profile")) {
            let problem = "does not send the scenario's profile; leave out --rate and --method";
            return Err(wrong("method", how.methods.join(","), problem));
        }
        match (is_profile, self.seconds) {
            (true, _) => Ok(How { methods: vec!["profile".to_owned()], ..how }),
            (false, Some(seconds)) => {
                Err(wrong("seconds", seconds, "is the length of a profile; name one with --profile SCRIPT"))
            }
            (false, None) if how.methods.iter().any(|name| name == "profile") => {
                Err(wrong("method", "profile", "has no profile; name its script with --profile SCRIPT"))
            }
            (false, None) => Ok(how),
        }
    }

    /// Whether a trial has a packet at the rate, and the generator can number them.
    fn check_rate(&self, goal: Goal) -> anyhow::Result<()> {
        let Some(rate) = self.rate else { return Ok(()) };
        let least = (1.0 / goal.final_s()).max(1.0);
        if (least..=traffic::pace::MAX_PPS).contains(&rate) {
            return Ok(());
        }
        let most = traffic::pace::MAX_PPS;
        Err(wrong("rate", rate, format!("is not {least} to {most} packets/s; a trial has to have one packet")))
    }

    fn goal(&self, default: Goal) -> anyhow::Result<Goal> {
        let goal = self.goal.unwrap_or(default);
        match &self.loss {
            None => Ok(goal),
            Some(text) => {
                let (number, unit) = text.strip_suffix('%').map_or((text.as_str(), 1.0), |n| (n, 100.0));
                let ratio: f64 = number.trim().parse().map_err(|e| wrong("loss", text, e))?;
                goal.with_loss_ratio(ratio / unit).map_err(|e| wrong("loss", text, e))
            }
        }
    }

    /// What frames are where `default` is not what was asked for; one of it drives out what does not go with it.
    fn shape(&self, default: Shape, counted: bool) -> anyhow::Result<Shape> {
        let fault = |(_, d): (&str, Diagnostic)| Diagnostics(vec![d]);
        let asked = Shape::parse(self.made.trace.as_deref(), self.made.stack.as_deref(), self.made.short.as_deref())
            .map_err(fault)?;
        let default = Shape { both_ways: default.both_ways || self.made.both_ways, ..default };
        if asked.short.is_some() || asked == Shape::default() {
            let shape = if asked.short.is_some() { asked } else { default };
            return Ok(shape.checked(counted, self.order.is_some()).map_err(fault)?);
        }
        let (trace, stack) = (asked.trace.or(default.trace), asked.stack.or(default.stack));
        let shape = Shape { trace, stack, short: None, ..default };
        Ok(shape.checked(counted, self.order.is_some()).map_err(fault)?)
    }

    /// Whether an option says what made frames are.
    fn makes(&self, count: Option<u32>) -> bool {
        let Made { trace, stack, short, both_ways } = &*self.made;
        let texts = [&self.frames, trace, stack, short];
        texts.into_iter().any(Option::is_some) || count.is_some() || self.order.is_some() || *both_ways
    }

    /// What is sent in the place of `default`.
    fn sent(&self, default: Sent, count: Option<u32>, how: &How) -> anyhow::Result<Sent> {
        let table = |profile: Arc<Profile>, seconds| {
            let table = Timetable::of(profile, seconds, how.line_bps).map_err(|d| Diagnostics(vec![d]))?;
            Ok(Sent::Profile(Arc::new(table)))
        };
        if let Some(path) = &self.profile {
            return table(Arc::new(Profile::open(path).map_err(|d| Diagnostics(vec![d]))?), self.seconds);
        }
        if let Sent::Profile(said) = &default {
            if self.captures.asked(None)?.is_some() || self.makes(count) {
                let problem = "the scenario sends a profile, whose script says what is sent; leave out --pcap, --frames, --flows, \
                               --order, --trace, --stack, --short and --both-ways";
                let d = Diagnostic::new(problem).value(said.profile().path().display());
                return Err(Diagnostics(vec![d]).into());
            }
            return table(said.profile().clone(), self.seconds.or(Some(said.seconds())));
        }
        if let Some(captured) = self.captures.asked(default.captured())? {
            if self.makes(count) {
                return Err(no_made_frames(&captured));
            }
            return Ok(Sent::Capture(captured));
        }
        let asked = self.frames.as_deref().map(parse).transpose()?;
        match default {
            Sent::Made { frames, flows, order, shape } => Ok(Sent::Made {
                frames: asked.unwrap_or(frames),
                flows: count.unwrap_or(flows),
                order: self.order.unwrap_or(order),
                shape: self.shape(shape, count.is_some())?,
            }),
            others => Ok(others),
        }
    }
}

fn parse(frames: &str) -> anyhow::Result<Vec<(String, Mix)>> {
    bench::frames(frames).map_err(|(text, e)| wrong("frames", text, e))
}
