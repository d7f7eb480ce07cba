//! The settings of the `*_by_lua*` and `lua_*` directives.

use std::path::Path;
use std::sync::Arc;

use weir_conf::{LineCx, Result, Span};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::ValueScript;
use weir_engine::zone::{SharedZone, SharedZones};

use crate::api::socket::SocketConf;
use crate::dict::DICTIONARY;
use crate::hooks::balancer;
use crate::hooks::set_by;
use crate::hooks::tls::clients::HandshakeSources;
use crate::run::settings::ScriptSettings;
use crate::vm::chunk::{self, ScriptCode, ScriptSource};
use crate::vm::phase::ScriptPhase;
use crate::vm::settings::{OpensslPlace, VmSettings};

/// The settings of one block.
#[derive(Default)]
pub struct LuaConf {
    pub(crate) main: VmSettings,
    /// The block has `set_by_lua`.
    pub(crate) sets: bool,
    pub(crate) server_rewrite: Option<ScriptSource>,
    pub(crate) rewrite: Option<ScriptSource>,
    pub(crate) access: Option<ScriptSource>,
    pub(crate) precontent: Option<ScriptSource>,
    /// Of `stream`.
    pub(crate) preread: Option<ScriptSource>,
    pub(crate) content: Option<ScriptSource>,
    pub(crate) header_filter: Option<ScriptSource>,
    pub(crate) body_filter: Option<ScriptSource>,
    pub(crate) log: Option<ScriptSource>,
    /// Scripts of handshakes.
    pub(crate) secure: HandshakeSources,
    pub(crate) need_body: Option<bool>,
    pub(crate) use_default_type: Option<bool>,
    pub(crate) code_cache: Option<bool>,
    pub(crate) check_client_abort: Option<bool>,
    pub(crate) http10_buffering: Option<bool>,
    pub(crate) underscores: Option<bool>,
    pub(crate) ctx_keep: Option<bool>,
    pub(crate) sockets: SocketConf,
    /// Without effect, as in OpenResty: its functions are always there.
    load_resty_core: Option<bool>,
    /// As if it was always on: workers learn of signals without handlers that interrupt calls.
    sa_restart: Option<bool>,
}

fn is_libcrypto(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"libcrypto")
}

/// Whether the alert about `lua_code_cache off` was given.
#[derive(Default)]
struct UncachedAlert(bool);

impl LuaConf {
    /// The place of a phase's script.
    pub(crate) fn slot(&mut self, phase: ScriptPhase) -> &mut Option<ScriptSource> {
        match phase {
            ScriptPhase::Init => &mut self.main.init,
            ScriptPhase::InitWorker => &mut self.main.init_worker,
            ScriptPhase::ExitWorker => &mut self.main.exit_worker,
            ScriptPhase::ServerRewrite => &mut self.server_rewrite,
            ScriptPhase::Rewrite => &mut self.rewrite,
            ScriptPhase::Access => &mut self.access,
            ScriptPhase::Precontent => &mut self.precontent,
            ScriptPhase::Preread => &mut self.preread,
            ScriptPhase::HeaderFilter => &mut self.header_filter,
            ScriptPhase::BodyFilter => &mut self.body_filter,
            ScriptPhase::Log => &mut self.log,
            ScriptPhase::SslClientHello => &mut self.secure.client_hello,
            ScriptPhase::SslCertificate => &mut self.secure.certificate,
            ScriptPhase::SslSessionFetch => &mut self.secure.session_fetch,
            ScriptPhase::SslSessionStore => &mut self.secure.session_store,
            ScriptPhase::ProxySslCertificate => &mut self.secure.shown,
            ScriptPhase::ProxySslVerify => &mut self.secure.verify,
            _ => &mut self.content,
        }
    }

    /// Whether the block has a script that runs for its requests.
    pub(crate) fn has_scripts(&self) -> bool {
        let scripts = [
            &self.server_rewrite,
            &self.rewrite,
            &self.access,
            &self.precontent,
            &self.preread,
            &self.content,
            &self.header_filter,
            &self.body_filter,
            &self.log,
        ];
        self.sets
            || self.secure.are_for_clients()
            || self.secure.are_for_servers()
            || scripts.iter().any(|source| source.is_some())
    }

    /// `lua_code_cache on|off`
    pub(crate) fn code_cache(&mut self, line: &mut LineCx<'_>) -> Result {
        line.flag(&mut self.code_cache)?;
        if self.code_cache == Some(false) {
            self.uncached(line);
        }
        Ok(())
    }

