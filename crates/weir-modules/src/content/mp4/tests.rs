//! Clips of files made here, looked at with a reader that shares nothing with what made them.

use super::clip::{Mp4Buffers, Mp4Clip, clip};
use super::error::Mp4Error;
use super::movie::ClipSpan;

const BUFFERS: Mp4Buffers = Mp4Buffers { size: 4096, max: 1 << 20 };

fn cut(file: &[u8], start: u64, length: u64) -> Result<Option<Mp4Clip>, String> {
    let span = ClipSpan { start, length, key_frame: false };
    clip(&file, file.len() as u64, span, BUFFERS).map_err(|error| error.about("f").to_string())
}

/// The clip as a client gets it.
fn whole(file: &[u8], clip: &Mp4Clip) -> Vec<u8> {
    let data = &file[clip.offset as usize..(clip.offset + clip.len) as usize];
    [&clip.head[..], data].concat()
}

/// Numbers that are the same each time (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn atom(name: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], name, &content].concat()
}

fn table(name: &[u8; 4], entries: &[Vec<u32>]) -> Vec<u8> {
    let numbers: Vec<u8> = entries.iter().flatten().flat_map(|n| n.to_be_bytes()).collect();
    atom(name, &[&[0; 4], &(entries.len() as u32).to_be_bytes(), &numbers])
}

/// A track of samples of a tenth of a second: their sizes, by chunk, and where each chunk is.
struct TrackPlan {
    chunks: Vec<Vec<u32>>,
    offsets: Vec<u32>,
    wide: bool,
}

impl TrackPlan {
    fn samples(&self) -> u32 {
        self.chunks.iter().map(|chunk| chunk.len() as u32).sum()
    }

    fn atom(&self) -> Vec<u8> {
        let duration = self.samples() * 100;
        let runs: Vec<Vec<u32>> =
            self.chunks.iter().zip(1..).map(|(chunk, number)| vec![number, chunk.len() as u32, 1]).collect();
        let sizes: Vec<u8> = self.chunks.iter().flatten().flat_map(|size| size.to_be_bytes()).collect();
        let offsets = if self.wide {
            table(b"co64", &self.offsets.iter().map(|offset| vec![0, *offset]).collect::<Vec<_>>())
        } else {
            table(b"stco", &self.offsets.iter().map(|offset| vec![*offset]).collect::<Vec<_>>())
        };
        let samples = [
            atom(b"stsd", &[&[0; 16]]),
            table(b"stts", &[vec![self.samples(), 100]]),
            table(b"ctts", &[vec![self.samples(), 7]]),
            table(b"stss", &(1..=self.samples()).step_by(4).map(|n| vec![n]).collect::<Vec<_>>()),
            table(b"stsc", &runs),
            atom(b"stsz", &[&[0; 8], &self.samples().to_be_bytes(), &sizes]),
            offsets,
        ];
        let mut header = [0; 84];
        header[20..24].copy_from_slice(&duration.to_be_bytes());
        let mut media = [0; 24];
        media[12..16].copy_from_slice(&1000_u32.to_be_bytes());
        media[16..20].copy_from_slice(&duration.to_be_bytes());
        let information = atom(b"minf", &[&atom(b"vmhd", &[&[0; 12]]), &atom(b"stbl", &[&samples.concat()])]);
        let media = atom(b"mdia", &[&atom(b"mdhd", &[&media]), &information]);
        atom(b"trak", &[&atom(b"tkhd", &[&header]), &media])
    }
}

