//! Changes that `[agent.proxy]` makes to requests and responses.

use std::path::PathBuf;

use http::HeaderValue;
use http::uri::Authority;
use ipnet::IpNet;
use watari_proxy::{Compression, ErrorPage, ErrorPages, HeaderRules, InvalidRule, Redirect, Rules, Statuses, Sticky};
use watari_values::setting::Span;

use crate::config::check::{Check, Wrong};
use crate::config::file::{At, ConfigError, ConfigFile, named};
use crate::config::raw::{
    RawCompression, RawErrorPages, RawFields, RawRedirect, RawRequestRules, RawResponseRules, RawSticky,
};
use crate::config::spanned::Spanned;
use crate::config::value::{FilePath, Network};

/// Changes that do not depend on the route.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) trusted_proxies: Vec<IpNet>,
    pages: Vec<(Statuses, At<PathBuf>)>,
    intercept: bool,
    pub(super) compression: Option<Compression>,
}

/// `sticky` of a pool.
#[derive(Debug)]
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
    ) -> Result<Shape, Wrong> {
        let networks = trusted_proxies.iter().map(|network| Ok(self.element::<Network>(network)?.0));
        if let (Some(intercept), true) = (intercept, pages.is_empty()) {
            return self.wrong(intercept, "intercept_errors has no effect without error_pages");
        }
        Ok(Shape {
            trusted_proxies: networks.collect::<Result<_, _>>()?,
            pages: pages.iter().map(|(statuses, file)| self.page(statuses, file)).collect::<Result<_, _>>()?,
            intercept: intercept.is_some_and(|intercept| *intercept.get_ref()),
            compression: compression.map(Compression::from),
        })
    }

    fn page(&self, statuses: &Spanned<String>, file: &Spanned<FilePath>) -> Result<(Statuses, At<PathBuf>), Wrong> {
        match statuses.get_ref().parse() {
            Ok(statuses) => Ok((statuses, self.path(file))),
            Err(error) => self.wrong(statuses, format!("\"{}\": {error}", statuses.get_ref())),
        }
    }

    pub(super) fn sticky(&self, raw: &RawSticky) -> StickyCookie {
        StickyCookie { name: self.at(raw.cookie.clone()), ttl: raw.ttl, secret: self.path(&raw.secret) }
    }

    pub(super) fn redirect(&self, raw: &RawRedirect) -> Result<Redirect, Wrong> {
        let redirect = Redirect::new(raw.to.get_ref(), raw.status);
        redirect.or_else(|error| self.wrong(&raw.to, format!("\"{}\": {error}", raw.to.get_ref())))
    }

    pub(super) fn rules(&self, request: &RawRequestRules, response: &RawResponseRules) -> Result<Rules, Wrong> {
        let host = request.host.as_ref().map(|host| match host.get_ref().parse::<Authority>() {
            Ok(authority) if !authority.as_str().contains('@') => Ok(authority),
            _ => self.wrong(host, format!("\"{}\" is not a host, with or without a port", host.get_ref())),
        });
        Ok(Rules {
            request: self.header_rules(&request.remove, &request.set, &request.append)?,
            host: host.transpose()?,
            response: self.header_rules(&response.remove, &response.set, &response.append)?,
        })
    }

    fn header_rules(
        &self,
        remove: &[Spanned<String>],
        set: &RawFields,
        append: &RawFields,
    ) -> Result<HeaderRules, Wrong> {
        let mut rules = HeaderRules::default();
        let wrong = |name: &Spanned<String>, error: InvalidRule| (self.line(name), error.to_string());
        for name in remove {
            rules.remove(name.get_ref()).map_err(|error| wrong(name, error))?;
        }
        for (name, value) in set {
            rules.set(name.get_ref(), value.get_ref()).map_err(|error| wrong(name, error))?;
        }
        for (name, value) in append {
            rules.append(name.get_ref(), value.get_ref()).map_err(|error| wrong(name, error))?;
        }
        Ok(rules)
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
        for (statuses, path) in &self.pages {
            let content = file.read_file(path)?.to_vec().into();
            let content_type = watari_files::media_type(path.value.as_os_str().as_encoded_bytes());
            let content_type = HeaderValue::try_from(content_type).map_err(|error| file.wrong(path.line, &error))?;
            pages.add(*statuses, ErrorPage { content, content_type });
        }
        Ok(pages)
    }
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
