#![allow(clippy::unwrap_used)]

mod balance;
mod needs;
mod slow;

use std::net::{IpAddr, Ipv4Addr};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MEGABYTE: u64 = 1_000_000;

/// A governor with its inputs and the time.
struct Stage {
    governor: Governor,
    now: Instant,
    origins: Vec<OriginView>,
    transfers: Vec<TransferView>,
}

impl Stage {
    /// Origins, numbered from 0, with these numbers of transfers. Each transfer has a client of its own.
    fn new(settings: Settings, transfers: &[usize]) -> Self {
        let mut stage =
            Self { governor: Governor::new(settings), now: Instant::now(), origins: Vec::new(), transfers: Vec::new() };
        for (id, count) in transfers.iter().enumerate() {
            stage.origins.push(origin(id as u32));
            (0..*count).for_each(|_| stage.begin(id as u32));
        }
        stage
    }

    fn begin(&mut self, origin: u32) {
        let id = self.transfers.len() as u64;
        self.transfers.push(transfer(id, origin));
        self.origins[origin as usize].connections += 1;
    }

    fn look(&mut self) -> Vec<Order> {
        self.governor.look(self.now, &self.origins, &self.transfers)
    }

    /// Looks after `time`.
    fn look_after(&mut self, time: Duration) -> Vec<Order> {
        self.now += time;
        self.look()
    }

    /// The transfers arrive where they were ordered.
    fn carry_out(&mut self, orders: &[Order]) {
        for order in orders {
            self.transfers[order.transfer.0 as usize].origin = order.to;
            self.origins[order.from.0 as usize].connections -= 1;
            self.origins[order.to.0 as usize].connections += 1;
        }
    }

    /// Looks once, and then ten times at intervals of the minimum stay. Carries out the orders, and returns the number
    /// of transfers at each origin.
    fn settle(&mut self) -> Vec<usize> {
        self.look();
        for _ in 0..10 {
            let orders = self.look_after(self.governor.settings.damping.stay_min);
            self.carry_out(&orders);
        }
        self.origins.iter().map(|origin| origin.connections).collect()
    }

    /// In each of `count` windows, each transfer gets its rate in bytes per second, and always waits for its origin.
    fn pass_windows(&mut self, count: u32, rates: &[u64]) -> Vec<Order> {
        let window = Slow::default().window;
        let mut orders = Vec::new();
        for _ in 0..count {
            for (transfer, rate) in self.transfers.iter_mut().zip(rates) {
                transfer.delivered += rate * window.as_secs();
                transfer.waited += window;
            }
            orders.extend(self.look_after(window));
        }
        orders
    }
}

fn origin(id: u32) -> OriginView {
    let availability = Availability::Up;
    OriginView { id: OriginId(id), availability, weight: 1, connections: 0, response: Duration::ZERO, rate: 0 }
}

fn transfer(id: u64, origin: u32) -> TransferView {
    TransferView {
        id: TransferId(id),
        origin: OriginId(origin),
        client: client(id),
        resource: ResourceId(0),
        moving_to: None,
        delivered: 0,
        remaining: 50_000 * MEGABYTE + id,
        waiting_since: None,
        waited: Duration::ZERO,
    }
}

fn client(id: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + id as u32).into()
}

fn order(transfer: u64, from: u32, to: u32, cause: Cause) -> Order {
    Order { transfer: TransferId(transfer), from: OriginId(from), to: OriginId(to), cause }
}

/// Settings without any cause, and with high budgets.
fn none() -> Settings {
    let damping = Damping { moves_per_s: 1000, origin_moves_per_s: 1000, ..Damping::default() };
    Settings { stalled: None, slow: None, unequal: None, damping, ..Settings::default() }
}

fn unequal(metric: Metric) -> Settings {
    Settings { unequal: Some(Unequal { metric, ..Unequal::default() }), ..none() }
}

fn slow() -> Settings {
    Settings { slow: Some(Slow::default()), ..none() }
}
