//! Comparing results: conditions, metrics, thresholds, ratios, trends.

pub mod change_points;
pub mod compare;
pub mod conditions;
pub mod metric;
pub mod stats;
pub mod threshold;
pub mod trend;
