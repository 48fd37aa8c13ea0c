#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

use super::decoder::Malformed;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(Name, String)>, Malformed> {
    let mut fields = Vec::new();
    decoder.decode(block, |name, value| fields.push((name, String::from_utf8(value.to_vec()).unwrap())))?;
    Ok(fields)
}

fn field(name: &'static str) -> Name {
    Name::Field(HeaderName::from_static(name))
}

/// RFC 7541, sections C.3 and C.4: requests without and with the Huffman code.
#[test]
fn requests_of_the_rfc() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::new();
        let [first, second, third] = blocks.map(|block| decoded(&mut decoder, &bytes(block)).unwrap());
        let head = |scheme: &str, path: &str| {
            [
                (Name::Method, "GET".to_owned()),
                (Name::Scheme, scheme.to_owned()),
                (Name::Path, path.to_owned()),
                (Name::Authority, "www.example.com".to_owned()),
            ]
        };
        assert_eq!(first, head("http", "/"));
        assert_eq!(second[..4], head("http", "/"));
        assert_eq!(second[4..], [(field("cache-control"), "no-cache".to_owned())]);
        assert_eq!(third[..4], head("https", "/index.html"));
        assert_eq!(third[4..], [(field("custom-key"), "custom-value".to_owned())]);
    }
}

/// RFC 7541, section C.5: a table of 256 bytes, from which entries are evicted.
#[test]
fn entries_are_evicted() {
    let mut decoder = Decoder::new();
    // The peer's encoder uses a table of 256 bytes.
    decoded(&mut decoder, &[0x3f, 0xe1, 0x01]).unwrap();
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d \
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f \
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b \
         2076 6572 7369 6f6e 3d31",
    ];
    let [first, second, third] = blocks.map(|block| decoded(&mut decoder, &bytes(block)).unwrap());
    assert_eq!(first[0], (Name::Status, "302".to_owned()));
    assert_eq!(second[0], (Name::Status, "307".to_owned()));
    assert_eq!(second[1..], first[1..]);
    assert_eq!(third[0], (Name::Status, "200".to_owned()));
    assert_eq!(third[1], first[1]);
    assert_eq!(third[5].1, "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    // Three entries are left: set-cookie, content-encoding and date.
    assert!(decoded(&mut decoder, &[0x80 | 0x40]).is_ok());
    assert_eq!(decoded(&mut decoder, &[0x80 | 0x41]), Err(Malformed));
}

#[test]
fn names_that_are_not_valid_are_reported() {
    for name in [&b"Upper"[..], b":unknown", b"a b", b""] {
        let block = [&[0, name.len() as u8][..], name, &[1, b'v']].concat();
        let expected = (Name::Invalid(Bytes::copy_from_slice(name)), "v".to_owned());
        assert_eq!(decoded(&mut Decoder::new(), &block).unwrap(), [expected]);
    }
}

#[test]
fn malformed_blocks() {
    for block in [
        "80",             // Index 0.
        "be",             // An index beyond the tables.
        "7e 01 61",       // A name beyond the tables.
        "82 20",          // A size update behind a field.
        "3f e2 1f",       // A table of 4,097 bytes.
        "3f",             // An integer without an end.
        "00 02 61",       // A string without an end.
        "00 01 61 82 ff", // A string in the Huffman code without an end.
        "00 01 61 81 00", // Bad padding.
        "41",             // A literal without a value.
    ] {
        assert_eq!(decoded(&mut Decoder::new(), &bytes(block)), Err(Malformed), "{block}");
    }
}

/// A table of no bytes has no entries. An entry that is larger than the table empties it (RFC 7541, section 4.4).
#[test]
fn entries_that_do_not_fit() {
    let mut decoder = Decoder::new();
    decoded(&mut decoder, &[0x40, 1, b'a', 1, b'v']).unwrap();
    assert_eq!(decoder.len, 34);
    let large = [&[0x40, 1, b'b', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    assert_eq!(decoded(&mut decoder, &large).unwrap()[0].1.len(), 4000);
    assert_eq!((decoder.len, decoder.entries.len()), (4067, 2));
    let larger = [&[0x40, 1, b'b', 0x7f, 0xe1, 0x1e][..], &[b'v'; 4064]].concat();
    assert_eq!(decoded(&mut decoder, &larger).unwrap()[0].1.len(), 4064);
    assert_eq!((decoder.len, decoder.entries.len()), (0, 0));
    decoded(&mut decoder, &[0x20, 0x40, 1, b'a', 1, b'v']).unwrap();
    assert_eq!((decoder.len, decoder.entries.len()), (0, 0));
}

#[test]
fn indexes_of_the_static_table() {
    for index in 1..=static_table::LEN {
        let (name, value) = static_table::entry(index);
        match name {
            Name::Field(name) => assert_eq!(static_table::index_of(&name), Some(index)),
            Name::Status => assert_eq!(static_table::index_of_status(value.parse().unwrap()), Some(index)),
            _ => assert!(index < 8),
        }
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        status in 100_u16..1000,
        fields in prop::collection::vec(("[a-z][a-z0-9-]{0,20}", "[ -~]{0,60}", any::<bool>()), 0..20),
    ) {
        let (mut block, mut expected) = (vec![encode::NO_DYNAMIC_TABLE], vec![(Name::Status, status.to_string())]);
        encode::status(StatusCode::from_u16(status).unwrap(), &mut block);
        for (name, value, is_sensitive) in fields {
            let name = HeaderName::try_from(name).unwrap();
            expected.push((Name::Field(name.clone()), value.clone()));
            let mut value = HeaderValue::try_from(value).unwrap();
            value.set_sensitive(is_sensitive);
            encode::field(&name, &value, &mut block);
        }
        let mut decoder = Decoder::new();
        prop_assert_eq!(decoded(&mut decoder, &block).unwrap(), expected);
        prop_assert_eq!(decoder.len, 0);
    }

    /// Any block is decoded or refused, and the table stays within its size.
    #[test]
    fn any_block_is_decoded_or_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..8)) {
        let mut decoder = Decoder::new();
        for block in blocks {
            if decoder.decode(&block, |_, _| {}).is_err() {
                break;
            }
            let len: usize = decoder.entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
            prop_assert_eq!(decoder.len, len);
            prop_assert!(len <= decoder.len_max);
        }
    }
}
