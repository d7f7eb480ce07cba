//! The request that a plan is asked about: a URL as a browser has it, made into a request head.

use std::net::{IpAddr, SocketAddr};

use weir_rt::SockAddr;

/// A request that a plan is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlanRequest {
    /// The method, as it is sent.
    pub(crate) method: String,
    /// It comes over TLS.
    pub(crate) tls: bool,
    /// The host without port, as a name in a handshake has it.
    pub(crate) host: String,
    /// What `Host` says; empty: there is no such field.
    pub(crate) authority: String,
    /// The port it comes to; `None`: whichever there is.
    pub(crate) port: Option<u16>,
    /// Path and arguments, as sent.
    pub(crate) target: String,
    /// Fields, each `Name: value`.
    pub(crate) fields: Vec<String>,
    /// The client's address.
    pub(crate) client: SockAddr,
    /// The address it comes to, as a `listen` has it; `None`: the one that fits the URL.
    pub(crate) listen: Option<String>,
}

impl PlanRequest {
    /// `GET` of this URL, from a client of documentation's addresses.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub(crate) fn of_url(url: &str) -> Result<PlanRequest, String> {
        let (tls, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(format!("\"{url}\" is no URL: it begins with http:// or https://")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let cut = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(cut);
        if authority.is_empty() || authority.contains('@') {
            return Err(format!("\"{url}\" has no host, or a user before it"));
        }
        let (host, port) = host_and_port(authority).ok_or_else(|| format!("invalid port in \"{url}\""))?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = escaped(&format!("{slash}{target}"));
        Ok(PlanRequest {
            port: Some(port.unwrap_or(if tls { 443 } else { 80 })),
            ..PlanRequest::new(tls, host, authority, target)
        })
    }

    /// `GET /` of a site, as a log has its host; `None`: no request can have it.
    pub(crate) fn of_site(tls: bool, authority: &str) -> Option<PlanRequest> {
        if !authority.bytes().all(|byte| byte > b' ' && byte != 0x7f) {
            return None;
        }
        // What follows the colon may be no port: then the server refuses the host.
        let (host, port) = host_and_port(authority).unwrap_or(("", None));
        Some(PlanRequest { port, ..PlanRequest::new(tls, host, authority, "/".to_owned()) })
    }

    fn new(tls: bool, host: &str, authority: &str, target: String) -> PlanRequest {
        PlanRequest {
            method: "GET".to_owned(),
            tls,
            host: host.to_owned(),
            authority: authority.to_owned(),
            port: None,
            target,
            fields: Vec::new(),
            client: SocketAddr::from(([192, 0, 2, 1], 54321)).into(),
            listen: None,
        }
    }

    /// Adds a field, as the command line has it.
    ///
    /// # Errors
    /// It is no field.
    pub(crate) fn add_field(&mut self, field: &str) -> Result<(), String> {
        let good = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        match field.split_once(':') {
            Some((name, value)) if good(name) && !value.bytes().any(|byte| byte < b' ' && byte != b'\t') => {
                if name.eq_ignore_ascii_case("host") {
                    self.authority = value.trim().to_owned();
                } else {
                    self.fields.push(format!("{name}: {}", value.trim()));
                }
                Ok(())
            }
            _ => Err(format!("\"{field}\" is no field: Name: value")),
        }
    }

    /// Sets the method.
    ///
    /// # Errors
    /// It is none that can be sent.
    pub(crate) fn set_method(&mut self, method: &str) -> Result<(), String> {
        if method.is_empty()
            || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte))
        {
            return Err(format!("\"{method}\" is no method"));
        }
        method.clone_into(&mut self.method);
        Ok(())
    }

    /// Sets the client's address, with or without a port.
    ///
    /// # Errors
    /// It is no address.
    pub(crate) fn set_client(&mut self, address: &str) -> Result<(), String> {
        let client = match address.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::from((ip, 54321)).into()),
            Err(_) => address.parse::<SockAddr>().ok(),
        };
        self.client = client.ok_or_else(|| format!("\"{address}\" is no address: 192.0.2.7 is"))?;
        Ok(())
    }

    /// The head as HTTP/1.1 has it.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.authority.is_empty() {
            head.push_str(&format!("Host: {}\r\n", self.authority));
        }
        for field in &self.fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// Host and port of an authority; `None`: what follows the colon is no port.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[end..].rsplit_once(':') {
        Some((before, port)) => Some((&authority[..end + before.len()], Some(port.parse().ok()?))),
        None => Some((authority, None)),
    }
}

/// What browsers escape before they send it: spaces, control characters, quotes, and what is not ASCII.
fn escaped(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    for byte in target.bytes() {
        match byte {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_made_into_heads() {
        let parts = |url: &str| {
            PlanRequest::of_url(url).map(|request| (request.tls, request.host, request.port, request.target))
        };
        let of =
            |tls, host: &str, port, target: &str| Ok((tls, host.to_owned(), Some(port), target.to_owned()));
        assert_eq!(parts("http://a"), of(false, "a", 80, "/"));
        assert_eq!(parts("https://a.b:8443/x?y=1#z"), of(true, "a.b", 8443, "/x?y=1"));
        assert_eq!(parts("http://[::1]:81?q"), of(false, "[::1]", 81, "/?q"));
        assert_eq!(parts("http://a/b c/\u{fc}\"<>"), of(false, "a", 80, "/b%20c/%C3%BC%22%3C%3E"));
        for bad in ["a/b", "ftp://a/", "http:///x", "http://u@a/", "http://a:x/", "http://a:70000/"] {
            assert!(PlanRequest::of_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_and_methods_cannot_break_out_of_the_head() {
        let mut request = PlanRequest::of_url("http://a:81/").expect("good");
        request.add_field("X-A:  b ").expect("good");
        request.add_field("host: c").expect("good");
        request.set_method("POST").expect("good");
        request.set_client("2001:db8::1").expect("good");
        assert_eq!(request.head(), b"POST / HTTP/1.1\r\nHost: c\r\nX-A: b\r\n\r\n");
        assert_eq!(request.client.to_string(), "[2001:db8::1]:54321");
        assert!(request.add_field("X-A: b\r\nX: y").is_err() && request.add_field("no").is_err());
        assert!(request.set_method("GET /").is_err() && request.set_client("x").is_err());
    }
}
