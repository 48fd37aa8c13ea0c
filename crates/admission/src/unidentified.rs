//! Limits the connections whose peers have not identified themselves.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Connections to one port whose peers have not identified themselves yet, each with a value of the caller's.
///
/// ```text
///             address of a member, or identified lately? ── yes ──▶ pool of known addresses ──┐
///  accepted ──┤                                                                               ├──▶ identified or ended
///             └─────────────────────────────────────────── no ───▶ pool of other addresses ──┘
/// ```
///
/// A new connection is always added. If its pool is full, another connection of the same pool is evicted:
///
/// * one of the new connection's own address, if that has as many as one address may have;
/// * otherwise one of the address with the most connections.
///
/// Of that address, it is the oldest connection on which nothing was received. If there is none, it is the oldest. So
/// peers that send nothing do not keep out a peer that identifies itself within a few round trips. A connection from an
/// unknown address never takes the slot of one from a known address.
///
/// The addresses of an IPv6 network of 64 bits count as one unknown address, because a single host can have all of
/// them.
#[derive(Debug)]
pub struct Unidentified<T> {
    limits: UnidentifiedLimits,
    known: Pool<T>,
    unknown: Pool<T>,
    identified: HashMap<IpAddr, Instant>,
    next: u64,
}

/// Limits on the connections that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnidentifiedLimits {
    /// Connections of known addresses together, 1 at least. One of them may have all.
    pub known_max: usize,
    /// Connections of unknown addresses together, 1 at least.
    pub max: usize,
    /// Connections of one unknown address, 1 at least.
    pub per_address_max: usize,
}

/// The key of a waiting connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Newcomer {
    address: IpAddr,
    is_known: bool,
    number: u64,
}

#[derive(Debug)]
struct Pool<T> {
    waiting: HashMap<u64, T>,
    addresses: HashMap<IpAddr, Crowd>,
    /// The last entry is the address with the most connections; among equals, the one with the oldest connection.
    by_size: BTreeSet<Rank>,
}

type Rank = (usize, Reverse<u64>, IpAddr);

/// The connections of one address, by their numbers, which grow.
#[derive(Debug, Default)]
struct Crowd {
    silent: BTreeSet<u64>,
    speaking: BTreeSet<u64>,
}

/// How long an address stays known after a peer has identified itself from there: longer than a restart takes.
const KNOWN_FOR: Duration = Duration::from_hours(1);

/// The maximum number of identified addresses that are stored.
const IDENTIFIED_MAX: usize = 1024;

impl<T> Unidentified<T> {
    /// No connection waits.
    pub fn new(limits: UnidentifiedLimits) -> Self {
        Self { limits, known: Pool::default(), unknown: Pool::default(), identified: HashMap::new(), next: 0 }
    }

    /// Applies to connections that are accepted from now on.
    pub fn set_limits(&mut self, limits: UnidentifiedLimits) {
        self.limits = limits;
    }

    /// Adds a connection from `address`, and returns the value of the connection that the caller must close for it.
    /// `is_member`: the address is configured, or a member's.
    pub fn enter(&mut self, address: IpAddr, is_member: bool, value: T, now: Instant) -> (Newcomer, Option<T>) {
        let address = address.to_canonical();
        let is_known = is_member || self.has_identified(address, now);
        let UnidentifiedLimits { known_max, max, per_address_max } = self.limits;
        let (pool, address, max, of_address_max) = if is_known {
            (&mut self.known, address, known_max, known_max)
        } else {
            (&mut self.unknown, network(address), max, per_address_max)
        };
        let evicted = pool.make_room(address, max, of_address_max);
        let number = self.next;
        self.next += 1;
        pool.waiting.insert(number, value);
        pool.change(address, |crowd| crowd.silent.insert(number));
        (Newcomer { address, is_known, number }, evicted)
    }

    /// Marks a connection on which bytes were received that do not identify its peer yet.
    pub fn spoke(&mut self, newcomer: &Newcomer) {
        let Newcomer { address, number, .. } = *newcomer;
        let pool = self.pool(newcomer);
        if pool.waiting.contains_key(&number) {
            pool.change(address, |crowd| crowd.silent.remove(&number) && crowd.speaking.insert(number));
        }
    }

