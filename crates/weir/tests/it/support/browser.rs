//! A headless Chromium that is controlled over a pipe, in the Chrome DevTools Protocol.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use weir_http::json::{JsonValue, JsonWriter};
use weir_test::{DEADLINE, require_program, wait_for};

pub(crate) struct Browser {
    child: Child,
    to: File,
    heard: Receiver<JsonValue>,
    number: u64,
    session: Option<String>,
    /// What pages complained of: errors of scripts, and what was refused to them.
    complaints: Vec<String>,
}

impl Browser {
    /// One with a page of nothing; `None` if no Chromium is installed. Its files are in `folder`.
    pub(crate) fn start(directory: &Path) -> Option<Browser> {
        let program = require_program("chromium-headless-shell")?;
        let pipes = ["to", "from"].map(|name| directory.join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().expect("mkfifo runs").success());
        // Opened both ways, a pipe needs no other end.
        let [to, from] =
            pipes.each_ref().map(|pipe| File::options().read(true).write(true).open(pipe).expect("a pipe"));
        let child = Command::new("sh")
            .args(["-c", "in=$1 out=$2; shift 2; exec \"$@\" 3<\"$in\" 4>\"$out\"", "sh"])
            .args(pipes)
            .arg(program)
            .args([
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", directory.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let (said, heard) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let value = JsonValue::parse(&message).expect("the browser speaks JSON");
                message.clear();
                if said.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, to, heard, number: 0, session: None, complaints: Vec::new() };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let created = self.call("Target.createTarget", |json| json.key("url").text("about:blank"));
        let target = text(&created, "targetId");
        let attached = self.call("Target.attachToTarget", |json| {
            json.key("targetId").text(&target);
            json.key("flatten").raw(true);
        });
        self.session = Some(text(&attached, "sessionId"));
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, |_| {});
        }
    }

    /// Sends a command and gives its result.
    fn call(&mut self, method: &str, parameters: impl FnOnce(&mut JsonWriter)) -> JsonValue {
        self.number += 1;
        let (number, session) = (self.number, self.session.clone());
        let message = JsonWriter::object(|json| {
            json.key("id").raw(number);
            json.key("method").text(method);
            if let Some(session) = session {
                json.key("sessionId").text(&session);
            }
            json.key("params").nested(parameters);
        });
        self.to
            .write_all(message.as_bytes())
            .and_then(|()| self.to.write_all(b"\0"))
            .expect("the browser reads");
        loop {
            let said = self.heard.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no answer to {method}"));
            if said.field("id").and_then(JsonValue::number) == Some(number) {
                assert!(said.field("error").is_none(), "{method}: {said:?}");
                return said.field("result").cloned().unwrap_or(JsonValue::Null);
            }
            let event = said.field("method").and_then(JsonValue::text);
            if let Some("Runtime.exceptionThrown" | "Log.entryAdded") = event {
                self.complaints.push(format!("{said:?}"));
            }
        }
    }

    /// The size of its window; on a phone a page is scaled to the width it asks for.
    pub(crate) fn resize(&mut self, width: u32, height: u32, phone: bool) {
        self.call("Emulation.setDeviceMetricsOverride", |json| {
            json.key("width").raw(width);
            json.key("height").raw(height);
            json.key("deviceScaleFactor").raw(1);
            json.key("mobile").raw(phone);
        });
    }

    /// What a person prefers: `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        self.call("Emulation.setEmulatedMedia", |json| {
            json.key("features").list(|json| {
                json.nested(|json| {
                    json.key("name").text("prefers-color-scheme");
                    json.key("value").text(scheme);
                });
            });
        });
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", |json| json.key("url").text(url));
    }

    /// Runs a script in each page that is opened from now on, before its own.
    pub(crate) fn before_each_page(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", |json| json.key("source").text(script));
    }

    /// After collecting what is not used any more: bytes of the heap of scripts, nodes of documents, and listeners.
    pub(crate) fn memory(&mut self) -> [f64; 3] {
        // What the first one finalises the second one frees.
        (0..2).for_each(|_| drop(self.call("HeapProfiler.collectGarbage", |_| {})));
        let heap = self.call("Runtime.getHeapUsage", |_| {});
        let counters = self.call("Memory.getDOMCounters", |_| {});
        let number =
            |value: &JsonValue, key: &str| value.field(key).and_then(JsonValue::number).expect(key) as f64;
        [number(&heap, "usedSize"), number(&counters, "nodes"), number(&counters, "jsEventListeners")]
    }

    /// The value of an expression in the page; `Null` while the page is being changed for another.
    pub(crate) fn value(&mut self, expression: &str) -> JsonValue {
        let result = self.call("Runtime.evaluate", |json| {
            json.key("expression").text(expression);
            json.key("returnByValue").raw(true);
        });
        assert!(result.field("exceptionDetails").is_none(), "{expression}: {result:?}");
        result.path(&["result", "value"]).cloned().unwrap_or(JsonValue::Null)
    }

    /// Waits until `condition` holds in the page.
    #[track_caller]
    pub(crate) fn until(&mut self, condition: &str) {
        if !self.comes(condition) {
            let page = self.value("document.body.innerText");
            panic!("never: {condition}\n{page:?}\n{:?}", self.complaints);
        }
    }

    /// Whether `condition` holds in the page before the deadline.
    pub(crate) fn comes(&mut self, condition: &str) -> bool {
        let end = std::time::Instant::now() + DEADLINE;
        // What it speaks of may not be there yet.
        let tried = format!("(() => {{ try {{ return !!({condition}); }} catch {{ return false; }} }})()");
        while self.value(&tried) != JsonValue::Bool(true) {
            if std::time::Instant::now() > end {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        true
    }

    /// Waits for an element that `selector` finds and whose text holds `text`, and clicks on the first one.
    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str, text: &str) {
        let found = format!(
            "[...document.querySelectorAll({selector:?})].find((e) => e.textContent.includes({text:?}))"
        );
        // Found and clicked at once: tables are drawn again.
        self.until(&format!("(() => {{ const e = {found}; if (e) e.click(); return e; }})()"));
    }

    /// The page as it is seen, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", |json| json.key("format").text("png"));
        weir_http::base64::decode(text(&shot, "data").as_bytes()).expect("base64")
    }

    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end when it has ended.
        let _ = self.child.kill();
        wait_for("the browser's end", || self.child.try_wait().ok().flatten());
    }
}

fn text(value: &JsonValue, key: &str) -> String {
    value.field(key).and_then(JsonValue::text).unwrap_or_else(|| panic!("no {key} in {value:?}")).to_owned()
}

/// A directory of its own below `folder`.
pub(crate) fn directory(directory: &Path) -> PathBuf {
    let own = directory.join("browser");
    std::fs::create_dir(&own).expect("a folder");
    own
}
