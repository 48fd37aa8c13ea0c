//! Apache HTTP Server, as one process.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let (dir, root) = (place.dir.display(), place.root.display());
    let configuration = format!(
        "ServerRoot {dir}
         ServerName localhost
         Listen {address}
         PidFile {dir}/pid
         DefaultRuntimeDir {dir}
         ErrorLog /dev/stderr
         LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
         LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
         DocumentRoot {root}
         {more}\n",
        address = place.address,
        more = place.more,
    );
    Plan::new(["-X", "-f", &place.file("apache.conf")], "apache.conf", configuration)
}
