//! Users who come, and come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;

use super::pacer::Pacer;
use super::task::{give_up, perform};
use crate::client::Client;
use crate::run::Run;
use crate::users::{Next, Users, Visit};

/// Drives the users of one thread, with at most `connections_max` requests in progress. At that limit, it takes only
/// users who have waited for the connect timeout. They give up, and their next wait begins.
pub(super) async fn visits(run: &Arc<Run>, users: Users, connections_max: usize) {
    let mut visits = Visits { run, users, away: HashMap::new(), visiting: JoinSet::new() };
    let pacer = Pacer::new(&run.shared);
    loop {
        let free = visits.visiting.len() < connections_max;
        let wait = if free { Duration::ZERO } else { run.plan.timeouts.connect };
        match visits.users.next(run.now().saturating_sub(wait)) {
            Next::Ask(visit) => {
                if !visits.begin(visit) {
                    break;
                }
                // If the schedule is behind, nothing else ever yields.
                consume_budget().await;
            }
            Next::Wait(due) => tokio::select! {
                () = pacer.wait(due.saturating_add(wait)) => {}
                true = visits.answer() => {}
            },
            Next::WaitForAnswers if visits.answer().await => {}
            Next::WaitForAnswers | Next::Done => break,
        }
    }
    while visits.answer().await {}
}

struct Visits<'a> {
    run: &'a Arc<Run>,
    users: Users,
    /// The clients of waiting users, with their sessions, by the user's number.
    away: HashMap<u64, Client>,
    visiting: JoinSet<Visited>,
}

/// A finished visit, successful or not.
struct Visited {
    visit: Visit,
    client: Client,
    ended: Duration,
}

impl Visits<'_> {
    /// Begins a visit, or ends one whose user has waited too long; false if the run is over.
    fn begin(&mut self, visit: Visit) -> bool {
        let Some(number) = self.run.shared.tickets.take(visit.due) else { return false };
        let waited = self.run.now().saturating_sub(visit.due);
        self.run.tally().lag(waited);
        let client = self.away.remove(&visit.user).unwrap_or_else(|| Client::new(self.run));
        if waited >= self.run.plan.timeouts.connect {
            give_up(self.run, number, visit.due);
            self.ended(Visited { visit, client, ended: self.run.now() });
        } else {
            self.visiting.spawn(go(Arc::clone(self.run), client, visit, number));
        }
        true
    }

    /// Waits for the end of a visit, and stores its user if that comes again; false if no visit is in progress.
    async fn answer(&mut self) -> bool {
        let Some(visited) = self.visiting.join_next().await else { return false };
        // The runtime has reported the panic. The user does not come again.
        if let Ok(visited) = visited {
            self.ended(visited);
        }
        true
    }

    /// Stores the user of a finished visit if that comes again.
    fn ended(&mut self, Visited { visit, client, ended }: Visited) {
        if self.users.answered(visit, ended) {
            self.away.insert(visit.user, client);
        }
    }
}

async fn go(run: Arc<Run>, mut client: Client, visit: Visit, number: u64) -> Visited {
    let now = run.now();
    perform(&run, &mut client, number, visit.due, now).await;
    client.close();
    Visited { visit, client, ended: run.now() }
}
