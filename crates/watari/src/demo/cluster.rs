//! Starts and ends the demo's processes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::{DemoError, doing};
use super::layout::{AGENTS, DISPATCHER, Layout, ORIGINS};
use super::process::Process;
use crate::admin::{Answer, Topic, ask};

/// The time that the nodes get to link to each other.
const READY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A running cluster. When it is dropped, its processes are killed and its directory is removed.
pub(super) struct Cluster {
    // Dropped before the layout: the processes must end before their directory is removed.
    processes: Vec<Process>,
    pub(super) layout: Layout,
}

impl Cluster {
    /// Starts everything, and waits until all nodes are linked to each other.
    pub(super) async fn start() -> Result<Self, DemoError> {
        let mut cluster = Self { processes: Vec::new(), layout: Layout::create()? };
        let mut origins = Vec::new();
        for name in ORIGINS {
            let address = cluster.start_origin(name).await?;
            origins.push(address.parse().map_err(|_| {
                doing(format!("reading the address of {name}"))(std::io::ErrorKind::InvalidData.into())
            })?);
        }
        cluster.layout.configure(&origins)?;
        for node in AGENTS.into_iter().chain([DISPATCHER]) {
            cluster.start_node(node)?;
        }
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Fails if a process has ended.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// Waits until a process ends. None should.
    pub(super) async fn ended(&mut self) -> DemoError {
        loop {
            if let Err(ended) = self.check() {
                return ended;
            }
            sleep(POLL * 10).await;
        }
    }

    /// Ends all processes, the dispatcher first.
    pub(super) async fn stop(&mut self) {
        while let Some(mut process) = self.processes.pop() {
            process.stop().await;
        }
    }

    async fn start_origin(&mut self, name: &str) -> Result<String, DemoError> {
        let content = self.layout.content().display().to_string();
        let mut origin = Process::start(name, &["demo", "origin", "--root", &content], self.layout.log(name))?;
        let address = origin.first_line().await;
        self.processes.push(origin);
        address
    }

    fn start_node(&mut self, name: &str) -> Result<(), DemoError> {
        let config = self.layout.config(name).display().to_string();
        let arguments = ["run", "--with-parent", "--config", &config];
        self.processes.push(Process::start(name, &arguments, self.layout.log(name))?);
        Ok(())
    }

    async fn ready(&mut self) -> Result<(), DemoError> {
        let deadline = Instant::now() + READY_MAX;
        for node in AGENTS.into_iter().chain([DISPATCHER]) {
            while let Err(waiting_for) = self.node_ready(node).await {
                self.check()?;
                if Instant::now() > deadline {
                    return Err(DemoError::NotReady { seconds: READY_MAX.as_secs(), waiting_for });
                }
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Whether `node` has all its links and can use all its agents. The error says what is missing.
    async fn node_ready(&self, node: &str) -> Result<(), String> {
        match ask(&self.layout.admin(node), Topic::Nodes).await {
            Ok(Answer::Nodes(nodes)) => {
                let missing = nodes.iter().find(|other| !other.up || other.available == Some(false));
                missing.map_or(Ok(()), |other| Err(format!("{node} cannot use {} yet", other.name)))
            }
            Ok(other) => Err(format!("{node} answers {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
