//! `bondstone bench`.

use crate::captures::{Captures, replay_conflict};
use crate::exit::Exit;
use crate::session::{CliSession, OutputOptions, option_error};
use bench::method::{self, LoadChoice, RequiredTraffic, Thoroughness};
use bench::scenario::MeasurementSettings;
use bench::search::SearchKind;
use bench::session::{Run, SessionCell};
use bench::traffic_spec::profile::{MAX_SECONDS, Profile, Timetable};
use bench::{Goal, Scenario, SyntheticOptions, TrafficSpec};
use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{Rate, Registry};
use logger::eprintln;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use traffic::Order;
use traffic::flows::MAX_FLOWS;

/// Measures a chain: the highest rate without loss for each frame size, the latency below it, and the cycles of each
/// NF.
///
/// The chains of the file run as with `run`, with an in-memory ring in place of each port. A generator on its own core
/// sends into one port and receives from all. Every packet carries a sequence number and a timestamp. The table
/// [traffic] of the file describes the packets. For a scenario, every cell is measured; `reproduce` also judges its
/// findings.
///
/// With --pcap the frames of a capture are sent instead, repeatedly and at the pace of the load, or with --gaps with
/// their captured gaps. Only the MAC addresses set in [traffic] are replaced, and what --rewrite and --vlan specify.
/// About one frame in 32 carries a sequence number in the first 18 bytes of its UDP or TCP payload; latency, reordering
/// and duplicates are measured on these frames, loss on all.
#[derive(clap::Args)]
#[command(after_help = "\
A goal (RFC 9971) consists of the trial duration, the duration sum, the loss ratio, the exceed ratio, and the width of the
bounds.
  quick    trials of 50 ms, duration sum 1 s, loss ratio 0, exceed ratio 50 %, width 2 %
  ndr, pdr, rfc2544, tst009, and changes after commas: ndr,final=100ms,sum=2s,width=1%

Named mixes of sizes, with their mean in bytes:
  imix         361.8  64, 594, 1518 at 7:4:1
  imix-csit    353.8  64, 570, 1518 at 28:16:4
  imix-vsperf  334.5  64, 512, 1518, the genome aaaaaaaddddg
  imix-384     384.4  64, 594, 1518 at 11:6:2, from the study of concurrent VNFs
  dc           124.3  64 to 1518, median 120, from the data centre of the SoftNIC study
Letters of a genome (RFC 6985): a 64, b 128, c 256, d 512, e 1024, f 1280, g and z 1518; capitals are defined after it: (aaAg,A=74).

Examples:
  bondstone bench examples/router.toml
  bondstone bench examples/router.toml --frames 64,512,imix --flows 10000 --loss 0.1% --report router.html
  bondstone bench examples/router.toml --rate 5e6 --frames 64 --json
  bondstone bench examples/router.toml --anatomy --frames 64 --report anatomy.html
  bondstone bench examples/router.toml --method rfc2544 --frames 64,1518
  bondstone bench examples/router.toml --method flow-scale --frames 64
  bondstone bench examples/router.toml --method soak --soak 2h --frames imix
  bondstone bench examples/router.toml --pcap lunch.pcapng.gz --loss 0.1%
  bondstone bench examples/router.toml --pcap lunch.pcapng.gz --rewrite 192.168.0.0/16=198.18.0.0/16 --vlan strip --gaps --speed 2
  bondstone bench examples/router.toml --pcap client.pcap,server.pcap --rate 1e5
  bondstone bench examples/router.toml --profile examples/profiles/day.rhai --seconds 48
  bondstone bench scenarios/netbricks/lpm.toml")]
