use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A file of frames at these times, each with its number in the file as data.
fn file(link: LinkType, times: &[u64]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link, 96).unwrap();
    for (number, time) in times.iter().enumerate() {
        let data = (number as u32).to_be_bytes();
        writer.write(&Frame { time: Timestamp(*time), link, len: 4, data: &data }).unwrap();
    }
    writer.into_inner()
}

fn merged(files: &[Vec<u8>]) -> Merged<&[u8]> {
    Merged::new(files.iter().map(|file| Reader::new(&file[..]).unwrap()).collect())
}

fn drain(merged: &mut Merged<&[u8]>) -> Vec<(u64, LinkType)> {
    let mut frames = Vec::new();
    while let Some(frame) = merged.next_frame().unwrap() {
        frames.push((frame.time.0, frame.link));
    }
    frames
}

#[test]
fn frames_come_by_time_and_then_by_file() {
    let files = [
        file(LinkType::RAW, &[3, 5, 5]),
        file(LinkType::ETHERNET, &[]),
        file(LinkType::IPV4, &[1, 5, 9]),
        file(LinkType::IPV6, &[5]),
    ];
    let (raw, v4, v6) = (LinkType::RAW, LinkType::IPV4, LinkType::IPV6);
    let expected = [(1, v4), (3, raw), (5, raw), (5, raw), (5, v4), (5, v6), (9, v4)];
    assert_eq!(drain(&mut merged(&files)), expected);
    assert_eq!(drain(&mut merged(&[])), []);
}

/// A truncated file returns its error at its end; the others are read on.
#[test]
fn an_error_ends_one_file_only() {
    let mut files = [file(LinkType::RAW, &[1, 4]), file(LinkType::IPV4, &[2, 3]), file(LinkType::IPV6, &[5])];
    files[1].pop();
    let mut merged = merged(&files);
    assert_eq!(merged.next_frame().unwrap().unwrap().time, Timestamp(1));
    assert_eq!(merged.next_frame().unwrap().unwrap().time, Timestamp(2));
    let error = merged.next_frame().unwrap_err();
    assert!(matches!(error, FileError { file: 1, source: ReadError::CutOff { .. } }), "{error:?}");
    assert_eq!(drain(&mut merged), [(4, LinkType::RAW), (5, LinkType::IPV6)]);
}

const HOUR: u64 = 3_600_000_000_000;
const YEAR: u64 = 365 * 24 * HOUR;

/// All times and numbers, and the number of strays.
fn steadied(files: &[&[u64]]) -> (Vec<(u64, u8)>, u64) {
    let files: Vec<_> = files.iter().map(|times| file(LinkType::RAW, times)).collect();
    let mut merged = merged(&files);
    let mut frames = Vec::new();
    while let Some(frame) = merged.next_frame().unwrap() {
        assert_eq!((frame.link, frame.len, frame.data.len()), (LinkType::RAW, 4, 4));
        frames.push((frame.time.0, frame.data[3]));
    }
    (frames, merged.strays())
}

#[test]
fn a_stray_is_as_late_as_the_frame_before_it() {
    assert_eq!(steadied(&[&[1, 2 + YEAR, 3]]), (vec![(1, 0), (1, 1), (3, 2)], 1));
    // Only as far as needed.
    assert_eq!(steadied(&[&[1, 3 + HOUR, 3]]).1, 1);
    assert_eq!(steadied(&[&[1, 2 + HOUR, 3]]).1, 0);
    // Two strays in a row, with different times.
    assert_eq!(steadied(&[&[1, YEAR, 2 * HOUR, 3]]), (vec![(1, 0), (1, 1), (1, 2), (3, 3)], 2));
    // It delays no other file.
    let (frames, strays) = steadied(&[&[10, YEAR, 30], &[15, 25, 35]]);
    assert_eq!((frames, strays), (vec![(10, 0), (10, 1), (15, 0), (25, 1), (30, 2), (35, 2)], 1));
}

#[test]
fn pauses_stay_as_they_are() {
    for times in [
        &[1, 2 + YEAR, 3 + YEAR][..],
        &[1, 2 + YEAR],
        &[1, 2 + YEAR, 1 + YEAR],
        &[1, HOUR + 1, 2 * HOUR + 1, 3 * HOUR + 1],
        // The first frame has none before it; and if time goes back, the wrong frame is unknown.
        &[YEAR, 1, 2],
        &[YEAR, YEAR + 1, 1, 2],
    ] {
        let (frames, strays) = steadied(&[times]);
        let read: Vec<_> = frames.iter().map(|(time, _)| *time).collect();
        assert_eq!((&read[..], strays), (times, 0));
    }
    let (frames, strays) = steadied(&[&[1, YEAR, YEAR + 2], &[2, YEAR + 1]]);
    assert_eq!((frames, strays), (vec![(1, 0), (2, 0), (YEAR, 1), (YEAR + 1, 1), (YEAR + 2, 2)], 0));
}

/// The reader returns an error of its look-ahead in its turn.
#[test]
fn a_frame_behind_a_pause_comes_before_the_error_behind_it() {
    let mut files = [file(LinkType::RAW, &[1, YEAR, YEAR + 1])];
    files[0].pop();
    let mut merged = merged(&files);
    assert_eq!(merged.next_frame().unwrap().unwrap().time, Timestamp(1));
    assert_eq!(merged.next_frame().unwrap().unwrap().time, Timestamp(YEAR));
    assert!(matches!(merged.next_frame(), Err(FileError { source: ReadError::CutOff { .. }, .. })));
    assert_eq!(drain(&mut merged), []);
}

proptest! {
    #[test]
    fn sorted_files_become_one(mut times in vec(vec(0..50u64, 0..20), 0..6)) {
        for times in &mut times {
            times.sort_unstable();
        }
        let files: Vec<_> = times.iter().map(|times| file(LinkType::RAW, times)).collect();
        let mut all = times.concat();
        all.sort_unstable();
        let read: Vec<_> = drain(&mut merged(&files)).into_iter().map(|(time, _)| time).collect();
        prop_assert_eq!(read, all);
    }
}
