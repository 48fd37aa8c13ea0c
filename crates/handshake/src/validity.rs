//! Validity periods of certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::{CertificateError, certificates_from_pem};

/// The validity period of a certificate (RFC 5280, section 4.1.2.5). Both ends are included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// The subject in the form of RFC 4514 (`CN=www.example.com`), or the first DNS name if the subject is empty.
    pub subject: String,
    /// The first second, in seconds since 1970.
    pub not_before: i64,
    /// The last second, in seconds since 1970.
    pub not_after: i64,
}

/// The state of a certificate at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValidityState {
    /// Valid, and not about to expire.
    Valid,
    /// It expires within a fifth of its lifetime, or [`Validity::WARNING_MAX`] if that is less.
    ExpiresSoon,
    /// `not_before` is in the future.
    NotYetValid,
    /// `not_after` is in the past.
    Expired,
}

impl Validity {
    /// The longest time before the end in which a certificate counts as about to expire. Renewal usually begins a month
    /// before the end, so by then it has failed.
    pub const WARNING_MAX: Duration = Duration::from_hours(14 * 24);

    /// Reads all certificates of a PEM text, in order. Skips other sections.
    pub fn of_pem(pem: &[u8]) -> Result<Vec<Self>, CertificateError> {
        let certificates = certificates_from_pem(pem)?;
        certificates.iter().map(|der| Self::of_der(der)).collect()
    }

    fn of_der(der: &[u8]) -> Result<Self, CertificateError> {
        let parsed = X509Certificate::from_der(der);
        let (_, certificate) = parsed.map_err(|error| CertificateError::BadCertificate(error.to_string()))?;
        let subject = certificate.subject().to_string();
        let validity = certificate.validity();
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let subject = if subject.is_empty() { first_name(der).unwrap_or_default() } else { subject };
        Ok(Self { subject, not_before, not_after })
    }

    /// The state at `now`.
    pub fn state(&self, now: SystemTime) -> ValidityState {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let now = seconds(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let lifetime = self.not_after.saturating_sub(self.not_before);
        let warning = (lifetime / 5).min(seconds(Self::WARNING_MAX));
        match self.not_after.saturating_sub(now) {
            ..0 => ValidityState::Expired,
            _ if now < self.not_before => ValidityState::NotYetValid,
            left if left < warning => ValidityState::ExpiresSoon,
            _ => ValidityState::Valid,
        }
    }
}

fn first_name(der: &[u8]) -> Option<String> {
    crate::certificate::dns_names(&der.into()).ok()?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    #[test]
    fn a_certificate_is_valid_between_its_dates_and_warns_ahead_of_its_end() {
        let state = |lifetime: i64, at: i64| {
            let validity =
                Validity { subject: String::new(), not_before: 1_000_000_000, not_after: 1_000_000_000 + lifetime };
            validity.state(UNIX_EPOCH + Duration::from_secs((1_000_000_000 + at).unsigned_abs()))
        };
        assert_eq!(state(90 * DAY, -1), ValidityState::NotYetValid);
        assert_eq!(state(90 * DAY, 0), ValidityState::Valid);
        assert_eq!(state(90 * DAY, 76 * DAY), ValidityState::Valid);
        assert_eq!(state(90 * DAY, 76 * DAY + 1), ValidityState::ExpiresSoon);
        assert_eq!(state(90 * DAY, 90 * DAY), ValidityState::ExpiresSoon);
        assert_eq!(state(90 * DAY, 90 * DAY + 1), ValidityState::Expired);
        // A certificate of a few days is renewed every few days.
        assert_eq!(state(5 * DAY, 4 * DAY), ValidityState::Valid);
        assert_eq!(state(5 * DAY, 4 * DAY + 1), ValidityState::ExpiresSoon);
    }
}