    /// The peer at `address` has identified itself. The address is known for the next hour.
    pub fn identified(&mut self, address: IpAddr, now: Instant) {
        let address = address.to_canonical();
        if self.identified.len() >= IDENTIFIED_MAX && !self.identified.contains_key(&address) {
            let oldest = self.identified.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address);
            oldest.map(|oldest| self.identified.remove(&oldest));
        }
        self.identified.insert(address, now);
    }

    /// Removes a connection that has ended, or whose peer has identified itself.
    pub fn leave(&mut self, newcomer: &Newcomer) {
        self.pool(newcomer).remove(newcomer.address, newcomer.number);
    }

    /// The number of waiting connections.
    pub fn len(&self) -> usize {
        self.known.waiting.len() + self.unknown.waiting.len()
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pool(&mut self, newcomer: &Newcomer) -> &mut Pool<T> {
        if newcomer.is_known { &mut self.known } else { &mut self.unknown }
    }

    fn has_identified(&self, address: IpAddr, now: Instant) -> bool {
        self.identified.get(&address).is_some_and(|at| now.saturating_duration_since(*at) < KNOWN_FOR)
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), addresses: HashMap::new(), by_size: BTreeSet::new() }
    }
}

impl<T> Pool<T> {
    /// Evicts a connection if one from `address` would exceed a limit, and returns its value.
    fn make_room(&mut self, address: IpAddr, max: usize, of_address_max: usize) -> Option<T> {
        let from = if self.addresses.get(&address).map_or(0, Crowd::len) >= of_address_max {
            address
        } else if self.waiting.len() >= max {
            self.by_size.last()?.2
        } else {
            return None;
        };
        let number = self.addresses.get(&from)?.first_to_go()?;
        self.remove(from, number)
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<T> {
        let value = self.waiting.remove(&number)?;
        self.change(address, |crowd| crowd.silent.remove(&number) || crowd.speaking.remove(&number));
        Some(value)
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Crowd) -> bool) {
        let crowd = self.addresses.entry(address).or_default();
        if let Some(rank) = crowd.rank(address) {
            self.by_size.remove(&rank);
        }
        change(crowd);
        match crowd.rank(address) {
            Some(rank) => self.by_size.insert(rank),
            None => self.addresses.remove(&address).is_some(),
        };
    }
}

impl Crowd {
    fn len(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    fn first_to_go(&self) -> Option<u64> {
        self.silent.first().or(self.speaking.first()).copied()
    }

    fn rank(&self, address: IpAddr) -> Option<Rank> {
        let oldest = self.silent.first().into_iter().chain(self.speaking.first()).min()?;
        Some((self.len(), Reverse(*oldest), address))
    }
}

/// The address under which connections are counted: the /64 network for IPv6, because one host can have all of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const LIMITS: UnidentifiedLimits = UnidentifiedLimits { known_max: 5, max: 6, per_address_max: 3 };

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    struct Scene {
        waiting: Unidentified<u32>,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { waiting: Unidentified::new(LIMITS), now: Instant::now() }
        }

        fn enter(&mut self, from: IpAddr, value: u32) -> (Newcomer, Option<u32>) {
            self.waiting.enter(from, false, value, self.now)
        }

