//! The move of a live connection as state machines.
