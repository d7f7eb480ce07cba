//! `mp4` and `flv`: parts of files by time and by bytes, beside nginx where it is installed.

use std::process::Command;

use weir_test::{Response, Server, TestServerBuilder, both_drivers};

const CONF: &str = "http { server { listen 127.0.0.1:%%PORT%%; root html; max_ranges 3;
    location / { mp4; }
    location /key/ { mp4; mp4_start_key_frame on; alias html/; }
    location /small/ { mp4; mp4_buffer_size 64; mp4_max_buffer_size 128; alias html/; }
    location ~ \\.flv$ { flv; } } }";

/// What a request for a part of a file came to.
fn described(response: &Response) -> String {
    let fields = ["content-length", "content-range", "accept-ranges"];
    let fields: Vec<_> = fields.iter().map(|name| format!("{name}={:?}", response.field(name))).collect();
    // The pages of errors name the server.
    let fields = if response.status < 400 { fields.join(" ") } else { String::new() };
    format!("{} {fields}", response.status)
}

fn atom(name: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], name, &content].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Two seconds in twenty samples of a to t, one byte each, in chunks of three; the first, sixth ... are key frames.
fn movie() -> Vec<u8> {
    let index = |start: u32| {
        let chunks: Vec<u32> = (0..7).map(|chunk| start + chunk * 3).collect();
        let table = |name, entries: u32, fields: &[u32]| {
            atom(name, &[&[0; 4], &entries.to_be_bytes(), &numbers(fields)])
        };
        let samples = [
            atom(b"stsd", &[&[0; 16]]),
            table(b"stts", 1, &[20, 100]),
            table(b"stss", 4, &[1, 6, 11, 16]),
            table(b"stsc", 2, &[1, 3, 1, 7, 2, 1]),
            atom(b"stsz", &[&numbers(&[0, 0, 20]), &numbers(&[1; 20])]),
            table(b"stco", 7, &chunks),
        ];
        let (mut movie, mut track, mut media) = ([0; 100], [0; 84], [0; 24]);
        movie[12..20].copy_from_slice(&numbers(&[1000, 2000]));
        track[20..24].copy_from_slice(&numbers(&[2000]));
        media[12..20].copy_from_slice(&numbers(&[1000, 2000]));
        let information = atom(b"minf", &[&atom(b"vmhd", &[&[0; 12]]), &atom(b"stbl", &[&samples.concat()])]);
        let media = atom(b"mdia", &[&atom(b"mdhd", &[&media]), &information]);
        let track = atom(b"trak", &[&atom(b"tkhd", &[&track]), &media]);
        [atom(b"ftyp", &[b"isom\0\0\0\0"]), atom(b"moov", &[&atom(b"mvhd", &[&movie]), &track])].concat()
    };
    let start = index(0).len() + 8;
    [index(start as u32), atom(b"mdat", &[b"abcdefghijklmnopqrst"])].concat()
}

fn with_files(builder: TestServerBuilder) -> Server {
    let files = builder
        .file("html/a.mp4", movie())
        .file("html/a.flv", "0123456789")
        .file("html/dir/index.html", "index");
    files.allow("mp4").allow("is not found").start()
}

fn get(server: &Server, path: &str, fields: &str) -> Response {
    server.client().request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"))
}

