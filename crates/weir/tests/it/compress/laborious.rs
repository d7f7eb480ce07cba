//! Packed data that are all work and no content: others are served between.

use weir_test::{Server, both_drivers};

const CONF: &str = r#"
events { }
http {
    init_by_lua_block {
        local file = assert(io.open("%%DIR%%/laborious.gz", "rb"))
        laborious = file:read("*a")
        file:close()
        counted = 0
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        location /laborious {
            gunzip on;
            content_by_lua_block {
                local over = false
                ngx.ctx.over = function() over = true end
                ngx.timer.at(0, function()
                    while not over do
                        counted = counted + 1
                        ngx.sleep(0)
                    end
                end)
                ngx.sleep(0)
                counted = 0
                ngx.header.content_encoding = "gzip"
                ngx.print(laborious)
            }
            log_by_lua_block { ngx.ctx.over() }
        }
        location /counted { content_by_lua_block { ngx.print(counted) } }
    }
}
"#;

both_drivers! {
    /// The whole of it is there at once, and gives nothing for which a client would be waited.
    fn empty_blocks_let_others_run(driver) {
        let server = Server::builder(CONF).file("laborious.gz", laborious()).driver(driver).start();
        let response = server.get("/laborious");
        assert_eq!((response.status, response.text()), (200, "end".into()));
        let counted: u32 = server.get("/counted").text().parse().expect("a number");
        assert!(counted >= 20, "{counted} turns of the loop");
    }
}

/// A gzip file of 4 MB without content, but for a word at its end: as many tables of codes as go into it.
fn laborious() -> Vec<u8> {
    let mut file = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    (0..4 << 20).step_by(BLOCK.len()).for_each(|_| file.extend_from_slice(BLOCK));
    file.extend_from_slice(b"\x01\x03\0\xfc\xffend");
    file.extend_from_slice(&zlib_rs::crc32::crc32(0, b"end").to_le_bytes());
    file.extend_from_slice(&3_u32.to_le_bytes());
    file
}

/// A block with codes of its own, of 1 to 15 bits for sixteen literals and as many distances, in which only the code of the
/// end is (RFC 1951, section 3.2.7); and an empty stored one, which ends with a whole byte.
const BLOCK: &[u8] = b"\x7c\xef\x01\x82\x24\x49\x92\x24\x49\xfe\xff\xd7\x80\xc4\xa2\xe6\x91\xd5\xb3\x77\x80\xc4\xa2\xe6\x91\xd5\
    \xb3\x77\0\0\0\xff\xff";
