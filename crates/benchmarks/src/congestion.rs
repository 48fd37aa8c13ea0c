//! The congestion control of servers that leave it to the system.
//!
//! `scripts/bench` sets cubic by the routes of its network namespace. Watari sets cubic for each connection, because the
//! connections of a cluster have no pacing by `fq`. A machine with another default gives nginx and `HAProxy` that one.

use std::process::Command;

use crate::failure::{Failure, doing};

/// The system's congestion control is BBR until this is dropped.
pub(crate) struct Bbr(());

impl Bbr {
    pub(crate) fn begin() -> Result<Self, Failure> {
        set("bbr")?;
        Ok(Self(()))
    }
}

impl Drop for Bbr {
    fn drop(&mut self) {
        if let Err(error) = set("cubic") {
            eprintln!("{error}");
        }
    }
}

fn set(control: &str) -> Result<(), Failure> {
    for clients in ["127.0.0.0/8", "127.0.0.1"] {
        let route = ["route", "change", "table", "local", "local", clients, "dev", "lo", "src", "127.0.0.1"];
        let output = Command::new("ip").args(route).args(["congctl", control]).output();
        let output = output.map_err(doing("running ip route"))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(doing(format!("setting {control}"))(std::io::Error::other(why)));
        }
    }
    Ok(())
}
