//! The database of results as the store of a session.

use bench::session::{Store, StoreError};
use results::Filter;

/// Stores results in a database; a session run is a tag.
pub(super) struct Database(pub(super) results::Store);

impl Store for Database {
    fn add(&mut self, result: &report::Result, session_run: &str) -> Result<(), StoreError> {
        self.0.add(result)?;
        self.0.tag(&result.id, session_run)?;
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<(), StoreError> {
        self.0.delete(id)?;
        Ok(())
    }

    fn remove_from_run(&mut self, id: &str, session_run: &str) -> Result<(), StoreError> {
        self.0.untag(id, session_run)?;
        Ok(())
    }

    fn last_run(&mut self, study: &str, hash: &str) -> Result<Option<String>, StoreError> {
        let entries = self.0.list(&Filter { study: Some(study.to_owned()), ..Filter::default() })?;
        let is_run = |tag: &&String| tag.starts_with("run-") && tag.ends_with(hash);
        Ok(entries.iter().flat_map(|entry| &entry.tags).filter(is_run).max().cloned())
    }

    fn run_results(&mut self, session_run: &str) -> Result<Vec<report::Result>, StoreError> {
        Ok(self.0.select(&Filter { tag: Some(session_run.to_owned()), ..Filter::default() })?)
    }
}
