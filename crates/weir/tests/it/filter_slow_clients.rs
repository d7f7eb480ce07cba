//! Filters that change bodies, and clients that don't read on: a long file is neither read nor changed ahead.

use weir_test::{Client, ReceivedPart, Response, Server, both_drivers};

const CONF: &str = "
    events { }
    http {
        types { text/html html; }
        charset_map koi8-r utf-8 { D0 D0BF; }
        access_log off;
        server {
            listen 127.0.0.1:%%PORT_0%%;
            root %%DIR%%/html;
            sub_filter_once off;
            sub_filter SPAN 'a longer text';
            subs_filter '(li)ne' '<$1$1>' r;
            subs_filter text span;
            source_charset koi8-r;
            charset utf-8;
            add_after_body /end;
            location = /end { return 200 end; }
        }
    }";

both_drivers! {
    fn a_stalled_client_costs_no_memory(driver) {
        let builder = Server::builder(CONF).driver(driver).file("html/small.html", "line text\n");
        let page = "a line of text with a span\n".repeat(200_000);
        std::fs::write(builder.dir().join("html/page.html"), &page).expect("our folder");
        let server = builder.start();
        let small = server.get("/small.html");
        assert_eq!(small.text(), "<lili> a longer text\nend");
        assert_eq!(small.field("Content-Type"), Some("text/html; charset=utf-8"));

        let expected = page.replace("line", "<lili>").replace("text", "span").replace("span", "a longer text") + "end";
        // The first long response also fills what the worker keeps of traces.
        assert!(content(ask(&server)) == expected.as_bytes());
        let before = server.resident_bytes();
        let mut stalled = ask(&server);
        stalled.peek(500).expect("the head and the first bytes");
        assert_eq!(server.get("/small.html").status, 200);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown <= MOST, "{grown} bytes");
        // It may read on later.
        assert!(content(stalled) == expected.as_bytes());
    }
}

fn ask(server: &Server) -> Client {
    let mut client = server.client();
    client.send("GET /page.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client
}

/// The body of the only response of a connection; parsed at once, since it is long.
fn content(mut client: Client) -> Vec<u8> {
    let (bytes, _) = client.rest();
    let parsed = Response::parse(&bytes, ReceivedPart::All).expect("a right response");
    parsed.expect("a whole response").0.body
}

/// What four filters may take together, with what the connection keeps.
const MOST: u64 = 1 << 20;
