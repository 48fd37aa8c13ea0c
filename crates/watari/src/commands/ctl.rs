//! `watari ctl`: questions and orders to a running node.

mod drain;
mod moving;
mod origins;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use watari_wire::{ConnectionId, NodeName};

use super::{print, print_json};
use crate::admin::{Answer, AskError, Connection, Topic, ask};
use crate::config::{DEFAULT_ADMIN, Span};
use crate::failure::Failure;

/// Ask a running node, or have it move connections
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ctl {
    /// The node's administration socket
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_ADMIN, global = true)]
    admin: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  watari ctl status
  watari ctl --admin d1.sock nodes
  watari ctl --json connections | jq '.[] | select(.moves > 0)'
  watari ctl drain a1 --grace 2m
  watari ctl --admin a1.sock reload";

#[derive(Subcommand)]
enum What {
    /// How the node is
    #[command(after_help = "Example:\n  watari ctl status")]
    Status,
    /// The nodes of the cluster in this node's view, itself included; or orders about membership
    #[command(after_help = NODES_EXAMPLES)]
    Nodes {
        #[command(subcommand)]
        order: Option<Membership>,
    },
    /// The connections of clients that it holds
    #[command(after_help = "Example:\n  watari ctl --json connections | jq '.[] | select(.moves > 0)'")]
    Connections,
    /// How an agent resumes sessions, and how often sessions that clients offered were not resumed
    ///
    /// Resumed sessions count by where they were established: at this agent (here), at another (elsewhere), or there with something that
    /// had to be fetched while the handshake waited (pulled); missed is why a session that was offered was not resumed.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock sessions")]
    Sessions,
    /// The origins of an agent, requests that wait for them, movable resources, and running downloads; or orders about
    /// them
    ///
    /// A resource is movable if another origin has shown that it holds the same bytes: by a strong validator, the same length,
    /// and ranges. Otherwise it is said why not.
    #[command(after_help = ORIGINS_EXAMPLES)]
    Origins {
        #[command(subcommand)]
        order: Option<origins::Order>,
    },
    /// Move a connection to another agent
    ///
    /// The node that is asked is the connection's dispatcher. A connection moves when no request is in progress; HTTP/2
    /// cannot move. Exit status 1 says that it is not there after five seconds; it may still move later.
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock move 5d1c0c9a55e0b7f3-12 a2")]
    Move {
        /// The connection, as `connections` names it
        #[arg(value_name = "CONN")]
        connection: ConnectionId,
        /// The agent it shall go to
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
    /// Drain an agent: new connections go to other agents, and its connections move there
    /// The node that is asked is a dispatcher; only its own connections are meant, so ask every dispatcher. HTTP/1.1
    /// moves between requests, HTTP/2 connections get a GOAWAY, and nothing is cut, not even when the time is over:
    /// connections that remain are listed, and the exit status is 1. The agent stays drained until `undrain`, also when
    /// it starts anew.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain {
        /// The agent
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
        /// How long to wait for its connections to move or end
        #[arg(long, value_name = "TIME", default_value = "30s")]
        grace: Span,
    },
    /// The keys of session tickets
    #[command(subcommand, after_help = "Example:\n  watari ctl --admin a1.sock keys rotate")]
    Keys(Keys),
    /// Read the configuration file again
    ///
    /// Prints what has changed. Where anything in the file, or in a file that it names, is wrong, nothing changes: that
    /// is said, and the exit status is 1. Connections go on; those that begin when this has returned see what is new.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock reload")]
    Reload,
    /// Let a drained agent have connections again
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock undrain a1")]
    Undrain {
        /// The agent
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
}

#[derive(Subcommand)]
enum Membership {
    /// Put a node out of the cluster, whatever its certificate says
    /// The links of all nodes to it end, and all nodes refuse it from then on; agents make new ticket keys, which it
    /// does not get. An eviction at any node counts at all nodes, as long as one node that has it keeps running. To
    /// evict a node for good, also make sure that it has no valid certificate.
    /// that has heard of it. To evict for good, also let no valid certificate be left with it.
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock nodes evict a3")]
    Evict {
        /// The node
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
    /// Let an evicted node be a member again
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock nodes admit a3")]
    Admit {
        /// The node
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Begin anew with fresh randomness, at this agent and at all others that it has links to
    ///
    /// An attacker with the previous keys cannot open what is sealed afterwards. Tickets that clients have stay good.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock keys rotate")]
    Rotate,
}

const NODES_EXAMPLES: &str = "\
Examples:
  watari ctl --admin d1.sock nodes
  watari ctl --admin d1.sock nodes evict a3";

const ORIGINS_EXAMPLES: &str = "\
Examples:
  watari ctl --admin a1.sock origins
  watari ctl --admin a1.sock --json origins | jq '.[].resources[] | select(.movable | not)'
  watari ctl --admin a1.sock origins drain http://10.0.0.1:8080";

const DRAIN_EXAMPLES: &str = "\
Examples:
  watari ctl --admin d1.sock drain a1
  watari ctl --admin d1.sock drain a1 --grace 10m && ssh a1 reboot
  watari ctl --admin d1.sock --json drain a1 | jq '.remaining[] | {id, stays}'";

/// The result of an order.
struct Done {
    /// For `--json`: the name of the order and its arguments.
    report: serde_json::Map<String, Value>,
    sentence: String,
}

impl Done {
    fn of<const N: usize>(order: &str, about: [(&str, String); N]) -> Self {
        let about = about.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let report = [("done".to_owned(), order.into())].into_iter().chain(about).collect();
        Self { report, sentence: String::new() }
    }

    /// Sets the sentence that is printed without `--json`.
    fn saying(self, sentence: String) -> Self {
        Self { sentence, ..self }
    }
}

/// The interval of checks whether an order has had its effect.
const POLL: Duration = Duration::from_millis(50);

/// An order was given, and has not had its effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfulfilled {
    #[error("the connection {0} has ended, or is of another dispatcher")]
    Gone(ConnectionId),
    #[error("the connection {connection} is still on {node} after {seconds} s{}", in_brackets(.stays.as_deref()))]
    Stayed { connection: ConnectionId, node: String, seconds: u64, stays: Option<String> },
    #[error(
        "{remaining} of the connections on {node} are still there after {seconds} s; it stays drained, and they go on"
    )]
    Remaining { node: NodeName, remaining: usize, seconds: f64 },
}

