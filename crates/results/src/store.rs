//! The database.

use crate::backend::{Backend, File, Row, Server, Value};
use crate::{Entry, Error, Filter, Place, columns, migrate, tag};
use report::Document;

/// A database of results: a SQLite file or a PostgreSQL database. Any number of programs and threads may have it open, each
/// its own `Store`; in a file one writes at a time, the others wait for it, readers do not.
#[derive(Debug)]
pub struct Store {
    db: Backend,
    place: Place,
}

/// What became of a document that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the database now.
    New,
    /// It was there before.
    Known,
}

/// What became of the documents of another database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Documents that are in the database now.
    pub new: u64,
    /// Documents that were there before.
    pub known: u64,
}

impl Store {
    /// Opens a database; makes a file and its folder when it is not there, and brings older tables up to date. A text that
    /// begins with `postgres://` is the URL of a PostgreSQL database, which has to be there; see [`Place`].
    ///
    /// # Errors
    /// When the file cannot be made, opened or written; when it is no database, one of another program, or of a newer
    /// version; when it is damaged, or locked for more than ten seconds; when a server is not there or lets nobody in.
    pub fn open(place: impl Into<Place>) -> Result<Self, Error> {
        let store = Store::connect(place.into())?;
        migrate::migrate(&store.db, migrate::KNOWN)?;
        if let Backend::File(file) = &store.db {
            file.settle()?;
        }
        Ok(store)
    }

    fn connect(place: Place) -> Result<Self, Error> {
        let db = match &place {
            Place::File(file) => Backend::File(File::open(file)?),
            Place::Server(url) => Backend::Server(Server::open(url)?),
        };
        Ok(Store { db, place })
    }

    /// Version of the tables that this program writes.
    pub const VERSION: i64 = migrate::KNOWN;

    /// Brings the tables of a database to an earlier version, for an earlier program; 0 leaves nothing. Documents stay as they
    /// are from version 1 on; tags are gone below version 2.
    ///
    /// # Errors
    /// As [`Store::open`]; when `version` is negative or newer than [`Store::VERSION`].
    pub fn downgrade(place: impl Into<Place>, version: i64) -> Result<(), Error> {
        let place = place.into();
        if !(0..=migrate::KNOWN).contains(&version) {
            return Err(Error::Newer { file: place.to_string().into(), found: version, known: migrate::KNOWN });
        }
        let store = Store::connect(place)?;
        if let Backend::File(file) = &store.db {
            file.settle()?;
        }
        migrate::migrate(&store.db, version)
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Adds a result that was sealed; one that is there already stays as it is.
    ///
    /// # Errors
    /// When the result does not [verify](report::Result::verify), or the database cannot be written.
    pub fn add(&mut self, result: &report::Result) -> Result<Added, Error> {
        self.add_document(&result.verify()?)
    }

    /// Adds a document as it was written, with members that this version does not know.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn add_document(&mut self, document: &Document) -> Result<Added, Error> {
        self.db.transaction(|| columns::insert(&self.db, document))
    }

    /// The result of an id.
    ///
    /// # Errors
    /// When the database cannot be read, or the document in it was changed.
    pub fn get(&self, id: &str) -> Result<Option<report::Result>, Error> {
        Ok(self.document(id)?.map(Document::into_result))
    }

    /// The document of an id, with its text.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn document(&self, id: &str) -> Result<Option<Document>, Error> {
        let mut found = self.db.query("SELECT document FROM result WHERE id = ?1", &[Value::text(id)])?;
        let Some(row) = found.first_mut() else { return Ok(None) };
        let text = row.text(0)?;
        let changed = |reason| Error::Changed { file: self.place.to_string().into(), id: id.to_owned(), reason };
        let document = Document::read(&text).map_err(changed)?;
        if document.result().id != id {
            let (found, expected) = (id.to_owned(), document.result().id.clone());
            return Err(changed(report::Error::Id { found, expected }));
        }
        Ok(Some(document))
    }

    /// Results that a filter lets through, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Entry>, Error> {
        let (condition, mut values) = filter.condition();
        values.push(Value::Int(filter.limit()));
        // no tag has a line feed
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

    /// The results that a filter lets through, whole, the oldest first.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn select(&self, filter: &Filter) -> Result<Vec<report::Result>, Error> {
        let mut out = vec![];
        for entry in self.list(filter)?.iter().rev() {
            // one that somebody deletes meanwhile is none of those
            out.extend(self.get(&entry.id)?);
        }
        Ok(out)
    }

    /// Deletes a result; false when there is none of that id.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn delete(&mut self, id: &str) -> Result<bool, Error> {
        Ok(self.db.execute("DELETE FROM result WHERE id = ?1", &[Value::text(id)])? > 0)
    }

    /// Gives a result a tag; false when it has it. The document stays as it is.
    ///
    /// # Errors
    /// When the tag is none, the result is not there or has 64 already, or the database cannot be written.
    pub fn tag(&mut self, id: &str, name: &str) -> Result<bool, Error> {
        tag::check(name)?;
        self.db.transaction(|| {
            let values = [Value::text(id)];
            if self.db.query("SELECT 1 FROM result WHERE id = ?1", &values)?.is_empty() {
                return Err(Error::NoResult { id: id.to_owned() });
            }
            let sql = "INSERT INTO tag VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            let new = self.db.execute(sql, &[Value::text(id), Value::text(name)])? > 0;
            if self.tags(id)?.len() > tag::MOST {
                let problem = format!("the result has {} tags already, and no more are kept; remove one", tag::MOST);
                return Err(Error::Tag { tag: name.to_owned(), problem });
            }
            Ok(new)
        })
    }

    /// Takes a tag from a result; false when it does not have it.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn untag(&mut self, id: &str, name: &str) -> Result<bool, Error> {
        let sql = "DELETE FROM tag WHERE result = ?1 AND tag = ?2";
        Ok(self.db.execute(sql, &[Value::text(id), Value::text(name)])? > 0)
    }

    /// The tags of a result, in order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn tags(&self, id: &str) -> Result<Vec<String>, Error> {
        let mut rows = self.db.query("SELECT tag FROM tag WHERE result = ?1", &[Value::text(id)])?;
        let tags: Result<Vec<String>, Error> = rows.iter_mut().map(|row| row.text(0)).collect();
        tags.map(sorted)
    }

    /// Copies every document, with its tags, to another database; what is there stays.
    ///
    /// # Errors
    /// When one cannot be read, or the other not be written; documents up to then are there.
    pub fn copy_to(&self, other: &mut Store) -> Result<Copied, Error> {
        let mut copied = Copied::default();
        for mut row in self.db.query("SELECT id FROM result ORDER BY date_s, id", &[])? {
            let id = row.text(0)?;
            let Some(document) = self.document(&id)? else { continue };
            match other.add_document(&document)? {
                Added::New => copied.new += 1,
                Added::Known => copied.known += 1,
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
        // a list is for finding: a cell that somebody spoilt is shown as empty, `get` tells
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
