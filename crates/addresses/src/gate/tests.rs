#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn answers_are_read_and_rubbish_is_not() {
    let answer = |number: u32, code: i32| {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&36_u32.to_ne_bytes());
        bytes.extend_from_slice(&2_u16.to_ne_bytes());
        bytes.extend_from_slice(&0_u16.to_ne_bytes());
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&code.to_ne_bytes());
        bytes.resize(36, 0);
        bytes
    };
    let two = [answer(5, 0), answer(6, -2)].concat();
    assert_eq!(answers(&two), [(5, 0), (6, 2)]);
    for cut in 0..two.len() {
        assert!(answers(&two[..cut]).len() <= 2);
    }
    assert_eq!(answers(&[0; 40]), []);
    assert_eq!(answers(&[0xff; 40]), []);
}
