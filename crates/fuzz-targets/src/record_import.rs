//! Arbitrary state shipped by a node. It is refused, or imported as it is, and the connection works.

use std::io::IoSlice;

use watari_record::Connection;

pub(crate) fn run(state: &[u8]) {
    let Ok(connection) = Connection::import(state) else { return };
    let fenced = connection.fence();
    assert_eq!(fenced.state(), state);
    let mut connection = fenced.thaw();
    let mut out = Vec::new();
    let sealed = connection.seal(&[IoSlice::new(b"data")], usize::MAX, &mut out);
    assert_eq!(sealed.is_ok_and(|len| len == 4), !out.is_empty() && sealed.is_ok());
    let _ = connection.open(&mut out);
    let _ = connection.update_keys(true, &mut out);
    let _ = connection.seal_close_notify(&mut out);
    assert!(connection.is_write_closed());
}
