#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use watari_values::DispatcherChange;
use watari_wire::DetachLeg;

use super::table::DETACHED_MAX;
use super::*;
use crate::handoff::testing::{ID, name, streams};

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Bytes of each stream before the leg: the connection has moved here.
const RECEIVED: u64 = 10;
const SENT: u64 = 20;
const TENURE: Epoch = Epoch(3);

/// A connection of the dispatcher `d1`.
struct Rig {
    table: Arc<LegTable>,
    dispatcher: CurrentDispatcher,
}

impl Rig {
    /// The leg, and the dispatcher's end of it.
    async fn begin() -> (Self, Leg, TcpStream) {
        let rig = Self { table: Arc::default(), dispatcher: CurrentDispatcher::new(name("d1")) };
        let (stream, end) = streams().await;
        let dispatcher = rig.dispatcher.clone();
        let carried = Carried { id: ID, tenure: TENURE, dispatcher, change: 0, received: RECEIVED, sent: SENT };
        let leg = Leg::new(stream, carried, &rig.table);
        (rig, leg, end)
    }

    /// Returns the answer to a request.
    fn detach(&self, from: &str, number: u32, to: &str) -> Option<u64> {
        self.detach_at(Instant::now(), from, number, to)
    }

    fn detach_at(&self, now: Instant, from: &str, number: u32, to: &str) -> Option<u64> {
        let message = DetachLeg { change: change(number), to: name(to) };
        self.table.on_detach(&name(from), &message, now).map(|detached| detached.tx_offset)
    }

    fn attach(&self, from: &str, number: u32) {
        self.table.on_attach(&name(from), change(number));
    }

    /// Opens a leg of the dispatcher `by`, and returns the dispatcher's end of it.
    async fn go_on(&self, by: &str, number: u32, rx_offset: u64, tx_offset: u64) -> Result<TcpStream, ContinueRefusal> {
        self.go_on_with(by, TENURE, number, (rx_offset, tx_offset), b"").await
    }

    async fn go_on_with(
        &self,
        by: &str,
        tenure: Epoch,
        number: u32,
        (rx_offset, tx_offset): (u64, u64),
        surplus: &[u8],
    ) -> Result<TcpStream, ContinueRefusal> {
        let (stream, end) = streams().await;
        let (stream, surplus) = (stream.into_std().unwrap(), surplus.to_vec());
        let leg = Continued { stream, change: change(number), tenure, rx_offset, tx_offset, surplus };
        self.table.on_continue(&name(by), leg).map(|()| end).map_err(|(refusal, _)| refusal)
    }
}

fn change(number: u32) -> DispatcherChange {
    DispatcherChange { connection: ID, number }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(WAIT_MAX, work).await.expect("it takes too long")
}

/// Polls once.
async fn once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn read_exactly<const LEN: usize>(from: &mut (impl AsyncRead + Unpin)) -> [u8; LEN] {
    let mut read = [0; LEN];
    within(from.read_exact(&mut read)).await.unwrap();
    read
}

/// The next read of the leg.
async fn read(leg: &mut Leg) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 100];
    let len = within(leg.read(&mut buffer)).await?;
    Ok(buffer[..len].to_vec())
}

/// Closes the dispatcher's end of a leg, by a reset or by FIN.
fn end_by(is_reset: bool, end: TcpStream) {
    if is_reset {
        tcp::reset_on_close(&end);
    }
    drop(end);
}

/// Checks that the leg has failed in both directions.
async fn check_failed(mut leg: Leg) {
    assert_eq!(read(&mut leg).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(within(leg.write(b"x")).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(leg.into_free().is_none());
}

/// Byte `at` of a stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

/// Reads and writes `len` bytes each way, and returns the leg.
fn spawn_both_ways(leg: Leg, len: u64) -> JoinHandle<Leg> {
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(leg);
        let (sent, mut received) = (bytes(0, len), vec![0; len as usize]);
        let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut received));
        written.and(read).unwrap();
        assert!(received == sent, "the client's stream is whole");
        reader.unsplit(writer)
    })
}

#[tokio::test]
async fn a_detached_leg_takes_nothing_until_it_is_attached() {
    let (rig, mut leg, mut d1) = Rig::begin().await;
    leg.write_all(b"one").await.unwrap();
    assert_eq!(rig.detach("d1", 1, "d2"), Some(SENT + 3));
    assert!(once(leg.write(b"two")).await.is_none());
    assert_eq!(rig.detach("d1", 1, "d2"), Some(SENT + 3), "a repeated request has the same answer");
    assert!(leg.is_detached() && rig.table.is_detached(ID));
    d1.write_all(b"still read").await.unwrap();
    assert_eq!(read(&mut leg).await.unwrap(), b"still read");
    rig.attach("d2", 1);
    assert!(leg.is_detached(), "that is for its dispatcher to say");
    let writes = tokio::spawn(async move {
        leg.write_all(b"two").await.unwrap();
        leg
    });
    tokio::task::yield_now().await;
    rig.attach("d1", 1);
    let leg = within(writes).await.unwrap();
    assert_eq!(leg.sent(), SENT + 6);
    assert_eq!(&read_exactly::<6>(&mut d1).await, b"onetwo");
    assert_eq!(rig.detach("d1", 1, "d2"), None, "the attempt is over");
    assert_eq!(rig.detach("d1", 2, "d2"), Some(SENT + 6));
}

