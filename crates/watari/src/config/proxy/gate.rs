//! Rules for a request before it is forwarded: `[agent.proxy.limits]`, `access_log`, queues of pools, and refusals and
//! authorization by routes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use watari_proxy::{
    Access, AccessLog, AuthConfig, AuthUrl, ClientLimits, Destination, LogFormat, Pattern, QueueLimits, QueueSettings,
    RateLimit, Rule, Transport,
};
use watari_values::setting::Span;

use super::super::check::{Check, Checked, each};
use super::super::file::{At, ConfigError, ConfigFile, named};
use super::super::raw::{AUTH_TIMEOUT, REFUSALS, RawAccessLog, RawAuth, RawClientLimits, RawFormat, RawQueue, RawRate};
use super::super::spanned::Spanned;

/// Rules for requests before they are forwarded, apart from those of routes.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) clients: ClientLimits,
    access_log: Option<(At<PathBuf>, LogFormat)>,
    /// Routes refer to these by index.
    auths: Vec<Auth>,
}

#[derive(Debug)]
struct Auth {
    line: usize,
    url: AuthUrl,
    copy: Vec<HeaderName>,
    timeout: Duration,
}

/// The queue serves one request of a lower priority instead of every n-th of a higher one.
const ONE_IN: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");

impl Check<'_> {
    pub(super) fn gate(&self, log: Option<&RawAccessLog>, limits: &RawClientLimits) -> Gate {
        let access_log = log.map(|log| (self.path(&log.file), log.format.into()));
        if let (Some(log), Some((path, format))) = (log, access_log.clone())
            && self.is_real(&log.file)
        {
            self.later(move |file| open_log(file, &path, format, &watari_proxy::Metrics::default()).map(drop));
        }
        Gate { clients: limits.into(), access_log, auths: Vec::new() }
    }

    pub(super) fn queue(&self, raw: &[Spanned<RawQueue>]) -> Checked<Option<QueueSettings>> {
        let mut settings =
            QueueSettings { rules: Vec::new(), all: QueueLimits::default(), priority: 0, one_in: ONE_IN };
        let (mut patterns, mut all) = (BTreeMap::new(), None);
        let rules = each(raw.iter().map(|spanned| {
            let raw = spanned.get_ref();
            let Some(pattern) = &raw.pattern else {
                if let Some(line) = all.replace(self.line(spanned)) {
                    let sentence = format!("the pool has a queue without a pattern already, on line {line}");
                    return self.wrong(spanned, sentence);
                }
                (settings.all, settings.priority) = (raw.limits(), raw.priority);
                return Some(None);
            };
            let (is_new, rule) = (self.once(&mut patterns, pattern, "the pattern"), self.rule(pattern, raw));
            is_new.and(rule).map(Some)
        }));
        settings.rules = rules?.into_iter().flatten().collect();
        Some((!raw.is_empty()).then_some(settings))
    }

    fn rule(&self, pattern: &Spanned<String>, raw: &RawQueue) -> Option<Rule> {
        Some(Rule { pattern: self.parsed::<Pattern>(pattern)?, limits: raw.limits(), priority: raw.priority })
    }

    pub(super) fn access(&self, allow: &[Spanned<String>], deny: &[Spanned<String>]) -> Option<Access> {
        let (allow, deny) = (self.networks(allow), self.networks(deny));
        Some(Access { allow: allow?, deny: deny? })
    }

    pub(super) fn to_nobody(&self, refuse: &Spanned<u16>) -> Option<Destination> {
        match REFUSALS.into_iter().find(|(status, _)| status == refuse.get_ref()) {
            Some((_, refusal)) => Some(Destination::Refused(refusal)),
            None => self.wrong(refuse, format!("refuse is 403 or 404, not {}", refuse.get_ref())),
        }
    }

    /// Adds the rule and returns its index.
    pub(super) fn auth(&self, spanned: &Spanned<RawAuth>, gate: &mut Gate) -> Option<usize> {
        let RawAuth { url, copy, timeout } = spanned.get_ref();
        let (parsed, copy) = (self.parsed(url), each(copy.iter().map(|name| self.copied(name))));
        gate.auths.push(Auth {
            line: self.line(url),
            url: parsed?,
            copy: copy?,
            timeout: timeout.map_or(AUTH_TIMEOUT, Span::get),
        });
        Some(gate.auths.len() - 1)
    }

    fn copied(&self, name: &Spanned<String>) -> Option<HeaderName> {
        match name.get_ref().parse::<HeaderName>() {
            Ok(name) if AuthConfig::may_copy(&name) => Some(name),
            Ok(_) => self.wrong(name, format!("the authorization server may not set the field {}", name.get_ref())),
            Err(_) => self.wrong(name, format!("\"{}\" is not a field name", name.get_ref())),
        }
    }
}

