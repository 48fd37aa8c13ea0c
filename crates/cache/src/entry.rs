//! What a store has under a key, and its encoded form.

use std::mem::size_of;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, VARY};
use http::status::StatusCode;
use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::reuse::Terms;
use crate::vary::Vary;

/// The length of a piece of content, in bytes. The last one is shorter.
pub const PIECE_LEN: u64 = 256 * 1024;

/// What a store has under a key.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most entries are responses, and pieces are long")]
pub enum Entry {
    Response(StoredResponse),
    /// Responses vary: the entry is under the key of the variant.
    Varies(Vary),
    /// A piece of content.
    Piece(Bytes),
}

/// A stored response.
#[derive(Debug)]
pub struct StoredResponse {
    /// `host/path?query` of the request, for purges.
    pub url: Box<str>,
    pub status: StatusCode,
    /// The fields, without those of one connection, without `Age`, and without `Content-Length`. With `Date`.
    pub headers: HeaderMap,
    pub terms: Terms,
    pub content: Content,
    /// The groups of the response, for purges.
    pub groups: Vec<Box<str>>,
    /// `None`: agents do not share it.
    pub shared: Option<Shared>,
    /// The number of purges when its response was requested. It grows when the entry is checked against later ones.
    pub purges: AtomicU64,
}

/// How agents share a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The key of the request without a variant. Its owner is asked for the response.
    pub key: Key,
    /// Stands for the settings of the route when it was stored.
    pub route: u64,
}

/// The content of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All of it.
    Inline(Bytes),
    /// Its pieces are under keys of their own. Some may be missing.
    Pieces { object: ObjectId, len: u64 },
}

/// Stands for one version of one content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId(pub [u8; 16]);

/// An encoded entry is damaged, or of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged entry")]
pub struct DecodeError;

impl Content {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Pieces { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entry {
    /// The bytes of memory that it takes, about.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Response(response) => response.heap_len(),
                Self::Varies(vary) => {
                    vary.names().iter().map(|name| size_of::<HeaderName>() + name.as_str().len()).sum()
                }
                Self::Piece(content) => content.len(),
            }
    }

    /// Appends the encoded form: a checksum of the rest, the version, the encoded head, and the content.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        let content = self.stored_content();
        to.reserve(CHECKSUM_LEN + HEAD_LEN_USUAL + content.len());
        to.extend_from_slice(&[0; CHECKSUM_LEN]);
        to.extend_from_slice(&VERSION);
        let head = postcard::to_stdvec(&Head::of(self)).expect("a vector has room");
        to.extend_from_slice(&head);
        to.extend_from_slice(content);
        let checksum = checksum(&to[start + CHECKSUM_LEN..]);
        to[start..start + CHECKSUM_LEN].copy_from_slice(&checksum);
    }

    /// Decodes a whole encoded entry. Content and field values share `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let (expected, rest) = bytes.split_at_checked(CHECKSUM_LEN).ok_or(DecodeError)?;
        if checksum(rest) != expected {
            return Err(DecodeError);
        }
        let head = rest.strip_prefix(&VERSION).ok_or(DecodeError)?;
        let (head, content) = postcard::take_from_bytes(head).map_err(|_| DecodeError)?;
        decode_parts(head, content, bytes)
    }

    fn stored_content(&self) -> &[u8] {
        match self {
            Self::Response(StoredResponse { content: Content::Inline(content), .. }) | Self::Piece(content) => content,
            Self::Response(_) | Self::Varies(_) => &[],
        }
    }
}

impl StoredResponse {
    fn heap_len(&self) -> usize {
        let values: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let groups: usize = self.groups.iter().map(|group| size_of::<Box<str>>() + group.len()).sum();
        let content = if let Content::Inline(content) = &self.content { content.len() } else { 0 };
        self.url.len() + self.headers.capacity() * FIELD_LEN + values + groups + content
    }
}

