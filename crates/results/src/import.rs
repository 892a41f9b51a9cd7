//! Import of results, also of other programs, as documents.

mod nfpa;
mod uti;

use crate::store::{backend, migrate};
use crate::{Error, Location, Store};
use report::Document;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// File formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Documents of Bondstone: one, a JSON list, one per line, or a database.
    Bondstone,
    /// JSON of a test case of FD.io CSIT: its unified test interface (UTI), version 1.
    Uti,
    /// The SQLite database of NFPA.
    Nfpa,
}

impl Format {
    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Bondstone => "bondstone",
            Format::Uti => "uti",
            Format::Nfpa => "nfpa",
        }
    }
}

/// Maximum size of a JSON file, bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Magic bytes of a SQLite file.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Maximum number of documents in a JSON file.
const MAX_DOCUMENTS: usize = 10_000;

/// The content of a file.
#[derive(Debug)]
pub enum Imported {
    /// Documents.
    Documents(Vec<Document>),
    /// A database of Bondstone, to be [copied](Store::copy_to) with its tags.
    Store(Box<Store>),
}

/// Reads a file or a database of Bondstone. Without a format, it is detected from the content.
///
/// # Errors
/// If the file cannot be read, has an unknown format, or contains invalid values; the message names their path.
pub fn read(location: &Location, format: Option<Format>) -> Result<(Format, Imported), Error> {
    let file = match location {
        Location::Server(_) => return Ok((Format::Bondstone, Imported::Store(Store::open(location.clone())?.into()))),
        Location::File(file) => file,
    };
    let unreadable = |reason: std::io::Error| Error::Import {
        file: file.clone(),
        path: String::new(),
        problem: format!("cannot read: {reason}"),
    };
    let mut opened = File::open(file).map_err(unreadable)?;
    let mut start = [0u8; 16];
    let len = opened.read(&mut start).map_err(unreadable)?;
    if &start[..len] == SQLITE_MAGIC {
        let id = backend::application_id(file).map_err(|e| Error::from_sqlite(file, e))?;
        let is_bondstone = id == migrate::APPLICATION_ID;
        return match format {
            Some(Format::Uti) => Err(invalid(file, "", "a SQLite database, not JSON of CSIT; leave out --format")),
            Some(Format::Bondstone) | None if is_bondstone => {
                Ok((Format::Bondstone, Imported::Store(Store::open(location.clone())?.into())))
            }
            Some(Format::Bondstone) => Err(Error::Foreign { file: file.clone() }),
            _ => Ok((Format::Nfpa, Imported::Documents(to_documents(file, nfpa::read(file)?)?))),
        };
    }
    let mut bytes = start[..len].to_vec();
    opened.by_ref().take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 >= MAX_BYTES {
        return Err(invalid(file, "", &format!("more than {} MiB; split the file", MAX_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|e| invalid(file, "", &format!("not text: {e}")))?;
    let format = format.map_or_else(|| detect(file, &text), Ok)?;
    let documents = match format {
        Format::Bondstone => documents(file, &text)?,
        Format::Uti => to_documents(file, uti::read(file, &text)?)?,
        Format::Nfpa => return Err(invalid(file, "", "not a SQLite database of NFPA; leave out --format")),
    };
    Ok((format, Imported::Documents(documents)))
}

/// Detects the format of a JSON text by its members.
fn detect(file: &Path, text: &str) -> Result<Format, Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Header {
        Bondstone { schema: String },
        Uti { version: String, test_id: String },
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Headers {
        One(Header),
        Many(Vec<Header>),
    }
    let start = serde_json::Deserializer::from_str(text).into_iter::<Headers>().next();
    let header = match start {
        Some(Ok(Headers::One(header))) => Some(header),
        Some(Ok(Headers::Many(mut headers))) => headers.pop(),
        _ => None,
    };
    match header {
        Some(Header::Bondstone { schema }) if schema.starts_with("bondstone.result/") => Ok(Format::Bondstone),
        Some(Header::Uti { version, test_id }) if !version.is_empty() && !test_id.is_empty() => Ok(Format::Uti),
        _ => Err(invalid(
            file,
            "",
            "unknown format: neither documents of Bondstone (member `schema`), nor JSON of CSIT (members `version` and \
             `test_id`), nor a SQLite database; specify it with --format",
        )),
    }
}

/// Reads concatenated documents, or a list of them.
fn documents(file: &Path, text: &str) -> Result<Vec<Document>, Error> {
    let mut out = vec![];
    for value in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
        let value = value.map_err(|e| invalid(file, "", &e.to_string()))?;
        let list = match value {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        for value in list {
            if out.len() == MAX_DOCUMENTS {
                return Err(invalid(file, "", &format!("more than {MAX_DOCUMENTS} documents; split the file")));
            }
            let path = format!("document {}", out.len() + 1);
            out.push(Document::read(&value.to_string()).map_err(|e| invalid(file, &path, &e.to_string()))?);
        }
    }
    if out.is_empty() {
        return Err(invalid(file, "", "contains no document"));
    }
    Ok(out)
}

fn to_documents(file: &Path, results: Vec<report::Result>) -> Result<Vec<Document>, Error> {
    let identify = |mut r: report::Result| {
        let identified = r.assign_id().and_then(|()| r.verify());
        identified.map_err(|e| invalid(file, &r.study, &e.to_string()))
    };
    results.into_iter().map(identify).collect()
}

fn invalid(file: &Path, path: &str, problem: &str) -> Error {
    let path = if path.is_empty() { String::new() } else { format!(": {path}") };
    Error::Import { file: file.to_owned(), path, problem: problem.to_owned() }
}

/// Truncates a text to `max` characters.
fn truncate(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}
