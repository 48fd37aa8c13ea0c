//! A flow on the way to other processes. It is sent as text, so that they parse and check it as this process did.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use url::Url;

use super::check::{BODY_BYTES_MAX, Check, FILE_BYTES_MAX};
use super::definition::{Body, Flow};
use super::error::{FlowError, Problem};

/// A flow as it is sent: its text, and the content of its body files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireFlow {
    /// The file's name, for errors.
    file: String,
    text: String,
    base: String,
    /// The content of body files, by their paths in the text.
    bodies: BTreeMap<String, ByteBuf>,
}

/// The received data is not a flow.
#[derive(Debug, thiserror::Error)]
pub enum BadFlow {
    /// The base URL is not the URL of a server.
    #[error("invalid flow: its URL")]
    Base,
    /// The flow does not parse.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl WireFlow {
    pub fn of(flow: &Flow) -> Self {
        let bodies = flow.steps.iter().filter_map(|step| match &step.body {
            Body::File(file) => Some((lossy(&file.path), ByteBuf::from(file.content.to_vec()))),
            Body::Nothing | Body::Text(_) => None,
        });
        Self { file: lossy(&flow.file), text: flow.text.clone(), base: flow.base.to_string(), bodies: bodies.collect() }
    }

    /// Parses the flow. `seed` is that of the run. It opens no file of this machine.
    pub fn into_flow(self, seed: u64) -> Result<Flow, BadFlow> {
        let base = Url::parse(&self.base).ok().filter(|base| matches!(base.scheme(), "http" | "https"));
        let base = base.ok_or(BadFlow::Base)?;
        let file = PathBuf::from(self.file);
        if self.text.len() as u64 > FILE_BYTES_MAX {
            return Err(FlowError::TooLong { file }.into());
        }
        let bodies = |path: &Path| body(&self.bodies, path);
        Ok(Flow::check(&Check { file: &file, text: &self.text, base: &base, seed, bodies: &bodies })?)
    }
}

/// Paths only match names in the text and appear in errors, so lossy conversion is enough.
fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn body(bodies: &BTreeMap<String, ByteBuf>, path: &Path) -> Result<Bytes, Problem> {
    let file = || path.to_owned();
    match bodies.get(&lossy(path)) {
        Some(content) if content.len() as u64 > BODY_BYTES_MAX => Err(Problem::BodyTooLong { file: file() }),
        Some(content) => Ok(Bytes::copy_from_slice(content)),
        None => Err(Problem::BodyUnreadable { file: file(), cause: io::ErrorKind::NotFound.into() }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEXT: &str = "[[step]]\nname = 'up'\nuri = '/up'\nbody_file = 'parts/body'\n";

    fn refused(spoil: impl FnOnce(&mut WireFlow)) -> String {
        let mut flow = WireFlow {
            file: "/shop/flow.toml".to_owned(),
            text: TEXT.to_owned(),
            base: "http://a.test/".to_owned(),
            bodies: BTreeMap::from([("parts/body".to_owned(), ByteBuf::from(b"of a file"))]),
        };
        flow.clone().into_flow(1).unwrap();
        spoil(&mut flow);
        flow.into_flow(1).unwrap_err().to_string()
    }

    #[test]
    fn what_no_flow_can_be_is_refused() {
        assert_eq!(refused(|flow| flow.base = "data:text/plain,a".to_owned()), "invalid flow: its URL");
        let wrong = refused(|flow| flow.text.push_str("[[step]]\n"));
        assert!(wrong.starts_with("/shop/flow.toml:5: missing field"), "{wrong}");
        let long = refused(|flow| flow.text.push_str(&"#".repeat(FILE_BYTES_MAX as usize)));
        assert_eq!(long, "/shop/flow.toml: a flow has at most 1 MiB");
        let large = refused(|flow| {
            flow.bodies.insert("parts/body".to_owned(), ByteBuf::from(vec![0; BODY_BYTES_MAX as usize + 1]));
        });
        assert_eq!(large, "/shop/flow.toml:4: parts/body: a body has at most 16 MiB");
    }

    #[test]
    fn files_of_the_receiver_are_not_opened() {
        let there = std::env::current_exe().unwrap();
        let asks_for = |flow: &mut WireFlow| flow.text = TEXT.replace("parts/body", there.to_str().unwrap());
        assert!(refused(asks_for).ends_with(": entity not found"));
    }
}
