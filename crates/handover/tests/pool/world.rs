//! A simulated pool: origins share their bandwidth among their clients, second by second. A governor decides over it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use watari_handover::governor::{
    Availability, Cause, Governor, Order, OriginId, OriginView, ResourceId, Settings, TransferId, TransferView,
};

const SECOND: Duration = Duration::from_secs(1);

/// The total rate of an origin in bytes per second, by the number of its clients. It grows up to five clients, and then
/// stays, as in the paper's figure 5. The numbers follow from its table; the value for three clients is an assumption
/// of 100 MB/s.
const SENDS: [f64; 6] = [0.0, 47.31e6, 87.43e6, 100.0e6, 123.2e6, 132.7e6];

/// The time that a move takes.
const MOVE_TIME: Duration = Duration::from_secs(2);

pub(crate) struct World {
    pub(crate) origins: Vec<Origin>,
    pub(crate) transfers: Vec<Transfer>,
    /// The time of each order.
    pub(crate) orders: Vec<(Instant, Order)>,
    pub(crate) now: Instant,
    governor: Governor,
    settings: Settings,
    begun: u64,
}

pub(crate) struct Origin {
    pub(crate) availability: Availability,
    /// Requests that cannot move.
    pub(crate) fixed: usize,
    /// Its rate as a share of its full rate.
    pub(crate) speed: f64,
    /// The resource that it does not have.
    pub(crate) lacks: Option<ResourceId>,
}

pub(crate) struct Transfer {
    view: TransferView,
    /// The rate that its client takes, in bytes per second.
    takes: f64,
    going: Option<(OriginId, Instant)>,
    arrived: Instant,
    left: Vec<(OriginId, Instant)>,
    /// The number of optional orders.
    optional: u32,
}

impl World {
    pub(crate) fn new(settings: Settings, origins: usize) -> Self {
        let origin = || Origin { availability: Availability::Up, fixed: 0, speed: 1.0, lacks: None };
        Self {
            origins: (0..origins).map(|_| origin()).collect(),
            transfers: Vec::new(),
            orders: Vec::new(),
            now: Instant::now(),
            governor: Governor::new(settings),
            settings,
            begun: 0,
        }
    }

    /// Begins a download of `bytes` bytes.
    pub(crate) fn begin(&mut self, origin: usize, bytes: u64, takes: f64) {
        let id = self.begun;
        self.begun += 1;
        let view = TransferView {
            id: TransferId(id),
            origin: OriginId(origin as u32),
            client: Ipv4Addr::from_bits(id as u32 % 7).into(),
            resource: ResourceId(id % 5),
            moving_to: None,
            delivered: 0,
            remaining: bytes,
            waiting_since: None,
            waited: Duration::ZERO,
        };
        self.transfers.push(Transfer { view, takes, going: None, arrived: self.now, left: Vec::new(), optional: 0 });
    }

    /// Lets a second pass, and looks.
    pub(crate) fn pass_second(&mut self) {
        self.now += SECOND;
        self.arrive();
        for index in 0..self.transfers.len() {
            let rate = self.rate(index);
            self.transfers[index].receive(rate, self.now);
        }
        self.transfers.retain(|transfer| transfer.view.remaining > 0);
        let views: Vec<_> = self.transfers.iter().map(|transfer| transfer.view.clone()).collect();
        let orders = self.governor.look(self.now, &self.origin_views(), &views);
        self.check_budgets(&orders);
        for order in orders {
            self.carry_out(order);
        }
    }

    /// The requests at each origin.
    pub(crate) fn connections(&self) -> Vec<usize> {
        (0..self.origins.len()).map(|index| self.connections_at(OriginId(index as u32))).collect()
    }

    /// The rate of each transfer, in bytes per second.
    pub(crate) fn rates(&self) -> Vec<f64> {
        (0..self.transfers.len()).map(|index| self.rate(index)).collect()
    }

    /// The number of optional orders.
    pub(crate) fn optional_orders(&self) -> usize {
        self.orders.iter().filter(|(_, order)| is_optional(order.cause)).count()
    }

