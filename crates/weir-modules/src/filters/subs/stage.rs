//! Texts that are replaced one after the other, wherever lines end: each streams what the one before gives.

use std::rc::Rc;

use weir_engine::body::BodyChain;

use super::value::ReplacementValue;
use crate::filters::sub::replace::TextReplacer;

/// One text of a body.
pub(crate) struct SubsStage {
    input: BodyChain,
    replacer: TextReplacer,
    value: ReplacementValue,
}

impl SubsStage {
    /// For one body.
    pub(crate) fn new(replacer: TextReplacer, value: ReplacementValue) -> SubsStage {
        SubsStage { input: BodyChain::default(), replacer, value }
    }

    fn waits(&self) -> bool {
        !self.input.is_empty() || self.replacer.is_full()
    }
}

/// Lets `input` pass all `stages`, or as much of it as there is room for, which is `false`. `compute` gives the value
/// of a stage's part.
pub(crate) fn step(
    stages: &mut [SubsStage],
    input: &mut BodyChain,
    output: &mut BodyChain,
    compute: &mut dyn FnMut(usize, usize) -> Rc<[u8]>,
) -> bool {
    // What waits in the middle goes first, so that no more gathers there.
    let from = stages.iter().rposition(SubsStage::waits).unwrap_or(0);
    let mut done = from == 0;
    let mut pass = BodyChain::default();
    if from == 0 {
        pass.append(input);
    }
    for (at, stage) in stages.iter_mut().enumerate().skip(from) {
        stage.input.append(&mut pass);
        let value = &mut stage.value;
        let mut text = |_| value.text(&mut |part| compute(at, part));
        done &= stage.replacer.step(&mut stage.input, &mut pass, &mut text);
    }
    output.append(&mut pass);
    done
}
