//! Clients that do not speak TLS, or stop doing so.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Says `bytes`, and returns all that comes until the other side ends the connection; an empty answer if it resets it.
pub(crate) fn say(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    listen(stream)
}

/// All that comes until the other side ends the connection, however it does.
pub(crate) fn listen(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    // What came before a reset counts.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The description of the alert that `answer` consists of: one record in plaintext, fatal.
pub(crate) fn alert(answer: &[u8]) -> u8 {
    match *answer {
        [21, 3, 3, 0, 2, 2, description] => description,
        _ => panic!("no alert: {answer:02x?}"),
    }
}
