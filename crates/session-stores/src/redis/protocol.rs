//! The commands for a server, and the parsing of its responses.

use ::redis::{Pipeline, Value};
use watari_values::SessionKey;

use super::RedisError;
use crate::{Entry, VALUE_MAX};

/// The prefix of each key. The server may have other uses too, and an ACL can name this prefix.
const PREFIX: &[u8] = b"watari:session:";
/// The first byte of a value: the format of the rest.
const FORMAT: u8 = 1;
/// The length in bytes of the format and the expiry, before the sealed part.
const HEAD_LEN: usize = 9;
/// Longer than any session lives, in seconds. Servers refuse a time that overflows their own.
const LIFETIME_MAX: u64 = 366 * 86_400;

/// The content of a key at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    Entry(Entry),
    /// A value that no node has stored.
    Foreign,
    Nothing,
}

/// Stores the entries that have not expired and are not too long.
pub(super) fn put(entries: &[Entry], now: u64) -> Pipeline {
    let mut commands = Pipeline::new();
    for entry in entries.iter().filter(|entry| now < entry.expires && entry.value.len() <= VALUE_MAX) {
        let seconds = (entry.expires - now).min(LIFETIME_MAX);
        commands.cmd("SET").arg(name(&entry.key)).arg(value(entry)).arg("EX").arg(seconds);
    }
    commands
}

pub(super) fn read_put(answers: Vec<Value>) -> Result<(), RedisError> {
    answers.into_iter().try_for_each(|answer| match answer {
        Value::Okay => Ok(()),
        other => Err(unexpected(other, "OK")),
    })
}

pub(super) fn get(keys: &[SessionKey]) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("MGET");
    for key in keys {
        commands.arg(name(key));
    }
    commands
}

pub(super) fn read_get(answers: Vec<Value>, keys: &[SessionKey]) -> Result<Vec<Stored>, RedisError> {
    match only(answers)? {
        Value::Array(values) if values.len() == keys.len() => {
            keys.iter().zip(values).map(|(key, value)| stored(value, key)).collect()
        }
        other => Err(unexpected(other, "a value for each key")),
    }
}

pub(super) fn take(key: &SessionKey) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd("GETDEL").arg(name(key));
    commands
}

pub(super) fn read_take(answers: Vec<Value>, key: &SessionKey) -> Result<Stored, RedisError> {
    stored(only(answers)?, key)
}

fn only(answers: Vec<Value>) -> Result<Value, RedisError> {
    answers.into_iter().next().ok_or(RedisError::Garbage { found: "nothing", expected: "an answer" })
}

fn stored(answer: Value, key: &SessionKey) -> Result<Stored, RedisError> {
    match answer {
        Value::Nil => Ok(Stored::Nothing),
        Value::BulkString(bytes) => Ok(parse(key, &bytes).map_or(Stored::Foreign, Stored::Entry)),
        other => Err(unexpected(other, "a value")),
    }
}

/// A value as it is stored.
fn value(entry: &Entry) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEAD_LEN + entry.value.len());
    value.push(FORMAT);
    value.extend_from_slice(&entry.expires.to_be_bytes());
    value.extend_from_slice(&entry.value);
    value
}

fn parse(key: &SessionKey, bytes: &[u8]) -> Option<Entry> {
    let (&[format, ref expires @ ..], value) = bytes.split_first_chunk::<HEAD_LEN>()?;
    let is_ours = format == FORMAT && value.len() <= VALUE_MAX;
    is_ours.then(|| Entry { key: *key, value: value.to_vec(), expires: u64::from_be_bytes(*expires) })
}

/// The key's name at the server, in hexadecimal, so that operators can read it.
fn name(key: &SessionKey) -> Vec<u8> {
    let mut name = PREFIX.to_vec();
    for byte in key.0 {
        name.extend_from_slice(&[byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
    name
}

fn unexpected(found: Value, expected: &'static str) -> RedisError {
    match found {
        Value::ServerError(error) => RedisError::Refused(error.to_string()),
        other => RedisError::Garbage { found: kind(&other), expected },
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "a value",
        Value::Array(_) => "an array",
        Value::SimpleString(_) | Value::Okay => "a status",
        _ => "an unsupported type",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> SessionKey {
        SessionKey([number; 32])
    }

    #[test]
    fn keys_are_readable() {
        let name = String::from_utf8(name(&key(0xa3))).unwrap();
        assert_eq!(name, format!("watari:session:{}", "a3".repeat(32)));
    }

    #[test]
    fn what_is_of_no_use_is_not_sent() {
        let entry = |len, expires| Entry { key: key(1), value: vec![0; len], expires };
        let entries = [entry(1, 9), entry(1, 10), entry(VALUE_MAX + 1, 11), entry(VALUE_MAX, u64::MAX)];
        let commands = put(&entries, 10);
        assert_eq!(commands.len(), 1);
        let packed = commands.get_packed_pipeline();
        assert!(packed.ends_with(b"\r\n$2\r\nEX\r\n$8\r\n31622400\r\n"), "{:?}", String::from_utf8_lossy(&packed));
    }

    fn answers() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
            ".{0,5}".prop_map(Value::SimpleString),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| vec(inner, 0..4).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn values_are_read_as_they_were_written(bytes in vec(any::<u8>(), 0..100), expires in any::<u64>()) {
            let entry = Entry { key: key(1), value: bytes, expires };
            prop_assert_eq!(parse(&key(1), &value(&entry)), Some(entry));
        }

        #[test]
        fn no_answer_is_too_strange(answer in answers(), count in 0..4_usize) {
            let keys = vec![key(1); count];
            if let Ok(found) = read_get(vec![answer.clone()], &keys) {
                prop_assert_eq!(found.len(), count);
            }
            let is_value = matches!(answer, Value::Nil | Value::BulkString(_));
            prop_assert_eq!(read_take(vec![answer.clone()], &key(1)).is_ok(), is_value);
            prop_assert_eq!(read_put(vec![answer.clone()]).is_ok(), answer == Value::Okay);
        }

        #[test]
        fn no_value_is_too_strange(bytes in vec(any::<u8>(), 0..20)) {
            let found = parse(&key(1), &bytes);
            prop_assert_eq!(found.is_some(), bytes.len() >= HEAD_LEN && bytes[0] == FORMAT);
        }
    }

    #[test]
    fn values_that_are_too_long_are_none() {
        let mut bytes = vec![FORMAT; HEAD_LEN + VALUE_MAX];
        assert!(parse(&key(1), &bytes).is_some());
        bytes.push(0);
        assert!(parse(&key(1), &bytes).is_none());
    }
}
