//! An origin on a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::address::random_loopback_ip;
use crate::fault::{Fault, Moment};
use crate::pace::Pace;
use crate::request::Asked;
use crate::resource::Resource;

mod connection;
mod delivered;
mod shared;

use shared::OriginShared;

/// An HTTP/1.1 origin. Dropping it ends it and its connections.
///
/// It runs on a thread of its own, so that tests with and without a runtime can use it.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    shared: Arc<OriginShared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The behavior of an origin.
#[derive(Debug, Clone, Default)]
pub struct Manners {
    /// Its faults, and when. If several apply, they apply in this order.
    pub faults: Vec<(Moment, Fault)>,
    /// Its speed; `None` is as fast as the client reads.
    pub pace: Option<Pace>,
    /// The address to listen at; `None` draws a loopback address that is unique in the process.
    pub ip: Option<Ipv4Addr>,
}

impl Origin {
    /// Starts a correct origin.
    pub fn start(resource: Resource) -> Self {
        Self::start_with(resource, Manners::default())
    }

    /// Starts an origin with one fault.
    pub fn faulty(resource: Resource, moment: Moment, fault: Fault) -> Self {
        Self::start_with(resource, Manners { faults: vec![(moment, fault)], ..Manners::default() })
    }

    /// Starts an origin with a speed.
    pub fn paced(resource: Resource, pace: Pace) -> Self {
        Self::start_with(resource, Manners { pace: Some(pace), ..Manners::default() })
    }

    /// Starts an origin.
    pub fn start_with(resource: Resource, manners: Manners) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let socket = TcpSocket::new_v4().expect("a socket");
        let ip = manners.ip.unwrap_or_else(random_loopback_ip);
        socket.bind((ip, 0).into()).expect("a loopback address with a free port of the system can be bound");
        let address = socket.local_addr().expect("a bound socket has an address");
        let listens = manners.faults.iter().all(|(_, fault)| *fault != Fault::Refuses);
        let shared = Arc::new(OriginShared::new(resource, manners.faults, manners.pace));
        let (stop, stopped) = oneshot::channel();
        let entry = {
            let _context = runtime.enter();
            if listens { Entry::Open(socket.listen(1024).expect("it is bound")) } else { Entry::Shut }
        };
        let host = host(entry, Arc::clone(&shared), stopped);
        let thread = std::thread::Builder::new().name("origin".into()).spawn(move || runtime.block_on(host));
        Self { address, shared, stop: Some(stop), thread: Some(thread.expect("a thread")) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<Asked> {
        self.shared.book().requests.clone()
    }

    /// Number of connections accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Bytes of bodies that it has sent, without framing.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Number of bodies that it is sending at present.
    pub fn transfers(&self) -> usize {
        self.shared.transfers.load(Ordering::Relaxed)
    }

    /// Replaces the resource. Running transfers continue with the old one.
    pub fn replace(&self, resource: Resource) {
        self.shared.book().resource = resource;
    }

    /// Sets its faults from the next request on.
    pub fn misbehave(&self, faults: impl Into<Vec<(Moment, Fault)>>) {
        self.shared.book().faults = faults.into();
    }

    /// Accepts no more connections, and ends the existing ones.
    pub fn die(&self) {
        self.shared.death.notify_one();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Entry {
    Open(TcpListener),
    /// The origin refuses connections.
    Shut,
}

async fn host(entry: Entry, shared: Arc<OriginShared>, mut stopped: oneshot::Receiver<()>) {
    if let Entry::Open(listener) = entry {
        tokio::select! {
            () = accept(listener, &shared) => {}
            () = shared.death.notified() => {}
            _ = &mut stopped => return,
        }
    }
    // An error only means that the handle was dropped.
    let _ = stopped.await;
}

async fn accept(listener: TcpListener, shared: &Arc<OriginShared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        connections.spawn(connection::serve(socket, number, Arc::clone(shared)));
        while connections.try_join_next().is_some() {}
    }
}
