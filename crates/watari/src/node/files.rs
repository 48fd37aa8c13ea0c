//! What the limit on open files means for connections: a node that met it could neither accept nor link, so it takes
//! only as many connections, and pipes to splice by, as there are files for.

use std::num::NonZeroUsize;

use watari_sys::{FILES_PER_PIPE, Pipe};

use crate::config::{Config, LoadedAgent};
use crate::process;

/// For listeners, links, the log, administration and its questions, metrics, and what the system's libraries open.
const RESERVE: u64 = 128;
/// Redirected clients stay for a request each.
const REDIRECTS_MAX: usize = 1024;
/// A dispatcher's pipes get this part of all files: without a pipe bytes are copied, without a file a client is refused.
const PART_OF_PIPES: u64 = 16;

/// Fits the limits that a node works by, and the pipes to splice by, into the files that it may open now.
pub(super) fn fit_node(config: &mut Config, agent: Option<&mut LoadedAgent>) -> Result<(), TooFewFiles> {
    let files = process::raise_file_limit();
    if let Some(dispatcher) = &config.dispatcher {
        Pipe::limit(pipes_of_a_thread(files, dispatcher.threads));
    }
    let redirects = config.dispatcher.iter().any(|dispatcher| !dispatcher.redirect.is_empty());
    let redirects = if redirects { redirects_max(files) as u64 } else { 0 };
    let dispatcher = config.dispatcher.as_mut().map(|dispatcher| &mut dispatcher.config.limits);
    fit(files, redirects, dispatcher, agent.map(|agent| &mut agent.settings.limits))
}

/// How many clients may be redirected at the same time: nobody's main business.
pub(super) fn redirects_max(files: Option<u64>) -> usize {
    files.map_or(REDIRECTS_MAX, |files| REDIRECTS_MAX.min((files / 8) as usize))
}

/// How many pipes each of a dispatcher's threads may have.
fn pipes_of_a_thread(files: Option<u64>, threads: NonZeroUsize) -> usize {
    let pipes = files.map_or(usize::MAX, |files| (files / PART_OF_PIPES) as usize / FILES_PER_PIPE);
    pipes / threads
}

/// Fits the limits of the roles into `files`, the process's limit, and says so in the log.
fn fit(
    files: Option<u64>,
    redirects: u64,
    dispatcher: Option<&mut watari_dispatcher::Limits>,
    agent: Option<&mut watari_agent::Limits>,
) -> Result<(), TooFewFiles> {
    let Some(files) = files else { return Ok(()) };
    let wanted = dispatcher.as_deref().map_or(0, of_dispatcher);
    let wanted = wanted.saturating_add(agent.as_deref().map_or(0, of_agent));
    let pipes = if dispatcher.is_some() { files / PART_OF_PIPES } else { 0 };
    let reserve = RESERVE + redirects + pipes;
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

/// The client's socket and a leg; another leg while a connection moves, for which at most every fourth has room at the
/// same time: others stay where they are.
fn of_dispatcher(limits: &watari_dispatcher::Limits) -> u64 {
    let connections = limits.connections_max as u64;
    connections.saturating_mul(2).saturating_add(connections / 4)
}

/// A leg for each connection, as many whose preface is to come, and a file or an origin's socket for each request.
fn of_agent(limits: &watari_agent::Limits) -> u64 {
    (limits.connections_max as u64).saturating_mul(2).saturating_add(limits.requests_max as u64)
}

fn warn(files: u64, wanted: u64, key: &str, lowered_to: usize) {
    tracing::warn!(
        files,
        wanted,
        key,
        lowered_to,
        "a limit does not fit into the files that may be open: raise them \
        (ulimit -n, LimitNOFILE=) or lower it"
    );
}

/// No connection at all could be taken.
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
        // 23 of them are for pipes.
        assert_eq!(fit(Some(RESERVE + 23 + 225), 0, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(100));
        let mut other = agent(1_000, 500);
        assert_eq!(fit(Some(RESERVE + 250), 0, None, Some(&mut other)), Ok(()));
        assert_eq!(other, agent(100, 50));
        let (mut one, mut other) = (dispatcher(1_000), agent(1_000, 500));
        assert_eq!(fit(Some(RESERVE + 40 + 475), 0, Some(&mut one), Some(&mut other)), Ok(()));
        assert_eq!((one, other), (dispatcher(100), agent(100, 50)));
    }

    #[test]
    fn the_pipes_of_all_threads_are_within_their_part() {
        let pipes = |files, threads| pipes_of_a_thread(files, NonZeroUsize::new(threads).unwrap());
        for (files, threads, expected) in [(3_200, 1, 100), (3_200, 3, 33), (400, 8, 1), (400, 100, 0), (0, 1, 0)] {
            assert_eq!(pipes(Some(files), threads), expected, "{files} files, {threads} threads");
            assert!((expected * threads * FILES_PER_PIPE) as u64 <= files / PART_OF_PIPES);
        }
        assert_eq!(pipes(None, 1), usize::MAX);
    }

    #[test]
    fn who_is_redirected_needs_a_file_too() {
        let mut one = dispatcher(1_000);
        assert_eq!(fit(Some(RESERVE + 26 + 225 + 50), 50, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(100));
        assert_eq!([None, Some(100_000), Some(1024)].map(redirects_max), [1024, 1024, 128]);
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let mut one = dispatcher(usize::MAX);
        assert_eq!(fit(None, 0, Some(&mut one), None), Ok(()));
        assert_eq!(one, dispatcher(usize::MAX));
    }

    #[test]
    fn a_node_that_could_take_nobody_does_not_start() {
        assert_eq!(fit(Some(RESERVE), 0, Some(&mut dispatcher(1)), None), Err(TooFewFiles { files: RESERVE }));
        assert_eq!(fit(Some(20), 0, None, Some(&mut agent(8_000, 2_048))), Err(TooFewFiles { files: 20 }));
    }
}
