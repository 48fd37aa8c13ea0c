//! How much a server can take: the highest level of load at which it still meets conditions.
//!
//! * [`search`] says what to measure next, and from which measurements the answer follows;
//! * [`curve`] keeps what was measured, and [`chart`] and [`svg`] draw it.
//!
//! A level is a rate (requests a second, open loop) or a number of connections (closed loop); nothing here needs to know which,
//! but for what it is called.

pub mod chart;
pub mod curve;
pub mod search;
pub mod svg;
