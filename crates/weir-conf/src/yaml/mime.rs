//! `file.mime.*`: the types of files, and which of them are compressed.

use std::collections::BTreeMap;

use super::level::{LevelLines, block, short, unknown};
use super::node::{YamlNode, YamlValue};
use crate::{DirectiveLine, Error, Result, Span};

/// The types that are in force at a level.
#[derive(Clone, Debug)]
pub(super) struct MimeTypes {
    /// By extension, without its dot.
    types: BTreeMap<String, String>,
    default: String,
    /// Types that `is_compressible` adds to those that are compressed anyway, and takes from them.
    compressed: BTreeMap<String, bool>,
    /// Where this level changed them.
    changed: Option<Span>,
}

impl Default for MimeTypes {
    fn default() -> MimeTypes {
        let of = |(kind, names): &(&str, &str)| {
            let kind = (*kind).to_owned();
            names.split(' ').map(move |name| (name.to_owned(), kind.clone())).collect::<Vec<_>>()
        };
        MimeTypes {
            types: TYPES.iter().flat_map(of).collect(),
            default: "application/octet-stream".into(),
            compressed: BTreeMap::new(),
            changed: None,
        }
    }
}

impl MimeTypes {
    /// The lines of a level that changed the types; those of the outermost level are there in any case.
    pub(super) fn lines(&mut self, outermost: Option<Span>) -> Vec<DirectiveLine> {
        let Some(at) = self.changed.take().or(outermost) else { return Vec::new() };
        let mut by_type: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (extension, kind) in &self.types {
            by_type.entry(kind).or_default().push(extension);
        }
        let rows = by_type.iter().map(|(kind, names)| short(kind, at, names)).collect();
        let mut lines = vec![short("default_type", at, &[&self.default]), block("types", at, &[], rows)];
        let plus: Vec<&str> =
            self.compressed.iter().filter(|(_, on)| **on).map(|(kind, _)| kind.as_str()).collect();
        let kept = |kind: &&&str| self.compressed.get(**kind) != Some(&false);
        let kinds: Vec<&str> = COMPRESSIBLE.iter().filter(kept).copied().chain(plus).collect();
        for method in ["gzip_types", "brotli_types", "zstd_types"] {
            lines.push(short(method, at, &kinds));
        }
        lines
    }
}

/// `file.mime.settypes`, `addtypes`, `removetypes` and `setdefaulttype`.
pub(super) fn read(level: &mut LevelLines<'_>, key: &YamlNode, value: &YamlNode) -> Result {
    let types = &mut level.inherited.files.types;
    types.changed = Some(key.span);
    match key.text()? {
        "file.mime.setdefaulttype" => types.default = media_type(value)?.to_owned(),
        "file.mime.removetypes" => {
            for item in value.items() {
                let extension = extension(item)?;
                types.types.remove(extension);
            }
        }
        name => {
            if name == "file.mime.settypes" {
                types.types.clear();
            }
            for (kind, value) in value.map()? {
                add(types, kind, value)?;
            }
        }
    }
    Ok(())
}

/// `TYPE: EXTENSIONS`, `TYPE: {extensions: EXTENSIONS, is_compressible: ON, priority: highest}`
fn add(types: &mut MimeTypes, kind: &YamlNode, value: &YamlNode) -> Result {
    let name = media_type(kind)?.to_owned();
    let mut extensions = value;
    if let YamlValue::Map(entries) = &value.value {
        for (key, value) in entries {
            match key.text()? {
                "extensions" => extensions = value,
                "is_compressible" => {
                    let bare = name.split(';').next().unwrap_or_default().trim().to_owned();
                    types.compressed.insert(bare, value.flag()?);
                }
                "priority" if matches!(value.text()?, "highest" | "normal") => {}
                "priority" => {
                    return Err(Error::new(format!("invalid value \"{}\"", value.text()?)).at(value.span));
                }
                other => return Err(unknown(key, other, &["extensions", "is_compressible", "priority"])),
            }
        }
    }
    for item in extensions.items() {
        types.types.insert(extension(item)?.to_owned(), name.clone());
    }
    Ok(())
}

/// An extension, which begins with a dot, without it.
pub(super) fn extension(node: &YamlNode) -> Result<&str> {
    match node.plain()?.strip_prefix('.') {
        Some(name) if !name.is_empty() => Ok(name),
        _ => {
            Err(Error::new(format!("an extension begins with \".\", not \"{}\"", node.text()?)).at(node.span))
        }
    }
}

fn media_type(node: &YamlNode) -> Result<&str> {
    match node.plain()? {
        text if text.contains('/') => Ok(text),
        text => Err(Error::new(format!("invalid type \"{text}\"")).at(node.span)),
    }
}

