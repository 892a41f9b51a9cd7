//! The subscriber of events.

use crate::level::Directives;
use crate::record::{MAX_LEN, Record, cut};
use serde_json::Value;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry, reload};

/// Fields that distinguish causes of the same callsite.
const KEYS: [&str; 6] = ["cause", "cpu", "file", "nf", "port", "sandbox"];
/// Targets with a limit of their own.
const UNLIMITED: [&str; 2] = ["output", "rates"];
/// Most fields of a message; `tracing` allows more.
const MAX_FIELDS: usize = 32;

static LEVELS: OnceLock<(Mutex<Directives>, reload::Handle<Targets, Registry>)> = OnceLock::new();

/// Makes all events of the process messages.
pub(crate) fn install(directives: Directives) {
    let (filter, handle) = reload::Layer::new(directives.to_filter());
    if LEVELS.set((Mutex::new(directives), handle)).is_ok() {
        // ignore errors: a program that embeds this one has a subscriber of its own
        _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(Messages));
    }
}

/// Returns the levels of messages.
pub fn directives() -> Directives {
    LEVELS.get().map(|(all, _)| all.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
}

/// Changes the levels of messages by a function, unless it returns an error.
///
/// # Errors
/// That of the function, or messages are not logged by this crate.
pub fn change_levels(change: impl FnOnce(&mut Directives) -> Result<(), String>) -> Result<Directives, String> {
    let Some((current, filter)) = LEVELS.get() else { return Err("messages have another subscriber".to_owned()) };
    let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
    let mut changed = current.clone();
    change(&mut changed)?;
    if changed != *current {
        filter.reload(changed.to_filter()).map_err(|e| e.to_string())?;
        current.clone_from(&changed);
    }
    Ok(changed)
}

struct Messages;

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut content = Content::default();
        event.record(&mut content);
        let Content { message, mut fields } = content;
        let target = metadata.target();
        let is_limited = !UNLIMITED.contains(&target);
        let cause = is_limited.then(|| cause(metadata, &fields));
        // a cause that is the whole message
        fields.retain(|(_, value)| value.as_str() != Some(&message));
        let code = metadata.file().zip(metadata.line());
        let record = Record { level: *metadata.level(), target, message: &message, fields, code };
        crate::log(&record, cause.map(|cause| (cause, target)));
    }
}

/// Returns a hash of the callsite and of the fields that distinguish its causes.
fn cause(metadata: &tracing::Metadata<'_>, fields: &[(&'static str, Value)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.callsite().hash(&mut hasher);
    fields.iter().filter(|(name, _)| KEYS.contains(name)).for_each(|(name, value)| {
        name.hash(&mut hasher);
        value.to_string().hash(&mut hasher);
    });
    hasher.finish()
}

/// Message and fields of an event.
#[derive(Default)]
struct Content {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Content {
    fn put(&mut self, field: &Field, value: Value) {
        if self.fields.len() < MAX_FIELDS {
            self.fields.push((field.name(), value));
        }
    }
}

impl Visit for Content {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, cut(value, MAX_LEN).into()),
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
