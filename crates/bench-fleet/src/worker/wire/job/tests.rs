#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use watari_bench_engine::flow::Walk;
use watari_bench_engine::list::AccessList;
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::site::Site;

use super::*;

const LIST: &str = "\
127.0.0.9 /a.html 0 weight=3
- /form.cgi 1 method=POST header=\"X-Colour: green\" body=form status=303 class=forms
::1 http://[::1]:8081/c?d=e 0 sha256=0000000000000000000000000000000000000000000000000000000000000001
";

fn plan() -> Plan {
    let list = AccessList::parse("list", LIST, |_| Ok("a=b".into())).unwrap();
    let site = |url: &str| Some(Arc::new(Site::resolve(url).unwrap().0));
    let sites = Sites { plain: site("http://127.0.0.1:8080/"), tls: site("https://127.0.0.1:8443/") };
    let file = |name: &str| Pem::of(PathBuf::from(name), name.as_bytes().to_vec());
    let mut tls = TlsOptions { resume: Resume::Mixed(25), session_ids_only: true, ..TlsOptions::default() };
    tls.policy.versions = vec![Version::Tls12];
    tls.roots = Roots::File(file("roots.pem"));
    tls.certificate = Some((file("chain.pem"), file("key.pem")));
    Plan {
        work: Requests::prepare(&list, &sites).unwrap().into(),
        sources: Some("127.0.1.1-127.0.1.3".parse().unwrap()),
        pace: Pace::Closed { connections: 100 },
        stop: Stop { requests: Some(10_000), after: Some(Duration::from_mins(1)) },
        protocol: Protocol::Http1 { requests_per_connection: Some(3), pipeline: 2 },
        tls,
        timeouts: Timeouts { connect: Duration::from_secs(1), response: Duration::from_secs(2) },
        threads: 2,
    }
}

fn part() -> Portion {
    Portion::new(1, 3).unwrap()
}

fn job(plan: &Plan) -> Job {
    Job::of(plan, part(), Duration::from_secs(5), true)
}

/// Encodes and decodes a job, and builds another job from the decoded plan.
fn sent_on(job: &Job) -> Job {
    let bytes = postcard::to_allocvec(job).unwrap();
    let arrived = postcard::from_bytes::<Job>(&bytes).unwrap();
    let logged = arrived.is_logged();
    let (plan, portion, after) = arrived.into_plan().unwrap();
    Job::of(&plan, portion, after, logged)
}

fn refused(spoil: impl FnOnce(&mut Job)) -> String {
    let mut job = job(&plan());
    spoil(&mut job);
    job.into_plan().unwrap_err().to_string()
}

#[test]
fn a_plan_arrives_as_it_was() {
    let (plan, job) = (plan(), job(&plan()));
    assert_eq!(sent_on(&job), job);
    let (arrived, portion, after) = job.into_plan().unwrap();
    assert_eq!((portion, after), (part(), Duration::from_secs(5)));
    let (Work::Requests(before), Work::Requests(requests)) = (&plan.work, &arrived.work) else { unreachable!() };
    assert_eq!(requests.classes(), before.classes());
    for number in 0..20 {
        let ((sent, from), (meant, source)) = (requests.nth(number), before.nth(number));
        assert_eq!((from, sent.class, sent.expected), (source, meant.class, meant.expected));
        assert_eq!((&sent.persistent, &sent.last), (&meant.persistent, &meant.last));
        assert_eq!((&sent.site.server_name, sent.site.tls), (&meant.site.server_name, meant.site.tls));
        assert_eq!(sent.site.address_for(source), meant.site.address_for(source));
    }
    assert_eq!(arrived.tls.certificate.unwrap().1.content(), b"key.pem");
}

const FLOW: &str = "\
[values]
colour = 'green'
[[step]]
name = 'form'
uri = '/form?user=${user}&colour=${colour}'
think = { shares = ['1s', '2s', '3s'] }
[[step]]
name = 'upload'
uri = '/upload'
body_file = 'parts/body'
";

