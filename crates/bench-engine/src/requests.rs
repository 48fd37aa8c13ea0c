//! The requests of a run, prepared from an access list.
//!
//! Imports: `list`, `site` and `request`, from which requests are made; `ok_status`; `round` for their order.

pub mod wire;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::list::{self, AccessList};
use crate::ok_status::OkStatus;
use crate::request::{Expected, Parts, Request, RequestError};
use crate::round::Round;
use crate::site::{Site, SiteError};

/// Requests, in the order of a list.
#[derive(Clone, Debug)]
pub struct Requests {
    ready: Vec<Request>,
    /// For each line: the source address, and an index into `ready`.
    lines: Vec<(Option<IpAddr>, usize)>,
    round: Round,
    classes: Arc<[String]>,
}

/// The servers that the paths of a list refer to.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// For lines without TLS.
    pub plain: Option<Arc<Site>>,
    /// For lines with TLS.
    pub tls: Option<Arc<Site>>,
}

impl Sites {
    /// Adds a server by its scheme. Returns the previous one of that scheme.
    pub fn add(&mut self, site: Arc<Site>) -> Option<Arc<Site>> {
        let place = if site.tls { &mut self.tls } else { &mut self.plain };
        place.replace(site)
    }
}

/// A list cannot be converted into requests.
#[derive(Debug, thiserror::Error)]
pub enum RequestsError {
    /// The command has no URL for the scheme that a path needs.
    #[error("{path} is requested {with} TLS, but no {scheme} URL was given", with = if *.tls { "with" } else { "without" }, scheme = if *.tls { "https" } else { "http" })]
    NoSite {
        path: String,
        /// Whether the line uses TLS.
        tls: bool,
    },
    /// A URL of the list names no server.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A request cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Requests {
    /// Prepares the requests of a list. Resolves the hosts that it names.
    pub fn prepare(list: &AccessList, sites: &Sites) -> Result<Self, RequestsError> {
        let mut preparing = Preparing { sites, named: HashMap::new() };
        let (mut ready, mut lines) = (Vec::new(), Vec::with_capacity(list.entries().len()));
        let mut known = HashMap::new();
        for entry in list.entries() {
            let at = if let Some(&at) = known.get(&Arc::as_ptr(&entry.request)) {
                at
            } else {
                ready.push(preparing.request(&entry.request)?);
                known.insert(Arc::as_ptr(&entry.request), ready.len() - 1);
                ready.len() - 1
            };
            lines.push((entry.source, at));
        }
        Ok(Self { ready, lines, round: list.round().clone(), classes: list.classes().into() })
    }

    /// Replaces the statuses that count as success for lines without an expected status.
    #[must_use]
    pub fn ok_status(mut self, ok: OkStatus) -> Self {
        let ok = Arc::new(ok);
        self.ready.iter_mut().for_each(|request| request.ok = Arc::clone(&ok));
        self
    }

    /// Request `number`, from 0, and its source address, if the line has one. After the last request, the first
    /// follows.
    pub fn nth(&self, number: u64) -> (&Request, Option<IpAddr>) {
        let (source, at) = self.lines[self.round.nth(number)];
        (&self.ready[at], source)
    }

    /// The names of the classes of requests.
    pub fn classes(&self) -> &Arc<[String]> {
        &self.classes
    }

    /// Whether any request uses TLS.
    pub(crate) fn need_tls(&self) -> bool {
        self.ready.iter().any(|request| request.site.tls)
    }

    /// One round: each request as often as its weight, with its source address.
    pub fn round(&self) -> impl Iterator<Item = (&Request, Option<IpAddr>)> {
        (0..self.round.turns()).map(|turn| self.nth(turn))
    }
}

struct Preparing<'a> {
    sites: &'a Sites,
    /// The servers that lines name, by scheme and authority.
    named: HashMap<String, Arc<Site>>,
}

impl Preparing<'_> {
    fn request(&mut self, asked: &list::Request) -> Result<Request, RequestsError> {
        let site = self.site(asked)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &asked.headers {
            headers.append(name, value.clone());
        }
        let path = asked.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let parts = Parts { method: asked.method.clone(), path, headers, body: asked.body.clone() };
        let mut request = Request::new(site, parts)?;
        request.class = asked.class;
        request.expected = Expected { status: asked.status.map(|status| status.as_u16()), sha256: asked.sha256 };
        Ok(request)
    }

    fn site(&mut self, asked: &list::Request) -> Result<Arc<Site>, RequestsError> {
        if let Some(authority) = asked.uri.authority() {
            let url = format!("{}://{authority}/", if asked.tls { "https" } else { "http" });
            if let Some(site) = self.named.get(&url) {
                return Ok(Arc::clone(site));
            }
            let site = Arc::new(Site::resolve(&url)?.0);
            return Ok(Arc::clone(self.named.entry(url).or_insert(site)));
        }
        let site = if asked.tls { &self.sites.tls } else { &self.sites.plain };
        let no_site = || RequestsError::NoSite { path: asked.uri.to_string(), tls: asked.tls };
        site.clone().ok_or_else(no_site)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn prepare(list: &str, urls: &[&str]) -> Result<Requests, RequestsError> {
        let list = AccessList::parse("list", list, |_| unreachable!("no line names a file")).unwrap();
        let mut sites = Sites::default();
        for url in urls {
            sites.add(Arc::new(Site::resolve(url).unwrap().0));
        }
        Requests::prepare(&list, &sites)
    }

    #[test]
    fn paths_belong_to_the_url_of_their_scheme() {
        let urls = ["http://127.0.0.1:8080/", "https://127.0.0.1:8443/"];
        let requests = prepare("127.0.0.9 /a 0\n::1 /b 1 weight=2 status=404\n- http://[::1]/c 0\n", &urls).unwrap();
        let asked: Vec<_> = (0..4).map(|number| requests.nth(number)).collect();
        let of = |path: &str| asked.iter().find(|(request, _)| request.parts.uri().path() == path).unwrap();
        assert_eq!(of("/a").0.site.authority, "127.0.0.1:8080");
        assert_eq!(of("/a").1, Some("127.0.0.9".parse().unwrap()));
        assert_eq!((of("/b").0.site.tls, of("/b").0.expected.status), (true, Some(404)));
        assert_eq!(of("/c").0.site.authority, "[::1]");
        assert_eq!(asked.iter().filter(|(request, _)| request.site.tls).count(), 2);
    }

    #[test]
    fn a_path_without_a_url_is_refused() {
        let error = prepare("- /a 1\n", &["http://127.0.0.1/"]).unwrap_err();
        assert_eq!(error.to_string(), "/a is requested with TLS, but no https URL was given");
    }
}
