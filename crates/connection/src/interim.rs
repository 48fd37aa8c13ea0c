//! Informational responses, between the service that sends them and the connection that writes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use http::{HeaderMap, StatusCode};

/// The most informational responses that wait to be written. Further ones are dropped: a client can do without them
/// (RFC 9110, section 15.2).
const WAITING_MAX: usize = 16;

/// The informational responses to the request in progress. Allocates nothing until a service wants to send some.
#[derive(Debug, Default)]
pub struct Interim(Option<Arc<Mutex<Queue>>>);

/// Sends informational responses to one request, from any task. After the request's response has begun, they are
/// dropped.
#[derive(Debug, Clone)]
pub struct InterimSender(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(StatusCode, HeaderMap)>,
    /// The task of the connection.
    connection: Option<Waker>,
}

impl Interim {
    pub fn sender(&mut self) -> InterimSender {
        InterimSender(self.0.get_or_insert_default().clone())
    }

    /// Takes all that wait. Registers the task to be woken for the next.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<(StatusCode, HeaderMap)> {
        let Some(queue) = &self.0 else { return Vec::new() };
        let mut queue = lock(queue);
        if !queue.connection.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.connection = Some(cx.waker().clone());
        }
        std::mem::take(&mut queue.waiting)
    }
}

impl InterimSender {
    pub fn send(&self, status: StatusCode, fields: HeaderMap) {
        let mut queue = lock(&self.0);
        if queue.waiting.len() < WAITING_MAX {
            queue.waiting.push((status, fields));
            queue.connection.take().into_iter().for_each(Waker::wake);
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
