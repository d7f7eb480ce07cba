//! Compiles the patterns of a configuration, whose named groups are variables.

use std::sync::Arc;

use weir_conf::{ConfSource, Error, FileId, LineCx};
use weir_sys::regex::{Regex, RegexFlags};

use super::registry::ConfRegistry;
use crate::regex::{LetterCase, RegexPattern};

impl RegexPattern {
    /// Compiles argument `argument` of `line` from byte `skip` on.
    ///
    /// # Errors
    /// PCRE's message in nginx's words, or a named group whose name is taken by a module's variable.
    pub fn compile(
        line: &mut LineCx<'_>,
        argument: usize,
        skip: usize,
        letters: LetterCase,
    ) -> Result<Arc<RegexPattern>, Error> {
        let word = line.args().get(argument).unwrap_or(&line.line().name);
        RegexPattern::compile_text(line, word.span, word.bytes().get(skip..).unwrap_or_default(), letters)
    }

    /// Compiles `source`, which is at `span` of `line`'s file.
    ///
    /// # Errors
    /// As [`RegexPattern::compile`].
    pub fn compile_text(
        line: &mut LineCx<'_>,
        span: weir_conf::Span,
        source: &[u8],
        letters: LetterCase,
    ) -> Result<Arc<RegexPattern>, Error> {
        let caseless = letters == LetterCase::Ignored;
        let flags = RegexFlags { caseless, ..RegexFlags::default() };
        let regex = Regex::new(source, flags).map_err(|error| Error::new(error.to_string()).at(span))?;
        let files = line.source();
        let registry: &mut ConfRegistry = line.ext();
        let place = registry.shared::<PatternPlaces>().place(files, span);
        let mut named = Vec::new();
        for (name, group) in regex.names() {
            match registry.define_assigned(&name) {
                Ok(index) => named.push((index, group)),
                Err(message) => return Err(Error::new(message).at(span)),
            }
        }
        let text = String::from_utf8_lossy(source).into_owned();
        Ok(Arc::new(RegexPattern { regex, text, caseless, named, place }))
    }
}

/// File and line of patterns, which are compiled in the order in which they are written: lines are counted on from the
/// pattern before, since a large file may hold thousands.
#[derive(Default)]
struct PatternPlaces {
    file: FileId,
    offset: usize,
    line: usize,
}

impl PatternPlaces {
    /// `FILE:LINE`; empty for a text that is in no file.
    fn place(&mut self, source: &ConfSource, span: weir_conf::Span) -> Box<str> {
        let Some(file) = source.file(span.file) else { return Box::default() };
        let start = (span.start as usize).min(file.text.len());
        if self.line == 0 || self.file != span.file || self.offset > start {
            *self = PatternPlaces { file: span.file, offset: 0, line: 1 };
        }
        self.line += memchr::memchr_iter(b'\n', &file.text[self.offset..start]).count();
        self.offset = start;
        format!("{}:{}", file.path.display(), self.line).into()
    }
}
