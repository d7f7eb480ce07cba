//! `auth_request`: lets a subrequest decide about access: 2xx allows it, 401 and 403 deny it with that status, any
//! other status is an error (nginx's `ngx_http_auth_request_module`).

use weir_conf::names::{ANY, ONE, TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::subrequest::{CapturedResponse, SubrequestOptions};
use weir_engine::variable::{ValueScript, VarIndex};
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict, inherit};
use weir_http::KnownField;

use crate::support::value::WorkerValue;

/// The module `auth_request`.
pub struct AuthRequest;

impl Module for AuthRequest {
    const NAME: &'static str = "auth_request";
    type Conf = AuthRequestConf;
    const DIRECTIVES: &'static [Directive<AuthRequestConf>] = &[
        Directive::new("auth_request", ANY, ONE, AuthRequestConf::set_uri)
            .syntax("auth_request uri | off")
            .default("off")
            .doc(
                "Authorizes a request by a subrequest to this URI: 2xx allows access, 401 and \
                 403 deny it with that status, any other status is an error (500). `off` \
                 cancels an inherited setting.",
            )
            .example(
                "location /private/ {\n\
                 \x20   auth_request /auth;\n\
                 }\n\
                 location = /auth {\n\
                 \x20   internal;\n\
                 \x20   proxy_pass http://127.0.0.1:9000;\n\
                 \x20   proxy_pass_request_body off;\n\
                 }",
            ),
        Directive::new("auth_request_set", ANY, TWO, AuthRequestConf::set_variable)
            .syntax("auth_request_set $variable value")
            .doc(
                "Sets a variable after the authorization subrequest completes; the value may \
                 contain the subrequest's variables, such as `$upstream_http_*`.",
            ),
    ];

    fn inherit(conf: &mut AuthRequestConf, parent: &AuthRequestConf) {
        inherit!(conf, parent, uri, variables);
    }

    fn install(conf: &AuthRequestConf, plan: &mut PlanBuilder<'_>) {
        if let Some(uri) = conf.uri.as_ref().filter(|uri| !uri.is_empty()) {
            let written = conf.variables.as_deref().unwrap_or_default();
            let variables =
                written.iter().map(|(variable, value)| (*variable, WorkerValue::new(value))).collect();
            plan.handler(Phase::Access, Self::NAME, AuthSubrequest { uri: uri.as_slice().into(), variables });
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct AuthRequestConf {
    /// Empty for `off`.
    uri: Option<Vec<u8>>,
    variables: Option<Vec<(VarIndex, ValueScript)>>,
}

impl AuthRequestConf {
    fn set_uri(&mut self, line: &mut LineCx<'_>) -> Result {
        let uri = if line.bytes(0) == b"off" { b"" } else { line.bytes(0) };
        line.once(&mut self.uri, uri.to_vec())
    }

    /// `auth_request_set $variable value`
    fn set_variable(&mut self, line: &mut LineCx<'_>) -> Result {
        let Some(name) = line.arg(0).strip_prefix('$') else {
            return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0))));
        };
        let variable = line.ext::<ConfRegistry>().define_assigned(name);
        let variable = variable.map_err(|message| line.fail_arg(0, message))?;
        let value = ValueScript::compile(line, 1)?;
        self.variables.get_or_insert_default().push((variable, value));
        Ok(())
    }
}

struct AuthSubrequest {
    uri: Box<[u8]>,
    variables: Box<[(VarIndex, WorkerValue)]>,
}

impl Handler for AuthSubrequest {
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.ask(x))
    }
}

impl AuthSubrequest {
    async fn ask(&self, x: &mut Exchange) -> Verdict {
        let options = SubrequestOptions { head_only: true, ..SubrequestOptions::default() };
        let values = |child: &mut Exchange| -> Vec<Text> {
            self.variables.iter().map(|(_, value)| value.get(child)).collect()
        };
        let Some((captured, values)) = x.subrequest_then(&self.uri, None, options, values).await else {
            return Verdict::Status(500);
        };
        for ((variable, _), value) in self.variables.iter().zip(values) {
            x.set_variable(*variable, value);
        }
        decide(x, &captured)
    }
}

fn decide(x: &mut Exchange, captured: &CapturedResponse) -> Verdict {
    match captured.status {
        200..=299 => Verdict::Ok,
        403 => Verdict::Status(403),
        401 => {
            let name = KnownField::WwwAuthenticate.name().as_bytes();
            for (_, value) in captured.headers.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)) {
                let challenge = x.arena.push(value);
                x.response.add(KnownField::WwwAuthenticate, challenge);
            }
            Verdict::Status(401)
        }
        status => {
            x.log_error(&format_args!("auth request unexpected status: {status}"));
            Verdict::Status(500)
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::{ModuleDef, conf};

    use super::*;
    use crate::testing::{WITH_ONE, asked, decided, whole_core_and};

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<AuthRequest>();

    #[test]
    fn only_2xx_lets_in() {
        for (status, verdict) in [
            (199, "Status(500)"),
            (200, "Ok"),
            (299, "Ok"),
            (300, "Status(500)"),
            (401, "Status(401)"),
            (402, "Status(500)"),
            (403, "Status(403)"),
            (404, "Status(500)"),
            (444, "Status(500)"),
            (500, "Status(500)"),
            (0, "Status(500)"),
        ] {
            let captured = CapturedResponse { status, ..CapturedResponse::default() };
            let found = asked(&WHOLE, "server { }", ("/", ""), |x| format!("{:?}", decide(x, &captured)));
            assert_eq!(found, verdict, "{status}");
        }
    }

    #[test]
    fn challenges_are_taken_over_with_401_alone() {
        let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let headers = vec![field("www-authenticate", "Basic"), field("X-Other", "x")];
        for (status, expected) in [(401, Some("Basic")), (403, None), (500, None)] {
            let captured =
                CapturedResponse { status, headers: headers.clone(), ..CapturedResponse::default() };
            asked(&WHOLE, "server { }", ("/", ""), |x| {
                decide(x, &captured);
                let challenge = x.response.header(KnownField::WwwAuthenticate).cloned();
                let found = challenge.map(|text| x.text(&text).to_vec());
                assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{status}");
            });
        }
    }

    #[test]
    fn a_location_asks_unless_it_is_off() {
        for (http, verdict) in [
            ("server { auth_request /auth; }", "Wait"),
            ("auth_request /auth; server { }", "Wait"),
            ("auth_request /auth; server { auth_request off; }", "Declined"),
            ("server { }", "Declined"),
        ] {
            assert_eq!(asked(&WHOLE, http, ("/", ""), |x| decided(x, Phase::Access)), verdict, "{http}");
        }
        let text = "events { } http { server { auth_request_set x y; } }";
        assert!(conf::test::headlines(text, &WHOLE)[0].starts_with("invalid variable name \"x\""));
    }
}
