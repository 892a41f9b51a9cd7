//! Files that are written from a template.

/// Replaces placeholders by their values in one pass: a value may contain a placeholder.
pub(crate) fn fill(template: &str, placeholders: &[(&str, &str)]) -> String {
    let (mut out, mut rest) = (String::with_capacity(template.len()), template);
    let next = |rest: &str| {
        let found = placeholders.iter().filter_map(|&(name, value)| Some((rest.find(name)?, name.len(), value)));
        found.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, len, value)) = next(rest) {
        out.push_str(&rest[..at]);
        out.push_str(value);
        rest = &rest[at + len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn a_value_may_contain_a_placeholder() {
        let placeholders = [("@a@", "@b@"), ("@b@", "c")];
        assert_eq!(fill("@a@ @b@@", &placeholders), "@b@ c@");
    }
}
