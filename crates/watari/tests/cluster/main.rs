//! The whole cluster from outside: processes and clients on loopback.
//!
//! Each topic has a file. `harness` runs clusters, `clients` connect to them. The tests need `openssl` and `curl`.

#![allow(clippy::unwrap_used)]

mod clients;
mod harness;

mod anchored;
mod behind_finished;
mod cache;
mod certificates;
mod chaos;
mod client_certificates;
mod disturbed;
mod downloads;
mod early_data;
mod grpc;
mod h2spec;
mod half_closes;
mod handover;
mod health;
mod hostile_clients;
mod hostile_legs;
mod hostile_nodes;
mod hostile_requests;
mod hostile_sessions;
mod in_response;
mod ipv6;
mod key_updates;
mod legs;
mod limits;
mod members;
mod messages;
mod moves;
mod overload;
mod passthrough;
mod queue;
mod rebalancing;
mod redirects;
mod redis;
mod relays;
mod reload;
mod restarts;
mod scanners;
mod scenario_b;
mod sessions;
mod silent;
mod soak;
mod soak_mixed;
mod splices;
mod suites;
mod tls_parameters;
mod upgrade;
mod upgrade_agent;
mod websockets;
