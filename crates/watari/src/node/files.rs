//! Fits a node's limits into its limit on open files. At that limit, a node could neither accept connections nor make
//! links. So it holds only as many as it has files for of:
//!
//! * connections,
//! * pipes for splicing,
//! * idle legs,
//! * unidentified connections.

use std::num::NonZeroUsize;

use watari_sys::{FILES_PER_PIPE, Pipe};

use crate::config::{Config, LoadedAgent};
use crate::process;

/// Files for listeners, links, the log, administration, metrics, and the system's libraries.
const RESERVE: u64 = 128;
/// The most clients that are redirected at the same time. Each stays for one request.
const REDIRECTS_MAX: usize = 1024;
/// Files of a response cache: those of its directory, and connections to agents that own keys.
const OF_CACHE: usize = 512;
/// Each of three optional uses gets this part of all files: a dispatcher's pipes, its idle legs, and those of an agent.
/// Without a pipe, bytes are copied. Without an idle leg, the node opens another.
const PART_OF_EXTRAS: u64 = 32;
/// The part of all files for unidentified connections, in each pool: an agent's legs, and the mesh. In a full pool, the
/// oldest make room for others.
const PART_OF_UNIDENTIFIED: [u64; 2] = [32, 128];
/// The least of them in a pool. With fewer, peers that connect at the same time would displace each other.
const UNIDENTIFIED_MIN: usize = 16;

/// Fits the node's limits and its pipes for splicing into the files that the process may open now. The mesh cannot
/// change its limits at a reload. So the configured ones stay in `config`, and the fitted ones are returned.
pub(super) fn fit_node(
    config: &mut Config,
    mut agent: Option<&mut LoadedAgent>,
) -> Result<watari_mesh::Limits, TooFewFiles> {
    let files = process::raise_file_limit();
    let extras = files.map_or(usize::MAX, |files| (files / PART_OF_EXTRAS) as usize);
    if let Some(dispatcher) = &mut config.dispatcher {
        Pipe::limit(pipes_of_a_thread(extras, dispatcher.threads));
        let (agents, limits) = (dispatcher.config.agents.len(), &mut dispatcher.config.limits);
        limits.idle_legs_max = limits.idle_legs_max.min(idle_legs_to_an_agent(extras, dispatcher.threads, agents));
    }
    let [of_legs, of_mesh] = PART_OF_UNIDENTIFIED.map(|part| unidentified_max(files, part));
    if let Some(agent) = &mut agent {
        let limits = &mut agent.settings.limits;
        limits.idle_legs_max = limits.idle_legs_max.min(extras);
        limits.unidentified_max = limits.unidentified_max.min(of_legs);
    }
    let mut mesh = config.node.limits.clone();
    mesh.unidentified_max = mesh.unidentified_max.min(of_mesh);
    let redirects = config.dispatcher.iter().any(|dispatcher| !dispatcher.redirect.is_empty());
    let redirects = if redirects { redirects_max(files) } else { 0 };
    let of_legs = agent.as_ref().map_or(0, |agent| agent.settings.limits.unidentified_max);
    let of_cache = if config.has_cache() { OF_CACHE } else { 0 };
    // The mesh has two pools.
    let others = redirects + of_legs + 2 * mesh.unidentified_max + of_cache;
    let dispatcher = config.dispatcher.as_mut().map(|dispatcher| &mut dispatcher.config.limits);
    fit(files, others as u64, dispatcher, agent.map(|agent| &mut agent.settings.limits))?;
    Ok(mesh)
}

/// The most unidentified connections in a pool.
fn unidentified_max(files: Option<u64>, part: u64) -> usize {
    files.map_or(usize::MAX, |files| UNIDENTIFIED_MIN.max((files / part) as usize))
}

/// The most clients that may be redirected at the same time. Redirects are a minor use of files.
pub(super) fn redirects_max(files: Option<u64>) -> usize {
    files.map_or(REDIRECTS_MAX, |files| REDIRECTS_MAX.min((files / 8) as usize))
}

/// The most pipes of each thread of a dispatcher, if all pipes may take `files`.
fn pipes_of_a_thread(files: usize, threads: NonZeroUsize) -> usize {
    files / FILES_PER_PIPE / threads
}

/// The most idle legs to each agent that a thread may keep, if all may take `files`.
fn idle_legs_to_an_agent(files: usize, threads: NonZeroUsize, agents: usize) -> usize {
    files / threads / agents.max(1)
}

/// Fits the limits of the roles into `files`, the process's limit, beside `others`, and logs each limit that it lowers.
fn fit(
    files: Option<u64>,
    others: u64,
    dispatcher: Option<&mut watari_dispatcher::Limits>,
    agent: Option<&mut watari_agent::Limits>,
) -> Result<(), TooFewFiles> {
    let Some(files) = files else { return Ok(()) };
    let wanted = dispatcher.as_deref().map_or(0, of_dispatcher);
    let wanted = wanted.saturating_add(agent.as_deref().map_or(0, of_agent));
    let extras = 2 * u64::from(dispatcher.is_some()) + u64::from(agent.is_some());
    let reserve = RESERVE + others + extras * (files / PART_OF_EXTRAS);
    let available = files.saturating_sub(reserve);
    if wanted <= available {
        tracing::info!(files, wanted = wanted.saturating_add(reserve), "the limit on open files is high enough");
        return Ok(());
    }
    let warn = |key, lowered_to| warn(files, wanted.saturating_add(reserve), key, lowered_to);
    let shrink = |limit: &mut usize| {
        *limit = (u128::from(available) * *limit as u128 / u128::from(wanted)) as usize;
        if *limit > 0 { Ok(()) } else { Err(TooFewFiles { files }) }
    };
    if let Some(limits) = dispatcher {
        shrink(&mut limits.connections_max)?;
        warn("[dispatcher.limits] connections_max", limits.connections_max);
    }
    if let Some(limits) = agent {
        shrink(&mut limits.connections_max)?;
        shrink(&mut limits.requests_max)?;
        warn("[agent.limits] connections_max", limits.connections_max);
        warn("[agent.limits] requests_max", limits.requests_max);
    }
    Ok(())
}

