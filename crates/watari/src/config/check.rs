//! Collects the mistakes of a configuration while its values are checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::IpNet;

use super::file::{At, ConfigError, ConfigFile};
use super::raw::line_of;
use super::spanned::Spanned;
use super::value::{Address, FilePath, Network};

/// A value. `None`: it is wrong, and its mistakes are noted.
pub(super) type Checked<T> = Option<T>;

/// A certificate chain and its key.
pub(super) type IdentityFiles = (At<PathBuf>, At<PathBuf>);

/// A line and the description of its mistake.
pub(super) type Wrong = (usize, String);

/// Checks one file.
///
/// A method that returns `None` has noted at least one mistake. Callers go on to check what does not depend on the
/// missing value, so that all mistakes are noted.
pub(super) struct Check<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    mistakes: RefCell<Vec<Wrong>>,
    file_checks: RefCell<Vec<FileCheck>>,
}

/// A check of files that the configuration names. It runs if the configuration has mistakes elsewhere, so that those of
/// its files are shown, too. [`Config::load`](super::Config::load) makes the same checks of a valid configuration.
pub(super) type FileCheck = Box<dyn FnOnce(&ConfigFile) -> Result<(), ConfigError>>;

impl<'a> Check<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, mistakes: RefCell::default(), file_checks: RefCell::default() }
    }

    /// All mistakes that were noted, and the checks of the files that values without mistakes name.
    pub(super) fn finish(self) -> (Vec<Wrong>, Vec<FileCheck>) {
        (self.mistakes.into_inner(), self.file_checks.into_inner())
    }

    /// Registers a check of files.
    pub(super) fn later(&self, check: impl FnOnce(&ConfigFile) -> Result<(), ConfigError> + 'static) {
        self.file_checks.borrow_mut().push(Box::new(check));
    }

    /// Whether the value is in the text. `false`: it stands for a missing one, to find other mistakes (`form`).
    pub(super) fn is_real<T>(&self, value: &Spanned<T>) -> bool {
        value.span().start <= self.text.len()
    }

    /// Notes a mistake on a line.
    pub(super) fn note<T>(&self, line: usize, sentence: impl Into<String>) -> Option<T> {
        self.mistakes.borrow_mut().push((line, sentence.into()));
        None
    }

    /// Notes a mistake at a value.
    pub(super) fn wrong<T, V>(&self, what: &Spanned<V>, sentence: impl Into<String>) -> Option<T> {
        self.note(self.line(what), sentence)
    }

    pub(super) fn addresses(&self, raw: &[Spanned<String>]) -> Option<Vec<SocketAddr>> {
        each(raw.iter().map(|address| Some(self.element::<Address>(address)?.0)))
    }

    pub(super) fn networks(&self, raw: &[Spanned<String>]) -> Option<Vec<IpNet>> {
        each(raw.iter().map(|network| Some(self.element::<Network>(network)?.0)))
    }

    /// Parses an element of an array.
    pub(super) fn element<T: TryFrom<String, Error = String>>(&self, text: &Spanned<String>) -> Option<T> {
        T::try_from(text.get_ref().clone()).map_or_else(|sentence| self.wrong(text, sentence), Some)
    }

    /// Parses a value. The message of a mistake repeats its text.
    pub(super) fn parsed<T>(&self, text: &Spanned<String>) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        let parsed = text.get_ref().parse();
        parsed.map_or_else(|error| self.wrong(text, format!("\"{}\": {error}", text.get_ref())), Some)
    }

    /// Refuses a value that occurred before.
    pub(super) fn once<T: Ord + Clone + std::fmt::Display>(
        &self,
        seen: &mut BTreeMap<T, usize>,
        value: &Spanned<T>,
        what: &str,
    ) -> Option<()> {
        self.first(seen, value.get_ref(), value, what)
    }

    pub(super) fn once_at(&self, seen: &mut BTreeMap<SocketAddr, usize>, address: &Spanned<Address>) -> Option<()> {
        self.first(seen, &address.get_ref().0, address, "the address")
    }

    fn first<T: Ord + Clone + std::fmt::Display, V>(
        &self,
        seen: &mut BTreeMap<T, usize>,
        value: &T,
        place: &Spanned<V>,
        what: &str,
    ) -> Option<()> {
        if !self.is_real(place) {
            return Some(());
        }
        match seen.insert(value.clone(), self.line(place)) {
            Some(line) => self.wrong(place, format!("{what} {value} is listed twice, first on line {line}")),
            None => Some(()),
        }
    }

    pub(super) fn line<T>(&self, value: &Spanned<T>) -> usize {
        line_of(self.text, value.span().start)
    }

    pub(super) fn at<T>(&self, value: Spanned<T>) -> At<T> {
        At { line: self.line(&value), value: value.into_inner() }
    }

    /// A certificate and its key, if the file names them.
    pub(super) fn identity(
        &self,
        certificate: Option<&Spanned<FilePath>>,
        key: Option<&Spanned<FilePath>>,
    ) -> Checked<Option<IdentityFiles>> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Some((self.path(certificate), self.path(key)))),
            (None, None) => Some(None),
            (Some(alone), None) | (None, Some(alone)) => self.wrong(alone, "set both the certificate and its key"),
        }
    }

    pub(super) fn path(&self, value: &Spanned<FilePath>) -> At<PathBuf> {
        At { line: self.line(value), value: self.resolve(&value.get_ref().0) }
    }

    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// All values, if none is missing. Takes each from the iterator, so that each is checked.
pub(super) fn each<T>(values: impl IntoIterator<Item = Option<T>>) -> Option<Vec<T>> {
    let values: Vec<_> = values.into_iter().collect();
    values.into_iter().collect()
}

/// Checks an optional value.
pub(super) fn optional<T, V>(raw: Option<&T>, check: impl FnOnce(&T) -> Option<V>) -> Checked<Option<V>> {
    match raw {
        Some(raw) => check(raw).map(Some),
        None => Some(None),
    }
}