impl Gate {
    pub(super) fn auths(&self, file: &ConfigFile) -> Result<Vec<AuthConfig>, ConfigError> {
        ConfigError::all(self.auths.iter().map(|auth| auth.load(file)))
    }

    pub(super) fn access_log(
        &self,
        file: &ConfigFile,
        metrics: &watari_proxy::Metrics,
    ) -> Result<Option<AccessLog>, ConfigError> {
        let Some((path, format)) = &self.access_log else { return Ok(None) };
        open_log(file, path, *format, metrics).map(Some)
    }
}

fn open_log(
    file: &ConfigFile,
    path: &At<PathBuf>,
    format: LogFormat,
    metrics: &watari_proxy::Metrics,
) -> Result<AccessLog, ConfigError> {
    let log = AccessLog::open(&path.value, format, metrics);
    log.map_err(|error| file.wrong(path.line, &named(&path.value, &error)))
}

impl Auth {
    fn load(&self, file: &ConfigFile) -> Result<AuthConfig, ConfigError> {
        let Auth { line, url, copy, timeout } = self;
        let config = || watari_client_tls::from_pem(None, None).map_err(|error| file.wrong(*line, &error));
        let config = url.address().is_tls().then(config).transpose()?;
        let tls = config.map(|config| watari_proxy::OriginTls { config, server_name: None });
        let transport = Transport { tls, ..Transport::default() };
        Ok(AuthConfig { url: url.clone(), transport, copy: copy.clone(), timeout: *timeout })
    }
}

impl RawQueue {
    fn limits(&self) -> QueueLimits {
        QueueLimits {
            in_progress_max: self.in_progress_max,
            waiting_max: self.queue_max,
            wait_max: self.wait_max.map(Span::get),
        }
    }
}

impl From<&RawClientLimits> for ClientLimits {
    fn from(set: &RawClientLimits) -> Self {
        let default = Self::default().prefix;
        Self {
            prefix: set.client_prefix.map_or(default, |prefix| prefix.or(default)),
            rate: set.rate.as_ref().map(RawRate::limit),
            requests_max: set.requests_per_client_max,
            body_bytes_max: set.body_bytes_max,
        }
    }
}

impl RawRate {
    fn limit(&self) -> RateLimit {
        let Self { requests, per, burst } = *self;
        RateLimit { requests, per: per.get(), burst: burst.unwrap_or(requests) }
    }
}

