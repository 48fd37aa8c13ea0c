//! The names of a flow's values.

/// The values that exist at some point of a flow, and their indices.
#[derive(Clone, Debug)]
pub(super) struct Names {
    names: Vec<Name>,
}

#[derive(Clone, Debug)]
struct Name {
    name: String,
    /// Whether it has a value even if optional steps were left out.
    certain: bool,
}

/// A name that cannot be assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a valid name.
    #[error("\"{0}\" is not a name: a name has at most {NAME_MAX} letters, digits, \"-\" and \"_\"")]
    Malformed(String),
    /// The name of a built-in value.
    #[error("\"{USER}\" is reserved for the number of the run")]
    Reserved,
    /// Too many values.
    #[error("a flow has at most {NAMES_MAX} values")]
    TooMany,
}

/// A name that has no value where it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsetError {
    /// A name without a value.
    #[error("\"{0}\" has no value: neither [values] nor an earlier step sets it")]
    Unknown(String),
    /// A name that may have no value here.
    #[error("\"{0}\" may have no value here, because the step that takes it may be skipped: set it in [values], too")]
    Unsure(String),
}

impl Default for Names {
    fn default() -> Self {
        Self { names: vec![Name { name: USER.to_owned(), certain: true }] }
    }
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Declares a name that always has a value from here on; returns its index.
    pub(super) fn certain(&mut self, name: &str) -> Result<usize, NameError> {
        let place = self.perhaps(name)?;
        self.names[place].certain = true;
        Ok(place)
    }

    /// Declares a name that may have a value from here on; returns its index.
    pub(super) fn perhaps(&mut self, name: &str) -> Result<usize, NameError> {
        let place = self.names.iter().position(|known| known.name == name);
        match place {
            Some(USER_PLACE) => Err(NameError::Reserved),
            Some(place) => Ok(place),
            None => self.add(name),
        }
    }

    /// The index of a name that always has a value.
    pub(super) fn known(&self, name: &str) -> Result<usize, UnsetError> {
        let found = self.names.iter().enumerate().find(|(_, known)| known.name == name);
        match found {
            Some((place, Name { certain: true, .. })) => Ok(place),
            Some(_) => Err(UnsetError::Unsure(name.to_owned())),
            None => Err(UnsetError::Unknown(name.to_owned())),
        }
    }

    fn add(&mut self, name: &str) -> Result<usize, NameError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(good) {
            return Err(NameError::Malformed(name.chars().take(NAME_MAX).collect()));
        }
        if self.names.len() == NAMES_MAX {
            return Err(NameError::TooMany);
        }
        self.names.push(Name { name: name.to_owned(), certain: false });
        Ok(self.names.len() - 1)
    }
}

/// The name of the built-in number of the run, and its index.
pub(super) const USER: &str = "user";
pub(super) const USER_PLACE: usize = 0;
const NAME_MAX: usize = 64;
/// Together with the maximum length of a value, this bounds the memory of one run of a flow.
const NAMES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_keeps_its_place() {
        let mut names = Names::default();
        let place = names.perhaps("token").unwrap();
        assert_eq!(names.known("token"), Err(UnsetError::Unsure("token".to_owned())));
        assert_eq!(names.certain("token"), Ok(place));
        assert_eq!(names.perhaps("token"), Ok(place));
        assert_eq!(names.known("token"), Ok(place));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let mut names = Names::default();
        for name in ["", "a b", "a}", "é", &"x".repeat(65)] {
            assert!(matches!(names.certain(name), Err(NameError::Malformed(_))), "{name}");
        }
        assert_eq!(names.certain("user"), Err(NameError::Reserved));
        for number in 1..NAMES_MAX {
            names.certain(&format!("n{number}")).unwrap();
        }
        assert_eq!(names.certain("one-more"), Err(NameError::TooMany));
    }
}