fn in_brackets(stays: Option<&str>) -> String {
    stays.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

impl Ctl {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        runtime.block_on(self.run())
    }

    async fn run(self) -> Result<(), Failure> {
        let node = Remote { socket: &self.admin, json: self.json };
        match self.what {
            What::Status => node.show(Topic::Status).await,
            What::Nodes { order: None } => node.show(Topic::Nodes).await,
            What::Nodes { order: Some(Membership::Evict { node: evicted }) } => {
                let said = format!("{evicted} is evicted: its link has ended, and all nodes that have links refuse it");
                let done = Done::of("evict", [("node", evicted.to_string())]).saying(said);
                node.order(Topic::Evict { node: evicted }, done).await
            }
            What::Nodes { order: Some(Membership::Admit { node: admitted }) } => {
                let done = Done::of("admit", [("node", admitted.to_string())]);
                let done = done.saying(format!("{admitted} may be a member again"));
                node.order(Topic::Admit { node: admitted }, done).await
            }
            What::Sessions => node.show(Topic::Sessions).await,
            What::Origins { order: None } => node.show(Topic::Origins).await,
            What::Origins { order: Some(order) } => order.run(&node).await,
            What::Connections => node.show(Topic::Connections).await,
            What::Move { connection, node: target } => moving::run(&node, connection, &target).await,
            What::Drain { node: agent, grace } => drain::run(&node, agent, grace.get()).await,
            What::Keys(Keys::Rotate) => {
                let said = "ticket keys begin anew, here and at the agents that this one has links to; \
                            tickets that clients have stay good";
                node.order(Topic::RotateKeys, Done::of("rotate_keys", []).saying(said.to_owned())).await
            }
            What::Reload => node.show(Topic::Reload).await,
            What::Undrain { node: agent } => {
                let done = Done::of("undrain", [("node", agent.to_string())]);
                let done = done.saying(format!("{agent} gets connections of this dispatcher again"));
                node.order(Topic::Undrain { node: agent }, done).await
            }
        }
    }
}

/// The node to send questions to, and the format of the output.
struct Remote<'a> {
    socket: &'a Path,
    json: bool,
}

impl Remote<'_> {
    async fn show(&self, topic: Topic) -> Result<(), Failure> {
        show::answer(&ask(self.socket, topic).await?, self.json)
    }

    /// Sends an order, and prints its result.
    async fn order(&self, order: Topic, done: Done) -> Result<(), Failure> {
        self.give(order).await?;
        if self.json { print_json(&done.report) } else { print(format_args!("{}\n", done.sentence)) }
    }

    /// Sends an order. The caller shows its effect.
    async fn give(&self, order: Topic) -> Result<(), Failure> {
        ask(self.socket, order).await?;
        Ok(())
    }

    async fn connections(&self) -> Result<Vec<Connection>, Failure> {
        match ask(self.socket, Topic::Connections).await? {
            Answer::Connections(connections) => Ok(connections),
            _ => Err(AskError::Garbled(self.socket.to_owned()).into()),
        }
    }

    /// The number of connections of this dispatcher that `agent` serves.
    async fn connections_on(&self, agent: &NodeName) -> Result<usize, Failure> {
        let garbled = || AskError::Garbled(self.socket.to_owned());
        let Answer::Nodes(nodes) = ask(self.socket, Topic::Nodes).await? else {
            return Err(garbled().into());
        };
        let node = nodes.into_iter().find(|node| node.name == agent.as_str());
        Ok(node.and_then(|node| node.connections).ok_or_else(garbled)?)
    }
}
