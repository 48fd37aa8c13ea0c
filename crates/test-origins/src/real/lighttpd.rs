//! lighttpd.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let configuration = format!(
        "server.bind = \"{}\"
         server.port = {}
         server.document-root = \"{}\"
         {}\n",
        place.address.ip(),
        place.address.port(),
        place.root.display(),
        place.more,
    );
    Plan::new(["-D", "-f", &place.file("lighttpd.conf")], "lighttpd.conf", configuration)
}
