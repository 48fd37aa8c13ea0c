//! Measures the round trip between two hosts by UDP datagrams.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::{Error, failed};

/// A number of probes whose median is stable within some hundredths of a millisecond.
pub const PROBES: u32 = 101;

/// The pause between two probes. After longer ones, processors would sleep deeply, and their hosts would take longer for a
/// packet than under a load.
const GAP: Duration = Duration::from_millis(2);
/// A probe without an answer for this long is lost.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the first answer may take. The echo service may start in this time.
const START_MAX: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(10);

/// Sends each UDP datagram back, until the process ends.
pub fn echo(address: SocketAddr) -> Result<(), Error> {
    let socket = UdpSocket::bind(address).map_err(failed(format!("bind {address} for UDP")))?;
    let mut datagram = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut datagram).map_err(failed("receive datagrams"))?;
        // A datagram without a way back is lost.
        let _ = socket.send_to(&datagram[..len], from);
    }
}

/// The round trips to an echo service. Those of lost probes are missing.
///
/// Other datagrams come first: they wait for the service, and resolve link-layer addresses.
pub fn measure(address: SocketAddr, probes: u32) -> Result<Vec<Duration>, Error> {
    wait_for_echo(address, START_MAX)?;
    let socket = connect(address)?;
    let start = Instant::now();
    Ok(thread::scope(|scope| {
        scope.spawn(|| send(&socket, start, probes));
        receive(&socket, start, probes)
    }))
}

fn wait_for_echo(address: SocketAddr, wait_max: Duration) -> Result<(), Error> {
    let socket = connect(address)?;
    let deadline = Instant::now() + wait_max;
    while socket.send(&[]).and_then(|_| socket.recv(&mut [])).is_err() {
        if Instant::now() > deadline {
            return Err(Error::NoAnswer(address));
        }
        thread::sleep(RETRY);
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<UdpSocket, Error> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).map_err(failed("bind a UDP socket"))?;
    socket.set_read_timeout(Some(ANSWER_MAX)).map_err(failed("set a time limit"))?;
    socket.connect(address).map_err(failed(format!("connect to {address}")))?;
    Ok(socket)
}

/// A probe contains when it was sent, in nanoseconds from `start` on.
fn send(socket: &UdpSocket, start: Instant, probes: u32) {
    for _ in 0..probes {
        let sent_ns = start.elapsed().as_nanos() as u64;
        // A probe that the network refuses is lost.
        let _ = socket.send(&sent_ns.to_be_bytes());
        thread::sleep(GAP);
    }
}

fn receive(socket: &UdpSocket, start: Instant, probes: u32) -> Vec<Duration> {
    let mut sent_ns = [0; 8];
    let answered = (0..probes).map_while(|_| {
        socket.recv(&mut sent_ns).ok()?;
        Some(start.elapsed().saturating_sub(Duration::from_nanos(u64::from_be_bytes(sent_ns))))
    });
    answered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_probe_has_no_time() {
        let service = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = service.local_addr().expect("the socket is bound");
        let answering = thread::spawn(move || {
            let mut datagram = [0; 8];
            for n in 0..=20 {
                let (len, from) = service.recv_from(&mut datagram).expect("probes come");
                // The first datagram is no probe.
                if n % 2 == 0 {
                    service.send_to(&datagram[..len], from).expect("the probe listens");
                }
            }
        });
        let started = Instant::now();
        let times = measure(address, 20).expect("the service answers");
        answering.join().expect("the service ends");
        assert_eq!(times.len(), 10);
        assert!(times.iter().all(|time| *time <= started.elapsed()));
    }

    #[test]
    fn without_a_service_there_is_no_answer_but_an_error() {
        let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
        assert!(matches!(wait_for_echo(closed, Duration::ZERO), Err(Error::NoAnswer(_))));
    }
}