/// Two files for a connection: the client's socket and a leg. A move takes another leg. At most every fourth connection
/// can move at the same time, and the others stay where they are.
fn of_dispatcher(limits: &watari_dispatcher::Limits) -> u64 {
    let connections = limits.connections_max as u64;
    connections.saturating_mul(2).saturating_add(connections / 4)
}

/// A leg for each connection, as many legs whose preface is still missing, and a file or an origin's socket for each
/// request.
fn of_agent(limits: &watari_agent::Limits) -> u64 {
    (limits.connections_max as u64).saturating_mul(2).saturating_add(limits.requests_max as u64)
}

fn warn(files: u64, wanted: u64, key: &str, lowered_to: usize) {
    tracing::warn!(
        files,
        wanted,
        key,
        lowered_to,
        "the system's limit on open files is too low for a configured limit: raise it \
        (ulimit -n, LimitNOFILE=), or lower the configured limit"
    );
}

/// The files do not suffice for a single connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{files} open files are too few for a node: raise the limit (ulimit -n, LimitNOFILE=)")]
pub(crate) struct TooFewFiles {
    files: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn dispatcher(connections_max: usize) -> watari_dispatcher::Limits {
        watari_dispatcher::Limits { connections_max, ..Default::default() }
    }

    fn agent(connections_max: usize, requests_max: usize) -> watari_agent::Limits {
        watari_agent::Limits { connections_max, requests_max, ..Default::default() }
    }

    #[test]
    fn the_defaults_fit_into_20_000_files() {
        let (mut one, mut other) = (dispatcher(8_000), agent(8_000, 2_048));
        assert_eq!(
            (fit(Some(20_000), 0, Some(&mut one), None), fit(Some(20_000), 0, None, Some(&mut other))),
            (Ok(()), Ok(()))
        );
        assert_eq!((one, other), (dispatcher(8_000), agent(8_000, 2_048)));
        assert_eq!(watari_dispatcher::Limits::default(), dispatcher(8_000));
        assert_eq!(watari_agent::Limits::default(), agent(8_000, 2_048));
    }

    #[test]
    fn what_does_not_fit_is_lowered() {
        let mut one = dispatcher(1_000);
        // Pipes and idle legs take 22 of them.
        assert_eq!(fit(Some(RESERVE + 22 + 225), 0, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(100));
        let mut other = agent(1_000, 500);
        assert_eq!(fit(Some(RESERVE + 12 + 250), 0, None, Some(&mut other)), Ok(()));
        assert_eq!(other, agent(100, 50));
        let (mut one, mut other) = (dispatcher(1_000), agent(1_000, 500));
        assert_eq!(fit(Some(RESERVE + 60 + 475), 0, Some(&mut one), Some(&mut other)), Ok(()));
        assert_eq!((one, other), (dispatcher(100), agent(100, 50)));
    }

    #[test]
    fn what_all_threads_do_without_is_within_its_part() {
        let threads = |threads| NonZeroUsize::new(threads).unwrap();
        for (files, of, expected) in [(200, 1, 100), (200, 3, 33), (25, 8, 1), (25, 100, 0), (0, 1, 0)] {
            assert_eq!(pipes_of_a_thread(files, threads(of)), expected, "{files} files, {of} threads");
            assert!(expected * of * FILES_PER_PIPE <= files);
        }
        for (files, of, agents, expected) in [(600, 2, 3, 100), (600, 7, 1, 85), (10, 2, 10, 0), (9, 1, 0, 9)] {
            assert_eq!(idle_legs_to_an_agent(files, threads(of), agents), expected, "{files}, {of}, {agents}");
        }
    }

    #[test]
    fn a_redirected_client_needs_a_file_too() {
        let mut one = dispatcher(1_000);
        assert_eq!(fit(Some(RESERVE + 26 + 225 + 50), 50, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(100));
        assert_eq!([None, Some(100_000), Some(1024)].map(redirects_max), [1024, 1024, 128]);
    }

    #[test]
    fn unidentified_connections_get_their_part() {
        for (files, expected) in [(None, usize::MAX), (Some(20_000), 625), (Some(400), 16), (Some(0), 16)] {
            assert_eq!(unidentified_max(files, 32), expected);
        }
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let mut one = dispatcher(usize::MAX);
        assert_eq!(fit(None, 0, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(usize::MAX));
    }

    #[test]
    fn a_node_without_files_for_a_client_does_not_start() {
        assert_eq!(fit(Some(RESERVE), 0, Some(&mut dispatcher(1)), None), Err(TooFewFiles { files: RESERVE }));
        assert_eq!(fit(Some(20), 0, None, Some(&mut agent(8_000, 2_048))), Err(TooFewFiles { files: 20 }));
    }
}