both_drivers! {
    fn a_flash_video_begins_at_a_byte(driver) {
        let server = with_files(Server::builder(CONF).driver(driver));
        let part = b"FLV\x01\x05\0\0\0\x09\0\0\0\x006789";
        for (path, fields, status, body) in [
            ("/a.flv", "", 200, &b"0123456789"[..]),
            ("/a.flv?start=6", "", 200, part),
            ("/a.flv?start=10", "", 200, b"0123456789"),
            ("/a.flv?start=x", "", 200, b"0123456789"),
            ("/a.flv?start=6", "Range: bytes=2-13\r\n", 206, &part[2..14]),
            ("/a.flv?start=6", "Range: bytes=-2\r\n", 206, b"89"),
            ("/a.flv?start=6", "Range: bytes=17-\r\n", 416, b""),
        ] {
            let said = get(&server, path, fields);
            assert_eq!(said.status, status, "{path} {fields}");
            assert!(status == 416 || said.body == body, "{path} {fields}: {:?}", said.body);
        }
        let head = server.client().request("HEAD /a.flv?start=6 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!((head.status, head.field("content-length")), (200, Some("17")));
    }

    fn a_part_of_a_movie_is_played_by_itself(driver) {
        let server = with_files(Server::builder(CONF).driver(driver));
        for (path, data) in [
            ("/a.mp4?start=0.4", &b"efghijklmnopqrst"[..]),
            ("/a.mp4?start=0.4&end=0.9", b"efghi"),
            ("/a.mp4?end=0.5", b"abcde"),
            ("/a.mp4?start=1.9", b"t"),
            ("/key/a.mp4?start=0.8&end=1.2", b"fghijkl"),
        ] {
            let said = server.get(path);
            let part = atom(b"mdat", &[data]);
            assert_eq!(said.status, 200, "{path}");
            assert!(said.body.ends_with(&part), "{path}: {:?}", String::from_utf8_lossy(&said.body));
            assert!(said.body.starts_with(&atom(b"ftyp", &[b"isom\0\0\0\0"])), "{path}");
            let range = get(&server, path, "Range: bytes=4-19\r\n");
            assert_eq!((range.status, &range.body[..]), (206, &said.body[4..20]), "{path}");
            let end = get(&server, path, "Range: bytes=-6\r\n");
            assert_eq!((end.status, &end.body[..]), (206, &said.body[said.body.len() - 6..]), "{path}");
            let several = get(&server, path, "Range: bytes=0-1,4-5\r\n");
            assert_eq!((several.status, &several.body), (200, &said.body), "{path}: of a part one range");
        }
        for path in ["/a.mp4", "/a.mp4?start=0", "/a.mp4?start=x", "/a.mp4?end=0"] {
            assert_eq!(server.get(path).body, movie(), "{path}");
        }
    }

    /// What is no file is left to the handlers of all locations, as in nginx.
    fn what_is_no_movie_is_an_error(driver) {
        let server = with_files(Server::builder(CONF).driver(driver));
        assert_eq!(server.get("/a.mp4?start=3").status, 500);
        let _ = server.error_log_line("\" mp4 start time exceeds file duration");
        assert_eq!(server.get("/small/a.mp4?start=1").status, 500);
        let _ = server.error_log_line("you may want to increase mp4_max_buffer_size");
        assert_eq!(server.get("/dir/index.html?start=1").status, 500);
        assert_eq!(server.get("/none.mp4?start=1").status, 404);
        assert_eq!(server.get("/dir/").text(), "index");
        assert_eq!(server.get("/dir").status, 301);
        let said = server.raw("POST /a.mp4 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert!(said.starts_with(b"HTTP/1.1 405 "));
    }
}

/// Every part of a real movie is nginx's, byte for byte; so is every error's status.
#[test]
fn parts_of_movies_are_those_of_nginx() {
    let Some(nginx) = weir_test::nginx(CONF).filter(|_| nginx_has_the_modules()) else {
        return weir_test::skip("there is no nginx with mp4 and flv");
    };
    let add = |builder: TestServerBuilder| {
        MOVIES.iter().fold(builder, |builder, (name, bytes)| builder.file(&format!("html/{name}"), bytes))
    };
    let (weir, nginx) = (with_files(add(Server::builder(CONF))), with_files(add(nginx)));
    let times = [
        "",
        "?start=0",
        "?start=0.04",
        "?start=1",
        "?start=1.234&end=3.21",
        "?end=2",
        "?end=0.2",
        "?start=5.999999",
        "?start=2&end=1",
        "?start=1&end=1",
        "?start=7.9",
        "?start=99",
        "?start=1.",
        "?start=1.2.3",
    ];
    let names = MOVIES.iter().map(|(name, _)| *name).chain(["a.mp4"]);
    for path in names.flat_map(|name| [format!("/{name}"), format!("/key/{name}")]) {
        for time in times {
            for range in ["", "Range: bytes=100-999\r\n", "Range: bytes=-5\r\n"] {
                let target = format!("{path}{time}");
                let (ours, theirs) = (get(&weir, &target, range), get(&nginx, &target, range));
                assert_eq!(
                    described(&ours).replace("last-modified", ""),
                    described(&theirs).replace("last-modified", ""),
                    "{target} {range}"
                );
                assert!(ours.status >= 400 || ours.body == theirs.body, "{target} {range}");
            }
        }
    }
}

fn nginx_has_the_modules() -> bool {
    let output = Command::new("nginx").arg("-V").output().expect("it is installed");
    let modules = String::from_utf8_lossy(&output.stderr);
    modules.contains("http_mp4_module") && modules.contains("http_flv_module")
}

/// Movies that ffmpeg has made: with the index last and first, with B-frames, sound alone, and fragments, which are
/// refused (data/movies/README.md).
const MOVIES: [(&str, &[u8]); 4] = [
    ("last.mp4", include_bytes!("../data/movies/last.mp4")),
    ("first.mp4", include_bytes!("../data/movies/first.mp4")),
    ("fragments.mp4", include_bytes!("../data/movies/fragments.mp4")),
    ("sound.m4a", include_bytes!("../data/movies/sound.m4a")),
];
