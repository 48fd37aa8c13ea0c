//! Measures the cost of capturing: reads an interface for some seconds, decodes the frames, and prints their number and
//! the CPU time.
//!
//! ```text
//! cargo run --release --package watari-capture --example rate -- lo --filter 'tcp port 8080' --seconds 10
//! ```

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use watari_capture::{Counts, Options, RING_BYTES, Ring, SNAP_LEN, open};
use watari_packets::{Decoded, Decoder};

/// Measures the cost of capturing.
#[derive(Parser)]
struct Arguments {
    /// Of which interface
    interface: String,
    /// Which frames (see pcap-filter(7))
    #[arg(long)]
    filter: Option<String>,
    /// For how long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Octets of each frame
    #[arg(long, default_value_t = SNAP_LEN)]
    snap_len: u32,
    /// Bytes of each ring
    #[arg(long, default_value_t = RING_BYTES)]
    ring_bytes: u32,
    /// How many rings, each with a thread
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Let frames wait for so long before they are all read at once, to see what a ring holds, and what reading costs at its fastest
    #[arg(long, default_value_t = 0)]
    pause_s: u64,
}

/// The result of one ring, or of all.
#[derive(Default)]
struct Read {
    frames: u64,
    segments: u64,
    cpu: Duration,
    counts: Counts,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let rings = open(&Options {
        filter: arguments.filter,
        snap_len: arguments.snap_len,
        ring_bytes: arguments.ring_bytes,
        threads: arguments.threads,
        ..Options::new(arguments.interface)
    })?;
    let (pause, time) = (Duration::from_secs(arguments.pause_s), Duration::from_secs(arguments.seconds));
    let threads: Vec<_> = rings.into_iter().map(|ring| thread::spawn(move || read(ring, pause, time))).collect();
    let mut all = Read::default();
    for thread in threads {
        let read = thread.join().expect("a thread panicked")?;
        all.frames += read.frames;
        all.segments += read.segments;
        all.cpu += read.cpu;
        all.counts.received += read.counts.received;
        all.counts.dropped += read.counts.dropped;
    }
    print(&all, time);
    Ok(())
}

fn read(mut ring: Ring, pause: Duration, time: Duration) -> Result<Read, watari_capture::CaptureError> {
    thread::sleep(pause);
    let (decoder, mut read) = (Decoder::default(), Read::default());
    let (begun, cpu) = (Instant::now(), thread_cpu());
    loop {
        if let Some(frame) = ring.next()? {
            read.frames += 1;
            read.segments += u64::from(matches!(decoder.decode(&frame), Decoded::Segment(_)));
            if read.frames % 4096 != 0 {
                continue;
            }
        }
        if begun.elapsed() >= time {
            break;
        }
    }
    read.cpu = thread_cpu().saturating_sub(cpu);
    read.counts = ring.counts()?;
    Ok(read)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn print(read: &Read, time: Duration) {
    let (frames, cpu) = (read.frames as f64, read.cpu.as_secs_f64());
    println!(
        "{:.0} frames/s ({} frames, {} segments), {:.1} % of a core, {:.3} us each; received {}, dropped {}",
        frames / time.as_secs_f64(),
        read.frames,
        read.segments,
        cpu / time.as_secs_f64() * 100.0,
        cpu * 1e6 / frames,
        read.counts.received,
        read.counts.dropped
    );
}
