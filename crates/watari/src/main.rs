//! The `watari` command.

fn main() {}
