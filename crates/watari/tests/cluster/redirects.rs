//! Clients with plain HTTP are redirected to HTTPS.

use std::io;
use std::net::TcpStream;
use std::process::Command;

use watari_test_origins::LoopbackAddresses;

use crate::harness::site::SITE;
use crate::harness::{Cluster, Plan};

#[test]
fn a_listener_that_redirects_comes_and_goes_with_the_configuration() {
    let cluster = Cluster::start(&Plan::default());
    let address = LoopbackAddresses::draw().take();
    let line = format!("redirect = [\"{address}\"]\n");
    let dispatcher = cluster.dispatcher();
    dispatcher.reconfigure(|text| text.replace("[dispatcher]\n", &format!("[dispatcher]\n{line}")));
    // curl follows to the site, and verifies its certificate.
    let (plain, secure) = (address.port(), cluster.service.port());
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--location",
            "--max-time",
            "60",
            "--write-out",
            "%{num_redirects} %{scheme}",
        ])
        .args(["--resolve", &format!("{SITE}:{plain}:{}", address.ip())])
        .args(["--resolve", &format!("{SITE}:{secure}:{}", cluster.service.ip())])
        .arg("--cacert")
        .arg(cluster.site_ca())
        .arg(format!("http://{SITE}:{plain}/bytes/0?1"))
        .output()
        .expect("the tests need curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 HTTPS");
    assert_eq!(dispatcher.count("watari_redirect_requests_total", "308"), 1);

    dispatcher.reconfigure(|text| text.replace(&line, ""));
    let error = TcpStream::connect(address).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
