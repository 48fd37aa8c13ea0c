//! A node of the cluster that sends any messages that a test needs.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rustls::ClientConfig;
use watari_pki::Identity;
use watari_values::{NodeName, Role};
use watari_wire::frame::{self, Frame};
use watari_wire::{Hello, LinkMessage, Message};

use super::tls::{Tls, dial};
use crate::harness::node::Node;
use crate::harness::{Cluster, GUEST_DISPATCHER};

/// A link to a node, in the name of a guest.
pub(crate) struct Guest {
    stream: Tls,
    unread: Vec<u8>,
}

impl Guest {
    /// Links to `node` as a well-behaved node would.
    pub(crate) fn link(cluster: &Cluster, guest: &str, node: &Node) -> Self {
        let role = if guest == GUEST_DISPATCHER { Role::Dispatcher } else { Role::Agent };
        let mut link = Self::connect(identity(cluster, guest).client_config().clone(), node).unwrap();
        link.send_link(&LinkMessage::Hello(Hello::new(name(guest), &BTreeSet::from([role]), 1)));
        match link.next_frame() {
            Ok(Frame::Link(LinkMessage::Hello(hello))) => assert_eq!(hello.node, name(node.name)),
            other => panic!("no hello: {other:?}"),
        }
        link
    }

    /// Does the TLS handshake, and sends no message.
    pub(crate) fn connect(config: Arc<ClientConfig>, node: &Node) -> io::Result<Self> {
        let tcp = dial(IpAddr::V4(Ipv4Addr::LOCALHOST), node.mesh)?;
        Ok(Self { stream: Tls::connect(tcp, config, node.name, |_| {})?, unread: Vec::new() })
    }

    pub(crate) fn send(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).unwrap();
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_link(&mut self, message: &LinkMessage) {
        let mut bytes = Vec::new();
        frame::encode_link(message, &mut bytes);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// The next message about connections.
    pub(crate) fn next_message(&mut self) -> Message {
        loop {
            match self.next_frame().unwrap() {
                Frame::Message(message) => return message,
                Frame::Link(LinkMessage::Ping) => self.send_link(&LinkMessage::Pong),
                Frame::Link(_) | Frame::Unknown { .. } => {}
            }
        }
    }

    /// The next frame, or an error if the link has ended.
    pub(crate) fn next_frame(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((frame, len)) = frame::decode(&self.unread).map_err(io::Error::other)? {
                self.unread.drain(..len);
                return Ok(frame);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.unread.extend_from_slice(&buffer[..len]),
            }
        }
    }
}

pub(crate) fn identity(cluster: &Cluster, node: &str) -> Identity {
    Identity::load(&cluster.pki_dir(), &name(node)).unwrap()
}

pub(crate) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}
