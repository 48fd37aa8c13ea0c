//! Collects the mistakes of a configuration while its values are checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::file::At;
use super::raw::line_of;
use super::spanned::Spanned;
use super::value::{Address, FilePath};

/// A certificate chain and its key.
pub(super) type IdentityFiles = (At<PathBuf>, At<PathBuf>);

/// A line and the description of its mistake.
pub(super) type Wrong = (usize, String);

/// Checks one file.
///
/// A method that returns an error has already noted all its other mistakes: see [`Check::note`] and [`Check::each`].
pub(super) struct Check<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    mistakes: RefCell<Vec<Wrong>>,
}

impl<'a> Check<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, mistakes: RefCell::default() }
    }

    /// `value`, or all mistakes that were noted, sorted by line.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Wrong>> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort();
        mistakes.dedup();
        value.filter(|_| mistakes.is_empty()).ok_or(mistakes)
    }

    /// Notes a mistake, so that the check can continue and find others.
    pub(super) fn note<T>(&self, result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.mistakes.borrow_mut().push(wrong)).ok()
    }

    /// Collects all values, or returns the last error and notes the others.
    pub(super) fn each<T>(&self, results: impl IntoIterator<Item = Result<T, Wrong>>) -> Result<Vec<T>, Wrong> {
        let (mut values, mut wrong) = (Vec::new(), None);
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => {
                    if let Some(earlier) = wrong.replace(error) {
                        self.note(Err::<T, _>(earlier));
                    }
                }
            }
        }
        wrong.map_or(Ok(values), Err)
    }

    /// The last mistake that was noted, or a general one if there is none.
    pub(super) fn noted(&self) -> Wrong {
        let noted = self.mistakes.borrow_mut().pop();
        noted.unwrap_or_else(|| (1, "the configuration cannot be used".to_owned()))
    }

    pub(super) fn addresses(&self, raw: &[Spanned<String>]) -> Result<Vec<SocketAddr>, Wrong> {
        self.each(raw.iter().map(|address| Ok(self.element::<Address>(address)?.0)))
    }

    /// Parses an element of an array.
    pub(super) fn element<T: TryFrom<String, Error = String>>(&self, text: &Spanned<String>) -> Result<T, Wrong> {
        T::try_from(text.get_ref().clone()).map_err(|sentence| (self.line(text), sentence))
    }

    /// Refuses a value that occurred before.
    pub(super) fn once<T: Ord + Clone + std::fmt::Display>(
        &self,
        seen: &mut BTreeMap<T, usize>,
        value: &Spanned<T>,
        what: &str,
    ) -> Result<(), Wrong> {
        match seen.insert(value.get_ref().clone(), self.line(value)) {
            Some(line) => {
                self.wrong(value, format!("{what} {} is listed twice, first on line {line}", value.get_ref()))
            }
            None => Ok(()),
        }
    }

    pub(super) fn once_at(
        &self,
        seen: &mut BTreeMap<SocketAddr, usize>,
        address: &Spanned<Address>,
    ) -> Result<(), Wrong> {
        match seen.insert(address.get_ref().0, self.line(address)) {
            Some(line) => self
                .wrong(address, format!("the address {} is listed twice, first on line {line}", address.get_ref().0)),
            None => Ok(()),
        }
    }

    pub(super) fn wrong<T, V>(&self, what: &Spanned<V>, sentence: impl Into<String>) -> Result<T, Wrong> {
        Err((self.line(what), sentence.into()))
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
    ) -> Result<Option<IdentityFiles>, Wrong> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((self.path(certificate), self.path(key)))),
            (None, None) => Ok(None),
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
