//! Tests of the store with real files.
#![allow(clippy::unwrap_used)]
#![allow(clippy::cast_precision_loss, reason = "figures of measurements")]

mod damage;
mod disk;
mod full_disk;
mod kill;
mod measure;
mod memory;
mod support;