    /// Said once, however many blocks turn the cache off.
    fn uncached(&self, line: &mut LineCx<'_>) {
        if !std::mem::replace(&mut line.ext::<ConfRegistry>().shared::<UncachedAlert>().0, true) {
            let of_stream = line.ext::<ConfRegistry>().is_stream;
            let whose = if of_stream { "stream " } else { "" };
            line.alert(format!("{whose}lua_code_cache is off; this will hurt performance"));
        }
    }

    /// `lua_sa_restart on|off`
    pub(crate) fn sa_restart(&mut self, line: &mut LineCx<'_>) -> Result {
        line.flag(&mut self.sa_restart)?;
        if self.sa_restart == Some(false) {
            line.note("lua_sa_restart off has no effect, signals never interrupt system calls of scripts");
        }
        Ok(())
    }

    /// `weir_openssl system|off|path`
    pub(crate) fn openssl(&mut self, line: &mut LineCx<'_>) -> Result {
        let place = match line.arg(0) {
            "system" => OpensslPlace::System,
            "off" => OpensslPlace::Off,
            path if Path::new(path).file_name().is_some_and(is_libcrypto) => {
                OpensslPlace::File(path.to_owned())
            }
            path => {
                let why = format!(
                    "invalid value \"{path}\" in \"weir_openssl\" directive, it must be \"system\", \"off\" or the path of a libcrypto"
                );
                return Err(line.fail_arg(0, why));
            }
        };
        line.once(&mut self.main.openssl, place)
    }

    /// `lua_capture_error_log size`
    pub(crate) fn capture_error_log(&mut self, line: &mut LineCx<'_>) -> Result {
        let wrong = |why: &str| format!("invalid capture error log size \"{}\"{why}", line.arg(0));
        let size = weir_conf::parse_size(line.bytes(0)).and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| line.fail_arg(0, wrong("")))?;
        if size < LEAST_CAPTURED {
            return Err(line.fail_arg(0, wrong(&format!(", minimum size is {LEAST_CAPTURED}"))));
        }
        line.once(&mut self.main.captured, size)
    }

    /// `lua_load_resty_core on|off`
    pub(crate) fn load_resty_core(&mut self, line: &mut LineCx<'_>) -> Result {
        line.flag(&mut self.load_resty_core)?;
        line.warn("lua_load_resty_core is deprecated (the lua-resty-core library is required since ngx_lua v0.10.16)");
        Ok(())
    }

    /// What the block says about its scripts.
    pub(crate) fn settings(&self) -> ScriptSettings {
        let unsaid = ScriptSettings::default();
        ScriptSettings {
            need_body: self.need_body.unwrap_or(unsaid.need_body),
            use_default_type: self.use_default_type.unwrap_or(unsaid.use_default_type),
            code_cache: self.code_cache.unwrap_or(unsaid.code_cache),
            check_client_abort: self.check_client_abort.unwrap_or(unsaid.check_client_abort),
            http10_buffering: self.http10_buffering.unwrap_or(unsaid.http10_buffering),
            underscores: self.underscores.unwrap_or(unsaid.underscores),
            ctx_keep: self.ctx_keep.unwrap_or(unsaid.ctx_keep),
        }
    }

    /// `x_by_lua_block { code }`
    pub(crate) fn block(&mut self, line: &mut LineCx<'_>, phase: ScriptPhase) -> Result {
        let source = source(line, phase, block_of(line));
        self.set_script(line, phase, source)
    }

    /// `balancer_by_lua_block { code }`
    pub(crate) fn balancer_block(line: &mut LineCx<'_>) -> Result {
        let source = source(line, ScriptPhase::Balancer, block_of(line));
        balancer::read(line, source)
    }

    /// `balancer_by_lua 'code'`
    pub(crate) fn balancer_inline(line: &mut LineCx<'_>) -> Result {
        let source = source(line, ScriptPhase::Balancer, ScriptCode::Inline(line.bytes(0).to_vec()));
        balancer::read(line, source)
    }

    /// `balancer_by_lua_file path`
    pub(crate) fn balancer_file(line: &mut LineCx<'_>) -> Result {
        let code = file_of(line, 0)?;
        let source = source(line, ScriptPhase::Balancer, code);
        balancer::read(line, source)
    }

    /// `x_by_lua 'code'`
    pub(crate) fn inline(&mut self, line: &mut LineCx<'_>, phase: ScriptPhase) -> Result {
        let source = source(line, phase, ScriptCode::Inline(line.bytes(0).to_vec()));
        self.set_script(line, phase, source)
    }

    fn set_script(&mut self, line: &mut LineCx<'_>, phase: ScriptPhase, source: ScriptSource) -> Result {
        if phase == ScriptPhase::Content {
            line.ext::<ConfRegistry>().claim_content(ScriptPhase::Content.label());
        }
        line.once(self.slot(phase), source)
    }

    /// `x_by_lua_file path`
    pub(crate) fn file(&mut self, line: &mut LineCx<'_>, phase: ScriptPhase) -> Result {
        let code = file_of(line, 0)?;
        let source = source(line, phase, code);
        self.set_script(line, phase, source)
    }

    /// `set_by_lua_block $variable { code }`
    pub(crate) fn set_block(&mut self, line: &mut LineCx<'_>) -> Result {
        self.sets = true;
        let source = source(line, ScriptPhase::Set, block_of(line));
        set_by::read(line, source, 1)
    }

    /// `set_by_lua $variable 'code' argument…`
    pub(crate) fn set_inline(&mut self, line: &mut LineCx<'_>) -> Result {
        self.sets = true;
        let source = source(line, ScriptPhase::Set, ScriptCode::Inline(line.bytes(1).to_vec()));
        set_by::read(line, source, 2)
    }

    /// `set_by_lua_file $variable path argument…`
    pub(crate) fn set_file(&mut self, line: &mut LineCx<'_>) -> Result {
        self.sets = true;
        let code = file_of(line, 1)?;
        let source = source(line, ScriptPhase::Set, code);
        set_by::read(line, source, 2)
    }

    /// `lua_shared_dict name size`
    pub(crate) fn dict(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = line.arg(0).to_owned();
        if name.is_empty() {
            return Err(line.fail_arg(0, "invalid lua shared dict name \"\""));
        }
        let size = weir_conf::parse_size(line.bytes(1))
            .filter(|size| *size > 8191)
            .ok_or_else(|| line.fail_arg(1, format!("invalid lua shared dict size \"{}\"", line.arg(1))))?;
        if self.main.dicts.iter().any(|zone| *zone.name == *name) {
            return Err(
                line.fail_arg(0, format!("lua_shared_dict \"{name}\" is already defined as \"{name}\""))
            );
        }
        let zone = zone(line.ext(), &name, size).map_err(|message| line.fail_arg(0, message))?;
        self.main.dicts.push(zone);
        Ok(())
    }

    /// `lua_add_variable $name`
    pub(crate) fn add_variable(line: &mut LineCx<'_>) -> Result {
        let Some(name) = line.arg(0).strip_prefix('$').map(str::to_owned) else {
            return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0))));
        };
        // One that is there already stays what it is.
        let _known = line.ext::<ConfRegistry>().define_assigned(&name);
        Ok(())
    }
}

