//! The database.

pub(crate) mod backend;
mod entry;
mod filter;
pub(crate) mod migrate;
mod rows;
mod tag;

pub use entry::Entry;
pub use filter::Filter;
pub use rows::Added;

use crate::{Error, Location};
use backend::{Backend, File, Row, Server, Value};
use report::Document;

/// A database of results: a SQLite file or a PostgreSQL database. Any number of programs and threads may open it, each
/// with its own `Store`. Writers of a file wait for each other; readers do not wait.
#[derive(Debug)]
pub struct Store {
    db: Backend,
    location: Location,
}

/// Outcome of copying documents from another database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Documents inserted.
    pub new: u64,
    /// Documents that were in the database already.
    pub existing: u64,
}

impl Store {
    /// Opens a database and upgrades older tables. A missing SQLite file is created with its folder; a PostgreSQL
    /// database has to exist.
    ///
    /// # Errors
    /// If the file cannot be created, opened or written; is not a database, belongs to another program or a newer
    /// version; is damaged, or locked for more than ten seconds; if the server cannot be reached or refuses access.
    pub fn open(location: impl Into<Location>) -> Result<Self, Error> {
        let store = Store::connect(location.into())?;
        migrate::migrate(&store.db, migrate::CURRENT)?;
        if let Backend::File(file) = &store.db {
            file.configure()?;
        }
        Ok(store)
    }

    fn connect(location: Location) -> Result<Self, Error> {
        let db = match &location {
            Location::File(file) => Backend::File(File::open(file)?),
            Location::Server(url) => Backend::Server(Server::open(url)?),
        };
        Ok(Store { db, location })
    }

    /// Version of the tables that this program writes.
    pub const VERSION: i64 = migrate::CURRENT;

    /// Downgrades the tables to an earlier version, for an earlier program; version 0 removes them. Documents do not
    /// change; versions below 2 have no tags, and programs that write versions below 3 read documents of schema 1 only.
    ///
    /// # Errors
    /// As [`Store::open`]; if `version` is negative or newer than [`Store::VERSION`].
    pub fn downgrade(location: impl Into<Location>, version: i64) -> Result<(), Error> {
        let location = location.into();
        if !(0..=migrate::CURRENT).contains(&version) {
            return Err(Error::Newer {
                file: location.to_string().into(),
                found: version,
                supported: migrate::CURRENT,
            });
        }
        let store = Store::connect(location)?;
        if let Backend::File(file) = &store.db {
            file.configure()?;
        }
        migrate::migrate(&store.db, version)
    }

    /// Returns its location.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Adds a result with an id; an existing one is left unchanged.
    ///
    /// # Errors
    /// If [`verify`](report::Result::verify) fails, or the database cannot be written.
    pub fn add(&mut self, result: &report::Result) -> Result<Added, Error> {
        self.add_document(&result.verify()?)
    }

