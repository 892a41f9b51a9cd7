//! Syntax of a scenario file. Values that are checked later carry their location.

use config::Reader;
use diagnostics::Diagnostic;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use toml::de::DeTable;
use toml::{Spanned, Value};

/// A number, a string, or a list of them.
pub(super) type Any = Spanned<Value>;
/// Label values to select.
pub(super) type Where = BTreeMap<Spanned<String>, Any>;

#[derive(Default)]
pub(super) struct File {
    pub(super) bondstone: Option<Spanned<i64>>,
    pub(super) scenario: ScenarioHeader,
    pub(super) dut: Duts,
    pub(super) traffic: Traffic,
    pub(super) generator: Generator,
    pub(super) goal: Goal,
    pub(super) matrix: BTreeMap<Spanned<String>, Any>,
    pub(super) native: Option<Native>,
    pub(super) quick: Where,
    pub(super) published: Vec<Spanned<Published>>,
    pub(super) claim: Vec<Spanned<Claim>>,
}

/// Tables with errors, which may cause further ones.
#[derive(Default)]
pub(super) struct Invalid {
    pub(super) version: bool,
    pub(super) dut: bool,
    pub(super) traffic: bool,
    pub(super) goal: bool,
    pub(super) matrix: bool,
    pub(super) published: bool,
    pub(super) claims: bool,
}

