//! Has the kernel do what the candidate of an address wants.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use watari_takeover::Time;

use crate::clock;
use crate::gate::{Gate, GateError};
use crate::link::Interface;
use crate::lock;
use crate::netlink::Netlink;
use crate::notify::{Notice, Notifier};

/// The interval of the announcements that follow an activation.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// How often the kernel gets a new lifetime for an address. The shortest lifetime is 3 s.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before another attempt to remove an address.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How often the gate of a silent address is closed again, in case another program has removed it.
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How much longer the kernel keeps a silent address than the keeper, in seconds. The keeper removes it first, unless
/// the process has died.
const SILENCE_MARGIN_S: u64 = 2;

/// What the candidate wants. A later value replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Absent,
    /// The interface has the address until then, and the gate is closed except for flows that are let in. Replaces only
    /// `Absent` and itself.
    Silent {
        until: Time,
    },
    /// The gate is open until then, and the interface has the address.
    Present {
        until: Time,
    },
}

/// What a keeper reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The address is active.
    Active,
    /// The gate is closed, and the interface does not have the address.
    Removed,
    /// The kernel refuses an order of the owner.
    Failed,
    /// The state of a silent address has changed.
    Silent(Silence),
}

/// Whether the interface has the address silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    No,
    /// As wanted until then.
    Until(Time),
    /// The kernel refuses what was wanted until then.
    Refused(Time),
}

/// Keeps one address.
pub(crate) struct Keeper {
    pub(crate) address: IpNet,
    pub(crate) interface: Interface,
    pub(crate) gate: Arc<Mutex<Gate>>,
    pub(crate) netlink: Netlink,
    pub(crate) notifier: Notifier,
    pub(crate) lifetime_s: u32,
    pub(crate) garp_repeat: u32,
    pub(crate) garp_refresh: Option<Duration>,
    /// Whether the last notice of the operator's program was that the address is active.
    pub(crate) is_notified_active: bool,
}

/// What the interface has.
enum Held {
    Nothing,
    /// The address, silently.
    Silent {
        until: Time,
    },
    /// The address, with an open gate.
    Present(Present),
}

struct Present {
    refreshed: Instant,
    announcing: AbortHandle,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.announcing.abort();
    }
}

impl Held {
    /// Returns when a silent address needs attention.
    async fn is_due(&self) {
        match self {
            Self::Silent { until } => sleep(until.saturating_sub(clock::now()).min(SILENCE_CHECK_INTERVAL)).await,
            Self::Nothing | Self::Present(_) => std::future::pending().await,
        }
    }
}

impl Keeper {
    /// Follows `wanted` until `end`. What it has begun is done then.
    pub(crate) async fn run(
        mut self,
        mut wanted: watch::Receiver<Wanted>,
        end: CancellationToken,
        report: impl Fn(Kept),
    ) {
        let mut held = Held::Nothing;
        loop {
            let is_wanted = tokio::select! {
                biased;
                () = end.cancelled() => return,
                changed = wanted.changed() => match changed {
                    Ok(()) => *wanted.borrow_and_update(),
                    Err(_) => return,
                },
                () = held.is_due() => {
                    self.continue_silence(&mut held, &end, &report).await;
                    continue;
                }
            };
            match is_wanted {
                Wanted::Present { until } => match self.keep(until, &mut held).await {
                    Ok(true) => report(Kept::Active),
                    Ok(false) => {}
                    Err(error) => {
                        let (address, interface) = (self.address, &self.interface.name);
                        tracing::error!(%address, interface, %error, "cannot activate the address");
                        report(Kept::Failed);
                    }
                },
                Wanted::Silent { until } => self.begin_silence(until, &mut held, &end, &report).await,
                Wanted::Absent => {
                    held = Held::Nothing;
                    if self.remove(&end).await {
                        report(Kept::Removed);
                    }
                }
            }
        }
    }

    /// Adds the address silently, or gives it more time.
    async fn begin_silence(&mut self, until: Time, held: &mut Held, end: &CancellationToken, report: &impl Fn(Kept)) {
        match self.try_to_be_silent(until).await {
            Ok(()) => {
                *held = Held::Silent { until };
                report(Kept::Silent(Silence::Until(until)));
            }
            Err(error) => {
                let (address, interface) = (self.address, &self.interface.name);
                tracing::error!(%address, interface, %error, "cannot add the address silently");
                *held = Held::Nothing;
                self.remove(end).await;
                report(Kept::Silent(Silence::Refused(until)));
            }
        }
    }

    async fn try_to_be_silent(&self, until: Time) -> Result<(), KeepError> {
        let left = self.expect(until).await?;
        let lifetime_s = u32::try_from(left.as_secs().saturating_add(SILENCE_MARGIN_S)).unwrap_or(u32::MAX);
        Ok(self.netlink.add(self.interface.index, self.address, lifetime_s).await?)
    }

