//! Classes of URIs, by which results are split.

use std::collections::HashMap;

use http::Uri;

/// Maximum number of classes. A longer table would not be readable.
pub const CLASSES_MAX: usize = 32;

/// The class of all URIs that do not fit into another class.
pub const OTHER: &str = "other";

/// The default class of a URI: the extension of its path (`.html`, `.cgi`), which separates files from programs and
/// large from small. A path without an extension has its first segment (`/api`) as its class.
pub(super) fn name_of(uri: &Uri) -> String {
    let path = uri.path();
    let last = path.rsplit('/').next().unwrap_or(path);
    match last.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && is_extension(extension) => {
            format!(".{}", extension.to_ascii_lowercase())
        }
        _ => path
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '/')
            .map_or(path, |(end, _)| &path[..end])
            .chars()
            .take(NAME_CHARS)
            .collect(),
    }
}

fn is_extension(text: &str) -> bool {
    (1..=8).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Collects classes. In the end, there is room for the classes that lines name, and for those of the others with the
/// largest weights.
#[derive(Default)]
pub(super) struct Classes {
    indices: HashMap<String, usize>,
    met: Vec<Class>,
}

struct Class {
    name: String,
    /// Whether a line names it.
    named: bool,
    /// The sum of the weights of its lines.
    weight: u64,
}

impl Classes {
    /// Adds a class that a line names; returns its index.
    pub(super) fn named(&mut self, name: &str) -> usize {
        let at = self.unnamed(name);
        self.met[at].named = true;
        at
    }

    /// Adds the default class of a line; returns its index.
    pub(super) fn unnamed(&mut self, name: &str) -> usize {
        if let Some(at) = self.indices.get(name) {
            return *at;
        }
        self.met.push(Class { name: name.to_owned(), named: false, weight: 0 });
        self.indices.insert(name.to_owned(), self.met.len() - 1);
        self.met.len() - 1
    }

    /// Adds the weight of a line to its class.
    pub(super) fn count(&mut self, class: usize, weight: u32) {
        self.met[class].weight += u64::from(weight);
    }

    /// The names of the final classes, and the final index of each collected class.
    pub(super) fn finish(self) -> (Vec<String>, Vec<usize>) {
        if self.met.len() <= CLASSES_MAX {
            let indices = (0..self.met.len()).collect();
            return (self.met.into_iter().map(|class| class.name).collect(), indices);
        }
        let mut ranked: Vec<_> = (0..self.met.len()).filter(|at| self.met[*at].name != OTHER).collect();
        ranked.sort_by_key(|at| (!self.met[*at].named, u64::MAX - self.met[*at].weight, *at));
        let mut kept = ranked[..CLASSES_MAX - 1].to_vec();
        kept.sort_unstable();
        let mut indices = vec![kept.len(); self.met.len()];
        kept.iter().enumerate().for_each(|(index, at)| indices[*at] = index);
        let names = kept.iter().map(|at| self.met[*at].name.clone()).chain([OTHER.to_owned()]).collect();
        (names, indices)
    }
}

const NAME_CHARS: usize = 32;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_uri_is_classed_by_extension_or_first_segment() {
        for (uri, class) in [
            ("/index.html?a.cgi", ".html"),
            ("https://example.org/a/b.JPG", ".jpg"),
            ("https://example.org", "/"),
            ("/api/users/7", "/api"),
            ("/api", "/api"),
            ("/", "/"),
            ("/.well-known/acme", "/.well-known"),
            ("/a/.html", "/a"),
            ("/v1.2", "/v1.2"),
            ("/a.x-y/", "/a.x-y"),
        ] {
            assert_eq!(name_of(&uri.parse().unwrap()), class, "{uri}");
        }
    }

    #[test]
    fn as_many_as_there_is_room_for_are_kept() {
        let mut classes = Classes::default();
        let met: Vec<_> = (0..CLASSES_MAX).map(|i| classes.unnamed(&i.to_string())).collect();
        assert_eq!(classes.unnamed("7"), 7);
        let (names, indices) = classes.finish();
        assert_eq!((names.len(), indices), (CLASSES_MAX, met));
    }

    #[test]
    fn the_lightest_are_others() {
        let mut classes = Classes::default();
        for i in 0..CLASSES_MAX {
            let class = classes.unnamed(&i.to_string());
            classes.count(class, 10 + u32::from(![3, 5].contains(&i)));
        }
        let light = classes.named("light");
        classes.count(light, 1);
        let (names, indices) = classes.finish();
        assert_eq!(names.len(), CLASSES_MAX);
        assert_eq!(names[CLASSES_MAX - 2..], ["light", OTHER]);
        let others: Vec<_> = (0..indices.len()).filter(|at| names[indices[*at]] == OTHER).collect();
        assert_eq!(others, [3, 5]);
        assert_eq!(names[indices[4]], "4");
    }

    #[test]
    fn a_class_named_other_is_the_others() {
        let mut classes = Classes::default();
        let other = classes.named(OTHER);
        for i in 0..CLASSES_MAX {
            classes.unnamed(&i.to_string());
        }
        let (names, indices) = classes.finish();
        assert_eq!(names.iter().filter(|name| *name == OTHER).count(), 1);
        assert_eq!(names[indices[other]], OTHER);
    }
}
