//! `watari ctl`: questions and orders to a running node.

mod cache;
mod cells;
mod drain;
mod moving;
mod origin_tables;
mod origins;
mod remote;
mod show;
mod switch;
pub(crate) mod unfulfilled;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use watari_values::setting::Span;
use watari_values::{ConnectionId, NodeName};

use crate::admin::Topic;
use crate::config::DEFAULT_ADMIN;
use crate::failure::Failure;
use remote::{Done, Remote};

/// Query and control a running node
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
    /// Show the state of the node
    #[command(after_help = "Example:\n  watari ctl status")]
    Status,
    /// Show the nodes that this node has in its view, itself included; or evict and admit nodes
    #[command(after_help = NODES_EXAMPLES)]
    Nodes {
        #[command(subcommand)]
        order: Option<Membership>,
    },
    /// Show the client connections of the node
    #[command(after_help = "Example:\n  watari ctl --json connections | jq '.[] | select(.moves > 0)'")]
    Connections,
    /// Show how an agent resumes sessions, and how many offered sessions it did not resume
    ///
    /// Resumed sessions count by where they were established: here at this agent, elsewhere at another agent, or
    /// pulled: at another agent, with data that was fetched during the handshake. The column missed has the causes of
    /// sessions that were offered and not resumed.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock sessions")]
    Sessions,
    /// Show the origins of an agent, their queues, movable resources and running downloads; or drain origins and move
    /// downloads
    ///
    /// A resource is movable if another origin has shown that it has the same bytes: by a strong validator, the same
    /// length, and ranges. Otherwise the column why has the reason.
    #[command(after_help = ORIGINS_EXAMPLES)]
    Origins {
        #[command(subcommand)]
        order: Option<origins::Order>,
    },
    /// Show the response cache of an agent, and purge stored responses
    #[command(subcommand)]
    Cache(cache::Order),
    /// Show the service addresses of a dispatcher: who has them, since when, and why
    ///
    /// A node is active or standby for an address. It is asking while it tries to get the address, and leaving while it
    /// removes it. `lease_ms` is the rest of its lease, without a renewal.
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock addresses")]
    Addresses,
    /// Give a service address, or all, to another dispatcher
    ///
    /// Any dispatcher with the address can be asked. Without NODE, the owner gives the address to the candidate with
    /// the highest priority, and another node takes it over itself. Nodes with a higher priority do not take the address
    /// back. Established connections go with the address. Those that cannot are reset: if the next dispatcher has no
    /// link to their agent, for example. The exit status is 1 if the address is not there after 5 s.
    #[command(after_help = SWITCH_EXAMPLES)]
    Switch {
        /// The address; without it, all addresses
        #[arg(value_name = "ADDRESS")]
        first: Option<switch::AddressOrNode>,
        /// The node that is to have it
        #[arg(value_name = "NODE", value_parser = NodeName::new)]
        second: Option<NodeName>,
    },
    /// Move a connection to another agent
    ///
    /// The socket must be that of the connection's dispatcher. An HTTP/1.1 connection moves at once if it is idle, in a
    /// response that the other agent can continue, in a stream of events, or a tunnel. Otherwise it moves after its
    /// response. HTTP/2 connections do not move. The exit status is 1 if the connection has not moved after 5 s; it may
    /// still move later.
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock move 5d1c0c9a55e0b7f3-12 a2")]
    Move {
        /// The connection, as `connections` names it
        #[arg(value_name = "CONN")]
        connection: ConnectionId,
        /// The agent to move it to
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
    /// Drain an agent: new connections go to other agents, and its connections move there
    ///
    /// A dispatcher drains only its own connections, so drain the agent at every dispatcher. HTTP/1.1 connections move
    /// between requests or during downloads. HTTP/2 connections get GOAWAY, and end when their streams have ended. The
    /// command waits until the agent has no connection of this dispatcher left, also for those that cannot move now or
    /// at all, but no longer than the grace time. No connection is cut, even after that: the command then lists the
    /// connections that remain, with the reasons, and its exit status is 1. The agent stays drained until `undrain`,
    /// even if it restarts.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain {
        /// The agent
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
        /// The time to wait for its connections to move or end
        #[arg(long, value_name = "TIME", default_value = "30s")]
        grace: Span,
    },
    /// Rotate the keys of session tickets
    #[command(subcommand, after_help = "Example:\n  watari ctl --admin a1.sock keys rotate")]
    Keys(Keys),
    /// Read the configuration file again
    ///
    /// Prints the changes. If the file, or a file that it names, has a mistake, the command prints the mistakes, the
    /// node changes nothing, and the exit status is 1. Existing connections continue; connections that begin after the
    /// command has ended get the new settings.
    #[command(after_help = "Example:\n  watari ctl --admin a1.sock reload")]
    Reload,
    /// Replace the running process by a new one, which goes on with its client connections
    ///
    /// The new process reads the configuration again, and gets the listeners and all connections. The command ends when
    /// it serves clients. If the new process cannot start, nothing changes, and the exit status is 1.
    ///
    /// An agent's HTTP/2 connections and tunnels stay in the previous process, which ends with the last of them, or after
    /// `node.drain_timeout`.
    #[command(
        after_help = "Examples:\n  watari ctl upgrade\n  watari ctl --admin d1.sock upgrade --program /opt/watari/bin/watari"
    )]
    Upgrade {
        /// The program to run [default: that of the running process, or the file that has replaced it]
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// End the drain of an agent: it gets connections again
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock undrain a1")]
    Undrain {
        /// The agent
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
}

#[derive(Subcommand)]
enum Membership {
    /// Evict a node from the cluster, even if its certificate is valid
    ///
    /// All nodes end their links to it, and refuse it from then on; agents make new ticket keys, which it does not get.
    /// The eviction reaches all nodes, and lasts as long as one node that has it runs. To evict a node permanently,
    /// also make sure that it has no valid certificate.
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock nodes evict a3")]
    Evict {
        /// The node
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
    /// Admit an evicted node: it may be a member again
    #[command(after_help = "Example:\n  watari ctl --admin d1.sock nodes admit a3")]
    Admit {
        /// The node
        #[arg(value_parser = NodeName::new)]
        node: NodeName,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Make new ticket keys from fresh random bytes, at this agent and at all agents that it has links to
    ///
    /// An attacker with the previous keys cannot open tickets that are sealed later. Existing tickets stay valid.
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

const SWITCH_EXAMPLES: &str = "\
Examples:
  watari ctl --admin d1.sock switch
  watari ctl --admin d1.sock switch d2
  watari ctl --admin d1.sock switch 192.0.2.1 d2";

const DRAIN_EXAMPLES: &str = "\
Examples:
  watari ctl --admin d1.sock drain a1
  watari ctl --admin d1.sock drain a1 --grace 10m && ssh a1 reboot
  watari ctl --admin d1.sock --json drain a1 | jq '.remaining[] | {id, stays}'";

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
                let said =
                    format!("{evicted} is evicted: this node has ended its link, and all linked nodes refuse it");
                let done = Done::of("evict", [("node", evicted.to_string())]).saying(said);
                node.order(Topic::Evict { node: evicted }, done).await
            }
            What::Nodes { order: Some(Membership::Admit { node: admitted }) } => {
                let done = Done::of("admit", [("node", admitted.to_string())]);
                let done = done.saying(format!("{admitted} may be a member again"));
                node.order(Topic::Admit { node: admitted }, done).await
            }
            What::Addresses => node.show(Topic::Addresses).await,
            What::Switch { first, second } => switch::run(&node, first, second).await,
            What::Sessions => node.show(Topic::Sessions).await,
            What::Origins { order: None } => node.show(Topic::Origins).await,
            What::Origins { order: Some(order) } => order.run(&node).await,
            What::Cache(order) => order.run(&node).await,
            What::Connections => node.show(Topic::Connections).await,
            What::Move { connection, node: target } => moving::run(&node, connection, &target).await,
            What::Drain { node: agent, grace } => drain::run(&node, agent, grace.get()).await,
            What::Keys(Keys::Rotate) => {
                let said = "ticket keys are rotated, here and at the agents that this one has links to; \
                            existing tickets stay valid";
                node.order(Topic::RotateKeys, Done::of("rotate_keys", []).saying(said.to_owned())).await
            }
            What::Reload => node.show(Topic::Reload).await,
            What::Upgrade { program } => node.show(Topic::Upgrade { program }).await,
            What::Undrain { node: agent } => {
                let done = Done::of("undrain", [("node", agent.to_string())]);
                let done = done.saying(format!("{agent} gets connections of this dispatcher again"));
                node.order(Topic::Undrain { node: agent }, done).await
            }
        }
    }
}
