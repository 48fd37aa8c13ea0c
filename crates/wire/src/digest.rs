//! The digest by which the dispatcher checks that source and target have the same state.

use aws_lc_rs::digest::{Context, SHA256};

use crate::message::{AnchoredState, ResponseRest, Ship, ShipInResponse};

/// Separates this use of SHA-256 from every other, and this layout from later ones.
const DOMAIN: &[u8] = b"watari ship digest v1\0";
const RESPONSE_DOMAIN: &[u8] = b"watari ship in response digest v1\0";

impl Ship {
    /// SHA-256 of all that is shipped, except `rx_offset` and `rest`, which a [`Rest`](crate::Rest) may extend.
    pub fn digest(&self) -> [u8; 32] {
        // The head has the lengths of state, opened and tail, so that no byte can move from one field to the next.
        let head = (
            (self.connection, self.epoch, &self.dispatcher, &self.handshake_node, self.moves),
            (&self.tls, &self.client_certificate, self.client, self.server),
            (self.tail_offset, self.state.as_slice().len(), self.opened.as_slice().len(), self.tail.len()),
        );
        let head = postcard::to_allocvec(&head).expect("plain data can be written to memory");
        digest([DOMAIN, &head, self.state.as_slice(), self.opened.as_slice(), &self.tail])
    }
}

impl ShipInResponse {
    /// SHA-256 of all that is shipped, except what a [`Rest`](crate::Rest) may extend.
    pub fn digest(&self) -> [u8; 32] {
        let (last, skip, anchored) = match &self.rest {
            ResponseRest::End => (&[][..], None, None),
            ResponseRest::Prepared { skip } => (&[][..], Some(skip), None),
            ResponseRest::Anchored(end) => {
                let AnchoredState { anchor, id, received, acknowledged, unacknowledged, is_ended } = end;
                (unacknowledged.as_slice(), None, Some((anchor, id, received, acknowledged, is_ended)))
            }
        };
        let (unwritten, pending) = (self.unwritten.as_slice(), self.pending.as_slice());
        let head = (self.ship.digest(), self.number, &self.http, unwritten.len(), pending.len(), skip, anchored);
        let head = postcard::to_allocvec(&head).expect("plain data can be written to memory");
        digest([RESPONSE_DOMAIN, &head, unwritten, pending, last])
    }
}

/// The last part has no length of its own: it ends with the input.
fn digest<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use watari_values::{Epoch, SecretBytes};

    use super::*;
    use crate::arbitrary;

    proptest! {
        #[test]
        fn rest_may_grow(ship in arbitrary::ship(), more in any::<Vec<u8>>()) {
            let grown = Ship {
                rx_offset: ship.rx_offset.wrapping_add(more.len() as u64),
                rest: SecretBytes::new([ship.rest.as_slice(), &more].concat()),
                ..ship.clone()
            };
            prop_assert_eq!(grown.digest(), ship.digest());
        }

        #[test]
        fn nothing_else_may_change(ship in arbitrary::ship(), other in arbitrary::ship()) {
            let mut changed: Vec<Ship> = Vec::new();
            let mut push = |change: fn(&mut Ship, Ship)| {
                let mut copy = ship.clone();
                change(&mut copy, other.clone());
                changed.push(copy);
            };
            push(|ship, other| ship.connection = other.connection);
            push(|ship, _| ship.epoch = Epoch(ship.epoch.0 ^ 1));
            push(|ship, other| ship.dispatcher = other.dispatcher);
            push(|ship, other| ship.state = other.state);
            push(|ship, other| ship.tls = other.tls);
            push(|ship, other| ship.client_certificate = other.client_certificate);
            push(|ship, other| ship.client = other.client);
            push(|ship, other| ship.server = other.server);
            push(|ship, other| ship.handshake_node = other.handshake_node);
            push(|ship, _| ship.moves ^= 1);
            push(|ship, other| ship.tail = other.tail);
            push(|ship, _| ship.tail_offset ^= 1);
            push(|ship, _| ship.tail.push(0));
            for changed in changed {
                prop_assert_eq!(changed == ship, changed.digest() == ship.digest());
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_of_a_response_may_change(
            shipped in arbitrary::ship_in_response(),
            other in arbitrary::ship_in_response(),
        ) {
            let changes: [fn(&mut ShipInResponse, ShipInResponse); 6] = [
                |shipped, other| shipped.ship = other.ship,
                |shipped, _| shipped.number ^= 1,
                |shipped, other| shipped.http = other.http,
                |shipped, other| shipped.unwritten = other.unwritten,
                |shipped, other| shipped.pending = other.pending,
                |shipped, other| shipped.rest = other.rest,
            ];
            for change in changes {
                let mut changed = shipped.clone();
                change(&mut changed, other.clone());
                // A `Rest` may extend these.
                (changed.ship.rx_offset, changed.ship.rest) = (shipped.ship.rx_offset, shipped.ship.rest.clone());
                prop_assert_eq!(changed == shipped, changed.digest() == shipped.digest());
            }
        }
    }

    #[test]
    fn bytes_do_not_pass_from_state_to_tail() {
        let mut ship = arbitrary::sample_ship();
        ship.state = SecretBytes::new(vec![1, 2]);
        ship.tail = vec![3];
        let mut shifted = ship.clone();
        shifted.state = SecretBytes::new(vec![1]);
        shifted.tail = vec![2, 3];
        assert_ne!(ship.digest(), shifted.digest());
    }
}
