//! Results of `native-bench`.

use super::{Metric, Observation};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The part of the file that is used.
#[derive(Deserialize)]
struct Output {
    nfs: Vec<Row>,
}

/// The part of a row that is used.
#[derive(Deserialize)]
struct Row {
    nf: String,
    source: String,
    flows: u64,
    frame: u64,
    cells: Option<u32>,
    ratio: f64,
    ratio_lower: f64,
    ratio_upper: f64,
}

/// Parses the JSON output of `native-bench`. Its ratios are cycles per packet of Bondstone divided by those of C.
///
/// # Errors
/// If the text is invalid or a ratio is not above zero.
pub fn parse_native_bench(json: &str) -> Result<Vec<Observation>, String> {
    let Output { nfs: rows } = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let observation = |row: Row| {
        let mut labels = BTreeMap::from([
            ("nf".to_owned(), row.nf),
            ("source".to_owned(), row.source),
            ("flows".to_owned(), row.flows.to_string()),
            ("frame".to_owned(), row.frame.to_string()),
        ]);
        labels.extend(row.cells.map(|n| ("cells".to_owned(), n.to_string())));
        let bounds = Some((1.0 / row.ratio_upper, 1.0 / row.ratio_lower));
        Observation { metric: Metric::SpeedOverC, labels, value: 1.0 / row.ratio, bounds }
    };
    if rows.iter().any(|r| !(r.ratio > 0.0 && r.ratio_lower > 0.0 && r.ratio_upper.is_finite())) {
        return Err("a ratio is not above zero".to_owned());
    }
    Ok(rows.into_iter().map(observation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{ "nfs": [{ "nf": "cells", "source": "ring", "flows": 512, "frame": 64, "cells": 4,
        "bondstone": { "p05": 9.0, "median": 10.0 }, "native": { "p05": 7.0, "median": 8.0 },
        "ratio": 1.25, "ratio_lower": 1.0, "ratio_upper": 1.6 }], "slopes": [], "components": [] }"#;

    #[test]
    fn speed_is_the_inverse_of_the_ratio_of_cycles() {
        let all = parse_native_bench(ROW).unwrap();
        assert_eq!((all.len(), all[0].value, all[0].bounds), (1, 0.8, Some((0.625, 1.0))));
        assert_eq!((&*all[0].labels["cells"], &*all[0].labels["source"]), ("4", "ring"));
    }

    #[test]
    fn rejects_invalid_output() {
        assert!(parse_native_bench(r#"{ "nfs": [{}] }"#).unwrap_err().contains("missing field"));
        assert!(parse_native_bench(&ROW.replace("\"ratio\": 1.25", "\"ratio\": 0")).is_err());
    }
}
