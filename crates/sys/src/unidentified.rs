//! Unidentified connections: accepted, but without a certificate or preface yet.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::oneshot;
use watari_admission::{Newcomer, Unidentified as Waiting, UnidentifiedLimits};

/// The unidentified connections to one port, up to a limit. A new connection always gets a place. Another connection
/// may lose its place for it: [`watari_admission::Unidentified`] decides which.
pub struct Unidentified(Mutex<Waiting<oneshot::Sender<()>>>);

/// The place of a connection. Dropping it, or identifying the peer, frees the place.
pub struct UnidentifiedPlace {
    all: Arc<Unidentified>,
    newcomer: Newcomer,
    address: IpAddr,
}

/// Ready when another connection needs the place, and this one has to be closed. Pending forever once the place is
/// freed.
pub struct CrowdedOut(Option<oneshot::Receiver<()>>);

impl Unidentified {
    pub fn new(limits: UnidentifiedLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Waiting::new(limits))))
    }

    /// Sets the limits for connections accepted from now on.
    pub fn set_limits(&self, limits: UnidentifiedLimits) {
        self.lock().set_limits(limits);
    }

    /// Takes a place for a connection from `address`. `is_member`: the address is a configured one, or that of a
    /// member.
    pub fn enter(self: &Arc<Self>, address: IpAddr, is_member: bool) -> (UnidentifiedPlace, CrowdedOut) {
        let (crowd_out, crowded_out) = oneshot::channel();
        let (newcomer, other) = self.lock().enter(address, is_member, crowd_out, Instant::now());
        if let Some(other) = other {
            // The other connection may have ended in the meantime.
            let _ = other.send(());
        }
        (UnidentifiedPlace { all: self.clone(), newcomer, address }, CrowdedOut(Some(crowded_out)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnidentifiedPlace {
    /// Records that bytes were received that do not identify the peer yet.
    pub fn spoke(&self) {
        self.all.lock().spoke(&self.newcomer);
    }

    /// Records that the peer has identified itself. Its address counts as known for an hour.
    pub fn identified(self) {
        self.all.lock().identified(self.address, Instant::now());
    }
}

impl Future for CrowdedOut {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(receiver) = &mut self.0 else { return Poll::Pending };
        match Pin::new(receiver).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(sent) => {
                self.0 = None;
                if sent.is_ok() { Poll::Ready(()) } else { Poll::Pending }
            }
        }
    }
}

impl Drop for UnidentifiedPlace {
    fn drop(&mut self) {
        self.all.lock().leave(&self.newcomer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_newcomer_gets_the_place_of_another() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let all = Unidentified::new(UnidentifiedLimits { known_max: 4, max: 4, per_address_max: 2 });
        let mut places: Vec<_> = (0..3).map(|_| all.enter(address, false)).collect();
        let (first, crowded_out) = places.remove(0);
        crowded_out.await;
        assert_eq!(all.lock().len(), 2);
        drop(first);
        assert_eq!(all.lock().len(), 2);
        let (second, mut crowded_out) = places.remove(0);
        second.identified();
        for _ in 0..2 {
            tokio::select! {
                biased;
                () = &mut crowded_out => panic!("it has left"),
                () = async {} => {}
            }
        }
        // The address is known now, so its connections count under the other limit.
        let known: Vec<_> = (0..3).map(|_| all.enter(address, false)).collect();
        assert_eq!(all.lock().len(), 4);
        drop((known, places));
        assert!(all.lock().is_empty());
    }
}
