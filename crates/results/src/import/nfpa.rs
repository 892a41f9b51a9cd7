//! Import of the SQLite database of NFPA.

use super::{invalid, truncate};
use crate::Error;
use crate::store::backend::read_only;
use report::{
    Dut, Environment, Frames, Goal, LimitedBy, Method, NfInstance, Port, Quantity, Result, Summary, Tool, Trace,
    Traffic, Version, limit,
};
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of measurements in a database.
const MAX_MEASUREMENTS: usize = 10_000;

/// Tables with their required columns.
const TABLES: [(&str, &str); 15] = [
    ("cpu", "id make model"),
    ("cpu_makes", "id make"),
    ("cpu_models", "id model"),
    ("nic", "id make model port_type"),
    ("nic_makes", "id make"),
    ("nic_models", "id model"),
    ("traffic", "id name packet_size"),
    ("traffic_names", "id name"),
    ("traffic_packet_sizes", "id packet_size"),
    ("virtualization", "id name"),
    ("vnf", "id name version function driver driver_version"),
    ("vnf_names", "id name"),
    ("vnf_functions", "id function"),
    ("vnf_drivers", "id driver"),
    (
        "measurements",
        "id ts name cpu nic virtualization vnf used_cpu_cores traffic repetitions duration sent_pps_min sent_pps_avg \
         sent_pps_max recv_pps_min recv_pps_avg recv_pps_max miss_pps_min miss_pps_avg miss_pps_max sent_bps_min sent_bps_avg \
         sent_bps_max recv_bps_min recv_bps_avg recv_bps_max diff_bps_min diff_bps_avg diff_bps_max bidir_twin_id",
    ),
];
/// Optional and ignored columns of the measurements.
const OPTIONAL: &str = "comment user_id bidir control_nfpa";

/// The rates of a measurement: column, name, unit.
const RATES: [(&str, &str, &str); 6] = [
    ("sent_pps", "sent rate", "pps"),
    ("recv_pps", "received rate", "pps"),
    ("miss_pps", "missing rate", "pps"),
    ("sent_bps", "sent bits", "bps"),
    ("recv_bps", "received bits", "bps"),
    ("diff_bps", "difference in bits", "bps"),
];

/// Reads one result for each measurement.
pub(super) fn read(file: &Path) -> std::result::Result<Vec<Result>, Error> {
    let fail = |reason| Error::from_sqlite(file, reason);
    let connection = read_only(file).map_err(fail)?;
    let bidir = columns(&connection, file)?.contains("bidir");
    let sql = format!(
        "SELECT m.*, m.id AS number, {} AS both, cmake.make AS cpu_make, cmodel.model AS cpu_model, nmake.make AS nic_make,
            nmodel.model AS nic_model, nic.port_type AS nic_port, v.name AS virtual, vn.name AS vnf_name,
            vnf.version AS vnf_version, vf.function AS vnf_function, vd.driver AS vnf_driver,
            vnf.driver_version AS vnf_driver_version, tn.name AS traffic_name, ts.packet_size AS packet_size
        FROM measurements m
            LEFT JOIN cpu ON cpu.id = m.cpu
            LEFT JOIN cpu_makes cmake ON cmake.id = cpu.make LEFT JOIN cpu_models cmodel ON cmodel.id = cpu.model
            LEFT JOIN nic ON nic.id = m.nic
            LEFT JOIN nic_makes nmake ON nmake.id = nic.make LEFT JOIN nic_models nmodel ON nmodel.id = nic.model
            LEFT JOIN virtualization v ON v.id = m.virtualization
            LEFT JOIN vnf ON vnf.id = m.vnf LEFT JOIN vnf_names vn ON vn.id = vnf.name
            LEFT JOIN vnf_functions vf ON vf.id = vnf.function LEFT JOIN vnf_drivers vd ON vd.id = vnf.driver
            LEFT JOIN traffic t ON t.id = m.traffic LEFT JOIN traffic_names tn ON tn.id = t.name
            LEFT JOIN traffic_packet_sizes ts ON ts.id = t.packet_size
        ORDER BY m.id LIMIT {}",
        if bidir { "m.bidir" } else { "0" },
        MAX_MEASUREMENTS + 1
    );
    let mut statement = connection.prepare(&sql).map_err(fail)?;
    let mut rows = statement.query([]).map_err(fail)?;
    let mut out = vec![];
    while let Some(row) = rows.next().map_err(fail)? {
        if out.len() == MAX_MEASUREMENTS {
            return Err(invalid(
                file,
                "measurements",
                &format!("more than {MAX_MEASUREMENTS} rows; import a copy with fewer"),
            ));
        }
        out.push(result(file, row)?);
    }
    if out.is_empty() {
        return Err(invalid(file, "measurements", "contains no rows"));
    }
    Ok(out)
}