/// A flow that names a file. The directory of both is removed when this function returns.
fn flow() -> Work {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flow.toml");
    std::fs::create_dir(dir.path().join("parts")).unwrap();
    std::fs::write(&file, FLOW).unwrap();
    std::fs::write(dir.path().join("parts/body"), b"\xff of a file").unwrap();
    Work::flow(&file, "http://127.0.0.1:8080/shop/", 7).unwrap()
}

#[test]
fn a_flow_arrives_with_what_its_files_hold() {
    let plan = Plan { work: flow(), ..plan() };
    assert_eq!(sent_on(&job(&plan)), job(&plan));
    let arrived = job(&plan).into_plan().unwrap().0.work;
    assert_eq!(arrived.classes(), plan.work.classes());
    let steps = |work: &Work, user| {
        let Work::Flow { flow, site, seed } = work else { unreachable!() };
        let mut walk = Walk::new(Arc::clone(flow), user, *seed);
        let turns: Vec<_> = std::iter::from_fn(|| walk.turn()).collect();
        let asked = turns.iter().map(|turn| walk.request(turn).unwrap());
        let asked: Vec<_> = asked.map(|request| (request.url.to_string(), request.body)).collect();
        (turns, asked, site.address_for(None))
    };
    for user in 0..12 {
        assert_eq!(steps(&arrived, user), steps(&plan.work, user));
    }
    let (_, asked, _) = steps(&arrived, 5);
    assert_eq!(asked[0].0, "http://127.0.0.1:8080/form?user=5&colour=green");
    assert_eq!(&asked[1].1[..], b"\xff of a file");
}

#[test]
fn other_paces_and_protocols_arrive_too() {
    let schedule = |spacing| Schedule::new("100..2000/60s".parse().unwrap(), spacing).share(1, 2);
    let waits = Shares::new(vec![Duration::from_secs(5)], 7).unwrap();
    let settings = Settings::new(800.0, Count::Requests, Duration::from_secs(90), 3, waits).unwrap();
    let paces = [
        Pace::Open { schedule: schedule(Spacing::Even), connections_max: 10 },
        Pace::Open { schedule: schedule(Spacing::Poisson { seed: 7 }), connections_max: 10 },
        Pace::Users { settings, connections_max: 10 },
    ];
    for pace in paces {
        let protocol = Protocol::Http2 { streams: 10, requests_per_connection: Some(100) };
        let job = job(&Plan { pace, protocol, ..plan() });
        assert_eq!(sent_on(&job), job);
    }
}

#[test]
fn what_no_plan_can_be_is_refused() {
    assert_eq!(refused(|job| job.portion = (3, 3)), "invalid plan: its part");
    assert_eq!(refused(|job| job.threads = 0), "invalid plan: threads");
    assert_eq!(refused(|job| job.response_timeout = Duration::MAX), "invalid plan: a time");
    assert_eq!(refused(|job| job.sources = Some(Vec::new())), "invalid plan: source addresses");
    assert_eq!(refused(|job| job.tls.suites.push(0)), "invalid plan: a version, suite or group is unknown");
    assert_eq!(refused(|job| job.tls.suites.clear()), "invalid plan: no handshake is possible");
    let pace = WirePace::Closed { connections: u32::MAX };
    assert_eq!(refused(|job| job.pace = pace), "invalid plan: connections");
    let endless =
        WirePace::Open { rate: (f64::NAN, 1.0, Duration::ZERO), poisson: None, part: (0, 1), connections_max: 1 };
    assert_eq!(refused(|job| job.pace = endless), "invalid plan: rate");
}

#[test]
fn keys_are_not_shown() {
    assert!(!format!("{:?}", job(&plan())).contains(&format!("{:?}", b"key.pem")));
}

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(at: prop::sample::Index, with: u8) {
        let mut bytes = postcard::to_allocvec(&job(&plan())).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = with;
        if let Ok(Ok((plan, portion, _))) = postcard::from_bytes::<Job>(&bytes).map(Job::into_plan) {
            let plan = portion.of_plan(plan);
            let Work::Requests(requests) = &plan.work else { unreachable!() };
            (0..10).for_each(|number| drop(requests.nth(number).0.persistent.clone()));
        }
    }
}
