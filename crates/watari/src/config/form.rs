//! Every mistake of form in a file: unknown keys, values of a wrong type, missing keys.
//!
//! serde stops at the first mistake. So [`read`] parses the document repeatedly. In each round it removes the wrong
//! value, or inserts a placeholder for a missing key, until the document has no mistakes. It does not report mistakes
//! in placeholders, nor keys that are missing only because it removed them.
//!
//! The values of the mended document are checked, too. [`Mended`] has the parts in which they may be wrong only because
//! of the changes.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue, Error};

use super::check::Wrong;
use super::mended::Mended;
use super::raw::{RawConfig, line_of};
use super::words::{self, Problem};

/// The form of a file.
pub(super) struct Form {
    /// The file without its wrong values, and with placeholders for missing ones. `None`: no change made it readable.
    pub(super) raw: Option<RawConfig>,
    pub(super) mistakes: Vec<Wrong>,
    pub(super) mended: Mended,
}

/// Reads `text`.
pub(super) fn read(text: &str) -> Form {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mistakes = errors.iter().map(|error| syntax(text, error)).collect();
        return Form { raw: None, mistakes, mended: Mended::default() };
    }
    let root = Node::new(root);
    let mended = Mended::of(text, &root);
    let mut document = Document { text, root, mistakes: Vec::new(), removed: Vec::new(), mended };
    // Each round removes a value, or adds a placeholder that is not checked again.
    for _ in 0..ROUNDS_MAX {
        match document.attempt() {
            Ok(raw) => return Form { raw: Some(raw), mistakes: document.mistakes, mended: document.mended },
            Err(error) if document.mend(&error) => {}
            Err(_) => break,
        }
    }
    Form { raw: None, mistakes: document.mistakes, mended: document.mended }
}

/// The bound of the loop. More mistakes are not reported at once.
const ROUNDS_MAX: usize = 500;

fn syntax(text: &str, error: &Error) -> Wrong {
    let at = error.span().map_or(0, |span| span.start);
    (line_of(text, at), words::syntax(error.message()))
}

/// A document, and the mistakes found in it so far.
struct Document<'a> {
    text: &'a str,
    root: Node<'a>,
    mistakes: Vec<Wrong>,
    mended: Mended,
    /// Removed keys, with the spans of their tables.
    removed: Vec<(Range<usize>, String)>,
}

/// The document. Its root is a value like any other.
#[derive(Clone)]
pub(super) struct Node<'a>(Spanned<DeValue<'a>>);

/// The path from the root to a value.
pub(super) type Path = Vec<PathStep>;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Element(usize),
}

impl<'a> Document<'a> {
    fn attempt(&self) -> Result<RawConfig, Error> {
        attempt(&self.root)
    }

    /// Notes the mistake of `error`, and changes the document so that it does not occur again. `false`: no change can
    /// achieve that.
    fn mend(&mut self, error: &Error) -> bool {
        let span = error.span().unwrap_or(0..0);
        match Problem::of(error.message()) {
            Problem::UnknownKey { key, known } => self.unknown_key(&span, &key, &known),
            Problem::MissingKey(key) => self.missing_key(error, &span, &key),
            Problem::Value(problem) => self.value(error, &span, &problem),
        }
    }

