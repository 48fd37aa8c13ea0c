//! Compiles the crate again when a file of an experiment comes or goes.

fn main() {
    println!("cargo::rerun-if-changed=experiments");
}
