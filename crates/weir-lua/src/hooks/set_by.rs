//! `set_by_lua`: a variable's value from a script, among the instructions of `rewrite`.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::{MakeInstruction, PlanBuilder, PlanInstruction};
use weir_engine::variable::{ValueScript, VarIndex, VariableGetter};
use weir_engine::worker::generation::ConfigurationLink;
use weir_engine::{Exchange, Text, Verdict};

use crate::api::arg::SetArgs;
use crate::hooks::phases::ScriptHome;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::phase::ScriptPhase;

/// Where instructions, which are installed before the module, find its VM.
#[derive(Default)]
pub(crate) struct VmSlot(pub(crate) OnceCell<ScriptHome>);

impl VmSlot {
    /// That of a configuration on its worker.
    pub(crate) fn of(link: &ConfigurationLink) -> Rc<VmSlot> {
        let Ok(slot) = link.local(|| Ok::<_, Infallible>(Rc::default()));
        slot
    }
}

/// One line as configured.
struct SetBy {
    variable: VarIndex,
    /// The variable, with its `$`.
    name: Arc<str>,
    source: ScriptSource,
    args: Vec<ValueScript>,
}

/// Reads a line whose first argument is the variable; those from `args` on are the script's.
///
/// # Errors
/// nginx's words for an invalid name, or a variable of a module's own.
pub(crate) fn read(line: &mut LineCx<'_>, source: ScriptSource, args: usize) -> Result {
    let name = match line.arg(0).strip_prefix('$') {
        Some(name) if !name.is_empty() => name,
        _ => return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0)))),
    };
    let variable = line.ext::<ConfRegistry>().define_set(name, VariableGetter::Assigned);
    let variable = variable.map_err(|message| line.fail_arg(0, message))?;
    let args = (args..line.args().len()).map(|at| ValueScript::compile(line, at)).collect::<Result<_>>()?;
    let name = line.arg(0).into();
    line.ext::<ConfRegistry>().instruct(Arc::new(SetBy { variable, name, source, args }));
    Ok(())
}

impl MakeInstruction for SetBy {
    fn install(&self, plan: &PlanBuilder<'_>) -> PlanInstruction {
        let slot = VmSlot::of(plan.link);
        let (variable, args, chunk) =
            (self.variable, self.args.clone(), ScriptChunk::new(self.source.clone()));
        let name = self.name.clone();
        Box::new(move |x| {
            if x.is_rehearsed() {
                x.leave_out(format!("set_by_lua {name}"));
                x.set_variable(variable, Text::EMPTY);
                return Verdict::Declined;
            }
            match value(x, &slot, &chunk, &args) {
                Ok(value) => {
                    x.set_variable(variable, value);
                    Verdict::Declined
                }
                Err(message) => {
                    x.log(LogLevel::Error, &message);
                    Verdict::Status(500)
                }
            }
        })
    }
}

fn value(
    x: &mut Exchange,
    slot: &VmSlot,
    chunk: &ScriptChunk,
    args: &[ValueScript],
) -> std::result::Result<Text, String> {
    let vm = slot.0.get().ok_or("no Lua VM")?.vm(x)?;
    x.state::<SetArgs>().0.clear();
    for arg in args {
        let value = arg.value(x);
        let bytes = x.text(&value).to_vec();
        x.state::<SetArgs>().0.push(bytes);
    }
    vm.value_for(chunk, ScriptPhase::Set, x)
}
