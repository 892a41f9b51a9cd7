//! Published results of a study.

/// A published result: numbers, a statement, or a curve that was published as an image only.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Identifier.
    pub id: String,
    /// Figure of the study, or another location in it.
    pub figure: Option<String>,
    /// Table of the study.
    pub table: Option<String>,
    /// Numbers in `unit`, by name: a single number has an empty name, numbers of a list are named by their index, those
    /// of a table by the value of `x`.
    pub values: Vec<(String, f64)>,
    /// Quantity of the names of a table, such as `CPU GHz`.
    pub x: Option<String>,
    /// Unit of the numbers.
    pub unit: Option<String>,
    /// Conditions of the measurement.
    pub conditions: Option<String>,
    /// Statement without a number.
    pub statement: Option<String>,
    /// True if it was published as an image only.
    pub image: bool,
}

/// Reference to a published result or a ratio of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedReference {
    /// Result.
    pub value: PublishedValue,
    /// Divisor, for a ratio.
    pub divisor: Option<PublishedValue>,
}

/// Reference to a published result or one of its numbers: `ID` or `ID[NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedValue {
    /// Identifier of the result.
    pub id: String,
    /// Name of the number.
    pub name: Option<String>,
}

impl Published {
    /// Returns its number of a name, or its single number.
    pub fn value(&self, name: Option<&str>) -> Option<f64> {
        self.values.iter().find(|(known, _)| known == name.unwrap_or_default()).map(|(_, value)| *value)
    }

    /// Returns it as text: `23.3 Mpps`, `4.31 Mpps at 1.2, 5.73 at 1.6`, or the statement.
    pub fn text(&self) -> String {
        let unit = self.unit.as_deref().unwrap_or_default();
        match (&self.values[..], &self.statement) {
            ([], Some(statement)) => statement.clone(),
            ([], None) => "not published as numbers".to_owned(),
            (all, _) => {
                let at = |name: &str| if self.x.is_some() { format!(" at {name}") } else { String::new() };
                let numbers: Vec<_> = all.iter().map(|(name, value)| format!("{value}{}", at(name))).collect();
                let x = self.x.as_ref().map_or(String::new(), |x| format!(" of {x}"));
                format!("{} {unit}{x}", numbers.join(", ")).trim_end().to_owned()
            }
        }
    }
}

impl PublishedValue {
    fn parse(text: &str) -> PublishedValue {
        let text = text.trim();
        match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((id, name)) => PublishedValue { id: id.to_owned(), name: Some(name.to_owned()) },
            None => PublishedValue { id: text.to_owned(), name: None },
        }
    }

    fn find<'a>(&self, all: &'a [Published]) -> Option<&'a Published> {
        all.iter().find(|p| p.id == self.id)
    }

    /// Returns true if the result exists, and has a number of that name.
    pub(super) fn exists_in(&self, all: &[Published]) -> bool {
        self.find(all).is_some_and(|p| self.name.is_none() || p.value(self.name.as_deref()).is_some())
    }

    fn value(&self, all: &[Published]) -> Option<f64> {
        self.find(all)?.value(self.name.as_deref())
    }

    fn text(&self, all: &[Published]) -> String {
        match (self.value(all), self.find(all)) {
            (Some(value), Some(p)) => {
                format!("{value} {}", p.unit.as_deref().unwrap_or_default()).trim_end().to_owned()
            }
            (None, Some(p)) => p.text(),
            (_, None) => self.id.clone(),
        }
    }
}

impl PublishedReference {
    /// Parses `ID` or `ID / ID`, each followed by `[NAME]` for one of several numbers.
    pub(super) fn parse(text: &str) -> PublishedReference {
        match text.split_once('/') {
            Some((value, divisor)) => PublishedReference {
                value: PublishedValue::parse(value),
                divisor: Some(PublishedValue::parse(divisor)),
            },
            None => PublishedReference { value: PublishedValue::parse(text), divisor: None },
        }
    }

    /// Returns the results that it names.
    pub fn values(&self) -> impl Iterator<Item = &PublishedValue> {
        [&self.value].into_iter().chain(&self.divisor)
    }

    /// Returns the ratio, if it is a ratio of two numbers of the same unit.
    pub fn ratio(&self, all: &[Published]) -> Option<f64> {
        let divisor = self.divisor.as_ref()?;
        let ratio = self.value.value(all)? / divisor.value(all)?;
        (self.value.find(all)?.unit == divisor.find(all)?.unit && ratio.is_finite()).then_some(ratio)
    }

    /// Returns it as text: `0.872 (15.73 / 18.03 Mpps)`.
    pub fn text(&self, all: &[Published]) -> String {
        match (self.ratio(all), self.value.value(all), &self.divisor) {
            (Some(ratio), Some(value), Some(divisor)) => format!("{ratio:.3} ({value} / {})", divisor.text(all)),
            _ => self.value.text(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Published> {
        let of = |id: &str, values: &[(&str, f64)], unit: &str, x: Option<&str>| Published {
            id: id.to_owned(),
            figure: None,
            table: None,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            x: x.map(str::to_owned),
            unit: (!values.is_empty()).then(|| unit.to_owned()),
            conditions: None,
            statement: None,
            image: values.is_empty(),
        };
        vec![
            of("a", &[("", 15.73)], "Mpps", None),
            of("b", &[("", 18.03)], "Mpps", None),
            of("c", &[("", 3.0)], "us", None),
            of("d", &[], "", None),
            of("list", &[("0", 10.0), ("1", 8.0)], "Mpps", None),
            of("table", &[("1.2", 4.0), ("2.4", 8.0)], "Mpps", Some("CPU GHz")),
        ]
    }

    #[test]
    fn ratios_need_two_numbers_of_one_unit() {
        let ratio = |text| PublishedReference::parse(text).ratio(&all());
        assert!((ratio("a / b").unwrap() - 0.8724).abs() < 1e-4);
        assert_eq!([ratio("list[1] / list[0]"), ratio("table[2.4]/table[1.2]")], [Some(0.8), Some(2.0)]);
        assert_eq!([ratio("a"), ratio("a/c"), ratio("a/d"), ratio("a/unknown"), ratio("list/list[0]")], [None; 5]);
        assert!(
            PublishedValue::parse("list[1]").exists_in(&all()) && !PublishedValue::parse("list[2]").exists_in(&all())
        );
    }

    #[test]
    fn formats_text() {
        let text = |reference| PublishedReference::parse(reference).text(&all());
        assert_eq!(text("a / b"), "0.872 (15.73 / 18.03 Mpps)");
        assert_eq!(text("list[1] / list[0]"), "0.800 (8 / 10 Mpps)");
        assert_eq!(text("c"), "3 us");
        assert_eq!(text("d"), "not published as numbers");
        assert_eq!(text("list"), "10, 8 Mpps");
        assert_eq!(text("table"), "4 at 1.2, 8 at 2.4 Mpps of CPU GHz");
    }
}