pub(crate) struct Bench {
    /// Chain file or scenario.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Frame sizes in bytes with FCS, and mixes by name, by weights such as (64:1,1518:1), or by genome (RFC 6985) such
    /// as aaaaaaaddddg; see below. By default those of the scenario, or the sizes of RFC 2544.
    #[arg(long)]
    frames: Option<String>,
    /// Number of flows, such as 10k; each of several numbers (1,1k,1M) is measured. By default that of the scenario, or
    /// 1024.
    #[arg(long, value_delimiter = ',', value_parser = flows, value_name = "N")]
    flows: Vec<u32>,
    /// Order of the flows: round-robin, trains:N with N consecutive packets of a flow, uniform, or zipf:EXPONENT. By
    /// default that of the scenario, or round-robin.
    #[arg(long)]
    order: Option<Order>,
    #[command(flatten)]
    synthetic: Box<Synthetic>,
    #[command(flatten)]
    captures: Box<Captures>,
    /// Sends the streams of this Rhai script, which sets their rates for each second, with the method `profile`. See
    /// examples/profiles.
    #[arg(long, value_name = "SCRIPT", conflicts_with_all = [
        "frames", "flows", "order", "trace", "stack", "vary", "short", "tcp", "bidirectional", "pcap", "rate", "method"
    ])]
    profile: Option<PathBuf>,
    /// Duration of a profile in seconds, 1 to 10000. By default that of the script, or 60.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SECONDS)))]
    seconds: Option<u32>,
    /// Goal of the throughput search. By default that of the scenario, or quick.
    #[arg(long)]
    goal: Option<Goal>,
    /// Loss ratio of the goal, such as 0, 0.1% or 0.001.
    #[arg(long)]
    loss: Option<String>,
    /// Offers this many packets per second, such as 5e6 or 5Mpps, or connections, such as 100kcps, for the duration sum of
    /// the goal instead of a search: the method `load`. With the methods concurrent-connections and address-table,
    /// the rate at which connections are opened or addresses sent, by default 20,000 per second.
    #[arg(long, value_name = "PPS", value_parser = offered_rate)]
    rate: Option<OfferedRate>,
    /// Methods, separated by commas. `rfc2544` stands for throughput,latency,loss,back-to-back,recovery, and
    /// `flow-scale` for throughput with 1 to 10M flows, or those of --flows. By default throughput, which also measures
    /// latency below it.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    method: Vec<String>,
    /// Measures as the standards specify, with trials of 60 s, in minutes or hours. By default methods take seconds,
    /// and results list the deviations.
    #[arg(long)]
    full: bool,
    /// Search procedure for the throughput: mlr, binary or verified; with parameters binary,step=10000 and
    /// verified,r=2,z=5000.
    #[arg(long, value_name = "NAME")]
    search: Option<SearchKind>,
    /// Traces about 2000 probes through the chain at 25, 50 and 80 % of the throughput, or at --rate, and reports the parts
    /// of their latency: generator, queues, switch, crossings into and out of sandboxes, and each NF.
    #[arg(long)]
    anatomy: bool,
    /// Line rate of the medium, such as 10G or "2.5 Gbps": 100 % of the methods loss, back-to-back and recovery. By default
    /// 10 Gbit/s, or more if the DUT is faster.
    #[arg(long, value_name = "BITS", value_parser = bits)]
    line: Option<f64>,
    /// Duration of the method soak, such as 10m or 2h.
    #[arg(long, value_name = "TIME", value_parser = soak)]
    soak: Option<Duration>,
    /// CPU of the generator; by default the last one that no chain uses. With several (2,3) a thread on each sends a
    /// part of the flows and the same share of the load; not with captures, profiles and short connections.
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    core: Vec<usize>,
    /// Resumes the last run of the same command: its results are not measured again.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Prints the result documents as JSON.
    #[arg(long)]
    json: bool,
}

/// Method group for the tests of RFC 2544 §26.
const RFC2544: &str = "rfc2544";
/// Method group for the throughput at several numbers of flows.
const FLOW_SCALE: &str = "flow-scale";

/// Parses a number of flows such as `10k`.
fn flows(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |number| (number, 1_000_000)),
    };
    let number: u32 = number.trim().parse().map_err(|e| format!("{e}; use a number such as 1024, 10k or 1M"))?;
    let flows = number.checked_mul(unit).filter(|n| (1..=MAX_FLOWS).contains(n));
    flows.ok_or_else(|| format!("is not in the range 1 to {MAX_FLOWS}"))
}

/// Parses a bit rate such as `2.5G` or `10 Gbps`.
fn bits(text: &str) -> Result<f64, String> {
    let bits = Rate::bits_per_second(text).ok_or("not a bit rate, such as 10G, 2.5 Gbps or 10 Gbit/s")?;
    if (1e6..=1e13).contains(&bits) {
        Ok(bits)
    } else {
        Err("is not in the range 1M to 10000G bits per second".to_owned())
    }
}