    fn unknown_key(&mut self, span: &Range<usize>, key: &str, known: &[String]) -> bool {
        let Some(table) = self.root.find(&|table: &Spanned<DeValue<'_>>| {
            table.get_ref().as_table().is_some_and(|table| {
                table.iter().any(|(name, _)| name.span() == *span && name.get_ref().as_ref() == key)
            })
        }) else {
            return self.give_up(span, words::unknown_key("", key, known));
        };
        self.note(span, words::unknown_key(&shown(&table), key, known));
        if let (Some(near), Some(value)) = (words::nearest(key, known), self.root.get(&table)) {
            // The key is present under a misspelled name.
            self.removed.push((value.span(), near.to_owned()));
            self.mended.add(&below(&table, near));
        }
        self.remove(&table, key)
    }

    fn missing_key(&mut self, error: &Error, span: &Range<usize>, key: &str) -> bool {
        let tables = self.root.find_all(&|value| value.get_ref().is_table() && value.span() == *span);
        let filled = tables.iter().find_map(|table| {
            let mut root = self.root.clone();
            placeholders(self.text.len()).into_iter().find_map(|placeholder| {
                root.table_mut(table)?.insert(at_end(self.text.len(), key.to_owned().into()), placeholder);
                is_other(&root, error, self.text.len()).then(|| (table.clone(), root.clone()))
            })
        });
        let was_removed = self.removed.iter().any(|(table, name)| table == span && name == key);
        let table = filled.as_ref().map(|(table, _)| table).or(tables.first());
        self.mended.add(&below(table.unwrap_or(&Path::new()), key));
        if !was_removed && !self.is_placeholder(span) {
            let table = table.map(shown).unwrap_or_default();
            self.note(span, words::missing_key(&table, key));
        }
        if let Some((_, root)) = filled {
            self.root = root;
            return true;
        }
        false
    }

    fn value(&mut self, error: &Error, span: &Range<usize>, problem: &str) -> bool {
        let places = self.root.find_all(&|value| value.span() == *span);
        let Some(place) = places.last().filter(|place| !place.is_empty()).cloned() else {
            return self.give_up(span, words::value(problem, &[]));
        };
        let place = self.narrowed(error, place);
        self.mended.add(&place);
        let span = self.root.get(&place).map_or_else(|| span.clone(), Spanned::span);
        if !self.is_placeholder(&span) {
            let sentence = words::value(problem, &self.wanted(&place));
            let key = shown(&place);
            // The error of a value may contain the key already.
            let named = sentence.contains(&key) || place.len() == 1 && sentence.contains("node name");
            self.note(&span, if named { sentence } else { format!("{sentence} ({key})") });
        }
        self.take_out(&place)
    }

    /// The element of an array that `error` is about. The parser reports only the place of the array.
    fn narrowed(&self, error: &Error, place: Path) -> Path {
        let Some(DeValue::Array(elements)) = self.root.get(&place).map(Spanned::get_ref) else { return place };
        let is_same_with = |elements: Vec<Spanned<DeValue<'a>>>| {
            let mut root = self.root.clone();
            if let Some(value) = root.get_mut(&place) {
                *value.get_mut() = DeValue::Array(elements.into_iter().collect());
            }
            attempt(&root).is_err_and(|other| other.message() == error.message() && other.span() == error.span())
        };
        // If the error stays without elements, it is about the array itself.
        if is_same_with(Vec::new()) {
            return place;
        }
        match elements.iter().position(|element| is_same_with(vec![element.clone()])) {
            Some(index) => place.into_iter().chain([PathStep::Element(index)]).collect(),
            None => place,
        }
    }

    /// The possible values at `place`: the keys of a table, or the words of a choice.
    fn wanted(&self, place: &Path) -> Vec<String> {
        let probe = |value: DeValue<'a>| {
            let mut root = self.root.clone();
            *root.get_mut(place)?.get_mut() = value;
            attempt(&root).err().and_then(|error| words::known(error.message()))
        };
        let mut table = DeTable::new();
        table.insert(at_end(self.text.len(), PROBE.into()), at_end(self.text.len(), DeValue::Boolean(true)));
        probe(DeValue::String(PROBE.into())).or_else(|| probe(DeValue::Table(table))).unwrap_or_default()
    }

    fn take_out(&mut self, place: &Path) -> bool {
        let Some((last, above)) = place.split_last() else { return false };
        match last {
            PathStep::Key(key) => self.remove(&above.to_vec(), key),
            PathStep::Element(index) => match self.root.get_mut(&above.to_vec()).map(Spanned::get_mut) {
                Some(DeValue::Array(elements)) => {
                    let all = std::mem::replace(elements, DeArray::new()).into_iter().enumerate();
                    *elements = all.filter_map(|(at, element)| (at != *index).then_some(element)).collect();
                    true
                }
                _ => false,
            },
        }
    }

    fn remove(&mut self, table: &Path, key: &str) -> bool {
        let Some(span) = self.root.get(table).map(Spanned::span) else { return false };
        let removed = self.root.table_mut(table).is_some_and(|table| table.remove(key).is_some());
        self.removed.push((span, key.to_owned()));
        removed
    }

    fn note(&mut self, span: &Range<usize>, sentence: String) {
        self.mistakes.push((line_of(self.text, span.start), sentence));
    }

    /// Notes a mistake whose place was not found, and ends the search.
    fn give_up(&mut self, span: &Range<usize>, sentence: String) -> bool {
        self.note(span, sentence);
        false
    }

    fn is_placeholder(&self, span: &Range<usize>) -> bool {
        span.start > self.text.len()
    }
}

fn below(table: &Path, key: &str) -> Path {
    table.iter().cloned().chain([PathStep::Key(key.to_owned())]).collect()
}

/// Not a key of any table, nor a word of any choice.
const PROBE: &str = "\u{1}";

