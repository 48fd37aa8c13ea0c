//! What the connections of an origin and its handle share.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::fault::{Fault, Moment};
use crate::pace::Pace;
use crate::reply::Reply;
use crate::request::Asked;
use crate::resource::Resource;

/// State of an origin that its connections and its handle share.
#[derive(Debug)]
pub(super) struct OriginShared {
    book: Mutex<Book>,
    pub(super) pace: Option<Pace>,
    pub(super) connections: AtomicUsize,
    pub(super) transfers: AtomicUsize,
    pub(super) sent: AtomicU64,
    pub(super) death: Notify,
}

#[derive(Debug)]
pub(super) struct Book {
    pub(super) resource: Resource,
    pub(super) faults: Vec<(Moment, Fault)>,
    pub(super) requests: Vec<Asked>,
}

impl OriginShared {
    pub(super) fn new(resource: Resource, faults: Vec<(Moment, Fault)>, pace: Option<Pace>) -> Self {
        Self {
            book: Mutex::new(Book { resource, faults, requests: Vec::new() }),
            pace,
            connections: AtomicUsize::new(0),
            transfers: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            death: Notify::new(),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answer(&self, asked: Asked) -> Reply {
        let mut book = self.book();
        let mut reply = book.resource.answer(&asked);
        for (_, fault) in book.faults.iter().filter(|(moment, _)| moment.is_at(&asked)) {
            fault.spoil(&asked, &book.resource, &mut reply);
        }
        book.requests.push(asked);
        reply
    }
}
