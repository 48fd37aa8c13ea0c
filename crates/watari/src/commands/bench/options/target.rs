//! The requests, and their source addresses.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use watari_bench_engine::list::{self, AccessList};
use watari_bench_engine::ok_status::OkStatus;
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::site::Site;
use watari_bench_engine::source::Sources;

use crate::failure::Failure;

/// The requests, and their source addresses
#[derive(Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct Target {
    /// The URL to request; with a list: the server of its paths, or two, if it has requests of http and https
    #[arg(value_name = "URL", required = true, num_args = 1..=2)]
    urls: Vec<String>,
    /// The requests and their source addresses: lines of SOURCE URI TLS [KEY=VALUE ...]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "headers", "body"])]
    list: Option<PathBuf>,
    /// Addresses of this machine to connect from, in turn: 10.0.1.1, 10.0.1.0/24, 10.0.1.1-10.0.1.9
    #[arg(long, value_name = "ADDRESSES")]
    source: Option<Sources>,
    /// The method of requests
    #[arg(short = 'X', long, default_value = "GET")]
    method: Method,
    /// A header field, 'Name: value'; repeatable
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A file with the body of requests
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Statuses that count as success; all others count as failures. Lines of a list that expect a status, and flows,
    /// do not use this option
    #[arg(long, value_name = "STATUSES", default_value_t)]
    ok_status: OkStatus,
}

impl Target {
    /// The requests, prepared for sending.
    pub(crate) fn requests(&self) -> Result<Requests, Failure> {
        let mut sites = Sites::default();
        let mut path = String::new();
        for url in &self.urls {
            let (site, of_url) = Site::resolve(url).map_err(|error| Failure::Usage(error.to_string()))?;
            if sites.add(Arc::new(site)).is_some() {
                return Err(Failure::Usage("two URLs must be one of http and one of https".to_owned()));
            }
            path = of_url;
        }
        let list = match &self.list {
            Some(file) => AccessList::read(file).map_err(|error| Failure::Usage(error.to_string()))?,
            None if self.urls.len() > 1 => {
                return Err(Failure::Usage("two URLs need a list (--list) with requests of both kinds".to_owned()));
            }
            None => AccessList::of_one(self.request(&path, sites.tls.is_some())?),
        };
        let requests = Requests::prepare(&list, &sites).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(requests.ok_status(self.ok_status.clone()))
    }

    /// The only URL.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        match self.urls.as_slice() {
            [url] => Ok(url),
            _ => Err(Failure::Usage("a flow takes one URL".to_owned())),
        }
    }

    pub(crate) fn sources(&self) -> Option<Sources> {
        self.source.clone()
    }

    fn request(&self, path: &str, tls: bool) -> Result<list::Request, Failure> {
        let body = match &self.body {
            Some(file) => std::fs::read(file)
                .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?
                .into(),
            None => bytes::Bytes::new(),
        };
        Ok(list::Request {
            uri: path.parse::<Uri>().map_err(|error| Failure::Usage(format!("{path:?} is not a path: {error}")))?,
            tls,
            method: self.method.clone(),
            headers: self.headers.clone(),
            body,
            status: None,
            sha256: None,
            class: 0,
        })
    }
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected a header field like 'Name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not a field name"))?;
    if [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(&name) {
        return Err(format!("{name} cannot be set: it follows from the body"));
    }
    let value = value.trim().parse().map_err(|_| format!("{value:?} is not a field value"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_that_frame_the_body_are_not_given_by_hand() {
        assert!(field("Accept: text/html").is_ok());
        for text in ["Content-Length: 7", "transfer-encoding: chunked"] {
            assert!(field(text).is_err_and(|why| why.ends_with(" follows from the body")), "{text}");
        }
    }
}
