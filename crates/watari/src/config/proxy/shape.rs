//! Changes that `[agent.proxy]` makes to requests and responses.

use std::path::PathBuf;

use http::HeaderValue;
use http::uri::Authority;
use ipnet::IpNet;
use watari_proxy::{Compression, ErrorPage, ErrorPages, HeaderRules, InvalidRule, Redirect, Rules, Statuses, Sticky};
use watari_values::setting::Span;

use crate::config::check::{Check, each, optional};
use crate::config::file::{At, ConfigError, ConfigFile, named};
use crate::config::raw::{
    RawCompression, RawErrorPages, RawFields, RawRedirect, RawRequestRules, RawResponseRules, RawSticky,
};
use crate::config::spanned::Spanned;
use crate::config::value::FilePath;

/// Changes that do not depend on the route.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) trusted_proxies: Vec<IpNet>,
    pages: Vec<(Statuses, At<PathBuf>)>,
    intercept: bool,
    pub(super) compression: Option<Compression>,
}

/// `sticky` of a pool.
#[derive(Debug, Clone)]
pub(super) struct StickyCookie {
    name: At<String>,
    ttl: Option<Span>,
    secret: At<PathBuf>,
}

impl Check<'_> {
    pub(super) fn shape(
        &self,
        trusted_proxies: &[Spanned<String>],
        pages: &RawErrorPages,
        intercept: Option<&Spanned<bool>>,
        compression: Option<RawCompression>,
    ) -> Option<Shape> {
        let trusted_proxies = self.networks(trusted_proxies);
        let has_pages = match intercept {
            Some(intercept) if pages.is_empty() => {
                self.wrong(intercept, "intercept_errors has no effect without error_pages")
            }
            _ => Some(()),
        };
        let pages = each(pages.iter().map(|(statuses, file)| self.page(statuses, file)));
        has_pages?;
        Some(Shape {
            trusted_proxies: trusted_proxies?,
            pages: pages?,
            intercept: intercept.is_some_and(|intercept| *intercept.get_ref()),
            compression: compression.map(Compression::from),
        })
    }

    fn page(&self, statuses: &Spanned<String>, file: &Spanned<FilePath>) -> Option<(Statuses, At<PathBuf>)> {
        let path = self.path(file);
        let page = path.clone();
        self.later(move |file| error_page(file, &page).map(drop));
        Some((self.parsed(statuses)?, path))
    }

    pub(super) fn sticky(&self, raw: &RawSticky) -> StickyCookie {
        let cookie = StickyCookie { name: self.at(raw.cookie.clone()), ttl: raw.ttl, secret: self.path(&raw.secret) };
        if self.is_real(&raw.cookie) && self.is_real(&raw.secret) {
            let cookie = cookie.clone();
            self.later(move |file| cookie.load(file).map(drop));
        }
        cookie
    }

    pub(super) fn redirect(&self, raw: &RawRedirect) -> Option<Redirect> {
        let redirect = Redirect::new(raw.to.get_ref(), raw.status);
        redirect.map_or_else(|error| self.wrong(&raw.to, format!("\"{}\": {error}", raw.to.get_ref())), Some)
    }

    pub(super) fn rules(&self, request: &RawRequestRules, response: &RawResponseRules) -> Option<Rules> {
        let host = optional(request.host.as_ref(), |host| match host.get_ref().parse::<Authority>() {
            Ok(authority) if !authority.as_str().contains('@') => Some(authority),
            _ => self.wrong(host, format!("\"{}\" is not a host, with or without a port", host.get_ref())),
        });
        let request = self.header_rules(&request.remove, &request.set, &request.append);
        let response = self.header_rules(&response.remove, &response.set, &response.append);
        Some(Rules { request: request?, host: host?, response: response? })
    }

    fn header_rules(&self, remove: &[Spanned<String>], set: &RawFields, append: &RawFields) -> Option<HeaderRules> {
        let mut rules = HeaderRules::default();
        let noted = |name: &Spanned<String>, result: Result<(), InvalidRule>| {
            result.map_or_else(|error| self.wrong(name, error.to_string()), Some)
        };
        let mut results: Vec<_> = remove.iter().map(|name| noted(name, rules.remove(name.get_ref()))).collect();
        results.extend(set.iter().map(|(name, value)| noted(name, rules.set(name.get_ref(), value.get_ref()))));
        results.extend(append.iter().map(|(name, value)| noted(name, rules.append(name.get_ref(), value.get_ref()))));
        each(results).map(|_| rules)
    }
}

impl From<RawCompression> for Compression {
    fn from(raw: RawCompression) -> Self {
        let default = Self::default();
        Self {
            types: raw.types.unwrap_or(default.types),
            length_min: raw.length_min_bytes.unwrap_or(default.length_min),
        }
    }
}

impl Shape {
    /// The pages, with the content of their files.
    pub(super) fn error_pages(&self, file: &ConfigFile) -> Result<ErrorPages, ConfigError> {
        let mut pages = ErrorPages::new(self.intercept);
        let loaded = self.pages.iter().map(|(statuses, path)| Ok((*statuses, error_page(file, path)?)));
        for (statuses, page) in ConfigError::all(loaded)? {
            pages.add(statuses, page);
        }
        Ok(pages)
    }
}

fn error_page(file: &ConfigFile, path: &At<PathBuf>) -> Result<ErrorPage, ConfigError> {
    let content = file.read_file(path)?.to_vec().into();
    let content_type = watari_files::media_type(path.value.as_os_str().as_encoded_bytes());
    let content_type = HeaderValue::try_from(content_type).map_err(|error| file.wrong(path.line, &error))?;
    Ok(ErrorPage { content, content_type })
}

impl StickyCookie {
    /// The cookie, with its secret.
    pub(super) fn load(&self, file: &ConfigFile) -> Result<Sticky, ConfigError> {
        let StickyCookie { name, ttl, secret } = self;
        let key = file.read_key(secret)?;
        Sticky::new(&name.value, ttl.map(Span::get), &key).map_err(|error| match error {
            watari_proxy::InvalidSticky::Name => file.wrong(name.line, &error),
            watari_proxy::InvalidSticky::Secret => file.wrong(secret.line, &named(&secret.value, &error)),
        })
    }
}
