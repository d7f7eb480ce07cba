//! What a seed draws of a server's connection: what it allows, and how it sends.

use super::hpack::FieldForm;
use crate::draw::Draw;

/// A connection of a server that speaks HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2ServerPlan {
    /// The seed of what it chooses on its way.
    pub seed: u64,
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub table: u32,
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub most_streams: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub window: u32,
    /// How it gives windows back.
    pub credit: ContentCredit,
    /// Longest content of a frame, bytes.
    pub data: u64,
    /// Longest time between two of them.
    pub gap: u64,
    /// How fields are written.
    pub form: FieldForm,
    /// When it sends PING, and a frame of an unknown kind.
    pub pings: Option<u64>,
    /// When it is cut off.
    pub cut: Option<u64>,
}

/// How a server gives back the windows of what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCredit {
    /// With each DATA frame.
    AtOnce,
    /// So much later.
    Late(u64),
    /// When nothing more can come.
    WhenEmpty,
}

impl Http2ServerPlan {
    /// What `draw` draws, where of 1,000 connections so many are `cut`.
    pub fn drawn(draw: &mut Draw, cuts: u64) -> Http2ServerPlan {
        let forms = [FieldForm::Plain, FieldForm::Added];
        Http2ServerPlan {
            seed: draw.number(),
            table: *draw.one_of(&[0, 100, 4096]),
            most_streams: *draw.one_of(&[1, 2, 10, 200]),
            window: *draw.one_of(&[1000, 16_384, 65_535, 1 << 20]),
            credit: *draw.one_of(&[
                ContentCredit::AtOnce,
                ContentCredit::Late(20_000),
                ContentCredit::WhenEmpty,
            ]),
            data: *draw.one_of(&[100, 1500, 16_000]),
            gap: *draw.one_of(&[0, 100, 1000]),
            form: *draw.one_of(&forms),
            pings: draw.chance(1, 3).then(|| draw.below(100_000)),
            cut: draw.chance(cuts, 1000).then(|| draw.below(300_000)),
        }
    }
}
