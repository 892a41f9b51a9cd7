//! Results set out for figures: a series for each device under test, a category for each frame size.

use crate::{Frames, Result, words};
use std::collections::{BTreeSet, HashMap};

/// Results by series and category.
pub(super) struct Grid<'a> {
    /// What the categories are.
    pub(super) axis: String,
    /// Whether they are values of a parameter; else they are frame sizes.
    pub(super) is_parameter: bool,
    /// In order.
    pub(super) categories: Vec<Category>,
    /// Their names, in the order of their first appearance.
    pub(super) series: Vec<String>,
    /// Each result with the numbers of its series and category; no pair twice.
    pub(super) cells: Vec<(usize, usize, &'a Result)>,
}

/// A place on the axis.
pub(super) struct Category {
    /// On the axis: what the axis says need not be said again.
    pub(super) label: String,
    /// By itself.
    pub(super) name: String,
    /// Most frames a second on 10-Gigabit Ethernet, where all results of the category agree.
    pub(super) line_pps: Option<f64>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(results: &'a [Result]) -> Self {
        let naming = words::Naming::new(results);
        let sizes = results.iter().map(|r| r.traffic.frames.label()).collect::<BTreeSet<_>>().len();
        // with one frame size for all, the axis is the parameter with the most values
        let parameter = naming.varying.iter().filter(|_| sizes < 2).max_by_key(|(_, n)| *n).map(|(name, _)| *name);
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
        let mut places: HashMap<String, usize> = HashMap::new();
        for (_, label, r) in keys {
            let line_pps = Some(r.traffic.line_pps()).filter(|l| l.is_finite());
            let place = *places.entry(label.clone()).or_insert_with(|| {
                categories.push(Category { label, name: name(r), line_pps });
                categories.len() - 1
            });
            if categories[place].line_pps != line_pps {
                categories[place].line_pps = None;
            }
        }
        let mut series: Vec<String> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut taken: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut cells = Vec::new();
        for r in results {
            let name = naming.name(r, parameter);
            let category = places[&key(r)];
            let mut repeat = 1;
            let number = loop {
                let name = if repeat == 1 { name.clone() } else { format!("{name} #{repeat}") };
                let number = *numbers.entry(name.clone()).or_insert_with(|| {
                    series.push(name);
                    series.len() - 1
                });
                if taken.insert((number, category)) {
                    break number;
                }
                repeat += 1;
            };
            cells.push((number, category, r));
        }
        let axis = parameter.map_or("frame size (bytes, with FCS)".to_owned(), |name| name.to_owned());
        Grid { axis, is_parameter: parameter.is_some(), categories, series, cells }
    }
}
