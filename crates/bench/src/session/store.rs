//! Storage of results.

/// Error of a store.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Stores the results of sessions. A session run is the set of results that one session measures; its name ends with
/// the hash of the session's cells.
pub trait Store: Send {
    /// Adds a result to a session run.
    ///
    /// # Errors
    /// [`StoreError`].
    fn add(&mut self, result: &report::Result, session_run: &str) -> Result<(), StoreError>;

    /// Deletes a result.
    ///
    /// # Errors
    /// [`StoreError`].
    fn delete(&mut self, id: &str) -> Result<(), StoreError>;

    /// Removes a result from a session run, so that it is measured again when the session is resumed.
    ///
    /// # Errors
    /// [`StoreError`].
    fn remove_from_run(&mut self, id: &str, session_run: &str) -> Result<(), StoreError>;

    /// Returns the newest session run of a study whose name ends with `hash`, if there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    fn last_run(&mut self, study: &str, hash: &str) -> Result<Option<String>, StoreError>;

    /// Returns the results of a session run.
    ///
    /// # Errors
    /// [`StoreError`].
    fn run_results(&mut self, session_run: &str) -> Result<Vec<report::Result>, StoreError>;
}

/// Keeps the results of one session in memory; it cannot resume an earlier one.
#[derive(Default)]
pub struct MemoryStore(Vec<report::Result>);

impl MemoryStore {
    /// Returns the results in the order in which they were added.
    pub fn results(&self) -> &[report::Result] {
        &self.0
    }
}

impl Store for MemoryStore {
    fn add(&mut self, result: &report::Result, _: &str) -> Result<(), StoreError> {
        self.0.push(result.clone());
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<(), StoreError> {
        self.0.retain(|result| result.id != id);
        Ok(())
    }

    fn remove_from_run(&mut self, _: &str, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn last_run(&mut self, _: &str, _: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    fn run_results(&mut self, _: &str) -> Result<Vec<report::Result>, StoreError> {
        Ok(vec![])
    }
}