    /// Closes the gate, except for flows that are let in. Returns how long.
    async fn expect(&self, until: Time) -> Result<Duration, KeepError> {
        let (gate, address) = (self.gate.clone(), self.address.addr());
        let left = until.saturating_sub(clock::now());
        let expecting = spawn_blocking(move || lock(&gate).expect(address, left)).await;
        expecting.map_err(|_| KeepError::Panicked)??;
        Ok(left)
    }

    /// Ends the silence of an address in time. Until then, its gate stays closed.
    async fn continue_silence(&mut self, held: &mut Held, end: &CancellationToken, report: &impl Fn(Kept)) {
        let Held::Silent { until } = *held else { return };
        let continued = if until > clock::now() { self.expect(until).await } else { Err(KeepError::Over) };
        let Err(error) = continued else { return };
        if !matches!(error, KeepError::Over) {
            let (address, interface) = (self.address, &self.interface.name);
            tracing::error!(%address, interface, %error, "cannot keep the address silent");
        }
        *held = Held::Nothing;
        self.remove(end).await;
        report(Kept::Silent(Silence::No));
    }

    /// Keeps the gate open, and the address on its interface. Returns whether it has become active.
    async fn keep(&mut self, until: Time, held: &mut Held) -> Result<bool, KeepError> {
        let (gate, address) = (self.gate.clone(), self.address.addr());
        // A successor in an upgrade goes on with a gate that is open. Flows may be away.
        let is_first = !matches!(held, Held::Present(_)) && !self.is_notified_active;
        let opened = spawn_blocking(move || {
            let mut gate = lock(&gate);
            if is_first { gate.open_first(address, until, clock::now) } else { gate.open(address, until, clock::now) }
        });
        match opened.await.map_err(|_| KeepError::Panicked)? {
            Ok(()) => {}
            // The candidate ends the lease itself, or extends it.
            Err(error @ (GateError::LeaseOver | GateError::TooSlow)) => {
                tracing::warn!(%address, %error, "lease not extended");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if let Held::Present(present) = held
            && present.refreshed.elapsed() < REFRESH_INTERVAL
        {
            return Ok(false);
        }
        self.netlink.add(self.interface.index, self.address, self.lifetime_s).await?;
        let refreshed = Instant::now();
        if let Held::Present(present) = held {
            present.refreshed = refreshed;
            return Ok(false);
        }
        *held = Held::Present(Present { refreshed, announcing: self.announce() });
        self.notify(true);
        Ok(true)
    }

    /// Closes the gate and removes the address. Does not return before that is done, or before `end` if it cannot be
    /// done. The gate closes by itself. Returns whether it is done.
    async fn remove(&mut self, end: &CancellationToken) -> bool {
        while let Err(error) = self.try_to_remove().await {
            let (address, interface) = (self.address, &self.interface.name);
            if end.is_cancelled() {
                return false;
            }
            tracing::error!(%address, interface, %error, "cannot remove the address: trying again");
            sleep(RETRY_PAUSE).await;
        }
        self.notify(false);
        true
    }

    async fn try_to_remove(&self) -> Result<(), KeepError> {
        let (gate, address) = (self.gate.clone(), self.address.addr());
        let closed = spawn_blocking(move || lock(&gate).close(address)).await;
        closed.map_err(|_| KeepError::Panicked)??;
        Ok(self.netlink.remove(self.interface.index, self.address).await?)
    }

    /// Announces the address from now on.
    fn announce(&self) -> AbortHandle {
        let (interface, address) = (self.interface.clone(), self.address.addr());
        let (repeat, refresh) = (self.garp_repeat, self.garp_refresh);
        let announcing = tokio::spawn(async move {
            let announce = || {
                if let Err(error) = interface.announce(address) {
                    tracing::warn!(%address, interface = interface.name, %error, "cannot announce the address");
                }
            };
            for number in 0..repeat {
                if number > 0 {
                    sleep(ANNOUNCE_INTERVAL).await;
                }
                announce();
            }
            while let Some(refresh) = refresh {
                sleep(refresh).await;
                announce();
            }
        });
        announcing.abort_handle()
    }

    /// Notifies the operator's program, unless that was its last notice.
    fn notify(&mut self, is_active: bool) {
        if mem::replace(&mut self.is_notified_active, is_active) == is_active {
            return;
        }
        let (address, interface) = (self.address.addr(), self.interface.name.clone());
        self.notifier.notify(Notice { is_active, address, interface });
    }
}

/// The kernel did not do what was wanted.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("netlink: {0}")]
    Netlink(#[from] rtnetlink::Error),
    #[error("the thread of the gate has failed")]
    Panicked,
    #[error("its time is over")]
    Over,
}
