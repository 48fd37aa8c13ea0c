//! What is expected of whole connections.

mod captures;
mod endings;
mod model;
mod script;
