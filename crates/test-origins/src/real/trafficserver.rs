//! Apache Traffic Server, with a file for its cache.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let layout = place.file("runroot.yaml");
    let mut plan = Plan::new([&format!("--run-root={layout}")], "runroot.yaml", runroot(place));
    plan.files.extend([
        ("etc/records.config", records(place)),
        ("etc/remap.config", format!("map / http://{}/\n", place.behind)),
        ("etc/storage.config", format!("{} 64M\n", place.file("cache"))),
        ("etc/ip_allow.yaml", IP_ALLOW.to_owned()),
    ]);
    plan.directories = vec!["etc", "log", "run", "cache"];
    plan
}

/// Programs and libraries stay where Debian has them.
fn runroot(place: &Place<'_>) -> String {
    let dir = place.dir.display();
    format!(
        "prefix: {dir}
exec_prefix: {dir}
bindir: /usr/bin
sbindir: /usr/bin
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
sysconfdir: {dir}/etc
datadir: {dir}/cache
cachedir: {dir}/cache
localstatedir: {dir}/run
runtimedir: {dir}/run
logdir: {dir}/log
"
    )
}

/// The user `#-1` is the one that starts it.
fn records(place: &Place<'_>) -> String {
    format!(
        "CONFIG proxy.config.http.server_ports STRING {port}:ip-in={ip}
CONFIG proxy.config.http.wait_for_cache INT 2
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.crash_log_helper STRING NULL
{more}\n",
        port = place.address.port(),
        ip = place.address.ip(),
        more = place.more,
    )
}

const IP_ALLOW: &str = "ip_allow:
  - apply: in
    ip_addrs: 127.0.0.0/8
    action: allow
    methods: ALL
";