impl File {
    /// Reads a file. Invalid values are left out.
    pub(super) fn read(mut table: DeTable<'_>, reader: &mut Reader<'_>) -> (File, Invalid) {
        const KEYS: [&str; 11] = [
            "bondstone",
            "scenario",
            "dut",
            "traffic",
            "generator",
            "goal",
            "matrix",
            "native",
            "quick",
            "published",
            "claim",
        ];
        fn take<'i, T: Deserialize<'i>>(
            table: &mut DeTable<'i>,
            key: &str,
            reader: &mut Reader<'_>,
        ) -> (Option<T>, bool) {
            let before = reader.errors.len();
            let value = table.remove(key).and_then(|value| reader.value(value));
            (value, reader.errors.len() != before)
        }
        let misspelt = !table.contains_key("bondstone") && Reader::has_or_misspells(&table, "bondstone");
        if !Reader::has_or_misspells(&table, "scenario") {
            reader.error(0..0, Diagnostic::new("`scenario` is missing").value("scenario").remedy("add [scenario]"));
        }
        if !Reader::has_or_misspells(&table, "dut") {
            reader.error(0..0, Diagnostic::new("`dut` is missing").value("dut").remedy("add [dut]"));
        }
        let ((bondstone, version), (scenario, _)) =
            (take(&mut table, "bondstone", reader), take(&mut table, "scenario", reader));
        let ((dut, invalid_dut), (traffic, invalid_traffic)) =
            (take::<Duts>(&mut table, "dut", reader), take(&mut table, "traffic", reader));
        let ((generator, _), (goal, invalid_goal)) =
            (take(&mut table, "generator", reader), take(&mut table, "goal", reader));
        let ((matrix, invalid_matrix), (native, _)) =
            (take(&mut table, "matrix", reader), take(&mut table, "native", reader));
        let (quick, _) = take(&mut table, "quick", reader);
        let before = reader.errors.len();
        let published = reader.list("published", table.remove("published"), "write [[published]]");
        let invalid_published = reader.errors.len() != before;
        let before = reader.errors.len();
        let claim = reader.list("claim", table.remove("claim"), "write [[claim]]");
        let invalid_claims = reader.errors.len() != before;
        reader.unknown_keys(&table, &KEYS);
        let invalid = Invalid {
            version: version || misspelt,
            dut: invalid_dut || dut.is_none(),
            traffic: invalid_traffic,
            goal: invalid_goal,
            matrix: invalid_matrix,
            published: invalid_published,
            claims: invalid_claims,
        };
        let file = File {
            bondstone,
            scenario: scenario.unwrap_or_default(),
            dut: dut.unwrap_or_default(),
            traffic: traffic.unwrap_or_default(),
            generator: generator.unwrap_or_default(),
            goal: goal.unwrap_or_default(),
            matrix: matrix.unwrap_or_default(),
            native,
            quick: quick.unwrap_or_default(),
            published,
            claim,
        };
        (file, invalid)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioHeader {
    pub(super) title: Spanned<String>,
    pub(super) figure: Option<String>,
}

impl Default for ScenarioHeader {
    fn default() -> ScenarioHeader {
        ScenarioHeader { title: Spanned::new(0..0, String::new()), figure: None }
    }
}

/// `[dut]`, or `[[dut]]` once for each of several.
#[derive(Default)]
pub(super) struct Duts(pub(super) Vec<Dut>);

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Dut {
    pub(super) name: Option<Spanned<String>>,
    pub(super) kind: Option<Spanned<String>>,
    pub(super) chain: Option<Spanned<String>>,
    pub(super) values: BTreeMap<String, String>,
    pub(super) switch: Option<Spanned<String>>,
    pub(super) needs: Vec<Spanned<String>>,
    pub(super) simulated: Option<Spanned<String>>,
    pub(super) ports: Option<Any>,
    pub(super) cpus: Option<Spanned<Vec<usize>>>,
    pub(super) clock_mhz: Option<Any>,
    pub(super) env: Option<Spanned<String>>,
    pub(super) ssh: Option<Spanned<String>>,
    pub(super) program: Option<Spanned<String>>,
    pub(super) interfaces: Option<Spanned<Vec<String>>>,
    pub(super) forward: Option<Spanned<String>>,
    pub(super) start: Option<Spanned<String>>,
    pub(super) ready: Option<Spanned<String>>,
    pub(super) stop: Option<Spanned<String>>,
    pub(super) reset: Option<Spanned<String>>,
    pub(super) change: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for Duts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duts, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Duts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table [dut] or tables [[dut]]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Duts, A::Error> {
                Ok(Duts(vec![Dut::deserialize(MapAccessDeserializer::new(map))?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Duts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Duts)
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Traffic {
    pub(super) frames: Option<Spanned<String>>,
    pub(super) flows: Option<Any>,
    pub(super) order: Option<Spanned<String>>,
    pub(super) capture: Option<Any>,
    pub(super) rewrite: Option<Any>,
    pub(super) vlan: Option<Any>,
    pub(super) gaps: Option<Spanned<bool>>,
    pub(super) speed: Option<Spanned<f64>>,
    pub(super) trace: Option<Spanned<String>>,
    pub(super) stack: Option<Spanned<String>>,
    pub(super) vary: Option<Spanned<Vec<String>>>,
    pub(super) short: Option<Spanned<String>>,
    pub(super) tcp: Option<Spanned<String>>,
    pub(super) bidirectional: Option<Spanned<bool>>,
    pub(super) profile: Option<Spanned<String>>,
    pub(super) duration_s: Option<Spanned<u32>>,
}

impl Traffic {
    /// Returns true if the timing of a capture is kept.
    pub(super) fn keeps_gaps(&self) -> bool {
        self.capture.is_some() && (self.gaps.as_ref().is_some_and(|gaps| *gaps.get_ref()) || self.speed.is_some())
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Generator {
    pub(super) kind: Option<Spanned<String>>,
    pub(super) command: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) throughput: Option<Spanned<String>>,
    pub(super) methods: Option<Any>,
    pub(super) thoroughness: Option<Spanned<String>>,
    pub(super) search: Option<Spanned<String>>,
    pub(super) rate: Option<Any>,
    pub(super) line_rate_bps: Option<Any>,
    pub(super) soak_s: Option<Spanned<f64>>,
    pub(super) anatomy: Option<bool>,
    pub(super) repeat: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Native {
    pub(super) filter: Spanned<String>,
    pub(super) pairs: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) id: Spanned<String>,
    pub(super) figure: Option<String>,
    pub(super) table: Option<String>,
    pub(super) value: Option<Any>,
    #[serde(default)]
    pub(super) values: Where,
    pub(super) x: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) conditions: Option<String>,
    pub(super) statement: Option<String>,
    #[serde(default)]
    pub(super) image: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) text: Spanned<String>,
    pub(super) published: Spanned<String>,
    pub(super) note: Option<String>,
    pub(super) metric: Option<Spanned<String>>,
    #[serde(default, rename = "where")]
    pub(super) selection: Where,
    pub(super) divided_by: Option<Spanned<Where>>,
    pub(super) tolerance: Option<Spanned<f64>>,
    pub(super) min: Option<Spanned<f64>>,
    pub(super) max: Option<Spanned<f64>>,
    pub(super) requires: Option<Spanned<String>>,
    pub(super) not_testable: Option<Spanned<String>>,
}
