//! `watari ctl switch`: gives service addresses to another node.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watari_values::NodeName;

use super::remote::{POLL, Remote};
use super::show;
use super::unfulfilled::Unfulfilled;
use crate::admin::{AddressEntry, Answer, AskError, Topic, ask};
use crate::failure::Failure;

/// Longer than a switch takes if all nodes answer, with tens of thousands of connections.
const SWITCH_MAX: Duration = Duration::from_secs(70);
/// How long the owner may stay the owner, and prepare nothing.
const STAYS_MAX: Duration = Duration::from_secs(5);

/// The first argument. No name of a node is an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressOrNode {
    Address(IpAddr),
    Node(NodeName),
}

impl FromStr for AddressOrNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), NodeName::new(text)) {
            (Ok(address), _) => Ok(Self::Address(address)),
            (Err(_), Ok(node)) => Ok(Self::Node(node)),
            (Err(_), Err(_)) => Err("expected an IP address or the name of a node".to_owned()),
        }
    }
}

/// Orders the switch, and waits until it is done.
pub(super) async fn run(
    node: &Remote<'_>,
    first: Option<AddressOrNode>,
    second: Option<NodeName>,
) -> Result<(), Failure> {
    let (address, to) = match (first, second) {
        (Some(AddressOrNode::Node(_)), Some(_)) => {
            return Err(Failure::Usage("the first argument is the ADDRESS, the second the NODE".to_owned()));
        }
        (Some(AddressOrNode::Node(to)), None) => (None, Some(to)),
        (Some(AddressOrNode::Address(address)), to) => (Some(address), to),
        (None, to) => (None, to),
    };
    let is_meant = |shown: &AddressEntry| address.is_none_or(|address| shown.ip().parse() == Ok(address));
    let before = addresses(node).await?;
    node.give(Topic::Switch { address, node: to.clone() }).await?;
    let ordered = Instant::now();
    let mut last_progress = ordered;
    loop {
        let now = addresses(node).await?;
        let stays = now.iter().filter(|shown| is_meant(shown)).find(|shown| {
            let before = before.iter().find(|before| before.address == shown.address);
            let owner = shown.owner.as_deref();
            owner.is_none()
                || match &to {
                    Some(to) => owner != Some(to.as_str()),
                    None => before.is_some_and(|before| before.owner.as_deref() == owner),
                }
        });
        match stays {
            None => return show::answer(&Answer::Addresses(now), node.json),
            Some(stays) => {
                // Only the owner shows that it prepares.
                if stays.preparing || stays.role != "active" {
                    last_progress = Instant::now();
                }
                if ordered.elapsed() > SWITCH_MAX || last_progress.elapsed() > STAYS_MAX {
                    let (address, owner) = (stays.address.clone(), stays.owner.clone());
                    let seconds = ordered.elapsed().as_secs();
                    return Err(Unfulfilled::NotSwitched { address, owner, seconds }.into());
                }
                sleep(POLL).await;
            }
        }
    }
}

async fn addresses(node: &Remote<'_>) -> Result<Vec<AddressEntry>, Failure> {
    match ask(node.socket, Topic::Addresses).await? {
        Answer::Addresses(addresses) => Ok(addresses),
        _ => Err(AskError::Garbled(node.socket.to_owned()).into()),
    }
}
