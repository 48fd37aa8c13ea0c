//! Keys of entries.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};
use http::header::COOKIE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use crate::entry::ObjectId;
use crate::vary::{Vary, selecting_value};

/// The parts of a request that select its entry, besides scheme, host and path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRules {
    pub query: QueryRule,
    /// Fields whose values count.
    pub headers: Vec<HeaderName>,
    /// Names of cookies whose values count.
    pub cookies: Vec<String>,
}

/// The fields of the query that count.
///
/// Servers read queries differently: some decode names, ignore their case, split at `;`, or take `.` for `_`. So a
/// field is left out only if no server can take it for one that counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum QueryRule {
    /// The query as it is, byte by byte.
    #[default]
    Whole,
    /// Only fields with these names, in the order of the query. Names with other characters than letters, digits,
    /// `-` and `_` count, too.
    Only(Vec<String>),
    /// All but fields with these names.
    Except(Vec<String>),
}

/// The key of an entry: 128 bits of a SHA-256 digest, so that no client can find two requests with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// The key of a request. `policy` stands for all that separates entries beside the request itself: the route, and
    /// the service address if the origin gets it. `host` has its port if it is not the scheme's. Its case does not
    /// count.
    pub fn of(rules: &KeyRules, policy: &[u8], host: &str, target: &PathAndQuery, headers: &HeaderMap) -> Self {
        let mut text = KeyText::new(Kind::Request);
        text.add(policy);
        text.add_lowercase(host.as_bytes());
        text.add(target.path().as_bytes());
        text.add_option(target.query().map(|query| rules.query.select(query)).as_deref());
        for name in &rules.headers {
            text.add(name.as_str().as_bytes());
            text.add_option(selecting_value(headers, name));
        }
        for name in &rules.cookies {
            text.add(name.as_bytes());
            text.add_all(cookies(headers, name));
        }
        text.digest()
    }

    /// The key of a variant, which `headers` of the request select.
    #[must_use]
    pub fn variant(&self, vary: &Vary, headers: &HeaderMap) -> Self {
        let mut text = KeyText::new(Kind::Variant);
        text.add(&self.0);
        for name in vary.names() {
            text.add(name.as_str().as_bytes());
            text.add_option(selecting_value(headers, name));
        }
        text.digest()
    }

    /// The key of a piece of content.
    pub fn piece(object: ObjectId, index: u64) -> Self {
        let mut text = KeyText::new(Kind::Piece);
        text.add(&object.0);
        text.add(&index.to_be_bytes());
        text.digest()
    }
}

impl KeyRules {
    /// Path and query of a request, with the part of the query that counts: the text that purges are compared with.
    pub fn target<'a>(&self, target: &'a PathAndQuery) -> Cow<'a, str> {
        match target.query().map(|query| self.query.select(query)) {
            Some(Cow::Owned(selected)) if selected.is_empty() => target.path().into(),
            Some(Cow::Owned(selected)) => format!("{}?{selected}", target.path()).into(),
            Some(Cow::Borrowed(_)) | None => target.as_str().into(),
        }
    }
}

impl QueryRule {
    /// The part of the query that counts.
    fn select<'a>(&self, query: &'a str) -> Cow<'a, str> {
        let fields = query.split('&');
        let counting: Vec<&str> = match self {
            Self::Whole => return query.into(),
            Self::Only(names) => fields
                .filter(|field| {
                    let name = field_name(field);
                    let is_known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
                    is_known || !is_plain(name) || field.contains(';')
                })
                .collect(),
            Self::Except(names) => fields
                .filter(|field| field.contains(';') || !names.iter().any(|name| name == field_name(field)))
                .collect(),
        };
        counting.join("&").into()
    }
}

fn field_name(field: &str) -> &str {
    field.split_once('=').map_or(field, |(name, _)| name)
}

/// Whether all servers read the name as it is.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// The values of a cookie, in the order of the request.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (pair[..at].trim_ascii() == name.as_bytes()).then(|| pair[at + 1..].trim_ascii())
    })
}

/// What a key stands for. No two kinds have the same text.
#[derive(Clone, Copy)]
enum Kind {
    Request = 1,
    Variant = 2,
    Piece = 3,
}

/// The text of a key: each part after its length, so that different parts never give the same text.
struct KeyText(Vec<u8>);

impl KeyText {
    fn new(kind: Kind) -> Self {
        let mut text = Vec::with_capacity(256);
        text.push(kind as u8);
        Self(text)
    }

    fn add(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
    }

    fn add_lowercase(&mut self, part: &[u8]) {
        self.add(part);
        let start = self.0.len() - part.len();
        self.0[start..].make_ascii_lowercase();
    }

    fn add_option(&mut self, part: Option<impl AsRef<[u8]>>) {
        self.0.push(u8::from(part.is_some()));
        if let Some(part) = part {
            self.add(part.as_ref());
        }
    }

    fn add_all<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        for part in parts {
            self.add_option(Some(part));
        }
        self.add_option(None::<&[u8]>);
    }

    fn digest(&self) -> Key {
        let digest = digest(&SHA256, &self.0);
        let mut key = [0; 16];
        key.copy_from_slice(&digest.as_ref()[..16]);
        Key(key)
    }
}

#[cfg(test)]
mod tests;
