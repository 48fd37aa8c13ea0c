//! Arbitrary frames of a link. They are refused, or mean the same after they are encoded again.

use watari_wire::frame::{self, Frame};

pub(crate) fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((read, len))) = frame::decode(rest) {
        assert!(len <= rest.len());
        assert_eq!(frame::decode(&rest[..len - 1]), Ok(None), "a frame is whole only when it is");
        let mut again = Vec::new();
        match &read {
            Frame::Link(message) => frame::encode_link(message, &mut again),
            Frame::Message(message) => {
                frame::encode(message, &mut again).expect("what was accepted is within its bounds");
                assert_eq!(again.len(), frame::encoded_len(message));
            }
            Frame::Unknown { .. } => again.extend_from_slice(&rest[..len]),
        }
        assert_eq!(frame::decode(&again), Ok(Some((read, again.len()))));
        rest = &rest[len..];
    }
}
