//! Names for addresses.

pub(crate) mod maps;
pub(crate) mod process;

use crate::stacks::StackFrame;

pub use process::ProcessSymbols;

/// Gives the frames of a sampled address their names, in the process of the command: the server ships addresses.
pub(crate) trait SymbolSource {
    /// Adds the frames that are at `address`, outermost first: a function and what was inlined into it.
    fn frames(&mut self, address: u64, out: &mut Vec<StackFrame>);
}

/// Addresses as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BareAddresses;

impl SymbolSource for BareAddresses {
    fn frames(&mut self, address: u64, out: &mut Vec<StackFrame>) {
        out.push(StackFrame { name: format!("{address:#x}"), ..StackFrame::default() });
    }
}
