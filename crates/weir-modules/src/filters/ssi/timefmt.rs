//! `$date_local` and `$date_gmt`: the time in the form that `config timefmt` asks for, as C's `strftime` has it.

use weir_engine::{Exchange, Text};

use crate::support::moment;

/// The form that the page asked for.
#[derive(Default)]
pub(super) struct TimeFormat(pub(super) Option<Vec<u8>>);

/// The value of `$date_local`.
pub(super) fn local_date(x: &mut Exchange) -> Option<Text> {
    date(x, true)
}

/// The value of `$date_gmt`.
pub(super) fn gmt_date(x: &mut Exchange) -> Option<Text> {
    date(x, false)
}

fn date(x: &mut Exchange, local: bool) -> Option<Text> {
    let asked = x.state_if::<TimeFormat>().and_then(|timefmt| timefmt.0.clone());
    let out = moment::now(asked.as_deref().unwrap_or(DEFAULT), local);
    if out.is_empty() || out.len() >= LONGEST {
        return None;
    }
    Some(Text::Span(x.arena.push(&out)))
}

const DEFAULT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";
/// nginx's `NGX_HTTP_SSI_DATE_LEN`.
const LONGEST: usize = 2048;
