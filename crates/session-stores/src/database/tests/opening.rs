//! Opens intact, damaged and foreign files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use redb::TableDefinition;

use super::*;
use crate::VALUE_MAX;

/// As after an error. The file may have been removed, to make room.
#[test]
fn it_is_opened_again_in_place() {
    let (_dir, path) = place();
    let database = open(&path, 1 << 20);
    database.put(&[entry(1, 100, 5)], 0).unwrap();
    database.reopen().unwrap();
    assert_eq!(database.get(&[key(1)], 0).unwrap(), [entry(1, 100, 5)]);
    std::fs::remove_file(&path).unwrap();
    database.reopen().unwrap();
    assert_eq!(usage(&database), Usage::default());
    database.put(&[entry(2, 100, 5)], 0).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "of another program").unwrap();
    assert!(matches!(database.reopen(), Err(DatabaseError::NotADatabase(_))));
    let error = database.put(&[entry(3, 100, 5)], 0).unwrap_err();
    assert!(error.is_of_the_system() && !error.is_full(), "{error}");
}

#[test]
fn entries_are_there_when_it_is_opened_again() {
    let (_dir, path) = place();
    let entries = [entry(1, 0, 100), entry(2, VALUE_MAX, u64::MAX)];
    let database = open(&path, 1 << 20);
    assert_eq!(database.put(&entries, 7).unwrap(), 0);
    drop(database);
    let database = open(&path, 1 << 20);
    assert_eq!(database.get(&[key(1), key(3), key(2)], 99).unwrap(), entries);
    assert_eq!(database.get(&[key(1), key(2)], 100).unwrap(), entries[1..]);
    assert_eq!(usage(&database), Usage { entries: 2, bytes: VALUE_MAX as u64 + 2 * Database::OVERHEAD });
}

#[test]
fn other_users_may_not_read_it() {
    let (_dir, path) = place();
    drop(open(&path, 1));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_does_not_fit_is_not_kept() {
    let (_dir, path) = place();
    let database = open(&path, 1 << 20);
    database.put(&[entry(1, 10, 100)], 0).unwrap();
    assert_eq!(database.put(&[entry(1, VALUE_MAX + 1, 100), entry(2, 1, 50)], 50).unwrap(), 1);
    assert_eq!(usage(&database), Usage::default());
}

#[test]
fn a_lower_limit_makes_those_leave_that_expire_first() {
    let (_dir, path) = place();
    let bytes = 100 + Database::OVERHEAD;
    let database = open(&path, 20_000 * bytes);
    let entries: Vec<_> = (0..20_000).map(|number| entry(number, 100, 1000 + number)).collect();
    database.put(&entries, 0).unwrap();
    drop(database);
    let len = fs::metadata(&path).unwrap().len();
    let database = open(&path, 100 * bytes);
    assert_eq!(usage(&database), Usage { entries: 100, bytes: 100 * bytes });
    assert_eq!(database.get(&[key(19_899), key(19_900)], 0).unwrap(), entries[19_900..=19_900]);
    assert!(fs::metadata(&path).unwrap().len() * 10 < len);
}

#[test]
fn it_is_one_process_alone_that_has_it() {
    let (_dir, path) = place();
    let _database = open(&path, 1);
    let error = Database::open(&path, 1).unwrap_err();
    assert!(matches!(error, DatabaseError::InUse(_)), "{error}");
}

#[test]
fn other_files_are_left_alone() {
    let (_dir, path) = place();
    let text = "no database, but what somebody has written\n".repeat(100);
    for content in [&text[..1], &text[..500], &text] {
        fs::write(&path, content).unwrap();
        let error = Database::open(&path, 1).unwrap_err();
        assert!(matches!(error, DatabaseError::NotADatabase(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn databases_of_others_are_left_alone() {
    for name in ["theirs", "numbers"] {
        let (_dir, path) = place();
        let theirs: TableDefinition<'_, u64, u64> = TableDefinition::new(name);
        let database = redb::Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(theirs).unwrap().insert(1, 2).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let error = Database::open(&path, 1).unwrap_err();
        assert!(matches!(error, DatabaseError::NotADatabase(_)), "{error}");
    }
}

#[test]
fn another_format_is_not_touched() {
    let (_dir, path) = place();
    let database = open(&path, 1);
    let numbers: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
    let transaction = hold(&database);
    transaction.open_table(numbers).unwrap().insert("format", 7).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Database::open(&path, 1).unwrap_err();
    assert!(matches!(error, DatabaseError::OtherFormat { found: 7, .. }), "{error}");
}

#[test]
fn a_place_that_is_not_there_is_named() {
    let (dir, _) = place();
    for path in [dir.path().join("no/such/directory"), dir.path().to_owned()] {
        let error = Database::open(&path, 1).unwrap_err();
        assert!(matches!(error, DatabaseError::System { .. }), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()));
    }
}

/// After any damage to a file, either all content is intact, or the file is refused.
#[test]
fn damage_is_found() {
    let (dir, path) = place();
    let database = open(&path, 1 << 30);
    let entries: Vec<_> = (0..3000).map(|number| entry(number, 300, 1000 + number)).collect();
    database.put(&entries, 0).unwrap();
    drop(database);
    let whole = fs::read(&path).unwrap();
    let path = dir.path().join("damaged");
    let (mut refused, step) = (0, whole.len() / 300);
    for at in (0..640).step_by(7).chain((0..whole.len()).step_by(step)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, bytes).unwrap();
        match Database::open(&path, 1 << 30) {
            Ok(database) => {
                assert!(matches!(usage(&database).entries, 0 | 3000));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100, "{refused}");
    for len in (0..whole.len()).step_by(step) {
        fs::write(&path, &whole[..len]).unwrap();
        assert_eq!(Database::open(&path, 1 << 30).is_ok(), len == 0, "{len}");
        fs::remove_file(&path).unwrap();
    }
}