/// Checks that the tables are those of NFPA; returns the columns of the measurements.
fn columns(connection: &Connection, file: &Path) -> std::result::Result<BTreeSet<String>, Error> {
    let mut measurements = BTreeSet::new();
    for (table, required) in TABLES {
        let sql = "SELECT name FROM pragma_table_info(?1)";
        let existing = connection.prepare(sql).and_then(|mut s| s.query_map([table], |r| r.get(0))?.collect());
        let existing: BTreeSet<String> = existing.map_err(|reason| Error::from_sqlite(file, reason))?;
        if existing.is_empty() {
            return Err(invalid(file, table, "missing table of NFPA"));
        }
        if let Some(missing) = required.split_whitespace().find(|c| !existing.contains(*c)) {
            return Err(invalid(file, &format!("{table}.{missing}"), "missing column of NFPA"));
        }
        if table == "measurements" {
            let expected: BTreeSet<&str> = required.split_whitespace().chain(OPTIONAL.split_whitespace()).collect();
            if let Some(unknown) = existing.iter().find(|c| !expected.contains(c.as_str())) {
                let problem = "unknown column: not supported by this version; import a copy without it";
                return Err(invalid(file, &format!("{table}.{}", unknown.escape_debug()), problem));
            }
            measurements = existing;
        }
    }
    Ok(measurements)
}

