//! `match NAME { }`: what the response to a check must be for its server to be well (the block of nginx's commercial
//! version): its status, fields of its head, the beginning of its body.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use weir_conf::{Error, LineCx, Result, Span};

use crate::health;
use crate::health::http_check::HttpCheckResult;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::regex::{LetterCase, RegexPattern};

/// The `match` blocks of a configuration, by name; checks may name one that comes later.
#[derive(Debug, Default)]
pub(crate) struct MatchBlocks {
    known: HashMap<Box<str>, Arc<OnceLock<MatchRules>>>,
    /// Where checks name them.
    wanted: Vec<(Box<str>, Span)>,
}

impl MatchBlocks {
    /// The block `name`, which a check names at `span`.
    pub(crate) fn want(&mut self, name: &str, span: Span) -> Arc<OnceLock<MatchRules>> {
        self.wanted.push((name.into(), span));
        self.known.entry(name.into()).or_default().clone()
    }

    /// An error for each block that is named and not there.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Error> {
        let missing =
            |(name, _): &&(Box<str>, Span)| self.known.get(name).is_none_or(|slot| slot.get().is_none());
        let error = |(name, span): &(Box<str>, Span)| {
            Error::new(format!("match \"{name}\" is not defined")).at(*span)
        };
        self.wanted.iter().filter(missing).map(error)
    }
}

/// `match name { ... }`
pub(crate) fn define(line: &mut LineCx<'_>) -> Result {
    let mut matching = MatchRules::default();
    for entry in line.entries()? {
        matching.entry(&mut line.entry(entry))?;
    }
    let name = line.arg(0).to_owned();
    let registry: &mut ConfRegistry = line.ext();
    let slot = registry.shared::<MatchBlocks>().known.entry(name.as_str().into()).or_default().clone();
    slot.set(matching).map_err(|_| line.fail_arg(0, format!("duplicate match \"{name}\"")))
}

/// What one `match` block says; all of it must hold.
#[derive(Default)]
pub(crate) struct MatchRules {
    /// The statuses, or those that are not among them.
    status: Option<(WantedHeader, Vec<(u16, u16)>)>,
    headers: Vec<(Box<str>, WantedHeader, MatchValue)>,
    body: Vec<(WantedHeader, Arc<RegexPattern>)>,
}

/// Whether a rule wants it so, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedHeader {
    Yes,
    No,
}

impl WantedHeader {
    fn is(self, found: bool) -> bool {
        found == (self == WantedHeader::Yes)
    }
}

/// What a field of the head is compared to.
enum MatchValue {
    /// It is there.
    Any,
    Text(Box<[u8]>),
    Pattern(Arc<RegexPattern>),
}

impl fmt::Debug for MatchRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matching").field("status", &self.status).finish_non_exhaustive()
    }
}

impl MatchRules {
    fn entry(&mut self, line: &mut LineCx<'_>) -> Result {
        match line.line().name.str() {
            "status" => self.add_status(line),
            "header" => self.add_header(line),
            "body" => self.add_body(line),
            name => Err(line.fail(format!("unknown directive \"{name}\" in \"match\""))),
        }
    }

    /// `status 200 301-303`, `status ! 500`
    fn add_status(&mut self, line: &LineCx<'_>) -> Result {
        let negated = line.args().first().is_some_and(|word| word.is("!"));
        let from = usize::from(negated);
        if self.status.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        if line.args().len() <= from {
            return Err(count(line));
        }
        let statuses = (from..line.args().len())
            .map(|at| health::statuses(line.arg(at)).ok_or_else(|| line.invalid_parameter(at)))
            .collect::<Result<Vec<_>>>()?;
        self.status = Some((if negated { WantedHeader::No } else { WantedHeader::Yes }, statuses));
        Ok(())
    }

    /// `header name`, `header ! name`, `header name =|!=|~|!~ value`
    fn add_header(&mut self, line: &mut LineCx<'_>) -> Result {
        let words: Vec<String> = (0..line.args().len()).map(|at| line.arg(at).to_owned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, wanted, value) = match words[..] {
            [name] => (name, WantedHeader::Yes, MatchValue::Any),
            ["!", name] => (name, WantedHeader::No, MatchValue::Any),
            [name, operator, value] => {
                let value = match operator {
                    "=" | "!=" => MatchValue::Text(value.as_bytes().into()),
                    "~" | "!~" => {
                        MatchValue::Pattern(RegexPattern::compile(line, 2, 0, LetterCase::Distinct)?)
                    }
                    _ => return Err(line.invalid_parameter(1)),
                };
                (name, if operator.starts_with('!') { WantedHeader::No } else { WantedHeader::Yes }, value)
            }
            _ => return Err(count(line)),
        };
        self.headers.push((name.into(), wanted, value));
        Ok(())
    }

    /// `body ~ pattern`, `body !~ pattern`
    fn add_body(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.args().len() != 2 {
            return Err(count(line));
        }
        let wanted = match line.arg(0) {
            "~" => WantedHeader::Yes,
            "!~" => WantedHeader::No,
            _ => return Err(line.invalid_parameter(0)),
        };
        let pattern = RegexPattern::compile(line, 1, 0, LetterCase::Distinct)?;
        self.body.push((wanted, pattern));
        Ok(())
    }

    /// Whether the body must be read.
    pub(crate) fn needs_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// Whether it has to say of the status what is good.
    pub(crate) fn status(&self, status: u16) -> bool {
        let Some((wanted, statuses)) = &self.status else { return true };
        wanted.is(statuses.iter().any(|(from, to)| (*from..=*to).contains(&status)))
    }

    /// What of a response whose status is good is not as it should be.
    ///
    /// # Errors
    /// For people: which rule does not hold.
    pub(crate) fn judge(&self, answer: &HttpCheckResult) -> std::result::Result<(), String> {
        for (name, wanted, value) in &self.headers {
            let mut found = false;
            for value_found in answer.values(name) {
                found |= match value {
                    MatchValue::Any => true,
                    MatchValue::Text(text) => value_found == &**text,
                    MatchValue::Pattern(pattern) => is_match(pattern, value_found)?,
                };
            }
            if !wanted.is(found) {
                return Err(format!("the header \"{name}\" did not match"));
            }
        }
        for (wanted, pattern) in &self.body {
            if !wanted.is(is_match(pattern, &answer.body)?) {
                return Err("the body did not match".to_owned());
            }
        }
        Ok(())
    }
}

/// Whether `pattern` matches; one that is given up, whether it must match or must not, is a reason to call the server
/// unwell. The subject may be a whole body, so it is not shown.
fn is_match(pattern: &RegexPattern, subject: &[u8]) -> std::result::Result<bool, String> {
    pattern.is_match(subject).map_err(|error| pattern.explain(b"...", error))
}

fn count(line: &LineCx<'_>) -> Error {
    line.fail(format!("invalid number of parameters in \"{}\"", line.line().name.str()))
}
