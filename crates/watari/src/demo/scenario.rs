//! Many visitors: both TLS versions, both kinds of key, every AEAD, HTTP/1.1 and HTTP/2, downloads, ranges and uploads.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::client_tls::{Aead, Class, Key, config};
use super::cluster::Cluster;
use super::content::SiteFile;
use super::error::{DemoError, doing};
use super::layout::{DISPATCHER, Layout};
use super::random::Random;
use super::report::{Counters, Report};
use super::visitor::{Errand, Plan, Visit, VisitError, visit};
use crate::admin::{Answer, Topic, ask};

const VISITS: usize = 400;
/// Visits at the same time.
const AT_ONCE: usize = 24;
/// Addresses that IPv4 visitors come from. Each comes several times.
const SOURCES: usize = 100;
const ERRANDS_MAX: usize = 5;
const UPLOAD_LEN_MAX: usize = 600_000;
/// The timeout of one visit. It is far longer than a visit takes, because nothing is measured here.
const VISIT_MAX: Duration = Duration::from_mins(1);
/// The time in which the dispatcher has to notice that all visitors have left.
const LEAVE_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Runs all visits, and reports.
pub(super) async fn run(cluster: &mut Cluster) -> Result<Report, DemoError> {
    let results = visits(&cluster.layout).await?;
    let left_behind = left_behind(&cluster.layout).await;
    let counters = Counters::read(&metrics(&cluster.layout).await?);
    let ended = cluster.check().err().map(|ended| ended.to_string());
    Ok(Report::new(results, &counters, left_behind, ended))
}

async fn visits(layout: &Layout) -> Result<Vec<(Class, Result<Visit, VisitError>)>, DemoError> {
    let configs = ClientConfigs::new(layout)?;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut visits = JoinSet::new();
    for number in 0..VISITS {
        let plan = plan(number, layout);
        let (tls, leaf) = (configs.of(&plan), configs.leaf(plan.class.key));
        let (turns, admin) = (Arc::clone(&turns), layout.admin(DISPATCHER));
        visits.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let class = plan.class;
            let visit = timeout(VISIT_MAX, visit(plan, tls, leaf, &admin)).await;
            (class, visit.unwrap_or(Err(VisitError::Timeout)))
        });
    }
    Ok(visits.join_all().await)
}

/// The plan of a visit follows from its number, so that each run has the same.
fn plan(number: usize, layout: &Layout) -> Plan {
    let mut random = Random::new(number as u64);
    let (source, service) = match layout.service_v6 {
        Some(service) if number % 16 == 15 => ((Ipv6Addr::LOCALHOST, 0).into(), service),
        _ => (source(number % SOURCES), layout.service),
    };
    Plan {
        class: Class::ALL[number % 4],
        aead: [Aead::Aes128, Aead::Aes256, Aead::ChaCha20][number / 4 % 3],
        is_http2: number / 4 % 4 == 3,
        source,
        service,
        errands: (0..=random.below(ERRANDS_MAX)).map(|_| errand(&mut random, &layout.files)).collect(),
    }
}

fn source(client: usize) -> SocketAddr {
    (Ipv4Addr::new(127, 1, 2, 1 + client as u8), 0).into()
}

fn errand(random: &mut Random, files: &[SiteFile]) -> Errand {
    // The smaller of two: most files that people fetch are small.
    let file = &files[random.below(files.len()).min(random.below(files.len()))];
    match random.below(4) {
        0 => Errand::Upload(upload(random)),
        1 => {
            let to = random.below(file.bytes.len());
            Errand::Range { file: file.clone(), from: random.below(to + 1), to }
        }
        _ => Errand::Download(file.clone()),
    }
}

fn upload(random: &mut Random) -> Bytes {
    let len = random.below(UPLOAD_LEN_MAX);
    random.bytes(len).into()
}

/// TLS configurations by class, AEAD and protocol, and the certificate that the server has to send for each kind of
/// key.
struct ClientConfigs {
    configs: HashMap<(Class, Aead, bool), Arc<ClientConfig>>,
    rsa: Arc<[u8]>,
    ecdsa: Arc<[u8]>,
}

impl ClientConfigs {
    fn new(layout: &Layout) -> Result<Self, DemoError> {
        let mut configs = HashMap::new();
        for class in Class::ALL {
            for aead in [Aead::Aes128, Aead::Aes256, Aead::ChaCha20] {
                for (is_http2, alpn) in [(false, "http/1.1"), (true, "h2")] {
                    configs.insert((class, aead, is_http2), config(&layout.site.authority, class, aead, alpn)?);
                }
            }
        }
        Ok(Self { configs, rsa: layout.site.rsa.as_slice().into(), ecdsa: layout.site.ecdsa.as_slice().into() })
    }

    fn of(&self, plan: &Plan) -> Arc<ClientConfig> {
        Arc::clone(&self.configs[&(plan.class, plan.aead, plan.is_http2)])
    }

    fn leaf(&self, key: Key) -> Arc<[u8]> {
        Arc::clone(match key {
            Key::Rsa2048 => &self.rsa,
            Key::P256 => &self.ecdsa,
        })
    }
}

/// Connections that the dispatcher still holds [`LEAVE_MAX`] after all visits have ended.
async fn left_behind(layout: &Layout) -> usize {
    let deadline = Instant::now() + LEAVE_MAX;
    loop {
        let left = match ask(&layout.admin(DISPATCHER), Topic::Connections).await {
            Ok(Answer::Connections(connections)) => connections.len(),
            _ => usize::MAX,
        };
        if left == 0 || Instant::now() > deadline {
            return left;
        }
        sleep(POLL).await;
    }
}

/// The dispatcher's metrics page.
async fn metrics(layout: &Layout) -> Result<String, DemoError> {
    let failed =
        |error: &dyn std::fmt::Display| doing("asking for the metrics")(std::io::Error::other(error.to_string()));
    let uri = http::Uri::builder().scheme("http").authority(layout.metrics().to_string()).path_and_query("/metrics");
    let uri = uri.build().map_err(|error| failed(&error))?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let response = client.get(uri).await.map_err(|error| failed(&error))?;
    let page = response.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
    Ok(String::from_utf8_lossy(&page).into_owned())
}