fn result(file: &Path, row: &Row<'_>) -> std::result::Result<Result, Error> {
    let number: i64 = row.get("number").map_err(|reason| Error::from_sqlite(file, reason))?;
    let path = |column: &str| format!("measurements.{column} of id {number}");
    let text = |column: &str| {
        let value = row.get_ref(column).map_err(|reason| Error::from_sqlite(file, reason))?;
        use rusqlite::types::ValueRef::{Blob, Integer, Null, Real, Text};
        match value {
            Null => Ok(None),
            Integer(n) => Ok(Some(n.to_string())),
            Real(x) => Ok(Some(x.to_string())),
            Text(bytes) => Ok(Some(truncate(&String::from_utf8_lossy(bytes), limit::NAME))),
            Blob(_) => Err(invalid(file, &path(column), "not a text")),
        }
    };
    let or_unknown = |column: &str| text(column).map(|t| t.unwrap_or_else(|| "not recorded".to_owned()));
    // NFPA stores some numbers as text
    let real = |column: &str| {
        let text = text(column)?.unwrap_or_default();
        let number = text.parse::<f64>().ok().filter(|x| x.is_finite() && x.abs() <= limit::COUNT as f64);
        number.ok_or_else(|| invalid(file, &path(column), &format!("{text:?}: not a number")))
    };

    let mut deviations = vec![
        "imported from NFPA: no raw trials; rates are averages of one-second readings of sender and receiver at \
         different times, so small differences between them are not loss"
            .to_owned(),
        "latency, kernel, memory, flows, burst and calibration are not in the database and set to 0 or `not \
         recorded`; frame sizes are assumed to include the FCS"
            .to_owned(),
    ];
    let mut quantities = vec![];
    for (column, name, unit) in RATES {
        for (end, which) in [("avg", ""), ("min", ", min"), ("max", ", max")] {
            let column = format!("{column}_{end}");
            let value = real(&column)?;
            if value < 0.0 {
                deviations.push(format!("{column} was {value} (more received than sent) and is set to 0"));
            }
            quantities.push(Quantity::new(&format!("{name}{which}"), unit, value.max(0.0)));
        }
    }
    let (sent, missing) = (real("sent_pps_avg")?.max(0.0), real("miss_pps_avg")?.max(0.0));
    let traffic_name = or_unknown("traffic_name")?;
    let frames = match real("packet_size")? {
        0.0 => Frames::Trace(Trace {
            name: traffic_name.clone(),
            frames: 1,
            mean_frame_bytes: if sent > 0.0 { real("sent_bps_avg")?.max(0.0) / sent / 8.0 } else { 0.0 },
        }),
        bytes if (1.0..=65535.0).contains(&bytes) && bytes.fract() == 0.0 => Frames::FrameBytes(bytes as u16),
        bytes => return Err(invalid(file, &path("packet_size"), &format!("{bytes}: not 0 to 65535 bytes"))),
    };
    if let Frames::Trace(_) = frames {
        deviations.push(
            "the number of frames in the trace is not recorded and set to 1; their mean size is sent bits / sent \
             packets"
                .to_owned(),
        );
    }
    let (duration, repetitions) = (real("duration")?.max(0.0), real("repetitions")?.max(0.0));
    let both = real("both")
        .map_or_else(|_| text("both").map(|t| t.is_some_and(|t| t.eq_ignore_ascii_case("true"))), |n| Ok(n != 0.0))?;
    let mut cell = BTreeMap::from([
        ("traffic".to_owned(), traffic_name),
        ("virtualization".to_owned(), or_unknown("virtual")?),
        ("cores".to_owned(), or_unknown("used_cpu_cores")?),
    ]);
    cell.extend(text("vnf_driver")?.map(|driver| ("driver".to_owned(), driver)));
    let mut extra = BTreeMap::from([("NFPA measurement".to_owned(), number.to_string())]);
    if let Some(reverse) = text("bidir_twin_id")? {
        extra.insert("NFPA measurement of the other direction".to_owned(), reverse);
    }
    let nic = truncate(&format!("{} {}", or_unknown("nic_make")?, or_unknown("nic_model")?), limit::NAME);
    let function = or_unknown("vnf_function")?;
    let driver = format!("{} {}", or_unknown("vnf_driver")?, or_unknown("vnf_driver_version")?);
    Ok(Result {
        schema: Version::V2,
        id: String::new(),
        tool: Tool { name: "nfpa".to_owned(), version: "not recorded".to_owned(), command: None },
        study: truncate(&format!("nfpa/{}", or_unknown("name")?), limit::NAME),
        cell,
        method: Method { name: "forwarding rate".to_owned(), standard: None, quick: false },
        dut: Dut {
            kind: or_unknown("vnf_name")?,
            version: text("vnf_version")?,
            nfs: vec![NfInstance { name: function.clone(), kind: function }],
            ports: vec![Port { name: "nic".to_owned(), device: nic, driver: Some(truncate(&driver, limit::NAME)) }],
            ..Dut::default()
        },
        traffic: Traffic {
            frames,
            flows: 0,
            protocol: "not recorded".to_owned(),
            burst: 0,
            directions: if both { 2 } else { 1 },
            trace_sha256: None,
            reverse_trace_sha256: None,
            vary: vec![],
            tcp: None,
            profile: None,
            seed: None,
        },
        goal: Goal {
            trial_duration_s: duration,
            duration_sum_s: duration * repetitions,
            loss_ratio: 1.0,
            search: "one load".to_owned(),
            ..Goal::default()
        },
        environment: Environment {
            date: date(real("ts")?).ok_or_else(|| invalid(file, &path("ts"), "not a date"))?,
            cpu: truncate(&format!("{} {}", or_unknown("cpu_make")?, or_unknown("cpu_model")?), limit::NAME),
            kernel: "not recorded".to_owned(),
            memory: "not recorded".to_owned(),
            extra,
            ..Environment::default()
        },
        calibration: None,
        limited_by: if missing > 0.0 { LimitedBy::Dut } else { LimitedBy::MaxLoad },
        deviations,
        trials: vec![],
        summary: Summary::default(),
        latency: vec![],
        anatomy: vec![],
        quantities,
        series: vec![],
        streams: vec![],
        nodes: vec![],
    })
}

/// Converts seconds since 1970, or a Julian day, as in the views of NFPA.
fn date(ts: f64) -> Option<String> {
    let seconds = if (1e6..1e7).contains(&ts) { (ts - 2_440_587.5) * 86_400.0 } else { ts };
    report::rfc3339(seconds.round() as i64)
}
