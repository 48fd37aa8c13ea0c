//! A database behaves like a list.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<(u64, usize, u64)>),
    Take(Vec<u64>),
    Expire,
    Wait(u64),
    Reopen,
}

/// The entries of a database: (expiry, key, length).
#[derive(Default)]
struct Model(Vec<(u64, SessionKey, usize)>);

impl Model {
    fn put(&mut self, entries: &[Entry], bytes_max: u64, now: u64) -> usize {
        let mut evicted = 0;
        for entry in entries {
            self.take(&entry.key);
            let fits = entry.value.len() as u64 + Database::OVERHEAD <= bytes_max;
            if entry.expires > now && fits {
                self.0.push((entry.expires, entry.key, entry.value.len()));
            } else if entry.expires > now {
                evicted += 1;
            }
        }
        self.0.sort_unstable();
        while self.bytes() > bytes_max {
            evicted += usize::from(self.0.remove(0).0 > now);
        }
        evicted
    }

    fn take(&mut self, key: &SessionKey) -> usize {
        let before = self.0.len();
        self.0.retain(|(_, known, _)| known != key);
        before - self.0.len()
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(.., len)| *len as u64 + Database::OVERHEAD).sum()
    }

    fn found(&self, now: u64) -> Vec<(SessionKey, usize, u64)> {
        let mut found: Vec<_> = self.0.iter().filter(|(expires, ..)| now < *expires).map(|e| (e.1, e.2, e.0)).collect();
        found.sort_unstable();
        found
    }
}

const KEYS: u64 = 12;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => vec((0..KEYS, 0..400_usize, 0..60_u64), 0..8).prop_map(Step::Put),
        2 => vec(0..KEYS, 0..4).prop_map(Step::Take),
        2 => Just(Step::Expire),
        2 => (0..15_u64).prop_map(Step::Wait),
        1 => Just(Step::Reopen),
    ];
    vec(step, 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_exact(steps in steps(), bytes_max in 0..4000_u64) {
        let (_dir, path) = place();
        let (mut database, mut model, mut now) = (open(&path, bytes_max), Model::default(), 0);
        for step in steps {
            match step {
                Step::Put(entries) => {
                    let entries: Vec<_> =
                        entries.into_iter().map(|(number, len, expires)| entry(number, len, now + expires)).collect();
                    prop_assert_eq!(database.put(&entries, now).unwrap(), model.put(&entries, bytes_max, now));
                }
                Step::Take(keys) => {
                    let keys: Vec<_> = keys.into_iter().map(key).collect();
                    let taken: usize = keys.iter().map(|key| model.take(key)).sum();
                    prop_assert_eq!(database.take(&keys).unwrap(), taken);
                }
                Step::Expire => {
                    let before = model.0.len();
                    model.0.retain(|(expires, ..)| now < *expires);
                    prop_assert_eq!(database.expire(now).unwrap(), before - model.0.len());
                }
                Step::Wait(seconds) => now += seconds,
                Step::Reopen => {
                    drop(database);
                    database = open(&path, bytes_max);
                }
            }
            prop_assert_eq!(usage(&database), Usage { entries: model.0.len() as u64, bytes: model.bytes() });
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            let found = database.get(&keys, now).unwrap();
            let mut found: Vec<_> = found.into_iter().map(|entry| (entry.key, entry.value.len(), entry.expires)).collect();
            found.sort_unstable();
            prop_assert_eq!(found, model.found(now));
        }
    }
}

#[test]
fn so_many_expire_at_once() {
    let (_dir, path) = place();
    let database = open(&path, 1 << 30);
    let most = crate::EXPIRE_MAX as u64;
    let entries: Vec<_> = (0..most + 10).map(|number| entry(number, 1, number)).collect();
    database.put(&entries, 0).unwrap();
    let expired: Vec<_> = (0..3).map(|_| database.expire(most + 5).unwrap()).collect();
    assert_eq!(expired, [crate::EXPIRE_MAX, 5, 0]);
    assert_eq!(usage(&database).entries, 4);
}
