#![allow(clippy::unwrap_used)]

use std::fs;

use proptest::prelude::*;
use rustls::{CertificateError, ClientConnection, Connection, Error, ServerConnection};
use rustls_pki_types::ServerName;

use super::*;
use crate::Authority;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A cluster with these agents.
fn cluster(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "c").unwrap();
    for name in names {
        authority.issue(&node(name), &[Role::Agent], 1).unwrap();
    }
    dir
}

fn identity(dir: &tempfile::TempDir, name: &str) -> Identity {
    Identity::load(dir.path(), &node(name)).unwrap()
}

/// Does a handshake in memory. Returns the result of the client and of the server.
fn shake(client: &Identity, server: &Identity, name: &str) -> (Result<(), Error>, Result<Vec<u8>, Error>) {
    shake_as(client.client_config(), server, name)
}

fn shake_as(client: &Arc<ClientConfig>, server: &Identity, name: &str) -> (Result<(), Error>, Result<Vec<u8>, Error>) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client: Connection = ClientConnection::new(Arc::clone(client), name).unwrap().into();
    let mut server: Connection = ServerConnection::new(Arc::clone(server.server_config())).unwrap().into();
    let (mut to_client, mut to_server) = (Ok(()), Ok(()));
    while client.wants_write() || server.wants_write() {
        to_server = to_server.and(pass(&mut client, &mut server));
        to_client = to_client.and(pass(&mut server, &mut client));
    }
    let shown = server.peer_certificates().map(|chain| chain[0].to_vec()).unwrap_or_default();
    (to_client, to_server.map(|()| shown))
}

fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut bytes = &bytes[..];
    while !bytes.is_empty() {
        to.read_tls(&mut bytes).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn nodes_of_one_cluster_recognize_each_other() {
    let dir = cluster(&["a", "b"]);
    let (client, server) = shake(&identity(&dir, "a"), &identity(&dir, "b"), "b");
    client.unwrap();
    assert_eq!(peer_identity(&server.unwrap()), Ok((node("a"), BTreeSet::from([Role::Agent]))));
}

#[test]
fn another_authority_is_refused_at_both_ends() {
    let (ours, theirs) = (cluster(&["a", "b"]), cluster(&["a", "b"]));
    let (client, _) = shake(&identity(&ours, "a"), &identity(&theirs, "b"), "b");
    assert!(matches!(client, Err(Error::InvalidCertificate(_))), "{client:?}");
    // A client that trusts the server, but has a certificate of another authority.
    let mut stranger = identity(&ours, "a");
    let roots = Arc::new(root(&files::ca_certificate(theirs.path())).unwrap());
    let key = PrivateKeyDer::from_pem_file(ours.path().join("a.key")).unwrap();
    let certificate = read_certificate(&ours.path().join("a.pem")).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    stranger.client = Arc::new(client_config(&provider, roots, certificate, key).unwrap());
    let (_, server) = shake(&stranger, &identity(&theirs, "b"), "b");
    assert!(matches!(server, Err(Error::InvalidCertificate(_))), "{server:?}");
}

#[test]
fn another_nodes_certificate_is_refused() {
    let dir = cluster(&["a", "b", "c"]);
    let (client, _) = shake(&identity(&dir, "a"), &identity(&dir, "c"), "b");
    let refused = matches!(
        client,
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        ))
    );
    assert!(refused, "{client:?}");
}

#[test]
fn whichever_node_of_the_cluster_is_there_can_be_dialed() {
    let (ours, theirs) = (cluster(&["a", "b"]), cluster(&["a", "b"]));
    let dial = |server: &Identity| shake_as(identity(&ours, "a").client_config_for_any(), server, "somewhere.example");
    let (client, server) = dial(&identity(&ours, "b"));
    client.unwrap();
    server.unwrap();
    let (client, _) = dial(&identity(&theirs, "b"));
    assert!(matches!(client, Err(Error::InvalidCertificate(_))), "{client:?}");
}

#[test]
fn a_client_without_certificate_is_refused() {
    let dir = cluster(&["a", "b"]);
    let mut anonymous = identity(&dir, "a");
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let roots = root(&files::ca_certificate(dir.path())).unwrap();
    let builder = builder.with_protocol_versions(&[&TLS13]).unwrap().with_root_certificates(roots);
    anonymous.client = Arc::new(builder.with_no_client_auth());
    let (_, server) = shake(&anonymous, &identity(&dir, "b"), "b");
    assert_eq!(server, Err(Error::NoCertificatesPresented));
}

#[test]
fn what_peers_would_refuse_does_not_load() {
    let (dir, other) = (cluster(&["a", "b"]), cluster(&["a"]));
    let load = |name: &str| Identity::load(dir.path(), &node(name)).err().unwrap();
    let copy = |from: &Path, to: &str| fs::copy(from, dir.path().join(to)).unwrap();
    assert!(load("c").to_string().contains("c.pem: No such file"));
    // Another node's certificate under this name.
    copy(&dir.path().join("b.pem"), "c.pem");
    copy(&dir.path().join("b.key"), "c.key");
    assert!(matches!(load("c"), PkiError::OtherNode { found, .. } if found == node("b")));
    // The right certificate with another key.
    copy(&dir.path().join("b.key"), "a.key");
    assert!(load("a").to_string().contains("a.key: "), "{}", load("a"));
    // A certificate of another authority.
    copy(&other.path().join("a.pem"), "a.pem");
    copy(&other.path().join("a.key"), "a.key");
    assert!(load("a").to_string().contains("a.pem: "), "{}", load("a"));
}

proptest! {
    #[test]
    fn every_node_name_is_a_server_name(name in "[a-z0-9-]{1,63}") {
        if let Ok(name) = NodeName::new(&name) {
            prop_assert!(ServerName::try_from(name.as_str()).is_ok());
        }
    }
}