    fn arrive(&mut self) {
        for transfer in &mut self.transfers {
            let Some((to, _)) = transfer.going.take_if(|(_, at)| *at <= self.now) else { continue };
            transfer.view.moving_to = None;
            if self.origins[to.0 as usize].lacks == Some(transfer.view.resource) {
                self.governor.refused(self.now, transfer.view.resource, to);
                continue;
            }
            transfer.left.push((transfer.view.origin, self.now));
            (transfer.view.origin, transfer.arrived, transfer.view.waiting_since) = (to, self.now, None);
        }
    }

    fn rate(&self, index: usize) -> f64 {
        let transfer = &self.transfers[index];
        let origin = &self.origins[transfer.view.origin.0 as usize];
        let count = self.connections_at(transfer.view.origin);
        (SENDS[count.min(SENDS.len() - 1)] * origin.speed / count as f64).min(transfer.takes)
    }

    /// A transfer that is being moved has a request at its target already.
    fn connections_at(&self, id: OriginId) -> usize {
        let has = |transfer: &&Transfer| transfer.view.origin == id;
        let expects = |transfer: &&Transfer| transfer.going.is_some_and(|(to, _)| to == id);
        let of_transfers = self.transfers.iter().filter(has).count() + self.transfers.iter().filter(expects).count();
        self.origins[id.0 as usize].fixed + of_transfers
    }

    fn origin_views(&self) -> Vec<OriginView> {
        let view = |(index, origin): (usize, &Origin)| {
            let id = OriginId(index as u32);
            let sent = |transfer: usize| {
                if self.transfers[transfer].view.origin == id { self.rate(transfer) } else { 0.0 }
            };
            OriginView {
                id,
                availability: origin.availability,
                weight: 1,
                connections: self.connections_at(id),
                response: Duration::from_millis(10).mul_f64(self.connections_at(id) as f64),
                rate: (0..self.transfers.len()).map(sent).sum::<f64>() as u64,
            }
        };
        self.origins.iter().enumerate().map(view).collect()
    }

    fn check_budgets(&self, orders: &[Order]) {
        let damping = &self.settings.damping;
        assert!(orders.len() <= damping.moves_per_s as usize);
        for index in 0..self.origins.len() {
            let id = OriginId(index as u32);
            let touched = orders.iter().filter(|order| order.from == id || order.to == id).count();
            assert!(touched <= damping.origin_moves_per_s as usize);
        }
    }

    fn carry_out(&mut self, order: Order) {
        let transfer = self.transfers.iter_mut().find(|transfer| transfer.view.id == order.transfer).unwrap();
        transfer.check(&order, self.now, &self.settings);
        assert_eq!(self.origins[order.to.0 as usize].availability, Availability::Up);
        transfer.view.moving_to = Some(order.to);
        transfer.going = Some((order.to, self.now + MOVE_TIME));
        transfer.optional += u32::from(is_optional(order.cause));
        self.orders.push((self.now, order));
    }
}

impl Transfer {
    /// A second at this rate.
    fn receive(&mut self, rate: f64, now: Instant) {
        let bytes = (rate as u64).min(self.view.remaining);
        self.view.delivered += bytes;
        self.view.remaining -= bytes;
        if rate < 1.0 {
            self.view.waiting_since.get_or_insert(now);
        } else if let Some(since) = self.view.waiting_since.take() {
            self.view.waited += now - since;
        }
        if rate >= 1.0 {
            self.view.waited += SECOND.mul_f64(1.0 - rate / self.takes);
        }
    }

    /// Checks the rules that hold for every order.
    fn check(&self, order: &Order, now: Instant, settings: &Settings) {
        let damping = &settings.damping;
        let free =
            self.view.moving_to.is_none() || order.cause == Cause::Stalled && self.view.moving_to != Some(order.to);
        assert!(free && order.from == self.view.origin && order.from != order.to);
        if is_optional(order.cause) {
            assert!(now - self.arrived >= damping.stay_min, "it has only just come: {order:?}");
            assert!(self.optional < damping.moves_max, "it has moved too often: {order:?}");
            assert!(self.view.remaining >= damping.remaining_min, "it has few bytes left: {order:?}");
        }
        if is_optional(order.cause) || order.cause == Cause::Stalled {
            let returns = |(origin, at): &(OriginId, Instant)| *origin == order.to && now - *at < damping.stay_min;
            assert!(!self.left.iter().any(returns), "there and back: {order:?}");
        }
    }
}

fn is_optional(cause: Cause) -> bool {
    matches!(cause, Cause::Slow | Cause::Unequal)
}
