//! H2O.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let configuration = format!(
        "num-threads: 1
listen:
  host: {ip}
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}
{more}\n",
        ip = place.address.ip(),
        port = place.address.port(),
        root = place.root.display(),
        more = place.more,
    );
    Plan::new(["-m", "worker", "-c", &place.file("h2o.conf")], "h2o.conf", configuration)
}
