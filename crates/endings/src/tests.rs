//! Tests of whole connections.

mod captures;
mod endings;
mod http;
mod ledger;
mod limits;
mod model;
mod odd;
mod script;
mod states;
mod tls;
