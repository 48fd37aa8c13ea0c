//! Clients that do not speak TLS, or stop doing so.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends `bytes`, and returns all data until the other side ends the connection. Empty if it resets at once.
pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    listen(stream)
}

/// All data until the other side ends the connection, with or without a reset.
pub(crate) fn listen(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    // Data before a reset count.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The description of the alert in `answer`, which must be one fatal alert in a plaintext record.
pub(crate) fn alert(answer: &[u8]) -> u8 {
    match *answer {
        [21, 3, 3, 0, 2, 2, description] => description,
        _ => panic!("no alert: {answer:02x?}"),
    }
}