/// A file of these tracks, whose chunks take turns; no byte of a sample is zero, and each has a value of its own.
fn file(tracks: &mut [TrackPlan], index_first: bool) -> Vec<u8> {
    let mut data = Vec::new();
    let most = tracks.iter().map(|track| track.chunks.len()).max().unwrap_or(0);
    let kind = atom(b"ftyp", &[b"isom\0\0\0\0"]);
    let index = |tracks: &[TrackPlan]| {
        let duration = tracks.iter().map(|track| track.samples() * 100).max().unwrap_or(0);
        let mut header = [0; 100];
        header[12..16].copy_from_slice(&1000_u32.to_be_bytes());
        header[16..20].copy_from_slice(&duration.to_be_bytes());
        let tracks: Vec<u8> = tracks.iter().flat_map(TrackPlan::atom).collect();
        atom(b"moov", &[&atom(b"mvhd", &[&header]), &tracks, &atom(b"udta", &[b"x"])])
    };
    for track in tracks.iter_mut() {
        track.offsets = vec![0; track.chunks.len()];
    }
    let start = kind.len() + 8 + if index_first { index(tracks).len() } else { 0 };
    for at in 0..most {
        for track in tracks.iter_mut() {
            let Some(sizes) = track.chunks.get(at) else { continue };
            track.offsets[at] = (start + data.len()) as u32;
            for size in sizes {
                let value = data.len() as u32;
                data.extend((0..*size).map(|i| (value.wrapping_mul(31).wrapping_add(i) % 251 + 1) as u8));
            }
        }
    }
    let (index, data) = (index(tracks), atom(b"mdat", &[&data]));
    if index_first { [kind, index, data].concat() } else { [kind, data, index].concat() }
}

/// A track as a player sees it: the bytes of each sample.
fn play(file: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let index = find(file, b"moov").expect("an index");
    let mut tracks = Vec::new();
    let mut rest = index;
    while let Some(track) = find(rest, b"trak") {
        let after = track.as_ptr() as usize + track.len() - rest.as_ptr() as usize;
        rest = &rest[after..];
        tracks.push(play_track(file, track));
    }
    tracks
}

fn play_track(file: &[u8], track: &[u8]) -> Vec<Vec<u8>> {
    let samples = ["mdia", "minf", "stbl"].iter().fold(track, |data, name| {
        find(data, name.as_bytes().try_into().expect("four bytes")).expect("a nested atom")
    });
    let number =
        |data: &[u8], at: usize| u32::from_be_bytes(data[at * 4..at * 4 + 4].try_into().expect("four"));
    let numbers = |name: &[u8; 4]| -> Vec<u32> {
        let data = find(samples, name).unwrap_or_default();
        (0..data.len() / 4).map(|at| number(data, at)).collect()
    };
    let (runs, sizes) = (numbers(b"stsc"), numbers(b"stsz"));
    let offsets: Vec<u32> = match numbers(b"co64") {
        wide if !wide.is_empty() => wide[2..].iter().skip(1).step_by(2).copied().collect(),
        _ => numbers(b"stco")[2..].to_vec(),
    };
    let runs: Vec<&[u32]> = runs[2..].chunks(3).collect();
    let mut sizes = sizes[3..].iter();
    let mut bytes = Vec::new();
    for (chunk, offset) in (1..).zip(offsets) {
        let run = runs.iter().rev().find(|run| run[0] <= chunk).expect("a run for each chunk");
        let mut at = offset as usize;
        for size in sizes.by_ref().take(run[1] as usize) {
            bytes.push(file[at..at + *size as usize].to_vec());
            at += *size as usize;
        }
    }
    assert_eq!(sizes.next(), None, "each sample is in a chunk");
    bytes
}

/// The content of the first atom of that name.
fn find<'f>(mut data: &'f [u8], name: &[u8; 4]) -> Option<&'f [u8]> {
    while data.len() >= 8 {
        let size = u32::from_be_bytes(data[..4].try_into().expect("four bytes")) as usize;
        if &data[4..8] == name {
            return Some(&data[8..size]);
        }
        data = &data[size..];
    }
    None
}

