//! Certificates are replaced in their files, without a signal or order to the node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustls::pki_types::CertificateDer;

use crate::clients::tls::{Taste, Tls};
use crate::harness::node::WATARI;
use crate::harness::site::{EXPIRED_AT, Renewed, expired, renew, write_key};
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// The certificates that three clients get, one after the other: one from each agent.
fn shown(cluster: &Cluster) -> Vec<CertificateDer<'static>> {
    let connect = |_| Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
    (0..3).map(|index| connect(index).site_certificate()).collect()
}

fn until_shown(cluster: &Cluster, renewed: &Renewed) {
    until("all agents show the new certificate", || shown(cluster).iter().all(|shown| *shown == renewed.der));
}

/// Writes `text` beside `file`, and renames it into its place.
fn rename_into(file: &Path, text: &str) {
    let temporary = file.with_extension("new");
    fs::write(&temporary, text).unwrap();
    fs::rename(&temporary, file).unwrap();
}

#[test]
fn a_file_renamed_into_place_or_written_in_place_is_loaded() {
    let cluster = Cluster::start(&Plan::default());
    let chain = cluster.dir().join("site/p256.pem");
    let renamed = renew(false);
    rename_into(&chain, &renamed.chain_pem);
    until_shown(&cluster, &renamed);
    let written = renew(false);
    fs::write(&chain, &written.chain_pem).unwrap();
    until_shown(&cluster, &written);
}

/// certbot switches the links in `live`, and Kubernetes the link to the directory.
#[test]
fn a_link_that_is_switched_is_followed() {
    let cluster = Cluster::start(&Plan::default());
    let dir = cluster.dir().join("site");
    let version = |name: &str, renewed: &Renewed| {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("chain.pem"), &renewed.chain_pem).unwrap();
        write_key(&dir.join(name).join("key.pem"), &renewed.key_pem);
    };
    let (first, second) = (renew(true), renew(true));
    version("v1", &first);
    symlink("v1", dir.join("current")).unwrap();
    for agent in cluster.agents() {
        let edit = |text: String| {
            text.replace("site/p256.pem", "site/current/chain.pem").replace("site/p256.key", "site/current/key.pem")
        };
        agent.reconfigure(edit);
    }
    until_shown(&cluster, &first);
    version("v2", &second);
    symlink("v2", dir.join("next")).unwrap();
    fs::rename(dir.join("next"), dir.join("current")).unwrap();
    until_shown(&cluster, &second);
}

/// The agent serves an expired certificate: a refusal would make the other certificate unusable, too.
#[test]
fn an_expired_certificate_is_reported_by_check_log_and_metric() {
    const METRIC: &str = "watari_certificate_expiry_timestamp_seconds";
    const SENTENCE: &str = "expired at 2021-01-01T00:00:00Z";
    let cluster = Cluster::start(&Plan::default());
    let agent = cluster.agents().next().unwrap();
    let check = || {
        let output =
            Command::new(WATARI).arg("run").arg("--config").arg(agent.config()).arg("--check").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let chain = cluster.dir().join("site/p256.pem");
    let shown = || agent.metrics().map_or(0, |metrics| metrics.sum(METRIC, chain.to_str().unwrap()));
    assert_eq!(check(), "");
    assert!(shown() > EXPIRED_AT);
    for label in ["listener", "node", "cluster_ca"] {
        assert!(agent.metrics().is_ok_and(|metrics| metrics.sum(METRIC, label) > 0), "{label}");
    }
    rename_into(&chain, &expired());
    until("the agent has logged it", || agent.log().contains(SENTENCE));
    until("the agent shows it", || shown() == EXPIRED_AT);
    let printed = check();
    assert!(printed.starts_with("watari: warning: ") && printed.contains(chain.to_str().unwrap()), "{printed}");
    assert!(printed.contains(SENTENCE) && printed.lines().count() == 1, "{printed}");
    rename_into(&chain, &renew(false).chain_pem);
    until("the agent shows the new one", || shown() > EXPIRED_AT);
    assert_eq!(agent.log().matches(SENTENCE).count(), 1);
}

#[test]
fn a_pair_that_does_not_fit_yet_leaves_the_old_one() {
    let cluster = Cluster::start(&Plan::default());
    let (dir, before) = (cluster.dir().join("site"), shown(&cluster));
    let renewed = renew(true);
    rename_into(&dir.join("p256.pem"), &renewed.chain_pem);
    let warnings = |agent: &crate::harness::node::Node| agent.log().matches("not usable yet").count();
    until("all agents have seen it", || cluster.agents().all(|agent| warnings(agent) > 0));
    assert_eq!(shown(&cluster), before);
    let key = dir.join("p256.key");
    write_key(&dir.join("p256.key.new"), &renewed.key_pem);
    fs::rename(dir.join("p256.key.new"), key).unwrap();
    until_shown(&cluster, &renewed);
    assert!(cluster.agents().all(|agent| warnings(agent) == 1), "it is said once, however often it is tried");
}
