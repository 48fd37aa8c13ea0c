//! HTTP forwarded to origins.