/// What precedes the content in an encoded entry.
#[derive(Serialize, Deserialize)]
enum Head<'a> {
    Response(#[serde(borrow)] ResponseHead<'a>),
    #[serde(borrow)]
    Varies(Vec<&'a str>),
    /// The length of the piece.
    Piece(u64),
}

#[derive(Serialize, Deserialize)]
struct ResponseHead<'a> {
    url: &'a str,
    status: u16,
    #[serde(borrow)]
    fields: Vec<Field<'a>>,
    terms: Terms,
    /// The object id if the content is in pieces.
    object: Option<[u8; 16]>,
    content_len: u64,
    groups: Vec<&'a str>,
    shared: Option<Shared>,
    purges: u64,
}

#[derive(Serialize, Deserialize)]
struct Field<'a> {
    name: &'a str,
    #[serde(with = "serde_bytes", borrow)]
    value: &'a [u8],
}

impl<'a> Head<'a> {
    fn of(entry: &'a Entry) -> Self {
        match entry {
            Entry::Response(response) => Self::Response(ResponseHead::of(response)),
            Entry::Varies(vary) => Self::Varies(vary.names().iter().map(HeaderName::as_str).collect()),
            Entry::Piece(content) => Self::Piece(content.len() as u64),
        }
    }
}

impl<'a> ResponseHead<'a> {
    fn of(response: &'a StoredResponse) -> Self {
        let fields = response.headers.iter();
        Self {
            url: &response.url,
            status: response.status.as_u16(),
            fields: fields.map(|(name, value)| Field { name: name.as_str(), value: value.as_bytes() }).collect(),
            terms: response.terms,
            object: match response.content {
                Content::Inline(_) => None,
                Content::Pieces { object, .. } => Some(object.0),
            },
            content_len: response.content.len(),
            groups: response.groups.iter().map(|group| &**group).collect(),
            shared: response.shared,
            purges: response.purges.load(Ordering::Relaxed),
        }
    }
}

/// `content` is what follows the head, to the end. Both are parts of `bytes`.
fn decode_parts(head: Head<'_>, content: &[u8], bytes: &Bytes) -> Result<Entry, DecodeError> {
    match head {
        Head::Response(head) => Ok(Entry::Response(decode_response(head, content, bytes)?)),
        Head::Varies(names) if content.is_empty() => Ok(Entry::Varies(decode_vary(&names)?)),
        Head::Piece(len) if content.len() as u64 == len && len <= PIECE_LEN => {
            Ok(Entry::Piece(bytes.slice_ref(content)))
        }
        Head::Varies(_) | Head::Piece(_) => Err(DecodeError),
    }
}

fn decode_response(head: ResponseHead<'_>, content: &[u8], bytes: &Bytes) -> Result<StoredResponse, DecodeError> {
    let content = match head.object {
        Some(object) if content.is_empty() => Content::Pieces { object: ObjectId(object), len: head.content_len },
        None if content.len() as u64 == head.content_len => Content::Inline(bytes.slice_ref(content)),
        _ => return Err(DecodeError),
    };
    Ok(StoredResponse {
        url: head.url.into(),
        status: StatusCode::from_u16(head.status).map_err(|_| DecodeError)?,
        headers: decode_fields(&head.fields, bytes)?,
        terms: head.terms,
        content,
        groups: head.groups.into_iter().map(Into::into).collect(),
        shared: head.shared,
        purges: AtomicU64::new(head.purges),
    })
}

fn decode_fields(fields: &[Field<'_>], bytes: &Bytes) -> Result<HeaderMap, DecodeError> {
    let mut headers = HeaderMap::try_with_capacity(fields.len()).map_err(|_| DecodeError)?;
    for Field { name, value } in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| DecodeError)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value)).map_err(|_| DecodeError)?;
        headers.try_append(name, value).map_err(|_| DecodeError)?;
    }
    Ok(headers)
}

