//! `watari pki`: the cluster's certificate authority.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use watari_pki::{Authority, Description, Subject, describe};
use watari_values::{NodeName, Role};

use super::print::{print, print_json};
use crate::failure::Failure;
use crate::table::Table;

/// Make and show the certificates of nodes
#[derive(Args)]
#[command(after_help = "\
Examples:
  watari pki init --dir pki
  watari pki issue a1 --role agent
  watari pki show --json")]
pub(crate) struct Pki {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the cluster's certificate authority
    #[command(after_help = "Example:\n  watari pki init --dir pki --cluster north")]
    Init {
        #[command(flatten)]
        directory: Directory,
        /// The cluster's name, which is in its certificates
        #[arg(long, default_value = "watari")]
        cluster: String,
    },
    /// Make a node's key and certificate
    #[command(after_help = "\
Examples:
  watari pki issue d1 --role dispatcher
  watari pki issue a1 --role agent --days 90
  watari pki issue w1 --role bench        a load generator
  watari pki issue s1 --role sensor       a sensor of the state monitor
  watari pki issue j1 --role judge        the judge that sensors report to

A node needs ca.pem, NODE.pem and NODE.key of the directory. ca.key stays where certificates are issued.")]
    Issue {
        #[command(flatten)]
        directory: Directory,
        /// The node's name
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
        /// The roles of the node
        #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
        roles: Vec<Role>,
        /// The validity of the certificate, in days
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Show the certificates of a directory
    #[command(after_help = "Example:\n  watari pki show --dir pki")]
    Show {
        #[command(flatten)]
        directory: Directory,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Directory {
    /// The directory of keys and certificates
    #[arg(long, default_value = "pki")]
    dir: PathBuf,
}

/// A certificate, as `show --json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    /// `None`: it is the authority's.
    node: Option<&'a NodeName>,
    roles: Vec<Role>,
    cluster: &'a str,
    not_before: &'a str,
    not_after: &'a str,
    /// SHA-256 of the DER, in hexadecimal.
    fingerprint: &'a str,
}

impl Pki {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.command {
            Command::Init { directory, cluster } => {
                Authority::create(&directory.dir, &cluster)?;
                print(format_args!("made the authority of {cluster} in {}\n", directory.dir.display()))
            }
            Command::Issue { directory, node, roles, days } => {
                let issued = Authority::open(&directory.dir)?.issue(&node, &roles, days)?;
                print(format_args!("made {} and {}\n", issued.certificate.display(), issued.key.display()))
            }
            Command::Show { directory, json } => show(&describe(&directory.dir)?, json),
        }
    }
}

fn show(descriptions: &[Description], json: bool) -> Result<(), Failure> {
    let shown: Vec<_> = descriptions.iter().map(shown).collect();
    if json {
        return print_json(&shown);
    }
    let mut table = Table::new(&["node", "roles", "cluster", "not_before", "not_after", "fingerprint"]).leaving_out(&[
        "fingerprint",
        "not_before",
        "cluster",
    ]);
    for certificate in shown {
        table.row([
            certificate.node.map_or("(authority)", NodeName::as_str).to_owned(),
            certificate.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(","),
            certificate.cluster.to_owned(),
            certificate.not_before.to_owned(),
            certificate.not_after.to_owned(),
            certificate.fingerprint.to_owned(),
        ]);
    }
    print(table)
}

fn shown(description: &Description) -> Shown<'_> {
    let (node, roles) = match &description.subject {
        Subject::Authority => (None, Vec::new()),
        Subject::Node { name, roles } => (Some(name), roles.iter().copied().collect()),
    };
    Shown {
        node,
        roles,
        cluster: &description.cluster,
        not_before: &description.not_before,
        not_after: &description.not_after,
        fingerprint: &description.fingerprint,
    }
}
