//! The tables of `watari ctl origins`.

use super::cells::{or_dash, yes_or_no};
use crate::admin::{Origin, Pool, Queue, Resource, Transfer};
use crate::table::Table;

/// Tables of origins, of their queues, of recently requested resources, and of transfers that can move.
pub(super) fn text(pools: &[Pool]) -> String {
    let mut origins =
        Table::new(&["pool", "origin", "available", "draining", "requests", "response_us", "bytes_per_s"])
            .leaving_out(&["bytes_per_s", "response_us", "pool"]);
    let mut queues = Table::new(&["pool", "pattern", "in_progress", "waiting"]);
    let mut resources = Table::new(&["pool", "resource", "movable", "why", "elsewhere"]).leaving_out(&["pool"]);
    let mut transfers = Table::new(&["id", "pool", "origin", "client", "delivered", "remaining", "moves", "resource"])
        .leaving_out(&["pool", "client", "moves", "origin"]);
    for pool in pools {
        pool.origins.iter().for_each(|origin| origins.row(origin_row(&pool.name, origin)));
        pool.queue.iter().for_each(|queue| queues.row(queue_row(&pool.name, queue)));
        pool.resources.iter().for_each(|resource| resources.row(resource_row(&pool.name, resource)));
        pool.transfers.iter().for_each(|transfer| transfers.row(transfer_row(&pool.name, transfer)));
    }
    format!("{origins}\n{queues}\n{resources}\n{transfers}")
}

fn origin_row(pool: &str, origin: &Origin) -> [String; 7] {
    [
        pool.to_owned(),
        origin.url.clone(),
        yes_or_no(origin.available).to_owned(),
        yes_or_no(origin.draining).to_owned(),
        origin.requests.to_string(),
        origin.response_us.to_string(),
        origin.bytes_per_s.to_string(),
    ]
}

fn queue_row(pool: &str, queue: &Queue) -> [String; 4] {
    let pattern = queue.pattern.clone().unwrap_or_else(|| "all".to_owned());
    [pool.to_owned(), pattern, queue.in_progress.to_string(), queue.waiting.to_string()]
}

fn resource_row(pool: &str, resource: &Resource) -> [String; 5] {
    let elsewhere = resource.elsewhere.iter().map(|elsewhere| {
        let refusal = elsewhere.refusal.as_deref().unwrap_or("same");
        format!("{}={refusal}", elsewhere.origin)
    });
    let elsewhere: Vec<_> = elsewhere.collect();
    [
        pool.to_owned(),
        resource.name.clone(),
        yes_or_no(resource.movable).to_owned(),
        or_dash(resource.stays.as_ref()),
        or_dash((!elsewhere.is_empty()).then(|| elsewhere.join(","))),
    ]
}

fn transfer_row(pool: &str, transfer: &Transfer) -> [String; 8] {
    [
        transfer.id.to_string(),
        pool.to_owned(),
        transfer.origin.clone(),
        transfer.client.to_string(),
        transfer.delivered.to_string(),
        transfer.remaining.to_string(),
        transfer.moves.to_string(),
        transfer.resource.clone(),
    ]
}