fn drawn(draw: &mut Draw, tracks: u64) -> Vec<TrackPlan> {
    let chunk = |draw: &mut Draw| (0..1 + draw.below(5)).map(|_| 1 + draw.below(9) as u32).collect();
    let track = |draw: &mut Draw| TrackPlan {
        chunks: (0..1 + draw.below(6)).map(|_| chunk(draw)).collect(),
        offsets: Vec::new(),
        wide: draw.below(2) == 0,
    };
    (0..tracks).map(|_| track(draw)).collect()
}

/// Whatever the tables are, the samples of a clip are those of the file between its times.
#[test]
fn a_clip_has_the_samples_of_its_time() {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    for round in 0..1_500 {
        let count = 1 + draw.below(2);
        let mut tracks = drawn(&mut draw, count);
        let file = file(&mut tracks, draw.below(2) == 0);
        let samples = u64::from(tracks.iter().map(TrackPlan::samples).min().expect("a track"));
        let first = draw.below(samples);
        let last = first + 1 + draw.below(samples - first);
        let length = if last == samples { 0 } else { (last - first) * 100 };
        if (first, length) == (0, 0) {
            continue;
        }
        let clip = cut(&file, first * 100, length).expect("a clip").expect("a part");
        let of_clip = play(&whole(&file, &clip));
        for (of_file, of_clip) in play(&file).into_iter().zip(of_clip) {
            let end = if length == 0 { of_file.len() } else { last as usize };
            assert_eq!(of_clip, of_file[first as usize..end], "round {round}: {first} to {last}");
        }
    }
}

/// A file of which any byte is another one is cut, or refused; nothing is read outside of it.
#[test]
fn no_file_is_too_broken() {
    let mut draw = Draw(0x2545_f491_4f6c_dd1d);
    for _ in 0..6_000 {
        let count = 1 + draw.below(2);
        let mut tracks = drawn(&mut draw, count);
        let mut file = file(&mut tracks, draw.below(2) == 0);
        for _ in 0..1 + draw.below(4) {
            let at = draw.below(file.len() as u64) as usize;
            file[at] = [0, 1, 0xff, draw.below(256) as u8][draw.below(4) as usize];
        }
        file.truncate(file.len() - draw.below(3) as usize * draw.below(40) as usize % file.len());
        let span =
            ClipSpan { start: draw.below(2_000), length: draw.below(900), key_frame: draw.below(2) == 0 };
        if let Ok(Some(clip)) = clip(&&file[..], file.len() as u64, span, BUFFERS) {
            assert!(clip.offset.checked_add(clip.len).is_some_and(|end| end <= file.len() as u64));
        }
    }
}

fn plain(index_first: bool) -> Vec<u8> {
    let chunks = vec![vec![3, 4, 5], vec![6, 7], vec![8, 9, 10, 11]];
    file(&mut [TrackPlan { chunks, offsets: Vec::new(), wide: false }], index_first)
}

#[test]
fn a_whole_file_is_sent_as_it_is_unless_its_index_is_last() {
    assert_eq!(cut(&plain(true), 0, 0), Ok(None));
    let file = plain(false);
    let clip = cut(&file, 0, 0).expect("a clip").expect("another order");
    assert_eq!(play(&whole(&file, &clip)), play(&file));
}

#[test]
fn a_key_frame_before_the_start_is_hidden_by_an_edit_list() {
    let file = plain(true);
    let span = ClipSpan { start: 600, length: 0, key_frame: true };
    let clip = clip(&&file[..], file.len() as u64, span, BUFFERS).map_err(|_| "no clip").expect("a clip");
    let clip = whole(&file, &clip.expect("a part"));
    // Key frames are samples 1, 5 and 9: the fifth is at 400.
    assert_eq!(play(&clip)[0], play(&file)[0][4..]);
    let track = find(find(&clip, b"moov").expect("an index"), b"trak").expect("a track");
    let list = find(find(track, b"edts").expect("edits"), b"elst").expect("a list");
    assert_eq!(
        list,
        [&[1, 0, 0, 0, 0, 0, 0, 1][..], &300_u64.to_be_bytes(), &200_u64.to_be_bytes(), &[0, 1, 0, 0]]
            .concat()
    );
}

