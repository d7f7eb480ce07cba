//! What tests of the admin listener's page have in common.

use std::path::Path;

use weir_http::json::JsonValue;
use weir_test::{Server, wait_for};

use super::browser::{self, Browser};

/// How a person looks at the page.
pub(crate) struct Screen {
    scheme: &'static str,
    width: u32,
    height: u32,
    phone: bool,
}

/// At a desk, in the light.
pub(crate) const DESK: Screen = Screen { scheme: "light", width: 1280, height: 900, phone: false };
/// On a phone, in the dark.
pub(crate) const PHONE: Screen = Screen { scheme: "dark", width: 390, height: 844, phone: true };

/// A browser with its files in the server's directory, on a page of nothing; `None` where none is installed.
pub(crate) fn started_browser(server: &Server, screen: &Screen) -> Option<Browser> {
    let mut browser = Browser::start(&browser::directory(server.dir().path()))?;
    browser.prefer(screen.scheme);
    browser.resize(screen.width, screen.height, screen.phone);
    Some(browser)
}

/// The page of the admin listener at the server's second address; `None` where no browser is installed.
pub(crate) fn opened(server: &Server, screen: &Screen) -> Option<Browser> {
    let mut browser = started_browser(server, screen)?;
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    browser.open(&format!("http://{}/", server.addr(1)));
    Some(browser)
}

/// Shows that no part of the page is wider than the window.
#[track_caller]
pub(crate) fn fits(browser: &mut Browser) {
    let wide = browser.value("document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(wide, JsonValue::Bool(true), "{:?}", browser.value("document.body.innerText"));
}

/// Keeps a picture of the page where the documents are, when they are made again.
pub(crate) fn keep(browser: &mut Browser, name: &str) {
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"), "no picture");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name);
        std::fs::write(path, picture).expect("docs/pictures is there");
    }
}

/// Waits until requests of a location are in the table.
#[track_caller]
pub(crate) fn seen(browser: &mut Browser, location: &str) {
    browser.until(&format!(
        "[...document.querySelectorAll('.routes tbody tr')].some((row) => row.cells[0].textContent === '{location}' && row.cells[1].textContent !== '0.0')"
    ));
}

/// Clicks on a frame of a flame graph. It is recorded again until there is one: which lines ran when samples were taken,
/// and whether requests came meanwhile is not known.
#[track_caller]
pub(crate) fn click_frame(browser: &mut Browser, selector: &str, text: &str) {
    browser.until(&format!(
        "(() => {{
            const frame = [...document.querySelectorAll('.flame {selector}')].find((e) => e.textContent.includes('{text}'));
            const record = [...document.querySelectorAll('.bar button')].find((e) => e.textContent === 'record');
            if (frame) frame.click();
            else if (record && !record.disabled) record.click();
            return frame;
        }})()"
    ));
}