#[tokio::test]
async fn a_write_that_waits_is_cut_at_the_announced_byte() {
    const LEN: u64 = 8 << 20;
    let (rig, leg, mut d1) = Rig::begin().await;
    let task = spawn_both_ways(leg, LEN);
    // The kernel's buffers take less than this.
    let mut stream = vec![0; 1 << 20];
    within(d1.read_exact(&mut stream)).await.unwrap();
    let tx_offset = rig.detach("d1", 1, "d2").unwrap();
    let rest = tx_offset - SENT - stream.len() as u64;
    let mut more = vec![0; rest as usize];
    within(d1.read_exact(&mut more)).await.unwrap();
    stream.append(&mut more);
    d1.write_all(&bytes(0, 1000)).await.unwrap();
    let mut d2 = rig.go_on("d2", 1, RECEIVED + 1000, tx_offset).await.unwrap();
    d1.shutdown().await.unwrap();
    let (mut from_agent, mut to_agent) = d2.split();
    let mut more = vec![0; (LEN - (tx_offset - SENT)) as usize];
    let rest = bytes(1000, LEN);
    within(async { tokio::join!(to_agent.write_all(&rest), from_agent.read_exact(&mut more)) }).await.0.unwrap();
    stream.append(&mut more);
    assert!(stream == bytes(0, LEN), "the stream to the client is whole");
    let leg = within(task).await.unwrap();
    assert_eq!((leg.received(), leg.sent()), (RECEIVED + LEN, SENT + LEN));
    assert_eq!(within(d1.read(&mut [0])).await.unwrap_or(0), 0, "nothing follows on the previous leg");
    assert!(rig.dispatcher.is(&name("d2")));
    assert!(leg.into_free().is_some());
}

#[tokio::test]
async fn the_bytes_behind_the_preface_follow_those_of_the_previous_leg() {
    let (rig, mut leg, mut d1) = Rig::begin().await;
    rig.detach("d1", 1, "d2").unwrap();
    d1.write_all(b"one").await.unwrap();
    let offsets = (RECEIVED + 6, SENT);
    let mut d2 = rig.go_on_with("d2", TENURE, 1, offsets, b"surplus").await.unwrap();
    assert_eq!(read(&mut leg).await.unwrap(), b"one");
    assert!(once(leg.read(&mut [0; 9])).await.is_none());
    assert!(leg.pass().is_none(), "a change is in progress");
    d1.write_all(b"two").await.unwrap();
    d2.write_all(b"three").await.unwrap();
    assert_eq!(read(&mut leg).await.unwrap(), b"two");
    // The previous dispatcher has not closed its leg.
    let mut buffer = [0; 3];
    leg.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"sur");
    let mut buffer = [0; 9];
    within(leg.read_exact(&mut buffer)).await.unwrap();
    assert_eq!(&buffer, b"plusthree");
    assert!(matches!(within(d1.read(&mut [0])).await, Ok(0)), "the previous leg is closed without a reset");
    assert!(leg.pass().is_some());
}

#[tokio::test]
async fn a_reader_that_waits_goes_over_at_once() {
    let (rig, mut leg, _d1) = Rig::begin().await;
    let task = tokio::spawn(async move { read(&mut leg).await.unwrap() });
    tokio::task::yield_now().await;
    rig.detach("d1", 1, "d2").unwrap();
    let mut d2 = rig.go_on("d2", 1, RECEIVED, SENT).await.unwrap();
    d2.write_all(b"next").await.unwrap();
    assert_eq!(within(task).await.unwrap(), b"next");
}

#[tokio::test]
async fn the_end_of_a_detached_leg_is_not_the_end_of_the_stream() {
    // Whether the previous dispatcher resets its leg.
    for is_reset in [false, true] {
        let (rig, mut leg, d1) = Rig::begin().await;
        rig.detach("d1", 1, "d2").unwrap();
        end_by(is_reset, d1);
        leg.readable().await;
        assert!(once(leg.read(&mut [0; 9])).await.is_none());
        assert!(once(leg.read(&mut [0; 9])).await.is_none());
        let mut d2 = rig.go_on("d2", 1, RECEIVED, SENT).await.unwrap();
        d2.write_all(b"next").await.unwrap();
        assert_eq!(read(&mut leg).await.unwrap(), b"next");
        drop(d2);
        assert_eq!(read(&mut leg).await.unwrap(), b"", "this end counts");
    }
}

