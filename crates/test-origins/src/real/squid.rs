//! Squid as an accelerator, in memory.

use rustix::process::Signal;

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let configuration = format!(
        "http_port {address} accel defaultsite=localhost
cache_peer {ip} parent {port} 0 no-query no-digest originserver
http_access allow all
visible_hostname localhost
pid_filename none
access_log none
cache_log /dev/stderr
cache_mem 64 MB
maximum_object_size_in_memory 32 MB
coredump_dir none
netdb_filename none
pinger_enable off
icp_port 0
shutdown_lifetime 0 seconds
{more}\n",
        address = place.address,
        ip = place.behind.ip(),
        port = place.behind.port(),
        more = place.more,
    );
    // The name of its shared memory, which has to be unique on the machine.
    let name = format!("origin{}at{}", place.address.port(), place.address.ip().to_string().replace('.', "x"));
    let mut plan = Plan::new(["-N", "-n", &name, "-f", &place.file("squid.conf")], "squid.conf", configuration);
    // After another signal its shared memory would stay.
    plan.end = Signal::INT;
    plan
}
