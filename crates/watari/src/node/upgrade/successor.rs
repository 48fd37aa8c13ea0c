//! The new process, which takes over from the running one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use watari_addresses::{PassedAddresses, PassedMultipath};
use watari_sys::DescriptorStream;
use watari_values::SecretBytes;
use zeroize::Zeroizing;

use super::{FORM, Fixed, FromPredecessor, FromSuccessor, Part, decoded, encoded};
use crate::node::error::NodeError;
use crate::node::listeners::Inherited;
use crate::node::roles::Roles;

/// The stream from the predecessor, in the new process.
pub(crate) struct PredecessorStream {
    stream: DescriptorStream,
}

impl PredecessorStream {
    /// Reports to the predecessor, which is at the standard input. Returns its listeners. `own` are this process's
    /// settings. Must be called in a tokio runtime.
    pub(crate) async fn meet(own: &Fixed) -> Result<(Self, Inherited), NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        // Otherwise the stream would stay open when this process has closed it.
        rustix::stdio::dup2_stdin(File::open("/dev/null").map_err(failed)?).map_err(|error| failed(error.into()))?;
        let mut before = Self { stream: DescriptorStream::open(input).map_err(failed)? };
        let hello = FromSuccessor::Hello { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned() };
        before.send(&hello).await.map_err(failed)?;
        let mut inherited = Inherited::default();
        loop {
            match before.receive().await.map_err(failed)? {
                (FromPredecessor::Listeners(addresses), descriptors) => {
                    for (address, listener) in addresses.into_iter().zip(descriptors) {
                        inherited.tcp.entry(address).or_default().push(listener.into());
                    }
                }
                (FromPredecessor::Start { admin, fixed }, descriptors) => {
                    inherited.admin = descriptors.into_iter().next().map(|socket| (admin, socket));
                    if fixed != *own {
                        return Err(NodeError::FixedSettings);
                    }
                    return Ok((before, inherited));
                }
                _ => return Err(failed(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// Takes the connections over. Returns when this process has all of them, with the leases of the predecessor.
    /// `None`: it failed before it passed these on.
    pub(crate) async fn take_over(
        &mut self,
        roles: &Roles,
        has_admin: bool,
    ) -> Result<Option<(PassedAddresses, Option<PassedMultipath>)>, NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        self.send(&FromSuccessor::Prepared { has_admin }).await.map_err(failed)?;
        let mut taken = 0;
        let addresses = loop {
            match self.receive().await {
                Ok((FromPredecessor::Finish { drained, addresses, multipath }, _)) => {
                    for agent in &drained {
                        // An agent may have left the configuration.
                        let _ = roles.dispatcher.as_ref().map(|dispatcher| dispatcher.drain(agent));
                    }
                    break Some((addresses, multipath));
                }
                Ok((message, sockets)) => {
                    taken += self.take(roles, message, sockets).await.map_err(failed)?;
                }
                Err(cause) if taken == 0 || !has_ended(&cause) => return Err(failed(cause)),
                Err(error) => {
                    tracing::error!(%error, "the previous process has failed: what it had not passed on is lost");
                    break None;
                }
            }
        };
        tracing::info!(taken, "taken over from the previous process");
        Ok(addresses)
    }

    /// Handles a message. Returns the number of connections that it has brought.
    async fn take(&mut self, roles: &Roles, message: FromPredecessor, sockets: Vec<OwnedFd>) -> io::Result<usize> {
        match (message, &roles.agent) {
            (FromPredecessor::Connections(part, states), _) => {
                let (restored, refused) = restore(roles, part, states, sockets);
                // From here on they are this process's. It has touched none before.
                self.send(&FromSuccessor::Taken { refused }).await?;
                let taken = restored.len();
                restored.into_iter().for_each(Restored::start);
                Ok(taken)
            }
            (FromPredecessor::AgentState(state), Some(agent)) => {
                agent.take_state(state.as_slice()).map_err(io::Error::other)?;
                self.send(&FromSuccessor::Taken { refused: Vec::new() }).await?;
                Ok(0)
            }
            (FromPredecessor::Messages(messages), Some(agent)) => {
                let (answer, sockets) = agent.exchange(messages.as_slice()).await.map_err(io::Error::other)?;
                let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                self.stream.send(&encoded(&FromSuccessor::Messages(answer))?, &sockets).await?;
                Ok(0)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reports that this process serves clients. An agent goes on to take connections over, until the predecessor has
    /// ended.
    pub(crate) async fn serves(mut self, roles: &Roles) {
        // The predecessor may have ended.
        let _ = self.send(&FromSuccessor::Serving).await;
        if roles.agent.is_none() {
            return;
        }
        let roles = roles.clone();
        tokio::spawn(async move {
            while let Ok((message, sockets)) = self.receive().await {
                if let Err(error) = self.take(&roles, message, sockets).await {
                    tracing::error!(%error, "cannot take over the rest from the previous process");
                    break;
                }
            }
            if let Some(agent) = &roles.agent {
                agent.end_taking_over();
            }
        });
    }

    async fn send(&mut self, message: &FromSuccessor) -> io::Result<()> {
        self.stream.send(&encoded(message)?, &[]).await
    }

    async fn receive(&mut self) -> io::Result<(FromPredecessor, Vec<OwnedFd>)> {
        let (message, descriptors) = self.stream.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((decoded(&Zeroizing::new(message))?, descriptors))
    }
}

/// Whether the other process has ended.
fn has_ended(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// A connection of either role, which stands still until [`Restored::start`].
enum Restored {
    Dispatcher(watari_dispatcher::Restored),
    Agent(watari_agent::Restored),
}

impl Restored {
    fn start(self) {
        match self {
            Self::Dispatcher(restored) => restored.start(),
            Self::Agent(restored) => restored.start(),
        }
    }
}

/// Makes the connections of `states`. Also returns the positions of those that cannot be continued. The predecessor goes
/// on with them.
fn restore(
    roles: &Roles,
    part: Part,
    states: Vec<(SecretBytes, usize)>,
    sockets: Vec<OwnedFd>,
) -> (Vec<Restored>, Vec<usize>) {
    let mut sockets = sockets.into_iter();
    let (mut restored, mut refused) = (Vec::new(), Vec::new());
    for (at, (state, count)) in states.into_iter().enumerate() {
        match restore_one(roles, part, state.as_slice(), sockets.by_ref().take(count).collect()) {
            Ok(connection) => restored.push(connection),
            Err(error) => {
                tracing::warn!(%error, "a connection stays in the previous process");
                refused.push(at);
            }
        }
    }
    (restored, refused)
}

fn restore_one(roles: &Roles, part: Part, state: &[u8], sockets: Vec<OwnedFd>) -> io::Result<Restored> {
    match (part, roles) {
        (Part::Dispatcher, Roles { dispatcher: Some(dispatcher), .. }) => {
            dispatcher.restore(state, sockets).map(Restored::Dispatcher).map_err(io::Error::other)
        }
        (Part::Agent, Roles { agent: Some(agent), .. }) => {
            agent.restore(state, sockets).map(Restored::Agent).map_err(io::Error::other)
        }
        _ => Err(io::Error::other("the configuration has another role")),
    }
}
