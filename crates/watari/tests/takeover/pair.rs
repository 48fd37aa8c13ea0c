//! A standby pair: two nodes, each dispatcher and agent, of which one serves and the other only stores sessions.
//!
//! ```text
//!   client --- br0, the service ---+-- eth0  d1  eth1 --+
//!                                  +-- eth0  d2  eth1 --+--- br1, notices: the mesh, and legs
//!                                            a1  eth1 --+    a1 is only a witness
//! ```
//!
//! Each dispatcher gives clients to the agent of its own node, as in the paper.

use rcgen::{PKCS_ECDSA_P256_SHA256, SignatureAlgorithm};

use crate::lab::{Plan, V4, V6, service_addresses};

/// The network for notices, without the number of the machine.
pub(crate) const NETWORK: &str = "198.51.100";

#[derive(Clone, Copy)]
pub(crate) struct Pair {
    /// Lines of `[agent.sessions]`. `NAME` stands for the name of the node.
    pub(crate) sessions: &'static str,
    /// The kind of the site's key.
    pub(crate) key: &'static SignatureAlgorithm,
}

impl Pair {
    /// A pair with a small key.
    pub(crate) const fn new(sessions: &'static str) -> Self {
        Self { sessions, key: &PKCS_ECDSA_P256_SHA256 }
    }

    /// The tables of d1 or d2, behind those of the node itself.
    pub(crate) fn tables(&self, name: &str, number: u8, priority: u8, plan: &Plan) -> String {
        let sessions = self.sessions.replace("NAME", name);
        format!(
            "[dispatcher]\nlisten = [\"{V4}:443\", \"[{V6}]:443\"]\n\
             agents = [{{ name = \"{name}\", legs = \"{NETWORK}.{number}:7101\" }}]\n\
             [dispatcher.takeover]\nvoters = [\"d1\", \"d2\", \"a1\"]\n{keys}\n{addresses}\
             [agent]\nlegs = \"{NETWORK}.{number}:7101\"\n[[agent.certificate]]\nchain = \"site.pem\"\n\
             key = \"site.key\"\ndefault = true\n[agent.files]\nroot = \"www\"\n[agent.sessions]\n{sessions}\n",
            keys = plan.keys,
            addresses = service_addresses(priority, "eth0"),
        )
    }
}

/// The tables of a1: a dispatcher without clients, so that only d1 and d2 are agents.
pub(crate) fn witness_tables() -> String {
    format!("[dispatcher]\nlisten = [\"127.0.0.1:443\"]\nagents = [{{ name = \"d1\", legs = \"{NETWORK}.1:7101\" }}]\n")
}
