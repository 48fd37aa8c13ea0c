//! Caddy, which stores its state in its user's home directory. It serves all hosts, because a proxy sends its client's
//! `Host`.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let configuration = format!(
        "{{
             admin off
             auto_https off
         }}
         http://:{port} {{
             bind {ip}
             root * {root}
             file_server
             {more}
         }}\n",
        port = place.address.port(),
        ip = place.address.ip(),
        root = place.root.display(),
        more = place.more,
    );
    let arguments = ["run", "--adapter", "caddyfile", "--config", &place.file("Caddyfile")];
    let mut plan = Plan::new(arguments, "Caddyfile", configuration);
    plan.variables = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name, place.file(""))).to_vec();
    plan
}
