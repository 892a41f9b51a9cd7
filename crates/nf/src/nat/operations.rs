//! Listing and closing the sessions of a running translator.

use super::flow::Flow;
use super::listed_session::ListedSession;
use super::session_filter::SessionFilter;
use super::sessions::{SessionTable, clock};
use super::statistics::Subscribers;
use crate::visits::{Copies, Visits};
use control::{NatClosed, NatSession, NatSessions};
use diagnostics::Diagnostic;
use std::time::{Duration, Instant};

/// Most sessions of a page.
const PAGE: usize = 1000;
/// Most sessions that a visit reads, and buckets that it scans: some tens of microseconds.
const SESSIONS_PER_VISIT: usize = 256;
const BUCKETS_PER_VISIT: usize = 1024;
/// Most sessions that a visit closes, which takes longer than reading them.
const CLOSED_PER_VISIT: usize = 64;
/// Time after which a request returns what it has found.
const REQUEST_TIME: Duration = Duration::from_millis(500);

/// A copy of a translator.
pub(crate) trait SessionCopy {
    /// Returns the sessions and the hosts that they refer to.
    fn sessions(&mut self) -> (&mut SessionTable, &dyn Subscribers);

    /// Counts sessions that were closed on request.
    fn count_closed(&self, sessions: usize);
}

/// The sessions of a translator, whose copies have a part each.
#[derive(Default)]
pub struct LiveSessions(Copies<dyn SessionCopy>);

/// A position in the sessions of all copies.
#[derive(Clone, Copy)]
struct Cursor {
    copy: usize,
    bucket: usize,
}

impl Cursor {
    fn parse(cursor: Option<&str>) -> Result<Cursor, Diagnostic> {
        let Some(text) = cursor else { return Ok(Cursor { copy: 0, bucket: 0 }) };
        let parsed = text.split_once(':').and_then(|(copy, bucket)| Some((copy.parse().ok()?, bucket.parse().ok()?)));
        let invalid =
            || Diagnostic::new("is not the next of a response").value(text).remedy("send it as it was received");
        parsed.map(|(copy, bucket)| Cursor { copy, bucket }).ok_or_else(invalid)
    }
}

impl LiveSessions {
    /// Adds a copy.
    pub(crate) fn attach(&self, copy: usize) -> Visits<dyn SessionCopy> {
        self.0.attach(copy)
    }

    /// Returns a page of the sessions that meet all terms of a filter, from a position on.
    ///
    /// # Errors
    /// An invalid filter or position, or a copy that does not answer.
    pub fn page(&self, filter: &[String], cursor: Option<&str>) -> Result<NatSessions, Diagnostic> {
        let mut sessions = vec![];
        let next = self.scan(filter, cursor, |_, found| {
            sessions.extend(found.iter().map(NatSession::from));
            Ok(sessions.len() + SESSIONS_PER_VISIT <= PAGE)
        })?;
        Ok(NatSessions { nf: String::new(), sessions, next })
    }

    /// Closes sessions that meet all terms of a filter, from a position on: packets of theirs need a new session.
    ///
    /// # Errors
    /// As for [`LiveSessions::page`]. Some sessions may be closed then.
    pub fn close(&self, filter: &[String], cursor: Option<&str>) -> Result<NatClosed, Diagnostic> {
        let mut closed = 0;
        let next = self.scan(filter, cursor, |copy, found| {
            for part in found.chunks(CLOSED_PER_VISIT) {
                let flows: Vec<Flow> = part.iter().map(|session| session.flow).collect();
                closed += self.0.call(copy, move |node, _| {
                    let sessions = node.sessions().0;
                    let closed = flows.iter().filter(|flow| sessions.close(flow)).count();
                    node.count_closed(closed);
                    closed
                })?;
            }
            Ok(true)
        })?;
        Ok(NatClosed { nf: String::new(), closed, next })
    }

    /// Visits copies from a position on, and passes what each visit has found to a function, until that returns false or
    /// [`REQUEST_TIME`] has passed; returns the next position.
    fn scan(
        &self,
        filter: &[String],
        cursor: Option<&str>,
        mut found: impl FnMut(usize, &[ListedSession]) -> Result<bool, Diagnostic>,
    ) -> Result<Option<String>, Diagnostic> {
        let (filter, start) = (SessionFilter::parse(filter)?, Instant::now());
        let Cursor { mut copy, mut bucket } = Cursor::parse(cursor)?;
        // allocated and freed by this thread, not by the worker
        let mut page = Vec::with_capacity(SESSIONS_PER_VISIT);
        while copy < self.0.len() {
            let (read, next) = self.0.call(copy, move |node, now| {
                let (sessions, hosts) = node.sessions();
                let next = read_page(sessions, hosts, bucket, clock(now), &mut page);
                (page, next)
            })?;
            page = read;
            page.retain(|session| filter.matches(session));
            let more = found(copy, &page)?;
            page.clear();
            (copy, bucket) = next.map_or((copy + 1, 0), |bucket| (copy, bucket));
            if copy < self.0.len() && (!more || start.elapsed() >= REQUEST_TIME) {
                return Ok(Some(format!("{copy}:{bucket}")));
            }
        }
        Ok(None)
    }
}

/// Reads sessions from a bucket on, within the limits of a visit; returns the next bucket, if there is one.
fn read_page(
    sessions: &SessionTable,
    hosts: &dyn Subscribers,
    from: usize,
    now: u32,
    page: &mut Vec<ListedSession>,
) -> Option<usize> {
    let buckets = sessions.outbound.buckets();
    let mut bucket = from;
    // a bucket has eight slots
    while bucket < buckets.min(from.saturating_add(BUCKETS_PER_VISIT)) && page.len() + 8 <= page.capacity() {
        sessions.read(bucket, now, |flow, external, state, expires_s| {
            page.push(ListedSession { flow, host: hosts.ip(flow.src), external, state, expires_s });
        });
        bucket += 1;
    }
    (bucket < buckets).then_some(bucket)
}
