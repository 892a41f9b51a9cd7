//! What a study says.

/// A number or a finding of a study, or a curve that exists as an image only.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Its name.
    pub id: String,
    /// The study's figure, or where else it says so.
    pub figure: Option<String>,
    /// The study's table.
    pub table: Option<String>,
    /// Numbers in `unit`: one without a name, those of a list by their place in it, or those of a table by what they are at.
    pub values: Vec<(String, f64)>,
    /// What the names of the numbers are values of, such as `CPU GHz`.
    pub x: Option<String>,
    /// Of the numbers.
    pub unit: Option<String>,
    /// Under which they hold.
    pub conditions: Option<String>,
    /// A finding without a number.
    pub statement: Option<String>,
    /// Whether it exists as an image only.
    pub image: bool,
}

/// A published result, or one divided by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The result.
    pub of: Part,
    /// What it is divided by.
    pub over: Option<Part>,
}

/// A published result, or one of its numbers: `ID` or `ID[NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Id of the result.
    pub id: String,
    /// Which of its numbers.
    pub at: Option<String>,
}

impl Published {
    /// Its number, or that of a name.
    pub fn value(&self, at: Option<&str>) -> Option<f64> {
        self.values.iter().find(|(name, _)| name == at.unwrap_or_default()).map(|(_, value)| *value)
    }

    /// It for people: `23.3 Mpps`, `4.31 Mpps at 1.2, 5.73 at 1.6`, or what was found.
    pub fn words(&self) -> String {
        let unit = self.unit.as_deref().unwrap_or_default();
        match (&self.values[..], &self.statement) {
            ([], Some(statement)) => statement.clone(),
            ([], None) => "not published as numbers".to_owned(),
            (all, _) => {
                let at = |name: &str| if self.x.is_some() { format!(" at {name}") } else { String::new() };
                let words: Vec<_> = all.iter().map(|(name, value)| format!("{value}{}", at(name))).collect();
                let x = self.x.as_ref().map_or(String::new(), |x| format!(" of {x}"));
                format!("{} {unit}{x}", words.join(", ")).trim_end().to_owned()
            }
        }
    }
}

impl Part {
    fn new(text: &str) -> Part {
        let text = text.trim();
        match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((id, at)) => Part { id: id.to_owned(), at: Some(at.to_owned()) },
            None => Part { id: text.to_owned(), at: None },
        }
    }

    fn find<'a>(&self, all: &'a [Published]) -> Option<&'a Published> {
        all.iter().find(|p| p.id == self.id)
    }

    /// Whether it is there: the result, and the number if it names one.
    pub(super) fn is_in(&self, all: &[Published]) -> bool {
        self.find(all).is_some_and(|p| self.at.is_none() || p.value(self.at.as_deref()).is_some())
    }

    fn value(&self, all: &[Published]) -> Option<f64> {
        self.find(all)?.value(self.at.as_deref())
    }

    fn words(&self, all: &[Published]) -> String {
        match (self.value(all), self.find(all)) {
            (Some(value), Some(p)) => {
                format!("{value} {}", p.unit.as_deref().unwrap_or_default()).trim_end().to_owned()
            }
            (None, Some(p)) => p.words(),
            (_, None) => self.id.clone(),
        }
    }
}

impl Reference {
    /// Reads `ID` or `ID / ID`, each with `[NAME]` behind it for one of several numbers.
    pub(super) fn new(text: &str) -> Reference {
        match text.split_once('/') {
            Some((of, over)) => Reference { of: Part::new(of), over: Some(Part::new(over)) },
            None => Reference { of: Part::new(text), over: None },
        }
    }

    /// The results that it names.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.of].into_iter().chain(&self.over)
    }

    /// The ratio, if it is one of two numbers of the same unit.
    pub fn ratio(&self, all: &[Published]) -> Option<f64> {
        let over = self.over.as_ref()?;
        let ratio = self.of.value(all)? / over.value(all)?;
        (self.of.find(all)?.unit == over.find(all)?.unit && ratio.is_finite()).then_some(ratio)
    }

    /// It for people: `0.872 (15.73 / 18.03 Mpps)`.
    pub fn words(&self, all: &[Published]) -> String {
        match (self.ratio(all), self.of.value(all), &self.over) {
            (Some(ratio), Some(of), Some(over)) => format!("{ratio:.3} ({of} / {})", over.words(all)),
            _ => self.of.words(all),
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
    fn ratios_are_of_two_numbers_of_one_unit() {
        let ratio = |text| Reference::new(text).ratio(&all());
        assert!((ratio("a / b").unwrap() - 0.8724).abs() < 1e-4);
        assert_eq!([ratio("list[1] / list[0]"), ratio("table[2.4]/table[1.2]")], [Some(0.8), Some(2.0)]);
        assert_eq!([ratio("a"), ratio("a/c"), ratio("a/d"), ratio("a/nobody"), ratio("list/list[0]")], [None; 5]);
        assert!(Part::new("list[1]").is_in(&all()) && !Part::new("list[2]").is_in(&all()));
    }

    #[test]
    fn in_words() {
        let words = |text| Reference::new(text).words(&all());
        assert_eq!(words("a / b"), "0.872 (15.73 / 18.03 Mpps)");
        assert_eq!(words("list[1] / list[0]"), "0.800 (8 / 10 Mpps)");
        assert_eq!(words("c"), "3 us");
        assert_eq!(words("d"), "not published as numbers");
        assert_eq!(words("list"), "10, 8 Mpps");
        assert_eq!(words("table"), "4 at 1.2, 8 at 2.4 Mpps of CPU GHz");
    }
}
