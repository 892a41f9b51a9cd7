//! The report of a reproduction: the verdicts on the findings of studies, with tables and figures of each scenario.

use super::element::{Element, el};
use super::{Measurements, document, footer, measurements, origin, tables};
use crate::Result;
use crate::render::format::NONE;
use crate::render::labels;
use crate::reproduction::{Finding, Reproduction, verdict_counts};
use std::collections::{BTreeMap, BTreeSet};
use text_table::Table;

/// Renders scenarios as an HTML page, as [`html`](crate::html) renders results: first a table of all published results
/// with their verdicts, then the findings, tables and figures of each scenario.
pub fn reproduction_html(title: &str, scenarios: &[Reproduction]) -> String {
    let results: Vec<Result> = scenarios.iter().flat_map(|scenario| scenario.results.iter().cloned()).collect();
    let counts = verdict_counts(scenarios.iter().flat_map(|scenario| &scenario.findings));
    let header = el("header").child(el("h1").text(title)).child(el("p").class("lead").text(format!("{counts}.")));
    let header = header.child(el("p").text(CONTENT));
    let mut main = el("main");
    if scenarios.len() > 1 {
        main = main.child(overview(scenarios));
    }
    for (n, scenario) in scenarios.iter().enumerate() {
        main = main.child(section(n, scenario));
    }
    document(title, el("body").child(header).child(main.children(origin(&results))).child(footer(&results)))
}

const CONTENT: &str = "\
    A claim is reproduced if all values measured here are within its bounds, and contradicted otherwise. Claims that \
    this machine cannot test have the reason. Ratios are compared with those of the study; absolute values belong to \
    the machine that they were measured on.";

/// Returns the published results of each study with the verdicts of all scenarios about them.
fn overview(scenarios: &[Reproduction]) -> Element {
    let mut out = el("section").child(el("h2").text("Published results"));
    for name in labels::distinct(scenarios.iter().map(study)) {
        let mut rows: BTreeMap<&(String, String), Vec<(usize, &Finding)>> = BTreeMap::new();
        for (n, scenario) in scenarios.iter().enumerate().filter(|(_, scenario)| study(scenario) == name) {
            for finding in &scenario.findings {
                finding.results.iter().for_each(|result| rows.entry(result).or_default().push((n, finding)));
            }
        }
        let row = |((id, text), findings): (&&(String, String), &Vec<(usize, &Finding)>)| {
            let link = |n| el("a").set("href", format_args!("#{}", anchor(n))).text(&scenarios[n].name);
            let places: BTreeSet<usize> = findings.iter().map(|(n, _)| *n).collect();
            let links = places.into_iter().fold(el("td"), |cell, n| cell.child(link(n)).text(" "));
            let verdicts = verdict_counts(findings.iter().map(|(_, finding)| *finding));
            [el("td").text(id), el("td").text(text), el("td").text(verdicts), links]
        };
        let headings = ["published result", "value or statement", "verdicts", "scenarios"];
        out = out.child(el("h3").text(&name)).child(table(&headings, rows.iter().map(row)));
    }
    out
}

/// Returns a table of texts, whose cells wrap.
fn table<const N: usize>(headings: &[&str; N], rows: impl Iterator<Item = [Element; N]>) -> Element {
    let headings = headings.map(|text| el("th").set("scope", "col").text(text));
    let table = el("table").child(el("thead").child(el("tr").children(headings)));
    tables::scrollable(table.child(el("tbody").children(rows.map(|cells| el("tr").children(cells)))))
}

fn study(scenario: &Reproduction) -> String {
    scenario.study.clone().unwrap_or_else(|| "without a study".to_owned())
}

fn anchor(n: usize) -> String {
    format!("scenario-{}", n + 1)
}

/// Returns the section of a scenario.
fn section(n: usize, scenario: &Reproduction) -> Element {
    let title = format!("{}: {}", scenario.name, scenario.title);
    let mut out = el("section").set("id", anchor(n)).child(el("h2").text(title));
    let figure = scenario.figure.as_ref().map_or(String::new(), |figure| format!(", {figure}"));
    out = out.children(scenario.study.iter().map(|study| el("p").class("muted").text(format!("{study}{figure}"))));
    let row = |finding: &Finding| {
        let reasons = [finding.reason.as_str()].into_iter().chain(finding.notes.iter().map(String::as_str));
        [
            el("td").text(&finding.claim),
            el("td").text(&finding.published),
            el("td").text(finding.measured.as_deref().unwrap_or(NONE)),
            el("td").class(finding.verdict.name().replace(' ', "-")).text(finding.verdict.name()),
            el("td").text(reasons.collect::<Vec<_>>().join("; ")),
        ]
    };
    if !scenario.findings.is_empty() {
        let headings = ["claim", "published", "measured", "verdict", "bounds, reason and notes"];
        out = out.child(table(&headings, scenario.findings.iter().map(row)));
    }
    let mut environment = Table::new(&["environment", "study", "here"]);
    scenario.environment.iter().for_each(|facts| environment.row(facts.clone()));
    out = out.child(tables::details("Test environments", [tables::element(&environment, "")]));
    if scenario.results.is_empty() {
        return out.child(el("p").text("Nothing was measured."));
    }
    let Measurements { main, further } = measurements(&scenario.results);
    let further = tables::details("Further figures and tables", further);
    out.children(main.into_iter().chain([further]).map(|element| element.into_part_of(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduction::Verdict;

    fn finding(id: &str, verdict: Verdict) -> Finding {
        Finding {
            results: vec![(id.to_owned(), "5 Mpps".to_owned())],
            claim: format!("<{id}>"),
            published: "5 Mpps".to_owned(),
            measured: None,
            verdict,
            reason: "1.000 or more".to_owned(),
            notes: vec![],
        }
    }

    #[test]
    fn a_result_has_the_verdicts_of_all_scenarios_about_it() {
        let scenario = |name: &str, findings| Reproduction {
            name: name.to_owned(),
            study: Some("Study (1999)".to_owned()),
            findings,
            ..Reproduction::default()
        };
        let scenarios = [
            scenario("a/one", vec![finding("x", Verdict::Reproduced), finding("y", Verdict::NotTestable)]),
            scenario("a/two", vec![finding("x", Verdict::Contradicted)]),
        ];
        let page = reproduction_html("studies", &scenarios);
        for words in [
            "3 claims: 1 reproduced, 1 contradicted, 1 not testable here.",
            "<td>x</td><td>5 Mpps</td><td>2 claims: 1 reproduced, 1 contradicted</td>",
            "<a href=\"#scenario-1\">a/one</a> <a href=\"#scenario-2\">a/two</a>",
            "<td class=\"not-testable-here\">not testable here</td>",
            "&lt;x&gt;",
            "Nothing was measured.",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        let one = reproduction_html("study", &scenarios[..1]);
        assert!(!one.contains("Published results"), "{one}");
    }
}
