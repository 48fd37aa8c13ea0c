//! The TLS server handshake by rustls, ending in record-layer state.