fn attempt(root: &Node<'_>) -> Result<RawConfig, Error> {
    RawConfig::deserialize(toml::de::ValueDeserializer::from(root.0.clone()))
}

/// Whether `root` has a mistake other than `error`, or none. A mistake in a placeholder counts only if the placeholder
/// lacks a key.
fn is_other(root: &Node<'_>, error: &Error, text_len: usize) -> bool {
    match attempt(root) {
        Ok(_) => true,
        Err(other) if other.span().is_some_and(|span| span.start > text_len) => {
            matches!(Problem::of(other.message()), Problem::MissingKey(_))
        }
        Err(other) => other.message() != error.message() || other.span() != error.span(),
    }
}

/// Values of different types. Every required key accepts one of them.
fn placeholders<'a>(text_len: usize) -> Vec<Spanned<DeValue<'a>>> {
    let texts = ["x", "127.0.0.1:1", "http://x", "1s", "/"].map(|text| DeValue::String(text.into()));
    let others = [
        DeValue::Array(DeArray::new()),
        DeValue::Table(DeTable::new()),
        DeValue::Boolean(true),
        DeValue::Integer(DeInteger::default()),
    ];
    texts.into_iter().chain(others).map(|value| at_end(text_len, value)).collect()
}

/// A value with a span behind the text.
fn at_end<T>(text_len: usize, value: T) -> Spanned<T> {
    Spanned::new(text_len + 1..text_len + 1, value)
}

/// The path as messages show it: `agent.proxy.pool.name`.
pub(super) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Key(key) if text.is_empty() => text.push_str(key),
            PathStep::Key(key) => text.extend([".", key]),
            PathStep::Element(_) => {}
        }
    }
    text
}

impl<'a> Node<'a> {
    fn new(root: Spanned<DeTable<'a>>) -> Self {
        let span = root.span();
        Self(Spanned::new(span, DeValue::Table(root.into_inner())))
    }

    /// The line on which each value begins, with its path. A value comes before those in it.
    pub(super) fn lines(&self, text: &str) -> Vec<(usize, Path)> {
        let mut lines = Vec::new();
        walk(&self.0, &mut Vec::new(), &mut |value, path| {
            lines.push((line_of(text, value.span().start), path.clone()));
        });
        lines
    }

    fn get(&self, path: &Path) -> Option<&Spanned<DeValue<'a>>> {
        path.iter().try_fold(&self.0, |value, step| match (value.get_ref(), step) {
            (DeValue::Table(table), PathStep::Key(key)) => table.get(key.as_str()),
            (DeValue::Array(elements), PathStep::Element(index)) => elements.get(*index),
            _ => None,
        })
    }

    fn get_mut(&mut self, path: &Path) -> Option<&mut Spanned<DeValue<'a>>> {
        path.iter().try_fold(&mut self.0, |value, step| match (value.get_mut(), step) {
            (DeValue::Table(table), PathStep::Key(key)) => table.get_mut(key.as_str()),
            (DeValue::Array(elements), PathStep::Element(index)) => elements.get_mut(*index),
            _ => None,
        })
    }

    fn table_mut(&mut self, path: &Path) -> Option<&mut DeTable<'a>> {
        match self.get_mut(path)?.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The first value that is `wanted`. A value comes before those in it.
    fn find(&self, wanted: &dyn Fn(&Spanned<DeValue<'_>>) -> bool) -> Option<Path> {
        self.find_all(wanted).into_iter().next()
    }

    fn find_all(&self, wanted: &dyn Fn(&Spanned<DeValue<'_>>) -> bool) -> Vec<Path> {
        let mut found = Vec::new();
        walk(&self.0, &mut Vec::new(), &mut |value, path| {
            if wanted(value) {
                found.push(path.clone());
            }
        });
        found
    }
}

fn walk<'a>(value: &Spanned<DeValue<'a>>, path: &mut Path, visit: &mut dyn FnMut(&Spanned<DeValue<'a>>, &Path)) {
    visit(value, path);
    let mut below = |step: PathStep, value: &Spanned<DeValue<'a>>, path: &mut Path| {
        path.push(step);
        walk(value, path, visit);
        path.pop();
    };
    match value.get_ref() {
        DeValue::Table(table) => {
            table.iter().for_each(|(key, value)| below(PathStep::Key(key.get_ref().to_string()), value, path));
        }
        DeValue::Array(elements) => {
            elements.iter().enumerate().for_each(|(index, value)| below(PathStep::Element(index), value, path));
        }
        _ => {}
    }
}
