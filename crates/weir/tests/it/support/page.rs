//! What tests of the admin listener's page have in common.

use std::path::Path;

use weir_http::json::JsonValue;

use super::browser::Browser;

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
