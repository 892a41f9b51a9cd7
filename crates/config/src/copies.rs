//! Like parts of a file: list elements and named tables that contain `${copy}` are repeated.

use crate::reader::Reader;
use diagnostics::Diagnostic;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Parameters in `${}` that become the number of a copy, as decimal number and as two hexadecimal digits.
pub const COPY_PARAMETERS: [&str; 2] = ["copy", "copy:02x"];
/// Highest number of copies, so that a number fits into an octet of an address.
const MAX: u32 = 255;
/// Bytes of repeated values, which bounds the memory that a small file can take.
const MAX_BYTES: usize = 16 << 20;
/// Bytes of a value without its text, approximately.
const VALUE_BYTES: usize = 64;

/// The copies of a file.
pub(crate) struct Copies {
    /// Number of copies, if the file has the key `copies`.
    pub(crate) count: Option<u32>,
    /// Numbers of the NFs that are copies, by name.
    pub(crate) nfs: BTreeMap<String, u32>,
}

impl Copies {
    /// Removes the key `copies` from a file, and repeats list elements and named tables that contain `${copy}` once for
    /// each number from 1. Returns `None` after an error, which others would follow from.
    pub(crate) fn expand(file: &mut DeTable<'_>, reader: &mut Reader<'_>) -> Option<Copies> {
        let count = match file.remove("copies") {
            None => None,
            Some(value) => {
                let span = value.span();
                let number: i64 = reader.value(value)?;
                let count = u32::try_from(number).ok().filter(|count| (1..=MAX).contains(count));
                if count.is_none() {
                    let d = Diagnostic::new("not a number of copies").value(number);
                    reader.error(span, d.remedy(format!("write 1 to {MAX}")));
                    return None;
                }
                count
            }
        };
        let mut copies = Copies { count, nfs: BTreeMap::new() };
        let mut expansion = Expansion { count, bytes: 0 };
        let expanded = file.iter_mut().try_for_each(|(key, value)| match value.get_mut() {
            DeValue::Table(nfs) if key.get_ref() == "nf" => expansion.table(nfs, |name, copy| {
                copies.nfs.insert(name.to_owned(), copy);
            }),
            value => expansion.value(value, key.span()),
        });
        expanded.map_err(|(span, d)| reader.error(span, d)).ok()?;
        Some(copies)
    }
}

/// State of an expansion, which ends at the first error.
struct Expansion {
    count: Option<u32>,
    /// Bytes of repeated values so far.
    bytes: usize,
}

type Expanded<T = ()> = Result<T, (Range<usize>, Diagnostic)>;

impl Expansion {
    /// Repeats what contains `${copy}` in a value at `span`.
    fn value(&mut self, value: &mut DeValue<'_>, span: Range<usize>) -> Expanded {
        match value {
            DeValue::Table(table) => self.table(table, |_, _| {}),
            DeValue::Array(list) => {
                for element in std::mem::replace(list, DeArray::new()) {
                    if !contains_copy(element.get_ref()) {
                        list.push(element);
                        continue;
                    }
                    for copy in 1..=self.reserve(element.get_ref(), element.span())? {
                        list.push(numbered(&element, copy)?);
                    }
                }
                Ok(())
            }
            DeValue::String(text) if has_copy(text) => {
                let d = Diagnostic::new("is not in a list or in a table whose name contains ${copy}").value(text);
                Err((span, d.remedy("write it as an element of a list, or repeat the table: [nf.\"NAME${copy}\"]")))
            }
            _ => Ok(()),
        }
    }

    /// Repeats the entries of a table whose keys contain `${copy}`, calls `repeated` with their names and numbers, and
    /// repeats parts of the other entries.
    fn table(&mut self, table: &mut DeTable<'_>, mut repeated: impl FnMut(&str, u32)) -> Expanded {
        let names: Vec<_> = table.keys().filter(|key| has_copy(key.get_ref())).cloned().collect();
        for (_, value) in table.iter_mut().filter(|(key, _)| !has_copy(key.get_ref())) {
            let span = value.span();
            self.value(value.get_mut(), span)?;
        }
        for name in names {
            let Some(value) = table.remove(name.get_ref().as_ref()) else { continue };
            for copy in 1..=self.reserve(value.get_ref(), name.span())? {
                let key = Cow::Owned(with_number(name.get_ref(), copy, name.span())?);
                if table.contains_key(&*key) {
                    return Err(duplicate(key, name.span()));
                }
                repeated(&key, copy);
                table.insert(Spanned::new(name.span(), key), numbered(&value, copy)?);
            }
        }
        Ok(())
    }

    /// Returns how often a value is repeated.
    fn reserve(&mut self, value: &DeValue<'_>, span: Range<usize>) -> Expanded<u32> {
        let Some(count) = self.count else {
            let d = Diagnostic::new("the file does not state the number of copies").value("${copy}");
            return Err((span, d.remedy("add copies = 2, or another number, below bondstone = 1")));
        };
        self.bytes += bytes(value).saturating_mul(count as usize);
        if self.bytes > MAX_BYTES {
            let d = Diagnostic::new(format!("the copies need more than {} MiB", MAX_BYTES >> 20)).value(count);
            return Err((span, d.remedy("lower copies, or move large parts to separate files")));
        }
        Ok(count)
    }
}

