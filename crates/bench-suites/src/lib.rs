//! `watari bench suites`: the cost of a cipher suite, and the savings of session reuse.
//!
//! The benchmark of "Maniac Java Programming 10" (2009; digest: tls-suites), with current TLS implementations. It
//! measures three tasks for each suite, over TCP on loopback, one connection at a time:
//!
//! * **bulk**: one connection over which the server sends a large amount of data (the paper: 100 MB),
//! * **new**: connections (the paper: 1,000), each with a full handshake and one byte from the server,
//! * **reuse**: as many connections that resume the session of an earlier one. The benchmark takes from each handshake
//!   whether the session was resumed, and counts these connections.
//!
//! Every time includes connecting, the handshake and the close. Wall time, CPU time of the client's thread and CPU time
//! of the server's thread are measured separately. All engines have the same settings: ECDHE over X25519, DHE with 2048
//! bits, RSA keys of 2048 bits, certificates signed by one authority, and sessions that the server stores (session ids;
//! in TLS 1.3 tickets that are ids).
//!
//! ```text
//!   Plan -> measure -> Engine (rustls | openssl | jsse): which suites?
//!                         |  one suite after the other
//!                         +- rustls, openssl: loopback, two threads of this process
//!                         +- jsse: Jsse.java does the same in a JVM, and answers by JSON
//!           Report <- Row, Row, ...     beside paper::ROWS
//! ```
//!
//! Only this crate links OpenSSL (feature `openssl`), and only it starts a JVM. It imports no other crate of the load
//! generator. Its modules, each of which imports only those before it:
//!
//! 1. `key`, `work`, `engine_name`; `row` with the results of a suite, `paper` with those of 2009; `certificates`
//! 2. `loopback`: a client and a server of an engine of this process
//! 3. `engine`: the engines
//! 4. `measure`

mod certificates;
mod engine;
pub mod engine_name;
pub mod key;
mod loopback;
pub mod measure;
pub mod paper;
pub mod row;
pub mod work;
