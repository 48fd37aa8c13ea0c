use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn write(frames: &[Owned], snap_len: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET, snap_len).unwrap();
    for frame in frames {
        writer.write(&frame.frame()).unwrap();
    }
    writer.into_inner()
}

/// `draft-ietf-opsawg-pcap`, sections 4 and 5, octet by octet.
#[test]
fn a_file_as_published() {
    let file = write(&[owned(0x0102_0304 * 1_000_000_000 + 5, 9, b"data")], 96);
    let expected = [
        &[0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 96, 0, 0, 0, 1, 0, 0, 0][..],
        &[4, 3, 2, 1, 5, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0],
        b"data",
    ];
    assert_eq!(file, expected.concat());
}

#[test]
fn frames_are_kept_up_to_the_snap_length() {
    let file = write(&[owned(1, 10, b"0123456789")], 4);
    assert_eq!(read_all(&file[..]), [owned(1, 10, b"0123")]);
}

#[test]
fn what_the_format_cannot_say_is_refused() {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET, 96).unwrap();
    let late = owned(u64::MAX, 0, b"");
    assert!(matches!(writer.write(&late.frame()), Err(WriteError::Time { seconds: 18_446_744_073 })));
    let raw = Owned { link: LinkType::RAW, ..owned(0, 0, b"") };
    let error = writer.write(&raw.frame()).unwrap_err();
    assert_eq!(error.to_string(), "a frame of link type 101 in a file of link type 1");
    assert_eq!(writer.into_inner().len(), 24, "nothing was written");
}

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let frame = (0..4_294_967_296_000_000_000u64, any::<u32>(), vec(any::<u8>(), 0..300));
    vec(frame.prop_map(|(time, len, data)| owned(time, len, &data)), 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in frames(), piece in 1..100usize) {
        let file = write(&frames, FRAME_LEN_MAX);
        prop_assert_eq!(read_all(&file[..]), frames.clone());
        prop_assert_eq!(read_all(&packed(&file)[..]), frames.clone());
        prop_assert_eq!(read_all(Pieces(&file, piece)), frames);
    }

    #[test]
    fn random_changes_never_panic(
        frames in frames(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
    ) {
        for mut file in [write(&frames, 96), pcapng::two_sections()] {
            for (at, octet) in &changes {
                *at.get_mut(&mut file) = *octet;
            }
            let _ = read(&file[..]);
        }
    }
}
