//! The settings that a reload can change: limits, TLS, content.

pub(crate) mod current;
pub(crate) mod limits;
pub(crate) mod refusal;
pub(crate) mod site;
pub(crate) mod tls;