#[test]
fn errors_are_those_of_nginx() {
    let file = plain(true);
    let broken = |from: &[u8], to: &[u8]| {
        let at = file.windows(from.len()).position(|window| window == from).expect("it is there");
        let mut file = file.clone();
        file[at..at + to.len()].copy_from_slice(to);
        file
    };
    for (file, start, error) in [
        (file.clone(), 901, "\"f\" mp4 start time exceeds file duration"),
        (file.clone(), 900, "no mp4 trak atoms were found in \"f\""),
        (broken(b"mdat", b"free"), 100, "no mp4 mdat atom was found in \"f\""),
        (broken(b"trak", b"cmov"), 100, "\"f\" mp4 compressed moov atom (cmov) is not supported"),
        (broken(b"stts", b"free"), 100, "no mp4 stts atoms were found in \"f\""),
        (broken(b"stsc", b"free"), 100, "no mp4 stsc atoms were found in \"f\""),
        (broken(b"stco", b"free"), 100, "no mp4 stco atoms were found in \"f\""),
        (broken(b"ctts", b"stts"), 100, "duplicate mp4 stts atom in \"f\""),
        (broken(b"stsd", b"mvhd"), 100, ""),
        (file[..9].to_vec(), 100, "\"f\" mp4 atom too large:16"),
        (file[..16 + 4].to_vec(), 100, "\"f\" mp4 file truncated"),
        (b"\0\0\0\x05abcd".to_vec(), 1, "\"f\" mp4 atom is too small:5"),
        (atom(b"ftyp", &[&[0; 1025]]), 1, "\"f\" mp4 ftyp atom is too large:1025"),
        (
            atom(b"moov", &[&vec![0; (1 << 20) + 1]]),
            1,
            "\"f\" mp4 moov atom is too large:1048577, you may want to increase mp4_max_buffer_size",
        ),
        (atom(b"moov", &[&atom(b"mvhd", &[&[0; 99]])]), 1, "\"f\" mp4 mvhd atom too small"),
    ] {
        match cut(&file, start, 0) {
            Err(said) => assert_eq!(said, error),
            Ok(_) => assert_eq!("", error),
        }
    }
}

#[test]
fn more_tracks_than_anybody_plays_are_refused() {
    let tracks = atom(b"trak", &[]).repeat(1_001);
    let file = atom(b"moov", &[&tracks]);
    assert_eq!(cut(&file, 1, 0), Err("too many mp4 trak atoms in \"f\"".to_owned()));
    let file = atom(b"free", &[]).repeat(10_001);
    assert_eq!(cut(&file, 1, 0), Err("too many mp4 atoms in \"f\"".to_owned()));
}

#[test]
fn a_file_that_becomes_shorter_is_the_systems_fault() {
    let file = plain(true);
    let span = ClipSpan { start: 100, length: 0, key_frame: false };
    let error = clip(&&file[..40], file.len() as u64, span, BUFFERS).expect_err("it is short");
    assert!(error.is_of_system() && matches!(error, Mp4Error::Short { .. }));
}

#[test]
fn times_have_as_many_digits_as_one_likes() {
    for (text, expected) in [
        ("1", Some(1000)),
        ("0", Some(0)),
        ("1.5", Some(1500)),
        (".5", Some(500)),
        ("1.", Some(1000)),
        ("1.23456789", Some(1234)),
        ("238.88", Some(238_880)),
        ("9223372036854775.807", Some(i64::MAX as u64)),
        ("9223372036854775.808", None),
        ("", None),
        ("1.2.3", None),
        ("1s", None),
        ("-1", None),
        ("1.x", None),
    ] {
        assert_eq!(super::milliseconds(text.as_bytes()), expected, "{text}");
    }
}