/// Types that are compressed besides text/html.
const COMPRESSIBLE: &[&str] = &[
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/atom+xml",
    "application/rss+xml",
    "application/xhtml+xml",
    "application/xml",
    "application/x-javascript",
    "application/xspf+xml",
    "image/svg+xml",
    "text/calendar",
    "text/css",
    "text/csv",
    "text/javascript",
    "text/markdown",
    "text/mathml",
    "text/plain",
    "text/vtt",
    "text/x-component",
    "text/xml",
];

/// Types of files, as H2O has them built in.
const TYPES: &[(&str, &str)] = &[
    ("application/atom+xml", "atom"),
    ("application/epub+zip", "epub"),
    ("application/geo+json", "geojson"),
    ("application/java-archive", "ear jar war"),
    ("application/json", "json"),
    ("application/ld+json", "jsonld"),
    ("application/mac-binhex40", "hqx"),
    ("application/mathml+xml", "mml"),
    ("application/msword", "doc"),
    ("application/octet-stream", "bin dmg img iso msi msm msp"),
    ("application/ogg", "ogx"),
    ("application/pdf", "pdf"),
    ("application/postscript", "ai eps ps"),
    ("application/rdf+xml", "rdf"),
    ("application/rss+xml", "rss"),
    ("application/rtf", "rtf"),
    ("application/vnd.apple.mpegurl", "m3u8"),
    ("application/vnd.debian.binary-package", "deb udeb"),
    ("application/vnd.google-earth.kml+xml", "kml"),
    ("application/vnd.google-earth.kmz", "kmz"),
    ("application/vnd.microsoft.portable-executable", "dll exe"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.ms-fontobject", "eot"),
    ("application/vnd.ms-powerpoint", "ppt"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.rar", "rar"),
    ("application/vnd.wap.wmlc", "wmlc"),
    ("application/wasm", "wasm"),
    ("application/x-7z-compressed", "7z"),
    ("application/x-cocoa", "cco"),
    ("application/x-java-archive-diff", "jardiff"),
    ("application/x-java-jnlp-file", "jnlp"),
    ("application/x-makeself", "run"),
    ("application/x-perl", "pl pm"),
    ("application/x-pilot", "pdb prc"),
    ("application/x-redhat-package-manager", "rpm"),
    ("application/x-sea", "sea"),
    ("application/x-shockwave-flash", "swf"),
    ("application/x-stuffit", "sit"),
    ("application/x-tcl", "tcl tk"),
    ("application/x-x509-ca-cert", "crt der pem"),
    ("application/x-xpinstall", "xpi"),
    ("application/xhtml+xml", "xht xhtml"),
    ("application/xspf+xml", "xspf"),
    ("application/zip", "zip"),
    ("application/zstd", "zst"),
    ("audio/midi", "kar mid midi"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "oga ogg opus spx"),
    ("audio/x-m4a", "m4a"),
    ("audio/x-realaudio", "ra"),
    ("font/collection", "otc ttc"),
    ("font/otf", "otf"),
    ("font/ttf", "ttf"),
    ("font/woff", "woff"),
    ("font/woff2", "woff2"),
    ("image/apng", "apng"),
    ("image/avif", "avif"),
    ("image/gif", "gif"),
    ("image/heic", "heic"),
    ("image/jp2", "jp2"),
    ("image/jpeg", "jpeg jpg"),
    ("image/jxl", "jxl"),
    ("image/jxr", "jxr"),
    ("image/png", "png"),
    ("image/svg+xml", "svg svgz"),
    ("image/tiff", "tif tiff"),
    ("image/vnd.wap.wbmp", "wbmp"),
    ("image/webp", "webp"),
    ("image/x-icon", "cur ico"),
    ("image/x-jng", "jng"),
    ("image/x-ms-bmp", "bmp"),
    ("model/gltf+json", "gltf"),
    ("model/gltf-binary", "glb"),
    ("model/vnd.pixar.usd", "usdz"),
    ("text/css", "css"),
    ("text/csv", "csv"),
    ("text/html", "htm html shtml"),
    ("text/javascript", "js mjs"),
    ("text/markdown", "md"),
    ("text/plain", "txt"),
    ("text/turtle", "ttl"),
    ("text/vnd.sun.j2me.app-descriptor", "jad"),
    ("text/vnd.wap.wml", "wml"),
    ("text/vtt", "vtt"),
    ("text/x-component", "htc"),
    ("text/xml", "xml"),
    ("video/3gpp", "3gp 3gpp"),
    ("video/mp2t", "ts"),
    ("video/mp4", "mp4"),
    ("video/mpeg", "mpeg mpg"),
    ("video/ogg", "ogv"),
    ("video/quicktime", "mov"),
    ("video/webm", "webm"),
    ("video/x-flv", "flv"),
    ("video/x-m4v", "m4v"),
    ("video/x-mng", "mng"),
    ("video/x-ms-asf", "asf asx"),
    ("video/x-ms-wmv", "wmv"),
    ("video/x-msvideo", "avi"),
];
