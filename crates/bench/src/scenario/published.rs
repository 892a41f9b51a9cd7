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
    /// A number, in `unit`.
    pub value: Option<f64>,
    /// Of the number.
    pub unit: Option<String>,
    /// Under which the number holds.
    pub conditions: Option<String>,
    /// A finding without a number.
    pub statement: Option<String>,
    /// Whether it exists as an image only.
    pub image: bool,
}

/// A published result, or one divided by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Id of the result.
    pub id: String,
    /// Id of what it is divided by.
    pub over: Option<String>,
}

impl Published {
    /// It for people: `23.3 Mpps`, or what was found.
    pub fn words(&self) -> String {
        match (self.value, &self.statement) {
            (Some(value), _) => format!("{value} {}", self.unit.as_deref().unwrap_or_default()).trim_end().to_owned(),
            (None, Some(statement)) => statement.clone(),
            (None, None) => "not published as numbers".to_owned(),
        }
    }
}

impl Reference {
    /// Reads `ID` or `ID / ID`.
    pub(super) fn new(text: &str) -> Reference {
        match text.split_once('/') {
            Some((id, over)) => Reference { id: id.trim().to_owned(), over: Some(over.trim().to_owned()) },
            None => Reference { id: text.trim().to_owned(), over: None },
        }
    }

    /// The ratio, if it is one of two numbers of the same unit.
    pub fn ratio(&self, all: &[Published]) -> Option<f64> {
        let find = |id: &str| all.iter().find(|p| p.id == id);
        let (a, b) = (find(&self.id)?, find(self.over.as_ref()?)?);
        let ratio = a.value? / b.value?;
        (a.unit == b.unit && ratio.is_finite()).then_some(ratio)
    }

    /// It for people: `0.872 (15.73 / 18.03 Mpps)`.
    pub fn words(&self, all: &[Published]) -> String {
        let find = |id: &str| all.iter().find(|p| p.id == id);
        match (self.ratio(all), find(&self.id), self.over.as_ref().and_then(|id| find(id))) {
            (Some(ratio), Some(Published { value: Some(a), .. }), Some(b)) => {
                format!("{ratio:.3} ({a} / {})", b.words())
            }
            (_, Some(a), _) => a.words(),
            _ => self.id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Published> {
        let of = |id: &str, value: Option<f64>, unit: &str| Published {
            id: id.to_owned(),
            figure: None,
            table: None,
            value,
            unit: value.map(|_| unit.to_owned()),
            conditions: None,
            statement: None,
            image: value.is_none(),
        };
        vec![of("a", Some(15.73), "Mpps"), of("b", Some(18.03), "Mpps"), of("c", Some(3.0), "us"), of("d", None, "")]
    }

    #[test]
    fn ratios_are_of_two_numbers_of_one_unit() {
        let ratio = |text| Reference::new(text).ratio(&all());
        assert!((ratio("a / b").unwrap() - 0.8724).abs() < 1e-4);
        assert_eq!([ratio("a"), ratio("a/c"), ratio("a/d"), ratio("a/nobody")], [None; 4]);
    }

    #[test]
    fn in_words() {
        let words = |text| Reference::new(text).words(&all());
        assert_eq!(words("a / b"), "0.872 (15.73 / 18.03 Mpps)");
        assert_eq!(words("c"), "3 us");
        assert_eq!(words("d"), "not published as numbers");
    }
}
