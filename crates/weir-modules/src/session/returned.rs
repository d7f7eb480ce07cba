//! `stream_return`: sends the client a value and closes the connection (nginx's `ngx_stream_return_module`).

use weir_conf::names::{ONE, STREAM_SERVER};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Verdict};

/// The module `stream_return`.
pub struct StreamReturn;

impl Module for StreamReturn {
    const NAME: &'static str = "stream_return";
    type Conf = StreamReturnConf;
    const DIRECTIVES: &'static [Directive<StreamReturnConf>] = &[Directive::new(
        "return",
        STREAM_SERVER,
        ONE,
        StreamReturnConf::set,
    )
    .syntax("return value")
    .doc("Sends the value, which may contain text and variables, to the client and closes the connection.")
    .example("stream {\n    server {\n        listen 12345;\n        return $time_iso8601;\n    }\n}")];

    fn install(conf: &StreamReturnConf, plan: &mut PlanBuilder<'_>) {
        if let Some(value) = &conf.value {
            plan.content(Self::NAME, ValueSender(value.clone()));
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct StreamReturnConf {
    value: Option<ValueScript>,
}

impl StreamReturnConf {
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let value = ValueScript::compile(line, 0)?;
        line.ext::<ConfRegistry>().claim_content(StreamReturn::NAME);
        line.once(&mut self.value, value)
    }
}

struct ValueSender(ValueScript);

impl Handler for ValueSender {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let value = self.0.value(x);
        let Some(client) = x.transport.client() else { return Verdict::Status(500) };
        let bytes = x.text(&value);
        if !bytes.is_empty() {
            client.pass(bytes.to_vec());
        }
        Verdict::Done
    }
}
