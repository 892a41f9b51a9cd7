//! Findings of published studies beside the values measured here.

use crate::Result;

/// A scenario that repeats measurements of a study.
#[derive(Clone, Debug, Default)]
pub struct Reproduction {
    /// Name: `netbricks/fig1`.
    pub name: String,
    /// Title.
    pub title: String,
    /// Figure or table of the study.
    pub figure: Option<String>,
    /// Title and venue of the study.
    pub study: Option<String>,
    /// Facts about the test environments: name, in the study, here.
    pub environment: Vec<[String; 3]>,
    /// Findings.
    pub findings: Vec<Finding>,
    /// Results that were measured.
    pub results: Vec<Result>,
}

/// A claim and the verdict on it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Identifiers and texts of the published results.
    pub results: Vec<(String, String)>,
    /// Claim.
    pub claim: String,
    /// Published result, or ratio of two, as the claim is about it.
    pub published: String,
    /// Measured values.
    pub measured: Option<String>,
    /// Verdict.
    pub verdict: Verdict,
    /// Bounds of the measured values, or the reason why there is no verdict.
    pub reason: String,
    /// Notes for readers of the verdict.
    pub notes: Vec<String>,
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every measured value is within the bounds.
    Reproduced,
    /// A measured value is out of bounds.
    Contradicted,
    /// The claim cannot be tested on this machine.
    NotTestable,
}

/// Counts findings by verdict: `4 claims: 3 reproduced, 1 contradicted`.
pub fn verdict_counts<'a>(findings: impl Iterator<Item = &'a Finding> + Clone) -> String {
    let count = |verdict: Verdict| (findings.clone().filter(|finding| finding.verdict == verdict).count(), verdict);
    let counts = Verdict::ALL.map(count);
    let parts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, verdict)| format!("{n} {}", verdict.name()));
    let parts: Vec<String> = parts.collect();
    match findings.count() {
        0 => "no claims".to_owned(),
        1 => format!("1 claim: {}", parts.join(", ")),
        n => format!("{n} claims: {}", parts.join(", ")),
    }
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 3] = [Verdict::Reproduced, Verdict::Contradicted, Verdict::NotTestable];

    /// Returns its name: `reproduced`, `contradicted`, `not testable here`.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Contradicted => "contradicted",
            Verdict::NotTestable => "not testable here",
        }
    }
}
