//! What is written is read back the same, in whatever pieces it comes.

use proptest::prelude::*;

use super::*;

/// What a stream of records held: content by kind, and the ends seen.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    empty: Vec<RecordKind>,
    ended: usize,
}

fn read(input: &[u8], piece: usize) -> Result<Seen, BadRecord> {
    let mut reader = RecordReader::new(RecordWriter::Application);
    let mut seen = Seen::default();
    for piece in input.chunks(piece.max(1)) {
        let mut at = 0;
        loop {
            let (taken, event) = reader.read(&piece[at..])?;
            match event {
                RecordEvent::More => break,
                RecordEvent::Data(RecordKind::Stdout, range) => {
                    seen.stdout.extend_from_slice(&piece[at..][range]);
                }
                RecordEvent::Data(RecordKind::Stderr, range) => {
                    seen.stderr.extend_from_slice(&piece[at..][range]);
                }
                RecordEvent::Data(..) => {}
                RecordEvent::End { kind: RecordKind::End, .. } => seen.ended += 1,
                RecordEvent::End { kind, empty: true } => seen.empty.push(kind),
                RecordEvent::End { .. } => {}
            }
            at += taken;
        }
    }
    Ok(seen)
}

proptest! {
    #[test]
    fn pieces_do_not_matter(stdout: Vec<u8>, stderr: Vec<u8>, piece in 1usize..40) {
        let mut wire = Vec::new();
        record(&mut wire, RecordKind::Stderr, &stderr);
        record(&mut wire, RecordKind::Stdout, &stdout);
        record_head(&mut wire, RecordKind::Stdout, 0);
        finish(&mut wire, 7);
        let expected = Seen { stdout, stderr, empty: vec![RecordKind::Stdout], ended: 1 };
        prop_assert_eq!(read(&wire, piece), Ok(expected));
    }

    #[test]
    fn pairs_come_back(list: Vec<(Vec<u8>, Vec<u8>)>, long in 120usize..70_000) {
        let mut list = list;
        list.push((b"LONG".to_vec(), vec![b'x'; long]));
        let mut content = Vec::new();
        list.iter().for_each(|(name, value)| pair(&mut content, name, value));
        let back: Vec<_> = pairs(&content).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        prop_assert_eq!(back, list);
        // A last one that is cut does not count.
        prop_assert_eq!(pairs(&content[..content.len() - 1]).count() + 1, pairs(&content).count());
    }

    #[test]
    fn anything_may_come(input: Vec<u8>, piece in 1usize..9) {
        prop_assert_eq!(read(&input, piece).is_ok(), read(&input, input.len()).is_ok());
    }
}

#[test]
fn long_content_is_several_records_and_lengths_have_two_forms() {
    let mut wire = Vec::new();
    record(&mut wire, RecordKind::Stdout, &vec![7; 70_000]);
    assert_eq!(wire.len(), 70_000 + 2 * HEAD);
    assert_eq!(read(&wire, 1000).map(|seen| seen.stdout.len()), Ok(70_000));
    let mut content = Vec::new();
    pair(&mut content, &[b'n'; 127], &[b'v'; 128]);
    assert_eq!(content[..5], [127, 0x80, 0, 0, 128]);
}

#[test]
fn wrong_heads_have_nginx_s_words() {
    let text = |bytes: &[u8]| read(bytes, 8).map(|_| ()).map_err(|bad| bad.to_string());
    let expected = "upstream sent unsupported FastCGI protocol version: 72";
    assert_eq!(text(b"HTTP/1.1"), Err(expected.to_owned()));
    assert_eq!(text(&[1, 5]), Err("upstream sent invalid FastCGI record type: 5".to_owned()));
    assert_eq!(text(&[1, 6, 2]), Err("upstream sent unexpected FastCGI request id high byte: 2".to_owned()));
    assert_eq!(
        text(&[1, 6, 0, 0]),
        Err("upstream sent unexpected FastCGI request id low byte: 0".to_owned())
    );
}

#[test]
fn a_request_begins_as_nginx_begins_it() {
    let mut wire = Vec::new();
    begin(&mut wire, FastcgiConnection::Kept);
    assert_eq!(wire, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
}
