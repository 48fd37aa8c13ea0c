//! Rings count the frames for which they have no room.

use std::time::Instant;

use watari_capture::{Options, open};

use crate::network::{alone, serve, visit};
use crate::seen::DEADLINE;

/// With rings that are too small and not read: each received frame was delivered or dropped.
#[test]
fn drops_are_counted() {
    alone("drops::drops_are_counted", || {
        for threads in [1, 2] {
            let server = serve("127.0.0.1");
            let mut rings = open(&Options { ring_bytes: 1, threads, ..Options::new("lo") }).unwrap();
            let begun = Instant::now();
            for ring in &mut rings {
                while ring.counts().unwrap().dropped == 0 {
                    assert!(begun.elapsed() < DEADLINE);
                    visit(server);
                }
            }
            for ring in &mut rings {
                let mut delivered = 0;
                let counts = loop {
                    while ring.next().unwrap().is_some() {
                        delivered += 1;
                    }
                    let counts = ring.counts().unwrap();
                    if counts.received - counts.dropped == delivered {
                        break counts;
                    }
                    assert!(begun.elapsed() < DEADLINE, "{counts:?} {delivered}");
                };
                assert!(counts.dropped > 0 && counts.dropped_by_interface == 0, "{counts:?}");
            }
        }
    });
}

/// Without a filter, too, the kernel truncates frames, and so they take less of the ring.
#[test]
fn a_ring_has_room_for_as_many_frames_as_it_says() {
    alone("drops::a_ring_has_room_for_as_many_frames_as_it_says", || {
        use std::io::Write;
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (mut stream, _) = server.accept().unwrap();
        let mut ring = open(&Options { ring_bytes: 4 << 20, ..Options::new("lo") }).unwrap().remove(0);
        let reader = std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()).unwrap());
        // 64 MiB in frames of up to 64 KiB would fill this ring many times.
        for _ in 0..1024 {
            client.write_all(&vec![0; 65_536]).unwrap();
        }
        drop(client);
        assert_eq!(reader.join().unwrap(), 64 << 20);
        let counts = ring.counts().unwrap();
        assert!(counts.received > 1024 && counts.dropped == 0, "{counts:?}");
    });
}