/// A rate per second.
#[derive(Clone, Copy, Debug)]
enum OfferedRate {
    Packets(f64),
    Connections(f64),
}

/// Parses a packet rate such as `5e6` or `5 Mpps`, or a rate of connections such as `100kcps`.
fn offered_rate(text: &str) -> Result<OfferedRate, String> {
    let rate = match text.strip_suffix("cps") {
        Some(number) => Rate::packets_per_second(&format!("{number}pps")).map(OfferedRate::Connections),
        None => Rate::packets_per_second(text).map(OfferedRate::Packets),
    };
    rate.ok_or_else(|| "not a rate of packets or connections, such as 5e6, 5Mpps or 100kcps".to_owned())
}

/// Parses the duration of a soak.
fn soak(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| format!("{e}; use a duration such as 10m or 2h"))?;
    let within = (Duration::from_millis(10)..=Duration::from_secs(604_800)).contains(&time);
    if within { Ok(time) } else { Err("is not in the range 10 ms to one week".to_owned()) }
}

/// Synthetic traffic: everything but the sizes, flows and their order.
#[derive(clap::Args)]
struct Synthetic {
    /// An NFPA trace in place of flows: simple, tr2e, tr2i, tr3e, tr3i, tr4e, tr5ul, tr5dl, or l2-1000, l3-1000,
    /// lb-1000, gw-1000 with 1 to 100000 entries.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["flows", "short"])]
    trace: Option<String>,
    /// Headers: eth/ipv4/udp, eth/ipv6/tcp, behind eth /vlan:ID once or twice and /mpls:LABEL or /pppoe:SESSION, or in a
    /// tunnel: vxlan:5(eth/ipv4/udp), gtpu:5(ipv4/udp), srv6(ipv4/udp), vxlan:5@192.0.2.1-192.0.2.2(...).
    #[arg(long, value_name = "STACK", conflicts_with = "short")]
    stack: Option<String>,
    /// A header field that changes from packet to packet, such as ipv4.dscp=0-63, udp.dst=random:1024-65535,
    /// ipv4.src=10.0.0.1|10.0.0.9 or udp.dst=expr:100:1000 + n * n; may be repeated.
    #[arg(long, value_name = "FIELD=VALUES", conflicts_with = "short")]
    vary: Vec<String>,
    /// Short TCP connections with this many packets each and this many open at a time, such as 10x1024. With
    /// `,syn-data` SYNs carry data.
    #[arg(long, value_name = "PACKETS[xOPEN]", conflicts_with_all = ["flows", "order"])]
    short: Option<String>,
    /// TCP connections with client and server, such as request=100,response=1000; with transactions=N requests each,
    /// hold=TIME before the close, timeout=TIME and retries=N of retransmissions, and dsr if servers answer directly.
    /// --flows is the number of pairs of client address and port, by default 65536.
    #[arg(long, value_name = "SETTINGS", conflicts_with_all = [
        "frames", "order", "trace", "stack", "vary", "short", "bidirectional"
    ])]
    tcp: Option<String>,
    /// Sends in both directions at the same rate: into a second port the same flows with addresses, ports and MAC
    /// addresses swapped, or the reverse direction of the trace. Rates are per direction.
    #[arg(long, conflicts_with = "short")]
    bidirectional: bool,
}