#[tokio::test]
async fn an_end_counts_when_the_dispatcher_goes_on_by_itself() {
    for is_reset in [false, true] {
        let (rig, mut leg, d1) = Rig::begin().await;
        rig.detach("d1", 1, "d2").unwrap();
        end_by(is_reset, d1);
        leg.readable().await;
        assert!(once(leg.read(&mut [0; 9])).await.is_none());
        rig.attach("d1", 1);
        for _ in 0..2 {
            assert_eq!(read(&mut leg).await.is_err(), is_reset);
        }
    }
}

#[tokio::test]
async fn a_leg_that_ends_early_fails() {
    for is_reset in [false, true] {
        for is_continued_first in [false, true] {
            let (rig, mut leg, mut d1) = Rig::begin().await;
            rig.detach("d1", 1, "d2").unwrap();
            d1.write_all(b"12").await.unwrap();
            assert_eq!(read(&mut leg).await.unwrap(), b"12");
            let mut d2 = None;
            if is_continued_first {
                d2 = rig.go_on("d2", 1, RECEIVED + 3, SENT).await.ok();
            }
            end_by(is_reset, d1);
            leg.readable().await;
            if !is_continued_first {
                assert!(once(leg.read(&mut [0; 9])).await.is_none());
                d2 = rig.go_on("d2", 1, RECEIVED + 3, SENT).await.ok();
            }
            let mut d2 = d2.unwrap();
            check_failed(leg).await;
            assert!(within(d2.read(&mut [0])).await.is_err(), "the next dispatcher resets its client");
        }
    }
}

#[tokio::test]
async fn a_leg_that_delivers_too_much_fails() {
    let (rig, leg, mut d1) = Rig::begin().await;
    rig.detach("d1", 1, "d2").unwrap();
    d1.write_all(b"1234").await.unwrap();
    leg.readable().await;
    let _d2 = rig.go_on("d2", 1, RECEIVED + 3, SENT).await.unwrap();
    check_failed(leg).await;
}

#[tokio::test]
async fn a_leg_that_is_not_awaited_changes_nothing() {
    use ContinueRefusal::{NotAwaited, NotHere, Offsets};
    let (rig, mut leg, mut d1) = Rig::begin().await;
    d1.write_all(b"12").await.unwrap();
    assert_eq!(read(&mut leg).await.unwrap(), b"12");
    let (rx, tx) = (RECEIVED + 2, SENT);
    assert_eq!(rig.go_on("d2", 0, rx, tx).await.unwrap_err(), NotAwaited, "there is no change");
    assert_eq!(rig.detach("d3", 1, "d3"), None, "that is not its dispatcher");
    rig.detach("d1", 1, "d2").unwrap();
    rig.detach("d1", 2, "d2").unwrap();
    let cases = [
        ("d3", TENURE, 2, (rx, tx), NotAwaited),
        ("d1", TENURE, 2, (rx, tx), NotAwaited),
        ("d2", TENURE, 1, (rx, tx), NotAwaited),
        ("d2", TENURE, 3, (rx, tx), NotAwaited),
        ("d2", Epoch(4), 2, (rx, tx), NotAwaited),
        ("d2", TENURE, 2, (rx - 1, tx), Offsets),
        ("d2", TENURE, 2, (rx, tx - 1), Offsets),
        ("d2", TENURE, 2, (rx, tx + 1), Offsets),
    ];
    for (by, tenure, number, offsets, refusal) in cases {
        assert_eq!(rig.go_on_with(by, tenure, number, offsets, b"").await.unwrap_err(), refusal, "{by} {offsets:?}");
        assert!(leg.is_detached() && rig.dispatcher.is(&name("d1")));
    }
    let _d2 = rig.go_on("d2", 2, rx, tx).await.unwrap();
    assert!(!leg.is_detached());
    assert_eq!(rig.go_on("d2", 2, rx, tx).await.unwrap_err(), NotAwaited, "a preface counts once");
    drop(leg);
    assert_eq!(rig.go_on("d2", 2, rx, tx).await.unwrap_err(), NotHere, "the connection is gone");
}