        fn evicted(&mut self, from: u8, value: u32) -> Option<u32> {
            self.enter(address(from), value).1
        }
    }

    #[test]
    fn an_address_evicts_its_own_oldest() {
        let mut scene = Scene::new();
        let evicted: Vec<_> = (0..5).map(|value| scene.evicted(1, value)).collect();
        assert_eq!(evicted, [None, None, None, Some(0), Some(1)]);
        assert_eq!(scene.evicted(2, 9), None);
        assert_eq!(scene.waiting.len(), 4);
    }

    #[test]
    fn the_most_crowded_address_makes_room() {
        let mut scene = Scene::new();
        let evicted: Vec<_> = [1, 2, 2, 2, 3, 3].map(|from| scene.evicted(from, from.into())).into();
        assert_eq!(evicted, [None; 6]);
        assert_eq!(scene.evicted(4, 4), Some(2));
        // Addresses 2 and 3 have two connections each, and the older one belongs to 2.
        assert_eq!(scene.evicted(5, 5), Some(2));
        assert_eq!(scene.evicted(6, 6), Some(3));
        // Each address has one.
        assert_eq!(scene.evicted(7, 7), Some(1));
    }

    #[test]
    fn silent_connections_are_closed_first() {
        let mut scene = Scene::new();
        let speaking = scene.enter(address(1), 0).0;
        scene.waiting.spoke(&speaking);
        assert_eq!([1, 2, 3, 4].map(|value| scene.evicted(1, value)), [None, None, Some(1), Some(2)]);
        scene.waiting.leave(&speaking);
        assert_eq!([5, 6].map(|value| scene.evicted(1, value)), [None, Some(3)]);
    }

    #[test]
    fn an_address_where_all_speak_evicts_the_oldest() {
        let mut scene = Scene::new();
        for value in 0..3 {
            let newcomer = scene.enter(address(1), value).0;
            scene.waiting.spoke(&newcomer);
        }
        assert_eq!(scene.evicted(1, 3), Some(0));
        // Leaving has no effect for an evicted connection.
        let (evicted, _) = scene.enter(address(2), 8);
        scene.waiting.leave(&evicted);
        scene.waiting.spoke(&evicted);
        scene.waiting.leave(&evicted);
        assert_eq!(scene.waiting.len(), 3);
    }

    #[test]
    fn known_addresses_have_room_of_their_own() {
        let mut scene = Scene::new();
        for value in 0..LIMITS.known_max as u32 {
            assert_eq!(scene.waiting.enter(address(1), true, value, scene.now).1, None);
        }
        assert_eq!([2, 3, 3, 4].map(|from| scene.evicted(from, 20)), [None; 4]);
        // If one known address uses the whole pool, another gets a slot.
        assert_eq!(scene.waiting.enter(address(9), true, 9, scene.now).1, Some(0));
    }

    #[test]
    fn an_address_is_known_for_an_hour() {
        let mut scene = Scene::new();
        scene.waiting.identified(address(1), scene.now);
        let pool_of = |scene: &mut Scene, from| scene.enter(from, 1).0.is_known;
        assert!(pool_of(&mut scene, address(1)) && !pool_of(&mut scene, address(2)));
        let IpAddr::V4(mapped) = address(1) else { unreachable!() };
        assert!(pool_of(&mut scene, mapped.to_ipv6_mapped().into()));
        scene.now += KNOWN_FOR;
        assert!(!pool_of(&mut scene, address(1)));
    }

    #[test]
    fn so_many_addresses_are_remembered() {
        let mut scene = Scene::new();
        for number in 0..=IDENTIFIED_MAX as u32 {
            scene.waiting.identified(IpAddr::V4(number.into()), scene.now + Duration::from_millis(number.into()));
        }
        assert_eq!(scene.waiting.identified.len(), IDENTIFIED_MAX);
        assert!(!scene.waiting.identified.contains_key(&IpAddr::V4(0.into())));
    }

    #[test]
    fn a_network_of_ipv6_is_one_unknown_address() {
        let mut scene = Scene::new();
        let of_network = |host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host).into();
        let evicted: Vec<_> = (0..4).map(|host| scene.enter(of_network(host), host.into()).1).collect();
        assert_eq!(evicted, [None, None, None, Some(0)]);
        // Known addresses of one IPv6 network are counted separately.
        scene.waiting.identified(of_network(7), scene.now);
        assert!(scene.enter(of_network(7), 7).0.is_known && !scene.enter(of_network(8), 8).0.is_known);
    }

    proptest! {
        /// After any sequence of calls, the new connection is admitted, the limits hold, and ended connections leave no
        /// entries.
        #[test]
        fn limits_hold(steps in prop::collection::vec((0u8..4, 0u8..6, any::<bool>()), 0..200)) {
            let mut scene = Scene::new();
            let mut inside: HashMap<u32, (Newcomer, u8)> = HashMap::new();
            for (value, (what, from, is_member)) in (0u32..).zip(steps) {
                let some = inside.keys().min_by_key(|key| **key ^ u32::from(from)).copied();
                match (what, some) {
                    (0, Some(some)) => {
                        scene.waiting.leave(&inside.remove(&some).unwrap().0);
                    }
                    (1, Some(some)) => scene.waiting.spoke(&inside[&some].0),
                    _ => {
                        let (newcomer, evicted) = scene.waiting.enter(address(from), is_member, value, scene.now);
                        if let Some(evicted) = evicted {
                            prop_assert!(inside.remove(&evicted).is_some());
                        }
                        inside.insert(value, (newcomer, from));
                    }
                }
                let count = |is_known, from: Option<u8>| {
                    let is_meant = |(newcomer, of): &&(Newcomer, u8)| {
                        newcomer.is_known == is_known && from.is_none_or(|from| from == *of)
                    };
                    inside.values().filter(is_meant).count()
                };
                prop_assert_eq!(scene.waiting.len(), inside.len());
                prop_assert!(count(true, None) <= LIMITS.known_max && count(false, None) <= LIMITS.max);
                prop_assert!((0..6).all(|from| count(false, Some(from)) <= LIMITS.per_address_max));
            }
            for (newcomer, _) in inside.values() {
                scene.waiting.leave(newcomer);
            }
            for pool in [&scene.waiting.known, &scene.waiting.unknown] {
                prop_assert!(pool.addresses.is_empty() && pool.by_size.is_empty());
            }
        }
    }
}
