//! Results of other programs, as ordinary documents.

mod nfpa;
mod uti;

use crate::{Error, Place, Store};
use report::Document;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Forms that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Documents of Bondstone: one, a JSON list of them, one on each line, or a whole database.
    Bondstone,
    /// JSON of FD.io CSIT: a test case of its unified test interface (UTI), version 1.
    Uti,
    /// The SQLite database of NFPA.
    Nfpa,
}

impl Format {
    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Bondstone => "bondstone",
            Format::Uti => "uti",
            Format::Nfpa => "nfpa",
        }
    }
}

/// Largest file of JSON that is read, bytes.
const MOST_BYTES: u64 = 256 << 20;
/// How every SQLite file begins.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// Most documents of one file of JSON.
const MOST_DOCUMENTS: usize = 10_000;

/// What was read.
#[derive(Debug)]
pub enum Imported {
    /// Documents.
    Documents(Vec<Document>),
    /// A database of ours, to be [copied](Store::copy_to) with its tags.
    Store(Box<Store>),
}

/// Reads a file, or a database of ours by its URL. Without a format, it is told by what is in the file.
///
/// # Errors
/// When the file cannot be read, is of no known form, or holds what cannot be; the message names the place in it.
pub fn read(place: &Place, format: Option<Format>) -> Result<(Format, Imported), Error> {
    let file = match place {
        Place::Server(_) => return Ok((Format::Bondstone, Imported::Store(Store::open(place.clone())?.into()))),
        Place::File(file) => file,
    };
    let unreadable = |reason: std::io::Error| Error::Import {
        file: file.clone(),
        place: String::new(),
        problem: format!("cannot be read: {reason}"),
    };
    let mut opened = File::open(file).map_err(unreadable)?;
    let mut head = [0u8; 16];
    let got = opened.read(&mut head).map_err(unreadable)?;
    if &head[..got] == SQLITE {
        let ours = crate::backend::application(file).map_err(|e| Error::of(file, e))? == crate::migrate::APPLICATION;
        return match format {
            Some(Format::Uti) => Err(wrong(file, "", "a SQLite database, no JSON of CSIT; leave out --format")),
            Some(Format::Bondstone) | None if ours => {
                Ok((Format::Bondstone, Imported::Store(Store::open(place.clone())?.into())))
            }
            Some(Format::Bondstone) => Err(Error::Foreign { file: file.clone() }),
            _ => Ok((Format::Nfpa, Imported::Documents(sealed(file, nfpa::read(file)?)?))),
        };
    }
    let mut bytes = head[..got].to_vec();
    opened.by_ref().take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 >= MOST_BYTES {
        return Err(wrong(file, "", &format!("more than {} MiB; import its parts", MOST_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|e| wrong(file, "", &format!("no text: {e}")))?;
    let format = format.map_or_else(|| detect(file, &text), Ok)?;
    let documents = match format {
        Format::Bondstone => documents(file, &text)?,
        Format::Uti => sealed(file, uti::read(file, &text)?)?,
        Format::Nfpa => return Err(wrong(file, "", "no SQLite database, which NFPA's is; leave out --format")),
    };
    Ok((format, Imported::Documents(documents)))
}

/// The form of a JSON text, by the members that only it has.
fn detect(file: &Path, text: &str) -> Result<Format, Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Head {
        Ours { schema: String },
        Uti { version: String, test_id: String },
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Any {
        One(Head),
        Many(Vec<Head>),
    }
    let start = serde_json::Deserializer::from_str(text).into_iter::<Any>().next();
    let head = match start {
        Some(Ok(Any::One(head))) => Some(head),
        Some(Ok(Any::Many(mut heads))) => heads.pop(),
        _ => None,
    };
    match head {
        Some(Head::Ours { schema }) if schema.starts_with("bondstone.result/") => Ok(Format::Bondstone),
        Some(Head::Uti { version, test_id }) if !version.is_empty() && !test_id.is_empty() => Ok(Format::Uti),
        _ => Err(wrong(
            file,
            "",
            "neither documents of Bondstone (a member `schema`), nor JSON of CSIT (members `version` and `test_id`), nor a \
             SQLite database; say what it is with --format",
        )),
    }
}

/// Documents one after the other, or in a list.
fn documents(file: &Path, text: &str) -> Result<Vec<Document>, Error> {
    let mut out = vec![];
    for value in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
        let value = value.map_err(|e| wrong(file, "", &e.to_string()))?;
        let list = match value {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        for value in list {
            if out.len() == MOST_DOCUMENTS {
                return Err(wrong(file, "", &format!("more than {MOST_DOCUMENTS} documents; import its parts")));
            }
            let place = format!("document {}", out.len() + 1);
            out.push(Document::read(&value.to_string()).map_err(|e| wrong(file, &place, &e.to_string()))?);
        }
    }
    if out.is_empty() {
        return Err(wrong(file, "", "no document in it"));
    }
    Ok(out)
}

fn sealed(file: &Path, results: Vec<report::Result>) -> Result<Vec<Document>, Error> {
    let seal = |mut r: report::Result| {
        let sealed = r.seal().and_then(|()| r.verify());
        sealed.map_err(|e| wrong(file, &r.study, &e.to_string()))
    };
    results.into_iter().map(seal).collect()
}

fn wrong(file: &Path, place: &str, problem: &str) -> Error {
    let place = if place.is_empty() { String::new() } else { format!(": {place}") };
    Error::Import { file: file.to_owned(), place, problem: problem.to_owned() }
}

/// A text of at most so many characters, as documents keep them.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
