//! Converts a request's path to a path below the root.

/// The decoded and checked path of a request. It never leaves the root.
///
/// Each segment is a plain name: not empty, not `.` or `..`, without a slash or NUL byte, and not hidden.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePath {
    segments: Vec<Vec<u8>>,
    directory: bool,
}

/// The reason that a request's path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// It is not an absolute path, or has a malformed percent-encoding or a NUL byte.
    Malformed,
    /// No file with such a name is ever served.
    NoSuchName,
}

impl FilePath {
    /// Parses the percent-encoded path of a URI (RFC 3986, section 3.3).
    ///
    /// Refuses dot segments instead of resolving them: clients resolve them before the request (RFC 3986, section
    /// 5.2.4), so one that arrives was written by hand.
    pub(crate) fn parse(path: &str) -> Result<Self, PathError> {
        let mut names: Vec<&str> = path.strip_prefix('/').ok_or(PathError::Malformed)?.split('/').collect();
        let directory = names.last() == Some(&"");
        if directory {
            names.pop();
        }
        let mut segments = Vec::with_capacity(names.len());
        for name in names {
            let name = decode(name).ok_or(PathError::Malformed)?;
            check(&name, segments.is_empty())?;
            segments.push(name);
        }
        Ok(Self { segments, directory })
    }

    /// Whether the path ends with a slash.
    pub(crate) fn is_directory(&self) -> bool {
        self.directory
    }

    /// The path to open, relative to the root. Appends `index` if the path ends with a slash.
    pub(crate) fn relative(&self, index: &str) -> Vec<u8> {
        let mut relative = self.segments.join(&b'/');
        if self.directory {
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(index.as_bytes());
        }
        relative
    }

    /// The same path with a slash at its end, as a `Location`.
    ///
    /// It is encoded again. It begins with a single slash and has no backslash, so that no browser reads a host name in
    /// it.
    pub(crate) fn directory_location(&self) -> String {
        let mut location = String::from("/");
        for segment in &self.segments {
            encode(segment, &mut location);
            location.push('/');
        }
        location
    }
}

/// Checks one decoded name. Dot files are hidden, except for `/.well-known` (RFC 8615).
fn check(name: &[u8], first: bool) -> Result<(), PathError> {
    if name.contains(&0) {
        return Err(PathError::Malformed);
    }
    let hidden = name.starts_with(b".") && !(first && name == b".well-known");
    if name.is_empty() || name.contains(&b'/') || hidden {
        return Err(PathError::NoSuchName);
    }
    Ok(())
}

/// Decodes percent-encoding (RFC 3986, section 2.1).
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            byte => byte,
        });
    }
    Some(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Percent-encodes all but the unreserved characters (RFC 3986, section 2.3).
fn encode(name: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            into.extend(['%', char::from(DIGITS[high]), char::from(DIGITS[low])]);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn relative(path: &str) -> Result<String, PathError> {
        let path = FilePath::parse(path)?;
        Ok(String::from_utf8(path.relative("index.html")).unwrap())
    }

    #[test]
    fn names_are_decoded() {
        for (path, expected) in [
            ("/", "index.html"),
            ("/a", "a"),
            ("/a/", "a/index.html"),
            ("/a/b.txt", "a/b.txt"),
            ("/a%20b", "a b"),
            ("/%E6%B8%A1%e3%82%8a", "渡り"),
            ("/.well-known/acme-challenge/x", ".well-known/acme-challenge/x"),
            ("/a%5cb", "a\\b"),
        ] {
            assert_eq!(relative(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn names_that_are_none_are_refused() {
        use PathError::{Malformed, NoSuchName};
        for (path, expected) in [
            ("", Malformed),
            ("*", Malformed),
            ("a", Malformed),
            ("/a%", Malformed),
            ("/a%4", Malformed),
            ("/a%+1", Malformed),
            ("/a%gg", Malformed),
            ("/a%00", Malformed),
            ("//", NoSuchName),
            ("//host/", NoSuchName),
            ("/a//b", NoSuchName),
            ("/.", NoSuchName),
            ("/..", NoSuchName),
            ("/a/../b", NoSuchName),
            ("/a/%2e%2E/b", NoSuchName),
            ("/a%2fb", NoSuchName),
            ("/%2fetc/passwd", NoSuchName),
            ("/.git/config", NoSuchName),
            ("/a/.htpasswd", NoSuchName),
            ("/a/.well-known", NoSuchName),
            ("/.well-known/.x", NoSuchName),
        ] {
            assert_eq!(relative(path), Err(expected), "{path}");
        }
    }

    #[test]
    fn a_location_names_no_host() {
        for (path, expected) in [
            ("/a", "/a/"),
            ("/a/b", "/a/b/"),
            ("/%5Chost", "/%5Chost/"),
            ("/a%0d%0aSet-Cookie:x", "/a%0D%0ASet-Cookie%3Ax/"),
            ("/%E6%B8%A1", "/%E6%B8%A1/"),
        ] {
            assert_eq!(FilePath::parse(path).unwrap().directory_location(), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_root(path in r"/?([a.%/\\\x00]|%2e|%2f|%5c|%00|\.\.){0,12}") {
            if let Ok(path) = FilePath::parse(&path) {
                let relative = path.relative("index.html");
                prop_assert!(!relative.contains(&0));
                for name in relative.split(|&byte| byte == b'/') {
                    prop_assert!(!name.is_empty() && name != b"." && name != b"..");
                }
            }
        }

        #[test]
        fn a_location_leads_to_the_same_directory(names in prop::collection::vec("[^/\0.][^/\0]{0,5}", 1..4)) {
            let mut encoded = String::new();
            for name in &names {
                encoded.push('/');
                encode(name.as_bytes(), &mut encoded);
            }
            let asked = FilePath::parse(&encoded).unwrap();
            let followed = FilePath::parse(&asked.directory_location()).unwrap();
            prop_assert_eq!(asked.segments, followed.segments);
            prop_assert!(followed.directory);
        }
    }
}
