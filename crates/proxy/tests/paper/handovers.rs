//! A file of 1 GB with 0 to 3 handovers (section "overhead" of the paper): the bytes, the time, and the effects that a
//! client could notice.

use std::time::{Duration, Instant};

use watari_proxy::{OriginAddress, PoolConfig};
use watari_test_origins::{Content, Manners, Origin, Pace, Resource};

use crate::common::Fixture;
use crate::common::download::{Download, transfers};

/// In bytes.
const LEN: u64 = 1_000_000_000;
/// In bytes per second: slow enough for a download that lasts seconds.
const STEADY: u64 = 300_000_000;

#[tokio::test]
async fn a_gigabyte_arrives_after_any_number_of_handovers() {
    for handovers in 0..=3 {
        let record = download(None, handovers).await;
        println!("{handovers} handovers: {:.2?} in all, pauses {:.2?}", record.total(), record.pauses());
    }
    let record = download(Some(Pace::capped(STEADY)), 3).await;
    println!("3 handovers at {} MB/s: dips over a second {:.1?} %", STEADY / 1_000_000, record.dips_percent());
}

fn address(origin: &Origin) -> OriginAddress {
    origin.url().parse().unwrap()
}

/// Orders a transfer away `handovers` times, at equal distances.
async fn download(pace: Option<Pace>, handovers: u64) -> Record {
    let resource = Resource::new(Content::generated(1, LEN));
    let manners = Manners { pace, ..Manners::default() };
    let origins = [(); 2].map(|()| Origin::start_with(resource.clone(), manners.clone()));
    let fixture = Fixture::of(PoolConfig::plain("pool", origins.each_ref().map(address)));
    let mut record = Record::begin();
    let mut download = Download::begin(&fixture, "/file", &resource.content).await;
    let (mut ordered, mut moves) = (0, 0);
    while download.piece().await.unwrap().is_some() {
        record.piece(download.position);
        let [transfer] = &transfers(&fixture)[..] else { panic!("one is running") };
        if transfer.moves > moves {
            record.seams.push(record.pieces.len() - 1);
            moves = transfer.moves;
        }
        if ordered < handovers && download.position > (ordered + 1) * LEN / (handovers + 1) {
            fixture.proxy.move_transfer(transfer.id, None).unwrap();
            ordered += 1;
        }
    }
    assert!(download.is_complete());
    assert_eq!(record.seams.len() as u64, handovers);
    record
}

/// The arrival times of all pieces.
struct Record {
    begun: Instant,
    /// The time since the beginning, and the number of bytes by then.
    pieces: Vec<(Duration, u64)>,
    /// The index of the first piece of each other origin.
    seams: Vec<usize>,
}

/// The number of pieces to each side of a handover that count as around it.
const AROUND: usize = 20;
const HALF_A_SECOND: Duration = Duration::from_millis(500);

impl Record {
    fn begin() -> Self {
        Self { begun: Instant::now(), pieces: Vec::new(), seams: Vec::new() }
    }

    fn piece(&mut self, position: u64) {
        self.pieces.push((self.begun.elapsed(), position));
    }

    fn total(&self) -> Duration {
        self.pieces[self.pieces.len() - 1].0
    }

    fn pauses(&self) -> Vec<Duration> {
        self.seams.iter().map(|seam| self.pause(*seam)).collect()
    }

    fn dips_percent(&self) -> Vec<f64> {
        self.seams.iter().map(|seam| self.dip_percent(*seam)).collect()
    }

    /// The longest time without a piece around a handover.
    fn pause(&self, seam: usize) -> Duration {
        let around = &self.pieces[seam.saturating_sub(AROUND)..(seam + AROUND).min(self.pieces.len())];
        around.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).max().unwrap_or_default()
    }

    /// By how much fewer bytes arrived in the second around a handover than in an average second. Negative if more
    /// arrived.
    fn dip_percent(&self, seam: usize) -> f64 {
        let at = self.pieces[seam].0;
        let around = at.saturating_sub(HALF_A_SECOND)..at + HALF_A_SECOND;
        let within: Vec<_> = self.pieces.iter().filter(|(time, _)| around.contains(time)).copied().collect();
        100.0 * (1.0 - rate(&within) / rate(&self.pieces))
    }
}

/// In bytes per second.
fn rate(pieces: &[(Duration, u64)]) -> f64 {
    let [first, .., last] = pieces else { return f64::NAN };
    (last.1 - first.1) as f64 / last.0.saturating_sub(first.0).as_secs_f64()
}
