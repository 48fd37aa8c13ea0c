//! RFC 8448, section 3: the records after the handshake of a simple 1-RTT connection.

use super::*;

const CLIENT_SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
const CLIENT_KEY: &str = "17422dda596ed5d9acd890e3c63f5051";
const CLIENT_IV: &str = "5b78923dee08579033e523d9";
const CLIENT_DATA_RECORD: &str = "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd5\
                                  4a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4";
const CLIENT_CLOSE_NOTIFY_RECORD: &str = "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3";
const SERVER_SECRET: &str = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
const SERVER_DATA_RECORD: &str = "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602\
                                  dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d";

/// The server has already sent a ticket.
const SERVER_SEQUENCE: u64 = 1;

fn end(side: Side) -> Connection {
    let direction = |sequence, secret| {
        let secret = DirectionSecret::Tls13(Zeroizing::new(from_hex(secret)));
        Direction { sequence, secret }
    };
    let client = direction(0, CLIENT_SECRET);
    let server = direction(SERVER_SEQUENCE, SERVER_SECRET);
    let (tx, rx) = match side {
        Side::Client => (client, server),
        Side::Server => (server, client),
    };
    Connection::new(Secrets { side, suite: TLS13, tx, rx }).unwrap()
}

#[test]
fn keys_derive_as_in_the_trace() {
    let derived = derive_traffic_key(TLS13, &from_hex(CLIENT_SECRET)).unwrap();
    assert_eq!(*derived.key, from_hex(CLIENT_KEY));
    assert_eq!(derived.iv.to_vec(), from_hex(CLIENT_IV));
}

#[test]
fn both_ends_seal_the_records_of_the_trace() {
    let data: Vec<u8> = (0..50).collect();
    let mut client = end(Side::Client);
    assert_eq!(seal(&mut client, &data), from_hex(CLIENT_DATA_RECORD));
    let mut alert = Vec::new();
    client.seal_close_notify(&mut alert).unwrap();
    assert_eq!(alert, from_hex(CLIENT_CLOSE_NOTIFY_RECORD));
    assert_eq!(seal(&mut end(Side::Server), &data), from_hex(SERVER_DATA_RECORD));
}

#[test]
fn the_server_opens_the_records_of_the_trace() {
    let mut server = end(Side::Server);
    let mut record = from_hex(CLIENT_DATA_RECORD);
    assert_eq!(server.open(&mut record), Ok(Opened::Data(5..55)));
    assert!(record[5..55].iter().copied().eq(0..50));
    assert_eq!(server.open(&mut from_hex(CLIENT_CLOSE_NOTIFY_RECORD)), Ok(Opened::CloseNotify));
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
