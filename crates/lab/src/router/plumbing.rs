//! Rules, routes and settings of the network namespace, by the programs `ip` and `chrt`.

use std::fs;
use std::process::{self, Command};

use super::driver::DEVICES;
use super::{Error, failed};
use crate::commands;

/// The first of the two tables of routes, which is also the priority of its rule.
const TABLE: usize = 100;
/// The priority of the first of the rules that reject packets while no router runs.
const REJECT: usize = TABLE + DEVICES.len();
/// Above that of normal processes, and below that of threads of the kernel which serve interrupts.
const REAL_TIME_PRIORITY: &str = "10";

/// Leads packets that come in at an interface to the device with the same position, and what comes in at a device to the
/// interface of its network. It works also where an earlier router has left its rules.
pub(super) fn connect(interfaces: [&str; 2]) -> Result<(), Error> {
    for (n, (interface, device)) in interfaces.into_iter().zip(DEVICES).enumerate() {
        // Without an address, the device sends no packets of its own.
        ip(&["link", "set", "dev", device, "addrgenmode", "none"])?;
        ip(&["link", "set", "dev", device, "up"])?;
        let table = (TABLE + n).to_string();
        for family in ["-4", "-6"] {
            ip(&[family, "route", "replace", "default", "dev", device, "table", &table])?;
            replace_rule(family, REJECT + n, &["iif", interface, "prohibit"])?;
            replace_rule(family, TABLE + n, &["iif", interface, "lookup", &table])?;
        }
        set(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        set(&format!("ipv4/conf/{device}/rp_filter"), "0")?;
    }
    // Packets of one network come in at the device of the other.
    set("ipv4/conf/all/rp_filter", "0")?;
    set("ipv4/ip_forward", "1")?;
    set("ipv6/conf/all/forwarding", "1")
}

/// Gives this process `SCHED_FIFO`, which threads inherit.
pub(super) fn become_real_time() -> Result<(), Error> {
    let id = process::id().to_string();
    let mut chrt = Command::new("chrt");
    let ran = commands::run(chrt.args(["--fifo", "--all-tasks", "--pid", REAL_TIME_PRIORITY, &id]));
    let ran = ran.map_err(failed("run `chrt` of util-linux"))?;
    ran.map(drop).map_err(|stderr| failed("set the scheduling policy")(std::io::Error::other(stderr)))
}

fn replace_rule(family: &str, priority: usize, rule: &[&str]) -> Result<(), Error> {
    let priority = priority.to_string();
    // There is none yet where no router has run before.
    let _ = ip(&[family, "rule", "delete", "priority", &priority]);
    ip(&[&[family, "rule", "add", "priority", &priority], rule].concat())
}

fn set(name: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).map_err(failed(format!("write {value} to {path}")))
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    let ran = commands::run(Command::new("ip").args(arguments)).map_err(failed("run `ip` of iproute2"))?;
    ran.map(drop).map_err(|stderr| Error::Ip { arguments: arguments.join(" "), stderr })
}
