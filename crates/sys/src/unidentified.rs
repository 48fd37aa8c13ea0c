//! Accepted connections whose peers have not identified themselves yet.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::oneshot;
use watari_admission::{Newcomer, Unidentified as Waiting, UnidentifiedLimits};

/// The connections to one port whose peers have not identified themselves yet: a bounded number, in which each newcomer gets
/// a place, and others lose theirs. [`watari_admission::Unidentified`] decides which.
pub struct Unidentified(Mutex<Waiting<oneshot::Sender<()>>>);

/// The place of a connection, until this is dropped or its peer has identified itself.
pub struct UnidentifiedPlace {
    all: Arc<Unidentified>,
    newcomer: Newcomer,
    address: IpAddr,
}

/// Ready when another connection needs the place: this one is to be closed. Pending for ever once the place is given up.
pub struct CrowdedOut(Option<oneshot::Receiver<()>>);

impl Unidentified {
    /// No connection waits.
    pub fn new(limits: UnidentifiedLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Waiting::new(limits))))
    }

    /// Counts for connections that are accepted from now on.
    pub fn set_limits(&self, limits: UnidentifiedLimits) {
        self.lock().set_limits(limits);
    }

    /// A place for a connection from `address`. `is_member`: the address is a configured one, or a member's.
    pub fn enter(self: &Arc<Self>, address: IpAddr, is_member: bool) -> (UnidentifiedPlace, CrowdedOut) {
        let (crowd_out, crowded_out) = oneshot::channel();
        let (newcomer, other) = self.lock().enter(address, is_member, crowd_out, Instant::now());
        if let Some(other) = other {
            // It may just have ended.
            let _ = other.send(());
        }
        (UnidentifiedPlace { all: self.clone(), newcomer, address }, CrowdedOut(Some(crowded_out)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnidentifiedPlace {
    /// Marks the connection: bytes were received that do not identify the peer yet.
    pub fn spoke(&self) {
        self.all.lock().spoke(&self.newcomer);
    }

    /// The peer has identified itself: its address is known from now on, for an hour.
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
        // The address is known now: its connections are in the other pool.
        let known: Vec<_> = (0..3).map(|_| all.enter(address, false)).collect();
        assert_eq!(all.lock().len(), 4);
        drop((known, places));
        assert!(all.lock().is_empty());
    }
}
