//! The node that a command asks, and the results of orders.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use watari_values::NodeName;

use super::show;
use crate::admin::{Answer, AskError, Connection, Topic, ask};
use crate::commands::print::{print, print_json};
use crate::failure::Failure;

/// The node to send questions to, and the format of the output.
pub(super) struct Remote<'a> {
    pub(super) socket: &'a Path,
    pub(super) json: bool,
}

impl Remote<'_> {
    pub(super) async fn show(&self, topic: Topic) -> Result<(), Failure> {
        show::answer(&ask(self.socket, topic).await?, self.json)
    }

    /// Sends an order, and prints its result.
    pub(super) async fn order(&self, order: Topic, done: Done) -> Result<(), Failure> {
        self.give(order).await?;
        if self.json { print_json(&done.report) } else { print(format_args!("{}\n", done.sentence)) }
    }

    /// Sends an order. The caller shows its effect.
    pub(super) async fn give(&self, order: Topic) -> Result<(), Failure> {
        ask(self.socket, order).await?;
        Ok(())
    }

    pub(super) async fn connections(&self) -> Result<Vec<Connection>, Failure> {
        match ask(self.socket, Topic::Connections).await? {
            Answer::Connections(connections) => Ok(connections),
            _ => Err(AskError::Garbled(self.socket.to_owned()).into()),
        }
    }

    /// The number of connections of this dispatcher that `agent` serves.
    pub(super) async fn connections_on(&self, agent: &NodeName) -> Result<usize, Failure> {
        let garbled = || AskError::Garbled(self.socket.to_owned());
        let Answer::Nodes(nodes) = ask(self.socket, Topic::Nodes).await? else {
            return Err(garbled().into());
        };
        let node = nodes.into_iter().find(|node| node.name == agent.as_str());
        Ok(node.and_then(|node| node.connections).ok_or_else(garbled)?)
    }
}

/// The result of an order.
pub(super) struct Done {
    /// For `--json`: the name of the order and its arguments.
    report: serde_json::Map<String, Value>,
    sentence: String,
}

impl Done {
    pub(super) fn of<const N: usize>(order: &str, about: [(&str, String); N]) -> Self {
        let about = about.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let report = [("done".to_owned(), order.into())].into_iter().chain(about).collect();
        Self { report, sentence: String::new() }
    }

    /// Sets the sentence that is printed without `--json`.
    pub(super) fn saying(self, sentence: String) -> Self {
        Self { sentence, ..self }
    }
}

/// The interval of checks whether an order has had its effect.
pub(super) const POLL: Duration = Duration::from_millis(50);
