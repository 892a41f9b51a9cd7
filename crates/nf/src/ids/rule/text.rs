//! Splitting of rule text.

/// Splits at a separator outside brackets.
pub(super) fn split_list(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0u32, 0, vec![]);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts
}

/// Splits a rule's header into words; brackets may contain spaces.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let (mut depth, mut words, mut word) = (0u32, vec![], String::new());
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            c if c.is_whitespace() => {
                if depth == 0 && !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Splits options at semicolons that are neither escaped nor quoted.
pub(super) fn split_options(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let (mut options, mut part, mut quoted, mut escaped) = (vec![], String::new(), false, false);
    for c in text.chars() {
        if escaped {
            part.push(c);
            escaped = false;
            continue;
        }
        match c {
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => {
                let whole = std::mem::take(&mut part);
                let whole = whole.trim();
                if !whole.is_empty() {
                    let (name, value) = match whole.split_once(':') {
                        Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
                        None => (whole, None),
                    };
                    options.push((name.to_ascii_lowercase(), value));
                }
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    if quoted {
        return Err("a quotation mark is not closed".into());
    }
    if part.trim().is_empty() { Ok(options) } else { Err(format!("{}: no semicolon follows the option", part.trim())) }
}

/// Removes a negation and quotation marks.
pub(super) fn unquote(value: &str) -> Result<(bool, &str), String> {
    let value = value.trim();
    let (negated, rest) = match value.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, value),
    };
    match rest.strip_prefix('"') {
        Some(inner) => Ok((negated, inner.strip_suffix('"').ok_or("a quotation mark is not closed")?)),
        None => Ok((negated, rest)),
    }
}
