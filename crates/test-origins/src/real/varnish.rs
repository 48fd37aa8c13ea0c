//! Varnish, in memory.

use rustix::process::Signal;

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let configuration = format!(
        "vcl 4.1;
         backend default {{
             .host = \"{}\";
             .port = \"{}\";
         }}
         {}\n",
        place.behind.ip(),
        place.behind.port(),
        place.more,
    );
    let (address, vcl, dir) = (place.address.to_string(), place.file("default.vcl"), place.file("varnish"));
    // Without an administration port, and with little memory for the unused log.
    let storage = ["-s", "default,64m", "-l", "2m", "-T", "none"];
    let [s, size, l, log, t, none] = storage;
    let arguments = ["-F", "-j", "none", "-n", &dir, "-f", &vcl, "-a", &address, s, size, l, log, t, none];
    let mut plan = Plan::new(arguments, "default.vcl", configuration);
    // Only its parent process ends its child, which SIGKILL would leave behind.
    plan.end = Signal::INT;
    plan
}
