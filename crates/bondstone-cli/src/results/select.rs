//! Selection of results by id, tag or filter.

use super::input_error;
use results::{Entry, Filter, Store};

/// Returns the results that a filter, a tag or the beginning of an id selects, the newest first.
///
/// # Errors
/// If it selects none, or is ambiguous.
pub(crate) fn select(store: &Store, text: &str) -> anyhow::Result<Vec<Entry>> {
    let selected = if text.contains('=') {
        store.list(&text.parse::<Filter>()?)?
    } else {
        let tagged = store.list(&Filter { tag: Some(text.to_owned()), ..Filter::default() })?;
        let hexadecimal = !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let by_id = if hexadecimal {
            store.list(&Filter { id: Some(text.to_owned()), limit: Some(9), ..Filter::default() })?
        } else {
            vec![]
        };
        match (tagged.is_empty(), by_id.len()) {
            (true, 0 | 1) => by_id,
            (false, 0) => tagged,
            (false, _) => {
                return Err(input_error(format_args!(
                    "{text}: ambiguous: a tag and the beginning of an id; use tag={text} or id={text}"
                )));
            }
            (true, n) => {
                let ids: Vec<&str> = by_id.iter().take(8).map(|e| e.id.get(..16).unwrap_or(&e.id)).collect();
                let more = if n > 8 { " and more" } else { "" };
                return Err(input_error(format_args!(
                    "{text}: ambiguous: the beginning of several ids: {}{more}; use a longer one, or id={text} for all",
                    ids.join(", ")
                )));
            }
        }
    };
    if selected.is_empty() {
        return Err(input_error(format_args!(
            "{text}: no such result in {}; `bondstone results list` lists them",
            store.location()
        )));
    }
    Ok(selected)
}

/// Returns the results that any of several texts selects, each once, in order.
pub(crate) fn select_all(store: &Store, texts: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut out: Vec<Entry> = vec![];
    let mut ids = std::collections::HashSet::new();
    for text in texts {
        out.extend(select(store, text)?.into_iter().filter(|e| ids.insert(e.id.clone())));
    }
    Ok(out)
}

/// Loads the results of entries, the oldest first.
pub(crate) fn load(store: &Store, entries: &[Entry]) -> anyhow::Result<Vec<report::Result>> {
    let mut out = vec![];
    for entry in entries {
        out.extend(store.get(&entry.id)?);
    }
    out.sort_by_key(|r| r.environment.unix_seconds());
    Ok(out)
}
