//! Perfetto's trace format: what ui.perfetto.dev and its trace processor read.
//!
//! <https://github.com/google/perfetto/tree/main/protos/perfetto/trace>: `trace.proto`, `trace_packet.proto`,
//! `track_event/track_event.proto`, `track_descriptor.proto`, `process_descriptor.proto`, `thread_descriptor.proto`,
//! `debug_annotation.proto`. Names are written out, never interned, so that every packet can be read by itself.

use super::protobuf::ProtobufMessage;

/// A timeline: tracks, and slices on them.
#[derive(Debug)]
pub(crate) struct PerfettoTimeline {
    /// Descriptions of tracks.
    tracks: ProtobufMessage,
    /// The last track's number.
    last: u64,
    pid: u32,
    /// Slices' ends and what else happens, with their times.
    events: Vec<(u64, ProtobufMessage)>,
}

/// The number of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackNumber(u64);

impl PerfettoTimeline {
    /// Of that process.
    pub(crate) fn new(pid: u32, name: &str) -> PerfettoTimeline {
        let mut timeline =
            PerfettoTimeline { tracks: ProtobufMessage::default(), last: 0, pid, events: Vec::new() };
        let mut process = ProtobufMessage::default();
        process.number(1, pid.into());
        process.bytes(6, name.as_bytes());
        timeline.describe(|track| track.message(3, process));
        timeline
    }

    /// What is to follow another one of the same process, in the same file.
    pub(crate) fn after(pid: u32) -> PerfettoTimeline {
        PerfettoTimeline { tracks: ProtobufMessage::default(), last: BEHIND, pid, events: Vec::new() }
    }

    /// The track of a thread.
    pub(crate) fn thread(&mut self, tid: u32, name: &str) -> TrackNumber {
        let mut thread = ProtobufMessage::default();
        thread.number(1, self.pid.into());
        thread.number(2, tid.into());
        thread.bytes(5, name.as_bytes());
        self.describe(|track| {
            track.number(5, PROCESS);
            track.message(4, thread);
        })
    }

    /// A track below the process.
    pub(crate) fn track(&mut self, name: &str) -> TrackNumber {
        self.describe(|track| {
            track.bytes(2, name.as_bytes());
            track.number(5, PROCESS);
        })
    }

    /// A slice begins at `ns`; slices of one track nest.
    pub(crate) fn begin(&mut self, track: TrackNumber, ns: u64, name: &str, said: &[(&str, &str)]) {
        let mut event = ProtobufMessage::default();
        for (key, value) in said {
            let mut annotation = ProtobufMessage::default();
            annotation.bytes(6, value.as_bytes());
            annotation.bytes(10, key.as_bytes());
            event.message(4, annotation);
        }
        event.number(9, SLICE_BEGIN);
        event.number(11, track.0);
        event.bytes(22, CATEGORY);
        event.bytes(23, name.as_bytes());
        self.events.push((ns, event));
    }

    /// The innermost open slice of the track ends.
    pub(crate) fn end(&mut self, track: TrackNumber, ns: u64) {
        let mut event = ProtobufMessage::default();
        event.number(9, SLICE_END);
        event.number(11, track.0);
        self.events.push((ns, event));
    }

    /// A whole slice.
    pub(crate) fn slice(
        &mut self,
        track: TrackNumber,
        from: u64,
        to: u64,
        name: &str,
        said: &[(&str, &str)],
    ) {
        self.begin(track, from, name, said);
        self.end(track, to);
    }

    /// The file. Packets are in the order of their times; those of one time as they were given.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.events.sort_by_key(|(ns, _)| *ns);
        let mut out = self.tracks;
        for (ns, event) in self.events {
            let mut packet = ProtobufMessage::default();
            packet.number(8, ns);
            packet.number(10, SEQUENCE);
            packet.message(11, event);
            out.message(1, packet);
        }
        out.0
    }

    fn describe(&mut self, more: impl FnOnce(&mut ProtobufMessage)) -> TrackNumber {
        self.last += 1;
        let mut track = ProtobufMessage::default();
        track.number(1, self.last);
        more(&mut track);
        let mut packet = ProtobufMessage::default();
        packet.number(10, SEQUENCE);
        if self.last == PROCESS {
            // Nothing came before on this sequence (SEQ_INCREMENTAL_STATE_CLEARED).
            packet.number(13, 1);
        }
        packet.message(60, track);
        self.tracks.message(1, packet);
        TrackNumber(self.last)
    }
}

/// The track of the process is the first.
const PROCESS: u64 = 1;
/// Tracks of what follows have unique numbers.
const BEHIND: u64 = 1 << 32;
/// All packets come from one writer.
const SEQUENCE: u64 = 1;
const CATEGORY: &[u8] = b"weir";
/// `TrackEvent.Type`
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::protobuf::tests::{all, read};

    #[test]
    fn packets_are_tracks_then_slices_by_time() {
        let mut timeline = PerfettoTimeline::new(7, "weir");
        let worker = timeline.thread(9, "worker 0");
        let requests = timeline.track("requests");
        timeline.begin(requests, 300, "GET /", &[("status", "200")]);
        timeline.slice(requests, 300, 310, "parse", &[]);
        timeline.end(requests, 400);
        timeline.slice(worker, 100, 200, "GET /a", &[]);
        let packets: Vec<_> =
            read(&timeline.finish()).into_iter().map(|(field, packet)| (field, packet.fields())).collect();
        assert!(packets.iter().all(|(field, packet)| *field == 1 && all(packet, 10)[0].number() == 1));
        let tracks: Vec<_> =
            packets.iter().flat_map(|(_, packet)| all(packet, 60)).map(|track| track.fields()).collect();
        assert_eq!(tracks.iter().map(|track| all(track, 1)[0].number()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(all(&all(&tracks[0], 3)[0].fields(), 6)[0].text(), "weir");
        assert_eq!(all(&all(&tracks[1], 4)[0].fields(), 2)[0].number(), 9);
        let events: Vec<(u64, u64, u64, String)> = packets
            .iter()
            .filter(|(_, packet)| !all(packet, 11).is_empty())
            .map(|(_, packet)| {
                let event = all(packet, 11)[0].fields();
                let name = all(&event, 23).first().map_or(String::new(), |name| name.text());
                (all(packet, 8)[0].number(), all(&event, 11)[0].number(), all(&event, 9)[0].number(), name)
            })
            .collect();
        let expected = [
            (100, 2, 1, "GET /a"),
            (200, 2, 2, ""),
            (300, 3, 1, "GET /"),
            (300, 3, 1, "parse"),
            (310, 3, 2, ""),
            (400, 3, 2, ""),
        ];
        assert_eq!(events, expected.map(|(at, track, kind, name)| (at, track, kind, name.to_owned())));
    }
}
