//! What comes in the place of a match: text with variables, and the capture groups of the pattern.

use std::rc::Rc;

use weir_conf::{LineCx, Result};
use weir_engine::variable::ValueScript;

/// A value as written, cut where references to capture groups are.
#[derive(Clone)]
pub(crate) struct ValueTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Clone)]
enum TemplatePart {
    Text(ValueScript),
    Group(usize),
}

impl ValueTemplate {
    /// Compiles argument `argument`; with `groups`, `$1` and on are those of the match.
    ///
    /// # Errors
    /// A wrong variable, or a group beyond `groups`.
    pub(crate) fn compile(
        line: &mut LineCx<'_>,
        argument: usize,
        groups: Option<usize>,
    ) -> Result<ValueTemplate> {
        let Some(groups) = groups else {
            return Ok(ValueTemplate {
                parts: vec![TemplatePart::Text(ValueScript::compile(line, argument)?)],
            });
        };
        let mut parts = Vec::new();
        let mut rest = line.bytes(argument);
        while !rest.is_empty() {
            let at = (0..rest.len()).find(|at| group(&rest[*at..]).is_some()).unwrap_or(rest.len());
            if at > 0 {
                parts.push(TemplatePart::Text(ValueScript::compile_text(line, argument, &rest[..at])?));
            }
            rest = &rest[at..];
            if let Some((number, len)) = group(rest) {
                if number > groups {
                    let value = line.arg(argument);
                    let message = format!(
                        "You want to capture too many regex substrings, more than {groups} in \"{value}\""
                    );
                    return Err(line.fail_arg(argument, message));
                }
                parts.push(TemplatePart::Group(number));
                rest = &rest[len..];
            }
        }
        Ok(ValueTemplate { parts })
    }

    /// A value without variables.
    #[cfg(test)]
    pub(crate) fn literal(bytes: &[u8]) -> ValueTemplate {
        ValueTemplate { parts: vec![TemplatePart::Text(ValueScript::literal(bytes))] }
    }

    /// The script of a part that is text.
    pub(crate) fn script(&self, part: usize) -> Option<&ValueScript> {
        match self.parts.get(part) {
            Some(TemplatePart::Text(script)) => Some(script),
            _ => None,
        }
    }
}

/// The group at the beginning of `text`, and its length: `$1`, `${1}`.
fn group(text: &[u8]) -> Option<(usize, usize)> {
    match text {
        [b'$', digit @ b'1'..=b'9', ..] => Some((usize::from(digit - b'0'), 2)),
        [b'$', b'{', digit @ b'1'..=b'9', b'}', ..] => Some((usize::from(digit - b'0'), 4)),
        _ => None,
    }
}

/// A [`ValueTemplate`] in one request: what has no group in it is computed once.
pub(crate) struct ReplacementValue {
    template: Rc<ValueTemplate>,
    texts: Vec<Option<Rc<[u8]>>>,
}

impl ReplacementValue {
    /// For one request.
    pub(crate) fn new(template: &Rc<ValueTemplate>) -> ReplacementValue {
        ReplacementValue { template: template.clone(), texts: vec![None; template.parts.len()] }
    }

    /// The whole of a value without groups.
    pub(crate) fn text(&mut self, compute: &mut dyn FnMut(usize) -> Rc<[u8]>) -> Rc<[u8]> {
        self.texts
            .first_mut()
            .map_or_else(|| Rc::from([]), |text| text.get_or_insert_with(|| compute(0)).clone())
    }

    /// Appends the value for a match of these `groups` in `line`.
    pub(crate) fn write(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        groups: &[(usize, usize)],
        compute: &mut dyn FnMut(usize) -> Rc<[u8]>,
    ) {
        for (at, (part, text)) in self.template.parts.iter().zip(&mut self.texts).enumerate() {
            match part {
                TemplatePart::Text(_) => out.extend_from_slice(text.get_or_insert_with(|| compute(at))),
                TemplatePart::Group(number) => {
                    let (start, end) = groups.get(*number).copied().unwrap_or_default();
                    out.extend_from_slice(&line[start..end]);
                }
            }
        }
    }
}
