//! Clients: real ones (`curl`, `openssl s_client`, programs for each TLS library), and one of our own that can do what those cannot.

pub(crate) mod curl;
pub(crate) mod guest;
pub(crate) mod h2;
pub(crate) mod hasty;
pub(crate) mod http;
pub(crate) mod openssl;
pub(crate) mod raw;
pub(crate) mod tls;
pub(crate) mod visitors;
