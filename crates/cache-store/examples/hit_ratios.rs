//! Hit ratios of eviction policies, for a trace by a Zipf law.
//!
//! `cargo run --release -p watari-cache-store --example hit_ratios`
//!
//! 100,000 URLs, sizes log-normal around 16 KiB, memory for 10 % of all bytes. 2,000,000 requests, of which the last
//! three quarters count. In the second trace, every third request is for a URL that no other request has.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "ratios and random sizes")]

use foyer::{Cache, CacheBuilder, EvictionConfig, LfuConfig, LruConfig, S3FifoConfig};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter, sync};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const URLS: usize = 100_000;
const REQUESTS: usize = 2_000_000;
const SHARDS: usize = 8;

fn main() {
    println!("{:<26}{:>7}{:>6}{:>11}{:>11}", "policy", "alpha", "scan", "requests", "bytes");
    for alpha in [0.8, 0.9, 1.0] {
        for has_scan in [false, true] {
            let trace = Trace::new(alpha, has_scan);
            for (name, policy) in policies(trace.memory_len) {
                let (requests, bytes) = trace.ratios(&policy);
                let scan = if has_scan { "yes" } else { "no" };
                println!("{name:<26}{alpha:>7.1}{scan:>6}{requests:>11.4}{bytes:>11.4}");
            }
        }
    }
}

enum Policy {
    Foyer(Cache<u64, u32>),
    Quick(sync::Cache<u64, u32, BySize>),
}

#[derive(Clone)]
struct BySize;

impl Weighter<u64, u32> for BySize {
    fn weight(&self, _: &u64, size: &u32) -> u64 {
        u64::from(*size)
    }
}

fn policies(memory_len: usize) -> Vec<(&'static str, Policy)> {
    let foyer = |config: EvictionConfig| {
        let builder = CacheBuilder::new(memory_len).with_shards(SHARDS).with_eviction_config(config);
        Policy::Foyer(builder.with_weighter(|_: &u64, size: &u32| *size as usize).build())
    };
    let quick = |hot: f64, ghosts: f64, len: usize| {
        let mut options = OptionsBuilder::new();
        options.shards(SHARDS).weight_capacity(memory_len as u64).estimated_items_capacity(memory_len / len);
        let options = options.hot_allocation(hot).ghost_allocation(ghosts).build().expect("all values");
        Policy::Quick(sync::Cache::with_options(
            options,
            BySize,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ))
    };
    let wide = LfuConfig { cmsketch_eps: 0.000_02, ..LfuConfig::default() };
    let narrow = LfuConfig { window_capacity_ratio: 0.01, protected_capacity_ratio: 0.8, ..wide.clone() };
    vec![
        ("LRU", foyer(LruConfig::default().into())),
        ("foyer w-TinyLFU", foyer(LfuConfig::default().into())),
        ("foyer w-TinyLFU wide", foyer(wide.into())),
        ("foyer w-TinyLFU narrow", foyer(narrow.into())),
        ("foyer S3-FIFO", foyer(S3FifoConfig::default().into())),
        ("quick_cache 1/8 ghosts", quick(0.97, 0.125, 16 << 10)),
        ("quick_cache 1/4 ghosts", quick(0.97, 0.25, 16 << 10)),
        ("quick_cache 1/2 ghosts", quick(0.97, 0.5, 16 << 10)),
        ("quick_cache 3/4 ghosts", quick(0.97, 0.75, 16 << 10)),
        ("quick_cache 1/2, hot .99", quick(0.99, 0.5, 16 << 10)),
        ("quick_cache 1/2, hot .9", quick(0.9, 0.5, 16 << 10)),
    ]
}

struct Trace {
    /// Each request with the size of its response.
    requests: Vec<(u64, u32)>,
    memory_len: usize,
}

impl Trace {
    fn new(alpha: f64, has_scan: bool) -> Self {
        let mut random = StdRng::seed_from_u64(7);
        let sizes: Vec<u32> = (0..URLS).map(|_| size(&mut random)).collect();
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=URLS)
            .map(|rank| {
                sum += (rank as f64).powf(-alpha);
                sum
            })
            .collect();
        let requests = (0..REQUESTS).map(|number| {
            if has_scan && number % 3 == 0 {
                return ((URLS + number) as u64, size(&mut random));
            }
            let at = random.random_range(0.0..sum);
            let rank = sums.partition_point(|sum| *sum < at);
            (rank as u64, sizes[rank])
        });
        let requests = requests.collect();
        Self { requests, memory_len: sizes.iter().map(|size| *size as usize).sum::<usize>() / 10 }
    }

    /// The hit ratios by requests and by bytes.
    fn ratios(&self, policy: &Policy) -> (f64, f64) {
        let (mut hits, mut hit_len, mut len) = (0_u64, 0_u64, 0_u64);
        for (number, &(url, size)) in self.requests.iter().enumerate() {
            let is_hit = match policy {
                Policy::Foyer(cache) => cache.get(&url).is_some(),
                Policy::Quick(cache) => cache.get(&url).is_some(),
            };
            if !is_hit {
                match policy {
                    Policy::Foyer(cache) => drop(cache.insert(url, size)),
                    Policy::Quick(cache) => cache.insert(url, size),
                }
            }
            if number >= REQUESTS / 4 {
                len += u64::from(size);
                hits += u64::from(is_hit);
                hit_len += if is_hit { u64::from(size) } else { 0 };
            }
        }
        (hits as f64 / (REQUESTS - REQUESTS / 4) as f64, hit_len as f64 / len as f64)
    }
}

/// Log-normal: half of all are below 16 KiB.
fn size(random: &mut StdRng) -> u32 {
    let (a, b): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    (16384.0 * normal.exp()).clamp(64.0, 1e6) as u32
}
