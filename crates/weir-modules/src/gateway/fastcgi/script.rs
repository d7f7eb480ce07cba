//! Which script a URI names, and what of the URI is for the script: `$fastcgi_script_name`, `$fastcgi_path_info`.

use std::ops::Range;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Span, Text};

/// `fastcgi_split_path_info pattern`
pub(super) fn set_split(slot: &mut Option<Arc<RegexPattern>>, line: &mut LineCx<'_>) -> Result {
    let pattern = RegexPattern::compile(line, 0, 0, LetterCase::Distinct)?;
    if pattern.groups() != 2 {
        return Err(line.fail_arg(0, format!("pattern \"{}\" must have 2 captures", line.arg(0))));
    }
    line.once(slot, pattern)
}

/// What a location says about names of scripts.
pub(super) struct ScriptNames {
    index: Text,
    split: Option<Arc<RegexPattern>>,
}

impl ScriptNames {
    pub(super) fn new(index: Option<&[u8]>, split: Option<Arc<RegexPattern>>) -> ScriptNames {
        ScriptNames { index: index.map_or(Text::EMPTY, Text::shared), split }
    }

    /// The name of the script and what follows it in `uri`; all of it is the name where the pattern does not match.
    fn split(&self, x: &Exchange, uri: &[u8]) -> (Range<usize>, Range<usize>) {
        // Given up, the request ends with 500 before it is sent: no script is run by the whole of the URI.
        let groups = self.split.as_ref().and_then(|pattern| pattern.find(x, uri).unwrap_or(None));
        match groups.as_deref() {
            Some([_, name, info]) => (name.clone(), info.clone()),
            _ => (0..uri.len(), 0..0),
        }
    }
}

/// The variables.
pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("fastcgi_script_name", script_name).volatile(),
    Variable::new("fastcgi_path_info", path_info).volatile(),
];

fn script_name(x: &mut Exchange) -> Option<Text> {
    let plan = x.plan.clone();
    let Some(names) = plan.kept::<ScriptNames>() else { return Some(Text::Span(x.request.uri)) };
    let (name, _) = names.split(x, x.uri());
    let span = part(x, name);
    if x.arena.get(span).last() != Some(&b'/') {
        return Some(Text::Span(span));
    }
    let start = x.arena.mark();
    x.arena.copy(span);
    x.arena.append(&names.index);
    Some(Text::Span(x.arena.since(start)))
}

fn path_info(x: &mut Exchange) -> Option<Text> {
    let plan = x.plan.clone();
    let Some(names) = plan.kept::<ScriptNames>() else { return Some(Text::EMPTY) };
    let (_, info) = names.split(x, x.uri());
    Some(Text::Span(part(x, info)))
}

/// A part of the URI.
fn part(x: &Exchange, range: Range<usize>) -> Span {
    let start = x.request.uri.start;
    Span { start: start + range.start as u32, end: start + range.end as u32 }
}
