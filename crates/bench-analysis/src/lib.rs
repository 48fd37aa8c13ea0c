//! What runs of the load generator show, and what they are asked to show.
//!
//! * `capacity`: the highest load at which a server meets conditions. It makes its loads with `bench-fleet`.
//! * `compare`: which differences between two sides are real.
//! * `predict`: the load of a site, and the servers that it needs.
//! * `access_log`: the log of a server. `make_list` makes an access list from it.
//!
//! It is the top of the load generator: it imports `bench-engine`, `bench-report` and `bench-fleet`, and none of them
//! imports it. Among its modules, `capacity` imports `predict`; `predict` and `make_list` import `access_log`.

pub mod access_log;
pub mod capacity;
pub mod compare;
pub mod make_list;
pub mod predict;
