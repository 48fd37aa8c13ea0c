//! A directory served over HTTP.