/// Returns the memory that a value takes, bytes.
fn bytes(value: &DeValue<'_>) -> usize {
    VALUE_BYTES
        + match value {
            DeValue::String(text) => text.len(),
            DeValue::Array(list) => list.iter().map(|value| bytes(value.get_ref())).sum(),
            DeValue::Table(table) => {
                table.iter().map(|(key, value)| key.get_ref().len() + bytes(value.get_ref())).sum()
            }
            _ => 0,
        }
}

/// Returns true if a text contains `${copy}`, with or without a format.
fn has_copy(text: &str) -> bool {
    ["${copy}", "${copy:"].iter().any(|part| text.contains(part))
}

/// Returns true if a key or a text of a value contains `${copy}`.
fn contains_copy(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::String(text) => has_copy(text),
        DeValue::Array(list) => list.iter().any(|value| contains_copy(value.get_ref())),
        DeValue::Table(table) => {
            table.iter().any(|(key, value)| has_copy(key.get_ref()) || contains_copy(value.get_ref()))
        }
        _ => false,
    }
}

fn duplicate(key: Cow<'_, str>, span: Range<usize>) -> (Range<usize>, Diagnostic) {
    let d = Diagnostic::new("the file already has a table or key of this name").value(key);
    (span, d.remedy("rename one of them"))
}

/// Returns a value with the number of a copy in all of its keys and texts.
fn numbered<'i>(value: &Spanned<DeValue<'i>>, copy: u32) -> Expanded<Spanned<DeValue<'i>>> {
    let span = value.span();
    let value = match value.get_ref() {
        DeValue::String(text) if has_copy(text) => DeValue::String(with_number(text, copy, span.clone())?.into()),
        DeValue::Array(list) => {
            DeValue::Array(list.iter().map(|value| numbered(value, copy)).collect::<Expanded<_>>()?)
        }
        DeValue::Table(table) => {
            let mut of_copy = DeTable::new();
            for (key, value) in table {
                let name = match has_copy(key.get_ref()) {
                    true => Cow::Owned(with_number(key.get_ref(), copy, key.span())?),
                    false => key.get_ref().clone(),
                };
                if of_copy.contains_key(&*name) {
                    return Err(duplicate(name, key.span()));
                }
                of_copy.insert(Spanned::new(key.span(), name), numbered(value, copy)?);
            }
            DeValue::Table(of_copy)
        }
        other => other.clone(),
    };
    Ok(Spanned::new(span, value))
}

