//! Clients: `curl`, `openssl s_client`, programs for each TLS library, and a client of the tests' own for the rest.

pub(crate) mod curl;
pub(crate) mod guest;
pub(crate) mod h2;
pub(crate) mod hasty;
pub(crate) mod http;
pub(crate) mod openssl;
pub(crate) mod raw;
pub(crate) mod tls;
pub(crate) mod visitors;
