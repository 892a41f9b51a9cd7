//! Which results are meant.

use super::wrong;
use results::{Entry, Filter, Store};

/// The results that a text names, the newest first: a filter, a tag, or the beginning of an id.
///
/// # Errors
/// When it names none, or could mean several things.
pub(crate) fn pick(store: &Store, text: &str) -> anyhow::Result<Vec<Entry>> {
    let found = if text.contains('=') {
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
                return Err(wrong(format_args!(
                    "{text}: a tag, and the beginning of an id; say tag={text} or id={text}"
                )));
            }
            (true, n) => {
                let ids: Vec<&str> = by_id.iter().take(8).map(|e| e.id.get(..16).unwrap_or(&e.id)).collect();
                let more = if n > 8 { " and more" } else { "" };
                return Err(wrong(format_args!(
                    "{text}: the beginning of several ids: {}{more}; write more of it, or id={text} for all",
                    ids.join(", ")
                )));
            }
        }
    };
    if found.is_empty() {
        return Err(wrong(format_args!(
            "{text}: no result of {} is named so; `bondstone results list` shows those there are",
            store.place()
        )));
    }
    Ok(found)
}

/// The results that any of several texts name, each once, in the order named.
pub(crate) fn pick_all(store: &Store, texts: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut out: Vec<Entry> = vec![];
    let mut seen = std::collections::HashSet::new();
    for text in texts {
        out.extend(pick(store, text)?.into_iter().filter(|e| seen.insert(e.id.clone())));
    }
    Ok(out)
}

/// These results whole, the oldest first.
pub(crate) fn whole(store: &Store, entries: &[Entry]) -> anyhow::Result<Vec<report::Result>> {
    let mut out = vec![];
    for entry in entries {
        out.extend(store.get(&entry.id)?);
    }
    out.sort_by_key(|r| r.environment.unix_seconds());
    Ok(out)
}