#[tokio::test]
async fn the_next_change_may_begin_before_a_leg_is_read() {
    let (rig, mut leg, mut d1) = Rig::begin().await;
    rig.detach("d1", 1, "d2").unwrap();
    d1.write_all(b"one").await.unwrap();
    let mut d2 = rig.go_on("d2", 1, RECEIVED + 3, SENT).await.unwrap();
    d2.write_all(b"two").await.unwrap();
    assert_eq!(rig.detach("d1", 2, "d3"), None, "it is another dispatcher's now");
    assert_eq!(rig.detach("d2", 2, "d3"), Some(SENT));
    let refused = rig.go_on("d3", 2, RECEIVED + 2, SENT).await.unwrap_err();
    assert_eq!(refused, ContinueRefusal::Offsets, "a stream does not go back");
    let mut d3 = rig.go_on("d3", 2, RECEIVED + 6, SENT).await.unwrap();
    leg.write_all(b"to d3").await.unwrap();
    d3.write_all(b"three").await.unwrap();
    assert_eq!(&read_exactly::<11>(&mut leg).await, b"onetwothree");
    assert_eq!(&read_exactly::<5>(&mut d3).await, b"to d3");
    let mut nothing = Vec::new();
    within(d2.read_to_end(&mut nothing)).await.unwrap();
    assert!(nothing.is_empty());
}

#[tokio::test]
async fn a_leg_that_stays_detached_fails() {
    let (rig, mut leg, _d1) = Rig::begin().await;
    let begin = Instant::now();
    rig.detach_at(begin, "d1", 1, "d2").unwrap();
    rig.attach("d1", 1);
    rig.detach_at(begin + DETACHED_MAX / 2, "d1", 2, "d2").unwrap();
    let waits = tokio::spawn(async move {
        let read = leg.read(&mut [0; 9]).await.unwrap_err().kind();
        (leg, read)
    });
    tokio::task::yield_now().await;
    // The first attempt is over.
    rig.table.expire(begin + DETACHED_MAX);
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    rig.table.expire(begin + DETACHED_MAX + DETACHED_MAX / 2);
    let (leg, error) = within(waits).await.unwrap();
    assert_eq!(error, io::ErrorKind::ConnectionReset);
    assert_eq!(rig.detach("d1", 2, "d2"), None);
    assert_eq!(rig.go_on("d2", 2, RECEIVED, SENT).await.unwrap_err(), ContinueRefusal::NotAwaited);
    assert!(leg.into_free().is_none());
}

#[tokio::test]
async fn a_leg_passes_and_is_free_only_without_a_change() {
    let (rig, mut leg, _d1) = Rig::begin().await;
    rig.detach("d1", 1, "d2").unwrap();
    assert!(leg.pass().is_none());
    rig.attach("d1", 1);
    assert!(leg.pass().is_some());
    assert_eq!(rig.detach("d1", 2, "d2"), None, "the successor may have the connection");
    leg.stays();
    assert_eq!(rig.detach("d1", 2, "d2"), Some(SENT));
    assert_eq!(leg.last_change(), 2);
    assert!(leg.into_free().is_none());
    assert_eq!(rig.detach("d1", 2, "d2"), None, "the connection is gone");
}

#[tokio::test]
async fn the_new_leg_closes_as_the_previous_one_would() {
    for by_fin in [false, true] {
        let (rig, mut leg, _d1) = Rig::begin().await;
        if by_fin {
            leg.fin_on_close();
        } else {
            leg.reset_on_close();
        }
        rig.detach("d1", 1, "d2").unwrap();
        let mut d2 = {
            let (stream, end) = streams().await;
            // As all that are accepted.
            tcp::reset_on_close(&stream);
            let (stream, surplus) = (stream.into_std().unwrap(), Vec::new());
            let offsets = (RECEIVED, SENT);
            let leg = Continued {
                stream,
                change: change(1),
                tenure: TENURE,
                rx_offset: offsets.0,
                tx_offset: offsets.1,
                surplus,
            };
            assert!(rig.table.on_continue(&name("d2"), leg).is_ok());
            end
        };
        leg.write_all(b"x").await.unwrap();
        assert_eq!(&read_exactly::<1>(&mut d2).await, b"x");
        drop(leg);
        assert_eq!(within(d2.read(&mut [0])).await.is_ok(), by_fin);
    }
}

#[tokio::test]
async fn a_leg_of_a_later_tenure_replaces_an_earlier_one() {
    let (rig, earlier, _d1) = Rig::begin().await;
    let (stream, _end) = streams().await;
    let dispatcher = rig.dispatcher.clone();
    let carried = Carried { id: ID, tenure: Epoch(5), dispatcher, change: 4, received: 0, sent: 7 };
    let later = Leg::new(stream, carried, &rig.table);
    drop(earlier);
    assert_eq!(rig.detach("d1", 4, "d2"), None, "the number was used");
    assert_eq!(rig.detach("d1", 5, "d2"), Some(7));
    drop(later);
    assert_eq!(rig.detach("d1", 5, "d2"), None);
}
