//! JSSE, the TLS implementation of the JDK: the engine of the paper, and the only one that still supports all its
//! suites.
//!
//! `Jsse.java` runs from its source in a separate JVM. In this JVM, the algorithms that the JDK has disabled are
//! enabled again. The configuration of the machine does not change.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use super::interface::{Engine, MeasureError, Offer};
use super::jvm::{self, Hello, Jvm, JvmError};
use crate::certificates::Certificates;
use crate::key::Key;
use crate::loopback::LoopbackError;
use crate::paper;
use crate::row::{Cost, Measured};
use crate::work::Work;

pub(crate) struct Jsse {
    /// `None` after the JVM has failed: the next suite starts a new one.
    jvm: Option<Jvm>,
    hello: Hello,
    /// The program, the keys and the JVM's error output.
    directory: TempDir,
}

impl Jsse {
    pub(super) fn start(certificates: &Certificates) -> Result<Self, JvmError> {
        let directory = tempfile::tempdir().map_err(JvmError::Files)?;
        write_files(directory.path(), certificates).map_err(JvmError::Files)?;
        let (jvm, hello) = Jvm::start(directory.path())?;
        Ok(Self { jvm: Some(jvm), hello, directory })
    }

    fn ask(&mut self, offer: &Offer, work: Work) -> Result<Answer, JvmError> {
        let mut jvm = match self.jvm.take() {
            Some(jvm) => jvm,
            None => Jvm::start(self.directory.path())?.0,
        };
        let key = file_stem(offer.key);
        let task = format!("{} {key} {} {}", offer.own_name, work.bulk_bytes, work.connections);
        let answer = jvm.ask(&task, jvm::answer_timeout(work))?;
        self.jvm = Some(jvm);
        Ok(answer)
    }
}

impl Engine for Jsse {
    fn version(&self) -> String {
        format!("JDK {}", self.hello.version)
    }

    fn offers(&self) -> Vec<Offer> {
        self.hello.suites.iter().filter_map(|name| Offer::new(paper::iana(name), name)).collect()
    }

    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError> {
        match self.ask(offer, work)? {
            Answer::Failed { error } => Err(JvmError::Suite(error).into()),
            Answer::Done(done) if done.not_new > 0 => Err(LoopbackError::NotNew(done.not_new).into()),
            Answer::Done(done) => Ok(done.into()),
        }
    }
}

/// The program's answer to a task.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Failed { error: String },
    Done(Done),
}

#[derive(Deserialize)]
struct Done {
    version: String,
    bulk: Spent,
    new: Spent,
    reuse: Spent,
    /// New connections that resumed a session.
    not_new: u32,
    reused: u32,
}

/// In nanoseconds.
#[derive(Deserialize)]
struct Spent {
    wall: u64,
    client_cpu: u64,
    server_cpu: u64,
}

impl From<Done> for Measured {
    fn from(done: Done) -> Self {
        Self {
            version: done.version,
            bulk: done.bulk.into(),
            new: done.new.into(),
            reuse: done.reuse.into(),
            reused: done.reused,
        }
    }
}

impl From<Spent> for Cost {
    fn from(spent: Spent) -> Self {
        Self {
            wall: Duration::from_nanos(spent.wall),
            client_cpu: Duration::from_nanos(spent.client_cpu),
            server_cpu: Duration::from_nanos(spent.server_cpu),
        }
    }
}

fn write_files(directory: &Path, certificates: &Certificates) -> io::Result<()> {
    fs::write(directory.join(jvm::PROGRAM), include_str!("../Jsse.java"))?;
    fs::write(directory.join(jvm::SECURITY), ALL_ALGORITHMS)?;
    for key in [Key::Rsa, Key::Ec, Key::EcByRsa] {
        let Some(identity) = certificates.identity(key) else { continue };
        let write = |part: &str, der: &[u8]| fs::write(directory.join(format!("{}.{part}", file_stem(key))), der);
        write("authority", &identity.authority)?;
        write("certificate", &identity.certificate)?;
        write("key", identity.key().secret_der())?;
    }
    Ok(())
}

fn file_stem(key: Key) -> &'static str {
    match key {
        Key::Rsa => "rsa",
        Key::Ec => "ec",
        Key::EcByRsa => "ec_by_rsa",
        Key::None => "none",
    }
}

/// Replaces the values of the JDK's `java.security` under these names.
const ALL_ALGORITHMS: &str = "\
jdk.tls.disabledAlgorithms=
jdk.tls.legacyAlgorithms=
jdk.certpath.disabledAlgorithms=
";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn offer(name: &str) -> Offer {
        Offer { suite: name.to_owned(), own_name: name.to_owned(), key: Key::Rsa }
    }

    #[test]
    fn a_suite_that_fails_says_why_and_the_next_is_measured() {
        let certificates = Certificates::generate().unwrap();
        let mut jsse = Jsse::start(&certificates).unwrap();
        let work = Work { bulk_bytes: 1, connections: 2 };
        let unknown = jsse.measure(&offer("TLS_UNKNOWN"), work).unwrap_err().to_string();
        assert!(unknown.contains("TLS_UNKNOWN"), "{unknown}");
        assert_eq!(jsse.measure(&offer("TLS_AES_128_GCM_SHA256"), work).unwrap().reused, 2);
        jsse.jvm.as_mut().unwrap().child.kill().unwrap();
        let ended = jsse.measure(&offer("TLS_AES_128_GCM_SHA256"), work).unwrap_err().to_string();
        assert_eq!(ended, "java ended: signal: 9 (SIGKILL)");
        assert_eq!(jsse.measure(&offer("TLS_AES_128_GCM_SHA256"), work).unwrap().reused, 2);
    }
}
