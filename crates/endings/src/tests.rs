//! What is expected of whole connections.

mod endings;
mod script;
