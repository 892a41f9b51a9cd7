//! Results arranged for figures: a series for each DUT, a category for each frame size.

use crate::render::labels;
use crate::{Frames, Result};
use std::collections::{BTreeSet, HashMap};

/// Results by series and category.
pub(crate) struct Grid<'a> {
    /// Label of the category axis.
    pub(crate) axis: String,
    /// True if categories are values of a parameter; otherwise they are frame sizes.
    pub(crate) is_parameter: bool,
    /// Categories, sorted.
    pub(crate) categories: Vec<Category>,
    /// Names of series, in order of first appearance.
    pub(crate) series: Vec<String>,
    /// Results with the indices of series and category; each pair is unique.
    pub(crate) cells: Vec<(usize, usize, &'a Result)>,
}

/// A category of the axis.
pub(crate) struct Category {
    /// Label on the axis, without the name of the axis.
    pub(crate) label: String,
    /// Full name.
    pub(crate) name: String,
    /// Line rate of 10-Gigabit Ethernet, frames per second, if equal for all results of the category.
    pub(crate) line_pps: Option<f64>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(results: &'a [Result]) -> Self {
        let labeler = labels::Labeler::new(results);
        let sizes = results.iter().map(|r| r.traffic.frames.label()).collect::<BTreeSet<_>>().len();
        // with a single frame size, the axis is the parameter with the most values
        let parameter = labeler.varying.iter().filter(|_| sizes < 2).max_by_key(|(_, n)| *n).map(|(name, _)| *name);
        let key = |r: &Result| match parameter {
            Some(name) => r.cell.get(name).cloned().unwrap_or_default(),
            None => r.traffic.frames.label(),
        };
        // sizes before mixes
        let order = |r: &Result| match (parameter, &r.traffic.frames) {
            (Some(_), _) => key(r).parse().ok().filter(|x: &f64| x.is_finite()).unwrap_or(f64::MAX),
            (None, Frames::FrameBytes(bytes)) => f64::from(*bytes),
            (None, frames) => f64::from(u16::MAX) + frames.mean_bytes(),
        };
        let name = |r: &Result| match (parameter, &r.traffic.frames) {
            (Some(name), _) => format!("{name} {}", key(r)),
            (None, Frames::FrameBytes(bytes)) => format!("{bytes} B"),
            (None, frames) => frames.label(),
        };
        let mut keys: Vec<(f64, String, &Result)> = results.iter().map(|r| (order(r), key(r), r)).collect();
        keys.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        let mut categories: Vec<Category> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        for (_, label, r) in keys {
            let line_pps = Some(r.traffic.line_pps()).filter(|l| l.is_finite());
            let i = *index.entry(label.clone()).or_insert_with(|| {
                categories.push(Category { label, name: name(r), line_pps });
                categories.len() - 1
            });
            if categories[i].line_pps != line_pps {
                categories[i].line_pps = None;
            }
        }
        let mut series: Vec<String> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut used: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut cells = Vec::new();
        for r in results {
            let name = labeler.label(r, parameter);
            let category = index[&key(r)];
            let mut repeat = 1;
            let number = loop {
                let name = if repeat == 1 { name.clone() } else { format!("{name} #{repeat}") };
                let number = *numbers.entry(name.clone()).or_insert_with(|| {
                    series.push(name);
                    series.len() - 1
                });
                if used.insert((number, category)) {
                    break number;
                }
                repeat += 1;
            };
            cells.push((number, category, r));
        }
        let axis = parameter.map_or("frame size (bytes, with FCS)".to_owned(), |name| name.to_owned());
        Grid { axis, is_parameter: parameter.is_some(), categories, series, cells }
    }

    /// Returns the results in the order of series and categories, with the names of both; that of the series only if
    /// there are several.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Option<String>, &str, &'a Result)> {
        let mut rows = self.cells.clone();
        rows.sort_by_key(|&(series, category, _)| (series, category));
        let group = |series: usize| (self.series.len() > 1).then(|| self.series[series].clone());
        rows.into_iter().map(move |(series, category, r)| (group(series), &*self.categories[category].name, r))
    }
}