    /// Adds a document with its text, which may contain unknown members.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn add_document(&mut self, document: &Document) -> Result<Added, Error> {
        self.db.transaction(|| rows::insert(&self.db, document))
    }

    /// Returns the result with this id.
    ///
    /// # Errors
    /// If the database cannot be read, or the document does not match its id.
    pub fn get(&self, id: &str) -> Result<Option<report::Result>, Error> {
        Ok(self.document(id)?.map(Document::into_result))
    }

    /// Returns the document with this id.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn document(&self, id: &str) -> Result<Option<Document>, Error> {
        let mut found = self.db.query("SELECT document FROM result WHERE id = ?1", &[Value::text(id)])?;
        let Some(row) = found.first_mut() else { return Ok(None) };
        let text = row.text(0)?;
        let changed = |reason| Error::Changed { file: self.location.to_string().into(), id: id.to_owned(), reason };
        let document = Document::read(&text).map_err(changed)?;
        if document.result().id != id {
            let (found, expected) = (id.to_owned(), document.result().id.clone());
            return Err(changed(report::Error::Id { found, expected }));
        }
        Ok(Some(document))
    }

    /// Returns the entries of results that match a filter, the newest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Entry>, Error> {
        let (condition, mut values) = filter.condition();
        values.push(Value::Int(filter.limit()));
        // tags contain no line feed
        let joined = match &self.db {
            Backend::File(_) => "group_concat(tag, char(10))",
            Backend::Server(_) => "string_agg(tag, chr(10))",
        };
        let sql = format!(
            "SELECT id, study, cell, dut, frame, frame_bytes, date, goal, lower_pps, upper_pps, conditional_pps,
                limited_by, (SELECT count(*) FROM trial WHERE trial.result = result.id), method, dut_version, tool,
                (SELECT {joined} FROM tag WHERE tag.result = result.id)
            FROM result WHERE {condition} ORDER BY date_s DESC, id LIMIT ?{}",
            values.len()
        );
        self.db.query(&sql, &values)?.iter_mut().map(entry).collect()
    }

    /// Returns the results that match a filter, the oldest first.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn select(&self, filter: &Filter) -> Result<Vec<report::Result>, Error> {
        let mut out = vec![];
        for entry in self.list(filter)?.iter().rev() {
            // skips results that another program deletes meanwhile
            out.extend(self.get(&entry.id)?);
        }
        Ok(out)
    }

    /// Deletes a result; returns false if it does not exist.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn delete(&mut self, id: &str) -> Result<bool, Error> {
        Ok(self.db.execute("DELETE FROM result WHERE id = ?1", &[Value::text(id)])? > 0)
    }

    /// Adds a tag to a result; returns false if it has the tag. The document does not change.
    ///
    /// # Errors
    /// If the tag is invalid, the result does not exist or has 64 tags, or the database cannot be written.
    pub fn tag(&mut self, id: &str, name: &str) -> Result<bool, Error> {
        tag::check(name)?;
        self.db.transaction(|| {
            let values = [Value::text(id)];
            if self.db.query("SELECT 1 FROM result WHERE id = ?1", &values)?.is_empty() {
                return Err(Error::NoResult { id: id.to_owned() });
            }
            let sql = "INSERT INTO tag VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            let new = self.db.execute(sql, &[Value::text(id), Value::text(name)])? > 0;
            if self.tags(id)?.len() > tag::MAX_TAGS {
                let problem = format!("the result has {} tags, the limit; remove one", tag::MAX_TAGS);
                return Err(Error::Tag { tag: name.to_owned(), problem });
            }
            Ok(new)
        })
    }

    /// Removes a tag from a result; returns false if it does not have the tag.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn untag(&mut self, id: &str, name: &str) -> Result<bool, Error> {
        let sql = "DELETE FROM tag WHERE result = ?1 AND tag = ?2";
        Ok(self.db.execute(sql, &[Value::text(id), Value::text(name)])? > 0)
    }

    /// Returns the tags of a result, sorted.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn tags(&self, id: &str) -> Result<Vec<String>, Error> {
        let mut rows = self.db.query("SELECT tag FROM tag WHERE result = ?1", &[Value::text(id)])?;
        let tags: Result<Vec<String>, Error> = rows.iter_mut().map(|row| row.text(0)).collect();
        tags.map(sorted)
    }

    /// Copies all documents with their tags to another database; existing documents are left unchanged.
    ///
    /// # Errors
    /// If this database cannot be read or the other not be written; documents copied before stay there.
    pub fn copy_to(&self, other: &mut Store) -> Result<Copied, Error> {
        let mut copied = Copied::default();
        for mut row in self.db.query("SELECT id FROM result ORDER BY date_s, id", &[])? {
            let id = row.text(0)?;
            let Some(document) = self.document(&id)? else { continue };
            match other.add_document(&document)? {
                Added::New => copied.new += 1,
                Added::Existing => copied.existing += 1,
            }
            for tag in self.tags(&id)? {
                other.tag(&id, &tag)?;
            }
        }
        Ok(copied)
    }
}

fn sorted(mut tags: Vec<String>) -> Vec<String> {
    tags.sort();
    tags
}

fn entry(row: &mut Row) -> Result<Entry, Error> {
    let cell = row.text(2)?;
    let tags = row.maybe_text(16)?.unwrap_or_default();
    Ok(Entry {
        id: row.text(0)?,
        study: row.text(1)?,
        // a damaged cell is listed as empty; `get` reports the error
        cell: serde_json::from_str(&cell).unwrap_or_default(),
        dut: row.text(3)?,
        frame: row.text(4)?,
        frame_bytes: row.real(5)?,
        date: row.text(6)?,
        goal: row.maybe_text(7)?,
        lower_pps: row.real(8)?,
        upper_pps: row.maybe_real(9)?,
        conditional_pps: row.maybe_real(10)?,
        limited_by: row.text(11)?,
        trials: row.int(12)?.unsigned_abs(),
        method: row.text(13)?,
        version: row.maybe_text(14)?,
        tool: row.text(15)?,
        tags: sorted(tags.split('\n').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()),
    })
}
