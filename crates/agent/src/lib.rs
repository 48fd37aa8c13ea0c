//! The agent: terminates TLS, serves HTTP, hands live connections to other agents.