fn decode_vary(names: &[&str]) -> Result<Vary, DecodeError> {
    let value = HeaderValue::try_from(names.join(",")).map_err(|_| DecodeError)?;
    let vary = Vary::of(&HeaderMap::from_iter([(VARY, value)])).map_err(|_| DecodeError)?;
    // `Vary::of` brings the names of a damaged entry into another form.
    let is_same = vary.names().iter().map(HeaderName::as_str).eq(names.iter().copied());
    if is_same { Ok(vary) } else { Err(DecodeError) }
}

/// AES-GMAC with a constant key. It detects damage, and is the fastest digest of aws-lc.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    static KEY: LazyLock<LessSafeKey> = LazyLock::new(|| {
        let key = UnboundKey::new(&AES_128_GCM, b"watari checksum ").expect("a key of 128 bits");
        LessSafeKey::new(key)
    });
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let tag = KEY.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []).expect("shorter than 2^61 bytes");
    tag.as_ref().try_into().expect("the length of its tags")
}

const CHECKSUM_LEN: usize = 16;

/// The version of the encoded form. Increase it with any change of the form.
const VERSION: [u8; 4] = *b"WCE2";

/// The length of most encoded heads, in bytes.
const HEAD_LEN_USUAL: usize = 1024;

/// What a field takes in a `HeaderMap` beside its name and value, in bytes: 104 for the field, and 8 in the index.
const FIELD_LEN: usize = 112;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    prop_compose! {
        fn terms()(times in any::<[u64; 5]>(), is_always_validated: bool, is_never_stale: bool) -> Terms {
            let [received_ms, initial_age_ms, lifetime_ms, stale_while_revalidate_ms, stale_if_error_ms] = times;
            Terms {
                received_ms,
                initial_age_ms,
                lifetime_ms,
                stale_while_revalidate_ms,
                stale_if_error_ms,
                is_always_validated,
                is_never_stale,
            }
        }
    }

    fn contents() -> impl Strategy<Value = Content> {
        prop_oneof![
            vec(any::<u8>(), 0..3000).prop_map(|bytes| Content::Inline(bytes.into())),
            any::<([u8; 16], u64)>().prop_map(|(object, len)| Content::Pieces { object: ObjectId(object), len }),
        ]
    }

    fn headers() -> impl Strategy<Value = HeaderMap> {
        let fields =
            vec(("(date|etag|x-[a-z]{1,9})", vec(prop_oneof![Just(9u8), 32..127u8, 128..=255u8], 0..40)), 0..9);
        fields.prop_map(|fields| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(&value).unwrap());
            }
            headers
        })
    }

    prop_compose! {
        fn responses()(
            url in "[a-z.]{1,30}/\\PC{0,30}",
            status in 100..1000u16,
            headers in headers(),
            terms in terms(),
            content in contents(),
            groups in vec("\\PC{0,9}", 0..4),
            shared: Option<([u8; 16], u64)>,
            purges: u64,
        ) -> StoredResponse {
            StoredResponse {
                url: url.into(),
                status: StatusCode::from_u16(status).unwrap(),
                headers,
                terms,
                content,
                groups: groups.into_iter().map(Into::into).collect(),
                shared: shared.map(|(key, route)| Shared { key: Key(key), route }),
                purges: purges.into(),
            }
        }
    }

    fn entries() -> impl Strategy<Value = Entry> {
        prop_oneof![
            4 => responses().prop_map(Entry::Response),
            1 => vec(any::<u8>(), 0..3000).prop_map(|bytes| Entry::Piece(bytes.into())),
        ]
    }

    fn encoded(entry: &Entry) -> Vec<u8> {
        let mut encoded = Vec::new();
        entry.encode(&mut encoded);
        encoded
    }

    /// All that an entry has.
    fn shown(entry: &Entry) -> String {
        format!("{entry:?}")
    }

    fn decoded(bytes: Vec<u8>) -> Result<String, DecodeError> {
        Entry::decode(&bytes.into()).map(|entry| shown(&entry))
    }

    /// An encoded form with a valid checksum.
    fn sealed(rest: &[u8]) -> Vec<u8> {
        [&checksum(rest), rest].concat()
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(entry in entries(), before in vec(any::<u8>(), 0..9)) {
            let mut bytes = before.clone();
            entry.encode(&mut bytes);
            prop_assert_eq!(&bytes[..before.len()], &before);
            prop_assert_eq!(decoded(bytes.split_off(before.len())), Ok(shown(&entry)));
        }

        #[test]
        fn a_damaged_form_is_an_error(
            entry in entries(), at: Index, mask in 1..=255u8, extra in vec(any::<u8>(), 1..9),
        ) {
            let bytes = encoded(&entry);
            let at = at.index(bytes.len());
            prop_assert_eq!(decoded(bytes[..at].to_vec()), Err(DecodeError));
            prop_assert_eq!(decoded([&bytes, &extra[..]].concat()), Err(DecodeError));
            prop_assert_eq!(decoded([&bytes[..at], &vec![0; bytes.len() - at][..]].concat()) == Err(DecodeError),
                bytes[at..].iter().any(|byte| *byte != 0));
            let mut changed = bytes;
            changed[at] ^= mask;
            prop_assert_eq!(decoded(changed), Err(DecodeError));
        }

        /// The checksum has no secret: a form can have the right one, and be malformed.
        #[test]
        fn a_malformed_form_with_the_right_checksum_does_not_panic(
            entry in entries(), at: Index, mask: u8, cut: Index, noise in vec(any::<u8>(), 0..300),
        ) {
            let mut rest = encoded(&entry).split_off(CHECKSUM_LEN);
            let at = at.index(rest.len());
            rest[at] ^= mask;
            let cut = cut.index(rest.len());
            for rest in [&rest[..], &rest[..cut], &[&VERSION, &noise[..]].concat()[..], &noise[..]] {
                if let Ok(entry) = Entry::decode(&sealed(rest).into()) {
                    prop_assert_eq!(decoded(encoded(&entry)), Ok(shown(&entry)));
                }
            }
        }
    }

    #[test]
    fn a_vary_survives() {
        let fields = HeaderMap::from_iter([(VARY, HeaderValue::from_static("origin, accept-encoding"))]);
        let entry = Entry::Varies(Vary::of(&fields).unwrap());
        assert_eq!(decoded(encoded(&entry)), Ok(shown(&entry)));
        let Entry::Varies(vary) = Entry::decode(&encoded(&entry).into()).unwrap() else { panic!("not a Vary") };
        assert_eq!(vary.names().len(), 2);
    }

    #[test]
    fn another_version_is_an_error() {
        let bytes = encoded(&Entry::Piece(Bytes::from_static(b"piece")));
        let rest = [b"WCE3", &bytes[CHECKSUM_LEN + VERSION.len()..]].concat();
        assert_eq!(decoded(sealed(&rest)), Err(DecodeError));
        assert!(decoded(sealed(&bytes[CHECKSUM_LEN..])).is_ok());
    }

    #[test]
    fn a_piece_is_not_too_long() {
        let piece = |len: u64| Entry::Piece(vec![7; len as usize].into());
        assert!(decoded(encoded(&piece(PIECE_LEN))).is_ok());
        assert_eq!(decoded(encoded(&piece(PIECE_LEN + 1))), Err(DecodeError));
    }

    #[test]
    fn content_and_values_are_not_copied() {
        let bytes = Bytes::from(encoded(&Entry::Piece(vec![7; 1000].into())));
        let Entry::Piece(content) = Entry::decode(&bytes).unwrap() else { panic!("not a piece") };
        assert!(bytes.as_ptr_range().contains(&content.as_ptr()));
    }

    proptest! {
        #[test]
        fn the_weight_has_all_bytes(entry in entries()) {
            let least = encoded(&entry).len() / 2;
            prop_assert!(entry.weight() >= least, "{} < {least}", entry.weight());
        }
    }
}
