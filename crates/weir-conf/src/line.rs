//! What a setter sees: one line of configuration, and stock setters with nginx's words.

use std::any::Any;
use std::ffi::OsStr;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::{
    Block, BufferSizes, ConfPaths, ConfSource, Contexts, DirectiveLine, Error, RawBlock, Result, Word,
    parse_flag, parse_number, parse_offset, parse_size, parse_time_ms, parse_time_s,
};

/// One line being set, with what surrounds it.
///
/// The stock setters take the slot of the value, `None` while unset, and read the line's first argument unless
/// they say otherwise. Each fails with nginx's words, at the directive or at the argument to blame; a slot filled
/// before is `"x" directive is duplicate`.
pub struct LineCx<'a> {
    line: &'a DirectiveLine,
    here: Contexts,
    source: &'a ConfSource,
    paths: &'a ConfPaths,
    ext: &'a mut (dyn Any + 'static),
    warnings: &'a mut Vec<Error>,
}

impl<'a> LineCx<'a> {
    /// A context for `line`, which is in the block `here`. `ext` is what the caller lends to setters that need
    /// more than the line (registries of variables, expressions, zones), see [`LineCx::ext`].
    pub fn new(
        line: &'a DirectiveLine,
        here: Contexts,
        source: &'a ConfSource,
        paths: &'a ConfPaths,
        ext: &'a mut (dyn Any + 'static),
        warnings: &'a mut Vec<Error>,
    ) -> Self {
        Self { line, here, source, paths, ext, warnings }
    }

    /// The context of the setters for another line: an entry of this line's block, for blocks such as `map` or
    /// `types` whose lines are not directives.
    pub fn entry(&mut self, line: &'a DirectiveLine) -> LineCx<'_> {
        LineCx { line, ext: &mut *self.ext, warnings: &mut *self.warnings, ..*self }
    }

    /// The lines of this line's block, in order; empty without a block.
    ///
    /// # Errors
    /// `unexpected "{"` when one of them has a block itself.
    pub fn entries(&self) -> Result<&'a [DirectiveLine]> {
        let lines = self.line.block.as_ref().map_or(&[][..], |block| &block.lines);
        match lines.iter().find_map(|line| line.block.as_ref()) {
            Some(block) => Err(Error::new("unexpected \"{\"").at(block.open())),
            None => Ok(lines),
        }
    }

    /// The line being set: its name, arguments and block.
    pub fn line(&self) -> &'a DirectiveLine {
        self.line
    }

    /// The block the line is in.
    pub fn here(&self) -> Contexts {
        self.here
    }

    /// The texts of the configuration, to which places refer.
    pub fn source(&self) -> &'a ConfSource {
        self.source
    }

    /// The directories that relative paths start from.
    pub fn paths(&self) -> &'a ConfPaths {
        self.paths
    }

    /// The directive's name.
    pub fn name(&self) -> &'a str {
        self.line.name.str()
    }

    /// The arguments, without the directive's name.
    pub fn args(&self) -> &'a [Word] {
        &self.line.args
    }

    /// The text of argument `i`, from 0; empty when it is not there, which no value but text accepts. For keywords
    /// and messages: see [`Word::str`] on bytes that are not UTF-8.
    pub fn arg(&self, i: usize) -> &'a str {
        self.args().get(i).map_or("", Word::str)
    }

    /// The bytes of argument `i`, from 0; empty when it is not there.
    pub fn bytes(&self, i: usize) -> &'a [u8] {
        self.args().get(i).map_or(b"", Word::bytes)
    }

    /// The block of lines, if there is one.
    pub fn block(&self) -> Option<&'a Block> {
        self.line.block.as_ref()
    }

    /// The raw text of a `*_by_lua_block`, if there is one.
    pub fn raw(&self) -> Option<&'a RawBlock> {
        self.line.raw.as_ref()
    }

    /// What the caller of the setters lends them.
    ///
    /// # Panics
    /// When it is no `T`: the setter belongs to another program than the one that calls it.
    pub fn ext<T: 'static>(&mut self) -> &mut T {
        self.ext.downcast_mut().expect("the caller of this setter lends what its tables ask for")
    }

    /// An error at the directive, with these words.
    pub fn fail(&self, message: impl Into<String>) -> Error {
        Error::new(message).at(self.line.name.span)
    }

    /// An error at the directive, in nginx's frame for what its setters return: `"x" directive is duplicate`.
    pub fn refuse(&self, reason: impl Display) -> Error {
        self.fail(format!("\"{}\" directive {reason}", self.name()))
    }

    /// An error at argument `i`, from 0 (at the directive where that is absent), with these words.
    pub fn fail_arg(&self, i: usize, message: impl Into<String>) -> Error {
        let word = self.args().get(i).unwrap_or(&self.line.name);
        Error::new(message).at(word.span)
    }

    /// The error `"x" directive REASON` at argument `i`, from 0.
    pub fn refuse_arg(&self, i: usize, reason: impl Display) -> Error {
        self.fail_arg(i, format!("\"{}\" directive {reason}", self.name()))
    }

    /// The error `invalid value "y"` at argument `i`, from 0.
    pub fn invalid_value(&self, i: usize) -> Error {
        self.fail_arg(i, format!("invalid value \"{}\"", self.arg(i)))
    }

    /// The error `invalid parameter "y"` at argument `i`, from 0.
    pub fn invalid_parameter(&self, i: usize) -> Error {
        self.fail_arg(i, format!("invalid parameter \"{}\"", self.arg(i)))
    }

    /// The error `invalid parameter "y"` at argument `i`, from 0, where only one of `choices` may be.
    pub fn unknown_parameter<'c>(&self, i: usize, choices: impl Iterator<Item = &'c str> + Clone) -> Error {
        self.invalid_parameter(i).choices(self.arg(i), choices)
    }

    /// Warns at the directive and goes on.
    pub fn warn(&mut self, message: impl Into<String>) {
        self.warnings.push(Error::warning(message).at(self.line.name.span));
    }

    /// As [`LineCx::warn`], of a setting that nginx accepts silently and that is without effect here: programs that
    /// start servers look for warnings in their logs.
    pub fn note(&mut self, message: impl Into<String>) {
        self.warnings.push(Error::notice(message).at(self.line.name.span));
    }

    /// As [`LineCx::warn`], of what should not be in production.
    pub fn alert(&mut self, message: impl Into<String>) {
        self.warnings.push(Error::alert(message).at(self.line.name.span));
    }

    /// Warns at argument `i`, from 0 (at the directive where that is absent); the configuration is still used.
    pub fn warn_arg(&mut self, i: usize, message: impl Into<String>) {
        let span = self.args().get(i).unwrap_or(&self.line.name).span;
        self.warnings.push(Error::warning(message).at(span));
    }

    /// Stores `value` in `slot`.
    ///
    /// # Errors
    /// `"x" directive is duplicate` when the slot is filled.
    pub fn once<T>(&self, slot: &mut Option<T>, value: T) -> Result {
        self.vacant(slot)?;
        *slot = Some(value);
        Ok(())
    }

    /// Reads `on` or `off`, in letters of any case.
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value "y" in "x" directive, it must be "on" or "off"`.
    pub fn flag(&self, slot: &mut Option<bool>) -> Result {
        self.vacant(slot)?;
        let Some(value) = parse_flag(self.bytes(0)) else {
            let (value, name) = (self.arg(0), self.name());
            let message =
                format!("invalid value \"{value}\" in \"{name}\" directive, it must be \"on\" or \"off\"");
            return Err(Error {
                choices: vec!["on".to_owned(), "off".to_owned()],
                ..self.fail_arg(0, message)
            });
        };
        self.once(slot, value)
    }

    /// Reads a decimal number within `range`: `1..=9`, `1..`, `..`.
    ///
    /// # Errors
    /// `is duplicate`, `invalid number`, or `value must be between 1 and 9` (for `1..`: `value must be equal to or
    /// greater than 1`).
    pub fn number<T>(&self, slot: &mut Option<T>, range: impl RangeBounds<T>) -> Result
    where
        T: TryFrom<u64> + PartialOrd + Display,
    {
        self.vacant(slot)?;
        let number = parse_number(self.bytes(0)).ok_or_else(|| self.refuse_arg(0, "invalid number"))?;
        match T::try_from(number) {
            Ok(value) if range.contains(&value) => self.once(slot, value),
            _ => Err(self.fail_arg(0, out_of(&range, self.name()))),
        }
    }

    /// Reads a size, in bytes: digits and an optional unit `k` or `m`, see [`parse_size`].
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value`.
    pub fn size(&self, slot: &mut Option<u64>) -> Result {
        self.parsed(slot, parse_size).map_err(|error| match parse_offset(self.bytes(0)) {
            Some(bytes) if error.span != Some(self.line.name.span) => {
                error.hint(format!("its units are k and m: {}m", bytes >> 20))
            }
            _ => error,
        })
    }

    /// Reads an offset, in bytes: digits and an optional unit `k`, `m` or `g`, see [`parse_offset`].
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value`.
    pub fn offset(&self, slot: &mut Option<u64>) -> Result {
        self.parsed(slot, parse_offset)
    }

    /// Reads a time, in milliseconds; a number without unit is seconds, see [`parse_time_ms`].
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value`.
    pub fn time_ms(&self, slot: &mut Option<u64>) -> Result {
        self.parsed(slot, parse_time_ms)
    }

    /// Reads a time, in whole seconds, see [`parse_time_s`].
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value`.
    pub fn time_s(&self, slot: &mut Option<u64>) -> Result {
        self.parsed(slot, parse_time_s)
    }

    /// Reads a number of buffers and the size of each in bytes from two arguments, as in `gzip_buffers 16 8k`.
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value`, also for 0.
    pub fn bufs(&self, slot: &mut Option<BufferSizes>) -> Result {
        self.vacant(slot)?;
        let positive = |i, value: Option<u64>| {
            value.filter(|&v| v > 0).ok_or_else(|| self.refuse_arg(i, "invalid value"))
        };
        let number = positive(0, parse_number(self.bytes(0)))?;
        let size = positive(1, parse_size(self.bytes(1)))?;
        self.once(slot, BufferSizes { number, size })
    }

    /// Reads one of the named values, in letters of any case.
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value "y"`, with the most similar name as the hint.
    pub fn one_of<E: Copy>(&self, slot: &mut Option<E>, values: &[(&str, E)]) -> Result {
        self.vacant(slot)?;
        let value = self.named(0, values)?;
        self.once(slot, value)
    }

    /// Reads the named bits of all arguments and adds them to those of lines before; a repeated one is a warning.
    ///
    /// # Errors
    /// `invalid value "y"`, with the most similar name as the hint.
    pub fn bits(&mut self, slot: &mut Option<u32>, values: &[(&str, u32)]) -> Result {
        for i in 0..self.args().len() {
            let bit = self.named(i, values)?;
            let bits = slot.get_or_insert(0);
            if *bits & bit != 0 {
                self.warn_arg(i, format!("duplicate value \"{}\"", self.arg(i)));
            }
            *bits |= bit;
        }
        Ok(())
    }

    /// Reads permission bits from arguments such as `user:rw group:r all:r` (`proxy_store_access`): `0o644`. The user
    /// has read and write where `user` is not named.
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value "y"`.
    pub fn access(&self, slot: &mut Option<u32>) -> Result {
        self.vacant(slot)?;
        let (mut user, mut others) = (0o600, 0);
        for i in 0..self.args().len() {
            let (whom, rights) = self.arg(i).split_once(':').ok_or_else(|| self.invalid_value(i))?;
            let bits = match rights {
                "rw" => 6,
                "r" => 4,
                _ => return Err(self.invalid_value(i)),
            };
            match whom {
                "user" => user = bits << 6,
                "group" => others |= bits << 3,
                "all" => others |= bits,
                _ => return Err(self.invalid_value(i)),
            }
        }
        self.once(slot, user | others)
    }

    /// Reads the first argument as it is.
    ///
    /// # Errors
    /// `is duplicate`, or `invalid value "y"` for bytes that `T` can't hold: UTF-8 types refuse others.
    pub fn text<T: TextValue>(&self, slot: &mut Option<T>) -> Result {
        self.vacant(slot)?;
        let value = self.value(0)?;
        self.once(slot, value)
    }

    /// Reads all arguments as they are.
    ///
    /// # Errors
    /// As [`LineCx::text`].
    pub fn list<T: TextValue>(&self, slot: &mut Option<Vec<T>>) -> Result {
        let values = (0..self.args().len()).map(|i| self.value(i)).collect::<Result<_>>()?;
        self.once(slot, values)
    }

    /// Adds the first argument as it is to the values of lines before.
    ///
    /// # Errors
    /// `invalid value "y"` for bytes that `T` can't hold.
    pub fn push<T: TextValue>(&self, slot: &mut Option<Vec<T>>) -> Result {
        slot.get_or_insert_default().push(self.value(0)?);
        Ok(())
    }

    /// Adds a key and a value, the first two arguments, to those of lines before.
    ///
    /// # Errors
    /// `invalid value "y"` for bytes that `K` or `V` can't hold.
    pub fn keyval<K: TextValue, V: TextValue>(&self, slot: &mut Option<Vec<(K, V)>>) -> Result {
        slot.get_or_insert_default().push((self.value(0)?, self.value(1)?));
        Ok(())
    }

    /// Reads a path; one that is not absolute is relative to the prefix (`-p`).
    ///
    /// # Errors
    /// `is duplicate`.
    pub fn path(&self, slot: &mut Option<PathBuf>) -> Result {
        self.once(slot, self.paths.prefix.join(OsStr::from_bytes(self.bytes(0))))
    }

    /// Reads a path; one that is not absolute is relative to the directory of the configuration file.
    ///
    /// # Errors
    /// `is duplicate`.
    pub fn conf_path(&self, slot: &mut Option<PathBuf>) -> Result {
        self.once(slot, self.paths.conf_prefix.join(OsStr::from_bytes(self.bytes(0))))
    }

    fn vacant<T>(&self, slot: &Option<T>) -> Result {
        if slot.is_some() { Err(self.refuse("is duplicate")) } else { Ok(()) }
    }

    fn parsed(&self, slot: &mut Option<u64>, parse: fn(&[u8]) -> Option<u64>) -> Result {
        self.vacant(slot)?;
        let value = parse(self.bytes(0)).ok_or_else(|| self.refuse_arg(0, "invalid value"))?;
        self.once(slot, value)
    }

    fn named<E: Copy>(&self, i: usize, values: &[(&str, E)]) -> Result<E> {
        let same = |(name, _): &&(&str, E)| name.as_bytes().eq_ignore_ascii_case(self.bytes(i));
        if let Some((_, value)) = values.iter().find(same) {
            return Ok(*value);
        }
        Err(self.invalid_value(i).choices(self.arg(i), values.iter().map(|(name, _)| *name)))
    }

    fn value<T: TextValue>(&self, i: usize) -> Result<T> {
        T::from_bytes(self.bytes(i)).ok_or_else(|| self.invalid_value(i).hint("it is not UTF-8"))
    }
}

/// Types that text may be stored as. nginx's text is bytes; types that want UTF-8 refuse others.
pub trait TextValue: Sized {
    /// The value of these bytes, or `None` if it cannot be.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl TextValue for Vec<u8> {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl TextValue for Box<[u8]> {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytes.into())
    }
}

impl TextValue for String {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(Self::from)
    }
}

impl TextValue for Box<str> {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(Self::from)
    }
}

/// nginx's words for a number outside of its bounds.
fn out_of<T: Display>(range: &impl RangeBounds<T>, name: &str) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(low), Bound::Included(high)) => format!("value must be between {low} and {high}"),
        (Bound::Included(low), Bound::Unbounded) => format!("value must be equal to or greater than {low}"),
        _ => format!("\"{name}\" directive invalid number"),
    }
}