impl From<RawFormat> for LogFormat {
    fn from(format: RawFormat) -> Self {
        match format {
            RawFormat::Combined => Self::Combined,
            RawFormat::Json => Self::Json,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::num::{NonZeroU64, NonZeroUsize};
    use std::path::Path;

    use watari_proxy::Refusal;

    use super::super::super::model::{Config, Site};
    use super::*;

    const AGENT: &str = "[node]\nname = \"n1\"\npki = \"pki\"\nmesh = \"127.0.0.1:1\"\n\
                         [agent]\nlegs = \"127.0.0.1:4\"\n";
    const POOL: &str = "[[agent.proxy.pool]]\nname = \"a\"\norigins = [\"http://127.0.0.1:80\"]\n";
    const ROUTE: &str = "[[agent.proxy.route]]\n";

    fn parse(parts: &[&str]) -> Result<super::super::Proxy, String> {
        let text = [&[AGENT], parts].concat().concat();
        let config = Config::parse(Path::new("etc/node.toml"), &text).map_err(|error| error.to_string())?;
        let Site::Proxy(proxy) = config.agent.unwrap().site else { panic!("it is a proxy") };
        Ok(*proxy)
    }

    #[test]
    fn what_clients_may_do_is_read() {
        let proxy = parse(&[
            "[agent.proxy]\naccess_log = { file = \"access.log\", format = \"json\" }\n",
            "[agent.proxy.limits]\nclient_prefix = { ipv4 = 24, ipv6 = 56 }\nrequests_per_client_max = 20\n",
            "rate = { requests = 100, per = \"1s\", burst = 200 }\nbody_bytes_max = 1000\n",
            POOL,
        ]);
        let Gate { clients, access_log, .. } = proxy.unwrap().gate;
        let rate = clients.rate.unwrap();
        assert_eq!((rate.requests.get(), rate.per, rate.burst.get()), (100, Duration::from_secs(1), 200));
        assert_eq!((clients.requests_max, clients.body_bytes_max), (NonZeroUsize::new(20), NonZeroU64::new(1000)));
        assert_eq!(clients.prefix, watari_balance::ClientPrefix::new(24, 56).unwrap());
        let (file, format) = access_log.unwrap();
        assert_eq!((file.value.as_path(), format), (Path::new("etc/access.log"), LogFormat::Json));
    }

    #[test]
    fn a_prefix_of_one_version_leaves_the_default_of_the_other() {
        let prefix = |set: &str| {
            let limits = format!("[agent.proxy]\n[agent.proxy.limits]\nclient_prefix = {set}\n");
            parse(&[&limits, POOL]).unwrap().gate.clients.prefix
        };
        let of = |ipv4, ipv6| watari_balance::ClientPrefix::new(ipv4, ipv6).unwrap();
        assert_eq!((prefix("{ ipv4 = 24 }"), prefix("{ ipv6 = 56 }")), (of(24, 64), of(32, 56)));
    }

    #[test]
    fn queues_are_read() {
        let proxy = parse(&[
            POOL,
            "[[agent.proxy.pool.queue]]\npattern = \"/cgi-bin/*\"\nin_progress_max = 2\npriority = 1\n",
            "[[agent.proxy.pool.queue]]\nin_progress_max = 10\nqueue_max = 100\nwait_max = \"5s\"\npriority = 3\n",
        ]);
        let queue = proxy.unwrap().pools[0].queue.clone().unwrap();
        let all = QueueLimits {
            in_progress_max: NonZeroUsize::new(10),
            waiting_max: Some(100),
            wait_max: Some(Duration::from_secs(5)),
        };
        assert_eq!((queue.all, queue.priority), (all, 3));
        let limits = QueueLimits { in_progress_max: NonZeroUsize::new(2), ..QueueLimits::default() };
        assert_eq!(queue.rules, [Rule { pattern: "/cgi-bin/*".parse().unwrap(), limits, priority: 1 }]);
        assert_eq!(parse(&[POOL]).unwrap().pools[0].queue, None);
    }

    #[test]
    fn what_routes_refuse_or_ask_for_is_read() {
        let proxy = parse(&[
            POOL,
            ROUTE,
            "pool = \"a\"\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.1/32\"]\n",
            "auth = { url = \"http://127.0.0.1:9000/check\", copy = [\"X-User\"], timeout = \"1s\" }\n",
            ROUTE,
            "path = \"/.git\"\nrefuse = 404\n",
        ]);
        let proxy = proxy.unwrap();
        let [first, second] = &proxy.routes[..] else { panic!("{:?}", proxy.routes) };
        assert_eq!(
            (first.to.clone(), first.auth, first.access.allow.len(), first.access.deny.len()),
            (Destination::Pool(0), Some(0), 1, 1)
        );
        assert_eq!((second.to.clone(), second.auth), (Destination::Refused(Refusal::NotFound), None));
        let [Auth { url, copy, timeout, .. }] = &proxy.gate.auths[..] else { panic!("{:?}", proxy.gate) };
        assert_eq!(*url, "http://127.0.0.1:9000/check".parse().unwrap());
        assert_eq!(
            (copy.as_slice(), *timeout),
            ([HeaderName::from_static("x-user")].as_slice(), Duration::from_secs(1))
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        let queue = "[[agent.proxy.pool.queue]]\n";
        for (parts, expected) in [
            (vec![POOL, queue, queue], "11: the pool has a queue without a pattern already, on line 10"),
            (
                vec![POOL, queue, "pattern = \"cgi-bin\"\n"],
                "11: \"cgi-bin\": no slash: a pattern is HOST/PATH or /PATH",
            ),
            (
                vec![POOL, queue, "pattern = \"/a\"\n", queue, "pattern = \"/a\"\n"],
                "13: the pattern /a is listed twice, first on line 11",
            ),
            (vec![POOL, ROUTE], "10: a route needs exactly one of pool, refuse and redirect"),
            (
                vec![POOL, ROUTE, "pool = \"a\"\nrefuse = 403\n"],
                "10: a route needs exactly one of pool, refuse and redirect",
            ),
            (
                vec![POOL, ROUTE, "path = \"/a/\"\npool = \"a\"\n", ROUTE, "path = \"//%61\"\nrefuse = 403\n"],
                "13: the route on line 10 is for the same host and path",
            ),
            (vec![POOL, ROUTE, "refuse = 500\n"], "11: refuse is 403 or 404, not 500"),
            (
                vec![POOL, ROUTE, "pool = \"a\"\nallow = [\n\"10.0.0.1/8\"]\n"],
                "13: \"10.0.0.1/8\" has bits after its prefix: did you mean \"10.0.0.0/8\"?",
            ),
            (
                vec![POOL, ROUTE, "pool = \"a\"\nauth = { url = \"ftp://a/\" }\n"],
                "12: \"ftp://a/\": expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH",
            ),
            (
                vec![POOL, ROUTE, "pool = \"a\"\nauth = { url = \"http://a/\", copy = [\"Host\"] }\n"],
                "12: the authorization server may not set the field Host",
            ),
            (
                vec![POOL, ROUTE, "pool = \"a\"\nauth = { url = \"http://a/\", copy = [\"a b\"] }\n"],
                "12: \"a b\" is not a field name",
            ),
        ] {
            assert_eq!(parse(&parts).unwrap_err(), format!("etc/node.toml:{expected}"));
        }
    }
}
