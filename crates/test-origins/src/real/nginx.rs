//! nginx, as one process.

use super::plan::{Place, Plan};

pub(super) fn plan(place: &Place<'_>) -> Plan {
    let (dir, root) = (place.dir.display(), place.root.display());
    let configuration = format!(
        "daemon off;
         master_process off;
         pid {dir}/pid;
         error_log stderr;
         events {{}}
         http {{
             access_log off;
             client_body_temp_path {dir}/body;
             proxy_temp_path {dir}/proxy;
             fastcgi_temp_path {dir}/fastcgi;
             uwsgi_temp_path {dir}/uwsgi;
             scgi_temp_path {dir}/scgi;
             server {{
                 listen {address};
                 root {root};
                 {more}
             }}
         }}\n",
        address = place.address,
        more = place.more,
    );
    Plan::new(["-e", "stderr", "-c", &place.file("nginx.conf")], "nginx.conf", configuration)
}