/// Returns a text with the number of a copy: `${copy}` as a decimal number, `${copy:02x}` as two hexadecimal digits.
fn with_number(text: &str, copy: u32, span: Range<usize>) -> Expanded<String> {
    let mut parts = text.split("${copy");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (format, rest) = part.split_once('}').unwrap_or((part, ""));
        let written = match format {
            "" => write!(out, "{copy}"),
            ":02x" => write!(out, "{copy:02x}"),
            _ => {
                let d = Diagnostic::new("unknown format of the number of a copy").value(text);
                return Err((span, d.remedy("write ${copy}, or ${copy:02x} for two hexadecimal digits")));
            }
        };
        written.unwrap_or_default();
        out += rest;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::ChainFile;
    use std::path::Path;

    const HEAD: &str = "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null,size=9\"\n";
    /// A switch and routers behind it.
    const ROUTERS: &str = r#"
[nf.switch]
kind = "l2fwd"
ports = ["v${copy}"]
mac_table = [{ mac = "02:00:00:00:01:${copy:02x}", to = ["v${copy}"] }]
[nf."r${copy}"]
kind = "l3fwd"
isolation = "process"
interface.a = { addresses = ["10.253.${copy}.1/24"], mac = "02:00:00:00:01:${copy:02x}" }
interface.b = { addresses = ["10.254.${copy}.1/24"], mac = "02:00:00:00:02:${copy:02x}" }
neighbour = { "10.254.${copy}.2" = "02:00:00:00:03:${copy:02x}" }
[sandbox."r${copy}"]
memory_mib = 700
transport = "rings"
[[chain]]
path = ["a", "switch:in"]
[[chain]]
path = ["switch.v${copy}", "r${copy}:a"]
[traffic]
dst = ["10.${copy}.0.0/16", "192.0.2.0/24"]
"#;

    fn parse(text: &str) -> Result<ChainFile, Vec<diagnostics::Diagnostic>> {
        ChainFile::parse(text, Path::new("copies.toml"), &nf::registry())
    }

    /// Returns the text with the numbers written out, as a user would without copies.
    fn written_out(text: &str, count: u32) -> String {
        let mut out = String::new();
        for block in
            text.split("\n[").enumerate().map(|(n, block)| if n == 0 { block.into() } else { format!("\n[{block}") })
        {
            let is_repeated =
                block.starts_with("\n[nf.\"r") || block.starts_with("\n[sandbox") || block.contains("switch.v");
            let of = |text: &str, copy: u32| {
                text.replace("${copy:02x}", &format!("{copy:02x}")).replace("${copy}", &copy.to_string())
            };
            if is_repeated {
                (1..=count).for_each(|copy| out += &of(&block, copy));
                continue;
            }
            for line in block.split_inclusive('\n') {
                let Some((key, list)) = line.split_once(" = [") else {
                    out += line;
                    continue;
                };
                let (list, _) = list.rsplit_once(']').unwrap();
                let (repeated, rest) =
                    list.split_once(", \"192").map_or((list, String::new()), |(a, b)| (a, format!("\"192{b}")));
                let is_repeated = repeated.contains("${copy");
                let all = (1..=if is_repeated { count } else { 1 }).map(|copy| of(repeated, copy)).collect::<Vec<_>>();
                out += &format!("{key} = [{}, {rest}]\n", all.join(", "));
            }
        }
        out
    }

    #[test]
    fn copies_are_as_if_written_out() {
        for count in [1, 2, 11, 63] {
            let copied = parse(&format!("{HEAD}copies = {count}\n{ROUTERS}")).unwrap_or_else(|e| panic!("{e:?}"));
            let plain = parse(&format!("{HEAD}{}", written_out(ROUTERS, count))).unwrap_or_else(|e| panic!("{e:?}"));
            let nfs = |file: &ChainFile| -> Vec<_> {
                file.nfs.iter().map(|nf| (nf.name.clone(), nf.settings_json(), nf.isolation)).collect()
            };
            assert_eq!(nfs(&copied), nfs(&plain), "{count}");
            let chains = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.clone()).collect::<Vec<_>>();
            assert_eq!(chains(&copied), chains(&plain));
            let sandboxes =
                |file: &ChainFile| file.sandboxes.iter().map(|s| (s.name.clone(), s.memory_mib)).collect::<Vec<_>>();
            assert_eq!(
                (sandboxes(&copied), copied.traffic.dst.clone()),
                (sandboxes(&plain), plain.traffic.dst.clone())
            );
            assert_eq!((copied.copies, plain.copies), (Some(count), None));
            let number = |name: &str| copied.nfs.iter().find(|nf| nf.name == name).and_then(|nf| nf.copy);
            assert_eq!((number("r1"), number(&format!("r{count}")), number("switch")), (Some(1), Some(count), None));
        }
    }

    #[test]
    fn errors_have_a_location_and_a_remedy() {
        let chain = "[[chain]]\npath = [\"a\", \"x1\", \"x2\", \"b\"]\n";
        for (head, more, line, value, problem) in [
            ("copies = 0", "", 4, "0", "not a number of copies"),
            ("copies = 256", "[nf.\"x${copy}\"]\nkind = \"ttl\"", 4, "256", "not a number of copies"),
            ("copies = \"two\"", "", 4, "two", "whole number"),
            ("", "[nf.\"x${copy}\"]\nkind = \"ttl\"", 8, "${copy}", "does not state"),
            ("copies = 2", "[nf.x]\nkind = \"${copy}\"", 9, "${copy}", "not in a list"),
            ("copies = 2", "[nf.\"x${copy:x}\"]\nkind = \"ttl\"", 8, "x${copy:x}", "unknown format"),
            ("copies = 2", "[nf.\"x${copy:\"]\nkind = \"ttl\"", 8, "x${copy:", "unknown format"),
            ("copies = 2", "[nf.x2]\nkind = \"ttl\"\n[nf.\"x${copy}\"]\nkind = \"ttl\"", 10, "x2", "already has"),
            ("copies = 2", "[nf.\"x${copy}\"]\n\"a${copy}\" = 1\na2 = 1", 10, "a2", "already has"),
            ("copies = 2", "[nf.\"x${copy}\"]\nkind = \"tttl\"", 9, "tttl", "unknown kind"),
        ] {
            let mut errors =
                parse(&format!("{HEAD}{head}\n{chain}\n{more}\n")).err().unwrap_or_else(|| panic!("{head} {more}"));
            diagnostics::remove_duplicates(&mut errors);
            let [error] = &errors[..] else { panic!("{head} {more}: {errors:?}") };
            assert_eq!((error.line, error.value.as_deref()), (Some(line), Some(value)), "{error}");
            assert!(error.problem.contains(problem) && error.remedy.is_some(), "{error:?}");
        }
    }

    #[test]
    fn bounds_the_memory_of_copies() {
        let list = vec!["\"${copy}\""; 100_000].join(",");
        let errors = parse(&format!("copies = 255\n{HEAD}[nf.x]\nports = [{list}]\n")).err().expect("errors");
        assert!(errors.len() == 1 && errors[0].problem.contains("16 MiB"), "{:?}", errors[0]);
        let text = format!("copies = 255\n{HEAD}[nf.x]\nx = [[\"${{copy}}\", \"{}\"]]\n", "y".repeat(1 << 20));
        assert!(parse(&text).err().expect("errors")[0].problem.contains("16 MiB"));
    }
}
