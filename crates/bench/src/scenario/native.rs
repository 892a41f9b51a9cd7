//! Rows of `native-bench`, as it writes them.

use super::{Measure, Observation};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What is taken of the file.
#[derive(Deserialize)]
struct File {
    nfs: Vec<Row>,
}

/// What is taken of a row.
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

/// What rows say.
pub type Rows = Vec<Observation>;

/// Reads the JSON file of `native-bench`, whose ratios are of our cycles to C's.
///
/// # Errors
/// A text that is none.
pub fn rows(json: &str) -> Result<Rows, String> {
    let File { nfs: rows } = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let observation = |row: Row| {
        let mut facts = BTreeMap::from([
            ("nf".to_owned(), row.nf),
            ("source".to_owned(), row.source),
            ("flows".to_owned(), row.flows.to_string()),
            ("frame".to_owned(), row.frame.to_string()),
        ]);
        facts.extend(row.cells.map(|n| ("cells".to_owned(), n.to_string())));
        let bounds = Some((1.0 / row.ratio_upper, 1.0 / row.ratio_lower));
        Observation { measure: Measure::SpeedOverC, facts, value: 1.0 / row.ratio, bounds }
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
        "ratio": 1.25, "ratio_lower": 1.0, "ratio_upper": 1.6 }], "slopes": [], "beside": [] }"#;

    #[test]
    fn a_ratio_of_cycles_is_the_inverse_of_a_speed() {
        let all = rows(ROW).unwrap();
        assert_eq!((all.len(), all[0].value, all[0].bounds), (1, 0.8, Some((0.625, 1.0))));
        assert_eq!((&*all[0].facts["cells"], &*all[0].facts["source"]), ("4", "ring"));
    }

    #[test]
    fn what_is_none_is_refused() {
        assert!(rows(r#"{ "nfs": [{}] }"#).unwrap_err().contains("missing field"));
        assert!(rows(&ROW.replace("\"ratio\": 1.25", "\"ratio\": 0")).is_err());
    }
}
