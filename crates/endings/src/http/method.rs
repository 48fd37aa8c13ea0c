//! Methods of requests.

/// A method's name: the first 8 octets of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Method([u8; 8]);

impl Method {
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        str::from_utf8(&self.0[..len]).unwrap_or_default()
    }

    pub(super) fn new(name: &[u8]) -> Self {
        let mut method = [0; 8];
        let len = name.len().min(method.len());
        method[..len].copy_from_slice(&name[..len]);
        Self(method)
    }
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Whether these may be the first octets of a request: a name and a space.
pub(crate) fn begins_request(data: &[u8]) -> bool {
    let name = data.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    (3..=16).contains(&name) && data.get(name) == Some(&b' ') && !data.starts_with(b"PRI * HTTP/2")
}
