//! Reads the values of a file one by one, so that an invalid value does not hide the errors of others.

use crate::source::{MAX_ERRORS, Source, known_word, nearest};
use diagnostics::Diagnostic;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

/// Reads values of a file and collects the errors.
pub struct Reader<'a> {
    /// The file.
    pub source: Source<'a>,
    /// Errors so far, at most [`MAX_ERRORS`].
    pub errors: &'a mut Vec<Diagnostic>,
}

impl Reader<'_> {
    /// Records an error.
    pub fn error(&mut self, span: Range<usize>, d: Diagnostic) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(self.source.locate(span, d));
        }
    }

    /// Deserializes a value without its invalid entries, each of which is an error. Returns `None` if it cannot be
    /// deserialized without them.
    pub fn value<'i, T: Deserialize<'i>>(&mut self, value: Spanned<DeValue<'i>>) -> Option<T> {
        self.value_with(value, |value| T::deserialize(value.into_deserializer()))
    }

    /// As [`Reader::value`], with a function that deserializes.
    pub fn value_with<'i, T>(
        &mut self,
        mut value: Spanned<DeValue<'i>>,
        parse: impl Fn(Spanned<DeValue<'i>>) -> Result<T, Error>,
    ) -> Option<T> {
        // keys that are removed, or were meant by a misspelt key
        let mut excused: Vec<String> = vec![];
        loop {
            let e = match parse(value.clone()) {
                Ok(parsed) => return Some(parsed),
                Err(e) => e,
            };
            let missing = missing_field(&e);
            if !missing.is_some_and(|field| excused.iter().any(|key| key == field)) && self.errors.len() < MAX_ERRORS {
                self.errors.push(self.source.toml_error(&e));
            }
            if self.errors.len() >= MAX_ERRORS {
                return None;
            }
            excused.extend(misspelt(&e));
            let span = e.span()?;
            if span == value.span() {
                return None;
            }
            excused.extend(remove(value.get_mut(), &span)?);
        }
    }

    /// Deserializes the elements of an array; `remedy` describes one for values that are no array.
    pub fn list<'i, T: Deserialize<'i>>(
        &mut self,
        key: &str,
        value: Option<Spanned<DeValue<'i>>>,
        remedy: &str,
    ) -> Vec<Spanned<T>> {
        let Some(value) = value else { return vec![] };
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(all) => {
                let one = |value: Spanned<DeValue<'i>>| {
                    let span = value.span();
                    Some(Spanned::new(span, self.value(value)?))
                };
                all.into_iter().filter_map(one).collect()
            }
            _ => {
                self.wrong_type(key, span, remedy);
                vec![]
            }
        }
    }

    /// Deserializes the values of a table; `remedy` describes one for values that are no table. Returns the values, and
    /// the names of those with errors.
    pub fn table<'i, T: Deserialize<'i>>(
        &mut self,
        key: &str,
        value: Option<Spanned<DeValue<'i>>>,
        remedy: &str,
    ) -> (BTreeMap<Spanned<String>, T>, BTreeSet<String>) {
        let (mut values, mut invalid) = Default::default();
        let Some(value) = value else { return (values, invalid) };
        let span = value.span();
        let DeValue::Table(all) = value.into_inner() else {
            self.wrong_type(key, span, remedy);
            return (values, invalid);
        };
        for (name, value) in all {
            let (before, name) = (self.errors.len(), Spanned::new(name.span(), name.into_inner().into_owned()));
            let value = self.value(value);
            if self.errors.len() != before {
                invalid.insert(name.get_ref().clone());
            }
            values.extend(value.map(|value| (name, value)));
        }
        (values, invalid)
    }

    /// Returns true if a table has a key, or one that is probably meant to be it.
    pub fn has_or_misspells(table: &DeTable<'_>, key: &str) -> bool {
        table.contains_key(key) || table.keys().any(|other| nearest(other.get_ref(), [key].into_iter()).is_some())
    }

    /// Reports keys that are left in a table of which all `known` keys were taken.
    pub fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[&str]) {
        for key in table.keys() {
            let d = Diagnostic::new(format!("unknown key `{}`", key.get_ref())).value(key.get_ref());
            let d = d.remedy(known_word(key.get_ref(), known));
            self.error(key.span(), d);
        }
    }

    fn wrong_type(&mut self, key: &str, span: Range<usize>, remedy: &str) {
        let written = self.source.text.get(span.clone()).unwrap_or(key).to_owned();
        self.error(span, Diagnostic::new(format!("{key} has the wrong type")).value(written).remedy(remedy));
    }
}

/// Returns the field whose absence is an error.
fn missing_field(e: &Error) -> Option<&str> {
    Some(e.message().strip_prefix("missing field ")?.trim_matches('`'))
}

/// Returns the field that an unknown one is probably meant to be.
fn misspelt(e: &Error) -> Option<String> {
    let mut words = e.message().strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let wrong = words.next()?;
    nearest(wrong, words).map(str::to_owned)
}

/// Removes the entry whose key or value is at `span`; returns its key, and `None` if there is no such entry. An
/// element of an array has no key.
fn remove(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<Option<String>> {
    match value {
        DeValue::Table(table) => {
            let is_at =
                |(key, value): &(&Spanned<_>, &Spanned<DeValue<'_>>)| key.span() == *span || value.span() == *span;
            if let Some(key) = table.iter().find(is_at).map(|(key, _)| key.get_ref().to_string()) {
                table.remove(key.as_str());
                return Some(Some(key));
            }
            table.iter_mut().find_map(|(_, value)| remove(value.get_mut(), span))
        }
        DeValue::Array(array) => {
            if array.iter().any(|value| value.span() == *span) {
                let all = std::mem::replace(array, [].into_iter().collect());
                *array = all.into_iter().filter(|value| value.span() != *span).collect();
                return Some(None);
            }
            array.iter_mut().find_map(|value| remove(value.get_mut(), span))
        }
        _ => None,
    }
}
