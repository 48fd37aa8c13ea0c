//! Requests on the way to other processes that send them.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Requests;
use crate::list::CLASSES_MAX;
use crate::ok_status::OkStatus;
use crate::request::{Expected, Parts, Request};
use crate::round::Round;
use crate::site::Site;
use crate::site::wire::{BadSite, WireSite};

/// Requests as they are sent. Bodies are included as content, and hosts as addresses, so that all processes connect to
/// the same servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireRequests {
    sites: Vec<WireSite>,
    ready: Vec<WireRequest>,
    /// For each line: the source address, and an index into `ready`.
    lines: Vec<(Option<IpAddr>, u32)>,
    /// The lines in the order of their turns; `None`: one after the other.
    turns: Option<Vec<u32>>,
    classes: Vec<String>,
    ok: OkStatus,
}

/// The received data are not requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid requests: {0}")]
pub struct BadRequests(&'static str);

impl From<BadSite> for BadRequests {
    fn from(BadSite(why): BadSite) -> Self {
        Self(why)
    }
}

impl WireRequests {
    pub fn of(requests: &Requests) -> Self {
        let mut sites: Vec<Arc<Site>> = Vec::new();
        let mut ready = Vec::new();
        for request in &requests.ready {
            let known = sites.iter().position(|site| Arc::ptr_eq(site, &request.site));
            let at = known.unwrap_or_else(|| {
                sites.push(Arc::clone(&request.site));
                sites.len() - 1
            });
            ready.push(WireRequest::of(request, at as u32));
        }
        Self {
            sites: sites.iter().map(|site| WireSite::of(site)).collect(),
            ready,
            lines: requests.lines.iter().map(|(source, at)| (*source, *at as u32)).collect(),
            turns: requests.round.order().map(<[u32]>::to_vec),
            classes: requests.classes.to_vec(),
            ok: requests.ready.first().map_or_else(OkStatus::default, |request| OkStatus::clone(&request.ok)),
        }
    }

    pub fn into_requests(self) -> Result<Requests, BadRequests> {
        let sites: Vec<_> = self.sites.into_iter().map(WireSite::into_site).collect::<Result<_, _>>()?;
        if self.classes.len() > CLASSES_MAX + 1 {
            return Err(BadRequests("there are too many classes"));
        }
        let classes = self.classes.len();
        let ready = self.ready.into_iter().map(|request| request.into_request(&sites, classes));
        let ready: Vec<_> = ready.collect::<Result<_, _>>()?;
        let lines: Vec<_> = self.lines.into_iter().map(|(source, at)| (source, at as usize)).collect();
        if lines.iter().any(|(_, at)| *at >= ready.len()) {
            return Err(BadRequests("a line has no request"));
        }
        let round = Round::of_order(lines.len(), self.turns).ok_or(BadRequests("the lines have no order"))?;
        Ok(Requests { ready, lines, round, classes: self.classes.into() }.ok_status(self.ok))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireRequest {
    site: u32,
    class: u32,
    method: String,
    path: String,
    headers: Vec<(String, ByteBuf)>,
    body: ByteBuf,
    status: Option<u16>,
    sha256: Option<[u8; 32]>,
}

impl WireRequest {
    fn of(request: &Request, site: u32) -> Self {
        let uri = request.parts.uri();
        let headers = request.parts.headers().iter();
        Self {
            site,
            class: request.class as u32,
            method: request.method.to_string(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_string(), ByteBuf::from(value.as_bytes().to_vec())))
                .collect(),
            body: ByteBuf::from(request.body.to_vec()),
            status: request.expected.status,
            sha256: request.expected.sha256,
        }
    }

    fn into_request(self, sites: &[Arc<Site>], classes: usize) -> Result<Request, BadRequests> {
        let site = sites.get(self.site as usize).ok_or(BadRequests("a request has no site"))?;
        let class = self.class as usize;
        if class >= classes {
            return Err(BadRequests("a request has an unknown class"));
        }
        let parts = Parts {
            method: Method::from_bytes(self.method.as_bytes()).map_err(|_| BadRequests("a method is invalid"))?,
            path: self.path,
            headers: headers(self.headers).ok_or(BadRequests("a header field is invalid"))?,
            body: Bytes::from(self.body.into_vec()),
        };
        let mut request =
            Request::new(Arc::clone(site), parts).map_err(|_| BadRequests("a path or a header field is invalid"))?;
        request.class = class;
        request.expected = Expected { status: self.status, sha256: self.sha256 };
        Ok(request)
    }
}

fn headers(fields: Vec<(String, ByteBuf)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = name.parse::<HeaderName>().ok()?;
        headers.try_append(name, HeaderValue::from_bytes(&value).ok()?).ok()?;
    }
    Some(headers)
}