impl Bench {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let text = config::read(&self.file, "chain file").map_err(|d| Diagnostics(vec![d]))?;
        if Scenario::is(&text) {
            return self.run_scenario(&text, registry);
        }
        let file = ChainFile::parse(&text, &self.file, registry).map_err(Diagnostics)?;
        for warning in &file.warnings {
            eprintln!("warning: {warning}");
        }
        let run = Run { label: self.file.display().to_string(), ..Run::new(&file) };
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        self.measure(&[SessionCell::new(run)], 1, &name, registry)
    }

    fn run_scenario(&self, text: &str, registry: &Registry) -> anyhow::Result<Exit> {
        let scenario = Scenario::parse(text, &self.file, registry).map_err(Diagnostics)?;
        let set = [
            ("flows", !self.flows.is_empty() || self.method.iter().any(|name| name == FLOW_SCALE)),
            ("rate", self.rate.is_some()),
            ("trace", self.synthetic.trace.is_some()),
        ];
        if let Some((name, _)) = set.iter().find(|(name, is_set)| *is_set && scenario.varied.contains(name)) {
            let problem = "the matrix of the scenario sets it; leave out the option";
            return Err(option_error(name, self.file.display(), problem));
        }
        eprintln!("{}: {}", scenario.name, scenario.title);
        self.measure(&SessionCell::of_scenario(&scenario), scenario.settings.repeat, &scenario.name, registry)
    }

    /// Measures cells with the options of the command line, and shows the results.
    fn measure(
        &self,
        cells: &[SessionCell<'_>],
        repetitions: u32,
        name: &str,
        registry: &Registry,
    ) -> anyhow::Result<Exit> {
        let mut with_options = vec![];
        for cell in cells {
            match &cell.run {
                Err(_) => with_options.push(cell.clone()),
                Ok(run) => {
                    for flows in self.flow_counts() {
                        with_options.push(self.cell(cell, run, flows)?);
                    }
                }
            }
        }
        let mut session = CliSession::open(&self.output, &self.core, registry)?;
        let mut results = vec![];
        let exit = session.run(&with_options, repetitions, self.resume, |_, measured| {
            results.extend(measured.unwrap_or_default().iter().map(|measured| measured.result.clone()));
        })?;
        session.show(&results, name, self.json)?;
        Ok(exit)
    }

    /// Returns the numbers of flows to measure each cell with; `None` is the number of the cell.
    fn flow_counts(&self) -> Vec<Option<u32>> {
        match &self.flows[..] {
            [] if self.method.iter().any(|name| name == FLOW_SCALE) => (0..8).map(|n| Some(10_u32.pow(n))).collect(),
            [] => vec![None],
            all => all.iter().copied().map(Some).collect(),
        }
    }

    /// Applies the options of the command line to a cell.
    fn cell<'a>(&self, cell: &SessionCell<'a>, run: &Run<'a>, flows: Option<u32>) -> anyhow::Result<SessionCell<'a>> {
        let keeps_gaps =
            self.captures.spec(run.traffic.captures())?.is_some_and(|c| c.speed.is_some()) && !run.traffic.keeps_gaps();
        let settings = self.settings(run.settings.clone(), keeps_gaps)?;
        let traffic = self.traffic(run.traffic.clone(), flows, &settings)?;
        let mut settings = self.with_traffic(&traffic, settings)?;
        settings.rate_pps = self.rate_pps(&traffic, settings.goal)?.or(settings.rate_pps);
        run.generator.check(&traffic, &settings).map_err(|(problem, remedy)| {
            Diagnostics(vec![Diagnostic::new(problem).value(&run.generator).remedy(remedy)])
        })?;
        let mut run = Run { traffic, settings, ..run.clone() };
        let mut label = cell.label.clone();
        if let Some(flows) = flows.filter(|_| self.flow_counts().len() > 1) {
            label += &format!(", flows {flows}");
            run.label.clone_from(&label);
            run.cell.insert("flows".to_owned(), flows.to_string());
        }
        Ok(SessionCell { label, ..SessionCell::new(run) })
    }

    /// Applies the options to the methods of a cell. `keeps_gaps` is true for captures that are sent with their gaps
    /// because of an option: their own rate is the load.
    fn settings(&self, default: MeasurementSettings, keeps_gaps: bool) -> anyhow::Result<MeasurementSettings> {
        let mut settings = default;
        if self.full {
            settings = MeasurementSettings { thoroughness: Thoroughness::Standard, goal: Goal::rfc2544(), ..settings };
        }
        settings.goal = self.goal(settings.goal)?;
        for name in &self.method {
            let selectable = |m: &&method::MethodInfo| m.properties.load != LoadChoice::Given;
            let mut names = method::METHODS.iter().filter(selectable).map(|m| m.name);
            if !names.clone().any(|n| n == name) && name != RFC2544 && name != FLOW_SCALE {
                let names = names.by_ref().collect::<Vec<_>>().join(", ");
                let problem =
                    format!("unknown method; the methods are {names}, rfc2544 and flow-scale; use --rate for one load");
                return Err(option_error("method", name, problem));
            }
        }
        let has_fixed_load =
            |name: &String| method::find(name).is_ok_and(|method| method.properties.load == LoadChoice::Fixed);
        match &self.method[..] {
            names if self.rate.is_some() && !names.iter().all(has_fixed_load) => {
                let problem = "chooses its own loads; leave out --rate, or the method for one load";
                return Err(option_error("method", names.join(","), problem));
            }
            [] if keeps_gaps || self.rate.is_some() => settings.methods = vec![method::GIVEN_LOAD.to_owned()],
            [] => {}
            names => {
                let one = |name: &String| match &**name {
                    RFC2544 => method::RFC2544.map(str::to_owned).to_vec(),
                    FLOW_SCALE => vec![method::THROUGHPUT.to_owned()],
                    _ => vec![name.clone()],
                };
                settings.methods = names.iter().flat_map(one).collect();
            }
        }
        settings.rate_pps = settings.rate_pps.filter(|_| !keeps_gaps);
        settings.anatomy |= self.anatomy;
        settings.search = self.search.unwrap_or(settings.search);
        settings.line_rate_bps = self.line.or(settings.line_rate_bps);
        settings.soak_s = self.soak.map(|t| t.as_secs_f64()).or(settings.soak_s);
        Ok(settings)
    }

    /// Checks that methods and traffic fit together; a profile has its own method.
    fn with_traffic(
        &self,
        traffic: &TrafficSpec,
        settings: MeasurementSettings,
    ) -> anyhow::Result<MeasurementSettings> {
        let is_profile = matches!(traffic, TrafficSpec::Profile(_));
        let sends_profile = |name: &String| {
            method::find(name).is_ok_and(|method| method.properties.traffic == RequiredTraffic::Profile)
        };
        if is_profile && (self.rate.is_some() || self.method.iter().any(|name| !sends_profile(name))) {
            let problem = "cannot be measured with the profile of the scenario; leave out --rate and --method";
            return Err(option_error("method", settings.methods.join(","), problem));
        }
        match (is_profile, self.seconds) {
            (true, _) => Ok(MeasurementSettings { methods: vec![method::PROFILE.to_owned()], ..settings }),
            (false, Some(seconds)) => {
                Err(option_error("seconds", seconds, "applies only to a profile; set one with --profile SCRIPT"))
            }
            (false, None) if settings.methods.iter().any(sends_profile) => {
                Err(option_error("method", method::PROFILE, "needs a profile; set its script with --profile SCRIPT"))
            }
            (false, None) => Ok(settings),
        }
    }

    /// Returns the rate of the option in packets per second. Checks that a trial has at least one packet or connection, and
    /// that the generator can number the packets.
    fn rate_pps(&self, traffic: &TrafficSpec, goal: Goal) -> anyhow::Result<Option<f64>> {
        let Some(rate) = self.rate else { return Ok(None) };
        let packets = traffic.packets_per_connection().map(f64::from);
        let (value, each, unit) = match (rate, packets) {
            (OfferedRate::Packets(pps), _) => (pps, 1.0, "packets/s"),
            (OfferedRate::Connections(cps), Some(packets)) => (cps, packets, "connections/s"),
            (OfferedRate::Connections(cps), None) => {
                let problem = "connections per second, but the traffic has none; add --tcp response=1024";
                return Err(option_error("rate", format!("{cps}cps"), problem));
            }
        };
        let least_pps = packets.unwrap_or(1.0) * (1.0 / goal.final_s()).max(1.0);
        if (least_pps..=traffic::pace::MAX_PPS).contains(&(value * each)) {
            return Ok(Some(value * each));
        }
        let (least, most) = (least_pps / each, traffic::pace::MAX_PPS / each);
        Err(option_error(
            "rate",
            value,
            format!("is not in the range {least} to {most} {unit}; a trial needs at least one packet or connection"),
        ))
    }

    fn goal(&self, default: Goal) -> anyhow::Result<Goal> {
        let goal = self.goal.unwrap_or(default);
        match &self.loss {
            None => Ok(goal),
            Some(text) => {
                let (number, unit) = text.strip_suffix('%').map_or((text.as_str(), 1.0), |n| (n, 100.0));
                let ratio: f64 = number.trim().parse().map_err(|e| option_error("loss", text, e))?;
                goal.with_loss_ratio(ratio / unit).map_err(|e| option_error("loss", text, e))
            }
        }
    }

    /// Applies the options to synthetic traffic. `has_flows` is true if the number of flows is set.
    fn synthetic_options(&self, default: SyntheticOptions, has_flows: bool) -> anyhow::Result<SyntheticOptions> {
        let input_error = |(_, d): (&str, Diagnostic)| Diagnostics(vec![d]);
        let options = SyntheticOptions::parse(
            self.synthetic.trace.as_deref(),
            self.synthetic.stack.as_deref(),
            self.synthetic.short.as_deref(),
            self.synthetic.tcp.as_deref(),
            &self.synthetic.vary,
        )
        .map_err(input_error)?;
        let default =
            SyntheticOptions { bidirectional: default.bidirectional || self.synthetic.bidirectional, ..default };
        let has_connections = options.short.is_some() || options.tcp.is_some();
        if has_connections || options == SyntheticOptions::default() {
            let synthetic = if has_connections { options } else { default };
            return Ok(synthetic.checked(has_flows, self.order.is_some()).map_err(input_error)?);
        }
        let (trace, stack) = (options.trace.or(default.trace), options.stack.or(default.stack));
        let vary = if options.vary.is_empty() { default.vary } else { options.vary };
        let synthetic = SyntheticOptions { trace, stack, short: None, tcp: None, vary, ..default };
        Ok(synthetic.checked(has_flows, self.order.is_some()).map_err(input_error)?)
    }

    /// Returns true if an option describes synthetic traffic.
    fn sets_synthetic(&self, count: Option<u32>) -> bool {
        let Synthetic { trace, stack, vary, short, tcp, bidirectional } = &*self.synthetic;
        let texts = [&self.frames, trace, stack, short, tcp];
        texts.into_iter().any(Option::is_some)
            || count.is_some()
            || self.order.is_some()
            || *bidirectional
            || !vary.is_empty()
    }

    /// Applies the options to the traffic of a cell.
    fn traffic(
        &self,
        default: TrafficSpec,
        count: Option<u32>,
        settings: &MeasurementSettings,
    ) -> anyhow::Result<TrafficSpec> {
        let table = |profile: Arc<Profile>, seconds| {
            let table = Timetable::new(profile, seconds, settings.line_rate_bps).map_err(|d| Diagnostics(vec![d]))?;
            Ok(TrafficSpec::Profile(Arc::new(table)))
        };
        if let Some(path) = &self.profile {
            return table(Arc::new(Profile::open(path).map_err(|d| Diagnostics(vec![d]))?), self.seconds);
        }
        if let TrafficSpec::Profile(timetable) = &default {
            if self.captures.spec(None)?.is_some() || self.sets_synthetic(count) {
                let problem = "the scenario sends a profile, whose script describes the traffic; leave out --pcap, --frames, --flows, \
                               --order, --trace, --stack, --vary, --short, --tcp and --bidirectional";
                let d = Diagnostic::new(problem).value(timetable.profile().path().display());
                return Err(Diagnostics(vec![d]).into());
            }
            return table(timetable.profile().clone(), self.seconds.or(Some(timetable.seconds())));
        }
        if let Some(captured) = self.captures.spec(default.captures())? {
            if self.sets_synthetic(count) {
                return Err(replay_conflict(&captured));
            }
            return Ok(TrafficSpec::Capture(captured));
        }
        let frames_option = self.frames.as_deref().map(parse_frames).transpose()?;
        match default {
            TrafficSpec::Synthetic { frames, flows, order, options } => {
                let had_connections = options.tcp.is_some();
                let options = self.synthetic_options(options, count.is_some())?;
                // a number of flows is none of pairs of address and port
                let default = if options.tcp.is_some() == had_connections { flows } else { options.default_flows() };
                Ok(TrafficSpec::Synthetic {
                    frames: frames_option.unwrap_or(frames),
                    flows: count.unwrap_or(default),
                    order: self.order.unwrap_or(order),
                    options,
                })
            }
            others => Ok(others),
        }
    }
}

fn parse_frames(frames: &str) -> anyhow::Result<Vec<(String, traffic::Mix)>> {
    bench::parse_frame_sizes(frames).map_err(|(text, e)| option_error("frames", text, e))
}
