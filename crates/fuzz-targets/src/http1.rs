//! The connections of `watari_http1` that its tests drive, and their comparison with hyper.

#[path = "../../http1/tests/common/mod.rs"]
pub(crate) mod common;
#[path = "../../http1/tests/compare/mod.rs"]
pub(crate) mod compare;
/// Seeds of the fuzz targets.
#[path = "../../http1/tests/common/corpus.rs"]
pub mod corpus;