/// The zone of a dictionary. One that `stream` declares is that of the same name in `http`, if there is one.
fn zone(registry: &mut ConfRegistry, name: &str, size: u64) -> std::result::Result<Arc<SharedZone>, String> {
    let around = registry.around::<SharedZones>();
    let known = around.and_then(|zones| zones.of(DICTIONARY).find(|zone| *zone.name == *name));
    let Some(known) = known else {
        let zone = registry.shared::<SharedZones>().named(DICTIONARY, name)?;
        return zone.declare(size, "", ()).map(|()| zone);
    };
    match known.size() == Some(size) {
        true => Ok(known.clone()),
        // Of a zone that has another size this is the error.
        false => known.declare(size, "", ()).map(|()| known.clone()),
    }
}

/// The smallest `lua_capture_error_log`, bytes.
const LEAST_CAPTURED: usize = 4096;

fn block_of(line: &LineCx<'_>) -> ScriptCode {
    ScriptCode::Inline(line.raw().map(|raw| raw.text.clone()).unwrap_or_default())
}

fn file_of(line: &mut LineCx<'_>, at: usize) -> Result<ScriptCode> {
    let path = ValueScript::compile(line, at)?;
    Ok(ScriptCode::File(path, line.paths().prefix.clone()))
}

/// A script that begins in this line.
fn source(line: &LineCx<'_>, phase: ScriptPhase, code: ScriptCode) -> ScriptSource {
    // As OpenResty counts: a block begins where it begins, code in quotes where its line ends.
    let span = match line.raw() {
        Some(_) => line.line().name.span,
        None => line
            .args()
            .last()
            .map_or(line.line().name.span, |last| Span { start: last.span.end, ..last.span }),
    };
    let place = line.source().place(span);
    let (path, at) = place.map_or((Path::new(""), 0), |place| (place.path, place.line as usize));
    let file = path.display().to_string();
    // Files below the configuration's directory are named from there.
    let named = path.strip_prefix(&line.paths().conf_prefix).unwrap_or(path).display().to_string();
    // Code in quotes is named after its last line.
    let lines = match (&code, line.raw()) {
        (ScriptCode::Inline(text), None) => text.iter().filter(|byte| **byte == b'\n').count(),
        _ => 0,
    };
    ScriptSource { name: chunk::name(phase, &named, at), place: (file, at.saturating_sub(lines)), code }
}
