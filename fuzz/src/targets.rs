//! The list of targets, with what their inputs are made of.

use crate::{Target, cache, conf, dns, h1, h2, h3, http, modules, see, sharing, tls};

/// Every target.
pub static TARGETS: &[Target] = &[
    Target {
        name: "h1_head",
        run: h1::h1_head,
        seeds: &[
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST http://a:80/b?c HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
            b"PUT /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nConnection: close, upgrade, te\n\n",
            b"\r\nOPTIONS * HTTP/1.0\r\nUser-Agent: x\r\nCookie: a=b\r\nX_Y: z\r\n\r\n",
            b"GET /\n",
        ],
        tokens: FIELDS,
    },
    Target {
        name: "cache_head",
        run: cache::cache_head,
        seeds: &[
            b"weircach\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
              \xc8\0\0\0\x6f\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
              \nKEY: k\n200\r\n\r\n",
        ],
        tokens: &[b"weircach\x01\0\0\0", b"\nKEY: ", b"\n", b"\xff\xff\xff\xff", b"\x60\0\0\0", b"\xc8\0\0\0"],
    },
    Target {
        name: "freshness",
        run: cache::freshness,
        seeds: &[
            b"cmax-age=10, stale-while-revalidate=5\nx@1700000100\neThu, 01 Jan 1970 00:00:01 GMT",
            b"cs-maxage=0,private\nx5\nx0",
        ],
        tokens: &[b"\nc", b"\nx", b"\ne", b"max-age=", b"s-maxage=", b"stale-if-error=", b"no-cache", b"9999999999"],
    },
    Target {
        name: "chunked",
        run: h1::chunked,
        seeds: &[
            b"3\r\nabc\r\n0\r\n\r\n",
            b"A;name=\"value\"\r\n0123456789\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\nHost: no\r\n\r\nGET /",
            b"00000000000000001\r\nx\r\n0\r\n\r\n",
        ],
        tokens: &[b"\r\n", b"\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b";", b"0x", b": ", b"Content-Length: 1\r\n"],
    },
    Target {
        name: "response_head",
        run: h1::response_head,
        seeds: &[
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.0 404 \r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 100\r\n\r\nHTTP/1.1 204 No Content\nServer: x\n\n",
        ],
        tokens: FIELDS,
    },
    Target {
        name: "hpack",
        run: h2::hpack,
        seeds: &[
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\xbe",
            b"\x40\x0acustom-key\x0dcustom-header\xbe\x10\x08password\x06secret",
            b"\x3f\x45\x48\x03302\x58\x07private\xbe",
        ],
        tokens: &[b"\x20", b"\x3f\xe1\x1f", b"\xbe", b"\x7f\xff\xff\x7f", b"\x40\x01a\x01b", b"\x00\x81\xff"],
    },
    Target {
        name: "qpack",
        run: h3::qpack,
        seeds: &[
            b"\x00\x00\x00\x51\x0b/index.html\xd1\xd7\xff\x22",
            b"\x1e\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x06/a/b/c\x4acustom-key\x0ccustom-value\x02\x05\x00\x80\xc1\x81\x40\x01x",
            b"\x07\x3f\xe1\x01\xc1\x01a\x00\x03\x81\x10\x11\x00\x01v\x27\x00x-y-z-a\x01b",
        ],
        tokens: &[
            b"\x3f\xe1\x03",
            b"\x20",
            b"\x00\x00",
            b"\x02\x00\x80",
            b"\x03\x81\x10\x11",
            b"\x7f\xff\xff\x7f",
            b"\xc0\x81\x1f",
            b"\x41a\x01b",
        ],
    },
    Target {
        name: "hello",
        run: tls::hello,
        seeds: &[tls::HELLO, &[22, 3, 1, 0, 1, 1]],
        tokens: &[&[22, 3, 1, 0], &[0, 0], &[0, 16], &[0, 43], &[3, 4]],
    },
    Target {
        name: "initial",
        run: tls::initial,
        seeds: &[tls::INITIAL, tls::INITIAL_FRAMES, b"\0\x0b\x02\x05\0\x01\0\0\x01\x1c\0\0\0"],
        tokens: &[&[0xc0, 0, 0, 0, 1, 8], &[6, 0, 4], &[2, 0, 0, 0, 0], &[3, 0], &[0x1c, 0, 0], &[0x40, 0], &[0xff; 8]],
    },
    Target {
        name: "certificate",
        run: tls::certificate,
        seeds: &[tls::CERTIFICATE],
        tokens: &[b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n", b"-----BEGIN X509 CRL-----\n"],
    },
    Target {
        name: "ocsp",
        run: tls::ocsp,
        seeds: &[tls::OCSP, &[0x30, 3, 0x0a, 1, 6]],
        tokens: &[&[0x30, 0x82], &[0xa0, 3], &[0x0a, 1, 0], b"\x18\x0f20261121150224Z", &[0x82, 0], &[0xa1, 0x11]],
    },
    Target {
        name: "pkcs11_uri",
        run: tls::pkcs11_uri,
        seeds: &[b"pkcs11:token=a%20b;object=k;id=%01?module-path=/lib/x.so&pin-value=1"],
        tokens: &[b"pin-source=file:", b"slot-id=", b"type=private", b"%ff", b";", b"&", b"?"],
    },
    Target {
        name: "h2_responses",
        run: h2::h2_responses,
        seeds: &[
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88",
            b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88\x00\x00\x03\x00\x01\x00\x00\x00\x01abc",
            b"\x00\x00\x01\x01\x04\x00\x00\x00\x03\x88\x00\x00\x06\x00\x08\x00\x00\x00\x03\x02abc\x00\x00\x00\x00\x05\x01\x05\x00\x00\x00\x03\x00\x01a\x01b",
            b"\x00\x00\x05\x01\x04\x00\x00\x00\x05\x08\x03103\x00\x00\x04\x01\x04\x00\x00\x00\x05\x88\x5c\x013",
        ],
        tokens: &[
            b"\x00\x00\x01\x01\x04\x00\x00\x00\x05\x88",
            b"\x00\x00\x01\x00\x00\x00\x00\x00\x01x",
            b"\x00\x00\x00\x00\x01\x00\x00\x00\x03",
            b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
            b"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00",
            b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x00\x01a\x01b",
        ],
    },
    Target {
        name: "h2_frames",
        run: h2::h2_frames,
        seeds: &[
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a",
            b"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x83\x86\x84\x41\x01a\x00\x00\x06\x00\x09\x00\x00\x00\x01\x02abc\x00\x00",
            b"\x00\x00\x03\x01\x00\x00\x00\x00\x01\x82\x86\x84\x00\x00\x03\x09\x04\x00\x00\x00\x01\x41\x01a\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
        ],
        tokens: &[
            b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01",
            b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678",
            b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01",
            b"\x00\x00\x08\x10\x00\x00\x00\x00\x00\x00\x00\x00\x01u=1,i",
            b"\x00\x00\x05\x02\x00\x00\x00\x00\x01\x00\x00\x00\x03\x10",
        ],
    },
    Target {
        name: "sharing_frames",
        run: sharing::sharing_frames,
        seeds: &[
            b"\x00\x00\x00\x04\x00abc\x00\x00\x00\x04\x01abc",
            b"\x00\x00\x00\x07\x02abcdef\x00\x00\x00\x01\x02",
            b"\x00\x00\x00\x2a\x03\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x01\xbb\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01ab",
        ],
        tokens: &[b"\x00\x00\x00\x01\x02", b"\x00\x00\xff\xff", b"\x00\x00\x00\x04\x00abc"],
    },
    Target {
        name: "h3_streams",
        run: h3::h3_streams,
        seeds: &[
            b"\x02\x03\x00\x04\x00\x80\x09\x01\x07\x00\x00\xd1\xd7\xc1\x50\x00",
            b"\x02\x07\x00\x04\x04\x01\x3f\x07\x01\x04\x0d\x01\x0b\x00\x00\xd4\xd7\xc1\x50\x01a\x54\x013\x84\x08\x00\x03abc\x21\x01x",
            b"\x06\x08\x02\x3f\x81\x01\x41x\x01y\x80\x0a\x01\x08\x02\x00\xd1\xd7\xc1\x80\x5c\x00\x0a\x02\x03\x44",
            b"\x84\x0a\x01\x08\x02\x00\xd1\xd7\xc1\x80\x5c\x00\x06\x08\x02\x3f\x81\x01\x41x\x01y",
            b"\x02\x0f\x00\x04\x00\x80\x0f\x07\x00\x04\x00u=1\x07\x01\x04",
        ],
        tokens: &[
            b"\x80\x09\x01\x07\x00\x00\xd1\xd7\xc1\x50\x00",
            b"\x02\x03\x00\x04\x00",
            b"\x84\x00",
            b"\x01\x04\x00\x00\x21a",
            b"\x00\x03abc",
            b"\x06\x08\x02\x3f\x81\x01\x41x\x01y",
            b"\x0a\x02\x03\x01",
            b"\x21\x00",
            b"\x44\x00",
        ],
    },
    Target {
        name: "dns",
        run: dns::dns,
        seeds: &[
            b"\x00\x01\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x7f\x00\x00\x01",
            b"\x00\x01\x81\x83\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x21\x00\x01",
        ],
        tokens: &[b"\xc0\x0c", b"\x00\x21", b"\x00\x05\x00\x01", b"\x3f", b"\xff\xff"],
    },
    Target {
        name: "json",
        run: http::json,
        seeds: &[
            b"[{\"server\":\"10.0.0.1:80\",\"weight\":2,\"backup\":true},\"unix:/s\"]",
            b"{\"result\":{\"events\":[{\"kv\":{\"value\":\"W10=\"}}],\"n\":-1.5e3,\"x\":null}}",
            b"\"\\ud83d\\ude00\\n\\u00e9\"",
        ],
        tokens: &[b"{", b"}", b"[", b"]", b",", b":", b"\"", b"\\", b"\\ud83d", b"true", b"null", b"-0", b"1e9"],
    },
    Target {
        name: "yaml",
        run: conf::yaml,
        seeds: &[
            b"listen: 80\nhosts:\n  a:\n    paths:\n      /: {file.dir: /x}\n",
            b"listen: &l\n  port: 443\n  ssl: {key-file: k}\nhosts:\n  '*':\n    listen: *l\n    paths:\n      /b:\n        redirect: {url: c, status: 301}\n",
            b"access-log: {path: a, format: '%h %{X}i'}\nnum-threads: 2\nmax-connections: 9\n",
            b"access-log: {path: '|c $x', format: '%<s %{%Y}t.%{msec_frac}t %{A}e %{duration}x'}\nstash: !env PATH\nlisten: !file h2o.yaml\n",
            b"listen: {port: 1, ssl: {identity: [{key-file: k}], min-version: TLSv1.2}}\nhosts:\n  a:81:\n    strict-match: ON\n    paths:\n      /b:\n        - file.dir: /x\n        - proxy.reverse.url: [http://a:1/, {url: 'http://[::1]/', weight: 2}]\n",
            b"listen: 1\nhosts:\n  a:\n    paths:\n      /:\n        file.file: /x/y\n        file.custom-handler: {extension: [.a, default], fastcgi.connect: {port: 1}}\n        file.mime.settypes: {a/b: {extensions: [.c], is_compressible: ON}}\n        compress: {br: 5}\n        expires: 9 days\n        error-doc: {status: [404], url: /e}\n",
        ],
        tokens: &[b": ", b"\n  ", b"- ", b"&a ", b"*a", b"<<: ", b"paths:", b"proxy.reverse.url: ", b"header.add: ", b"{", b"[", b"'", b"%"],
    },
    Target {
        name: "conf",
        run: conf::conf,
        seeds: &[
            b"worker_processes 1;\nevents { worker_connections 512; }\n",
            b"http { server { listen 80; location ~ \"\\.php$\" { return 200 'a b'; } } }\n# end",
            b"log_format x escape=json '{\"a\":\"$uri\"}' \"${b}c\";include conf.d/*.conf;",
            b"content_by_lua_block { local s = [==[ } ]==] -- }\n ngx.say(\"}\") }",
            b"map $a $b { default 0; ~^x{2}$ 1; \"\" ''; }",
        ],
        tokens: &[
            b"{", b"}", b";", b"\"", b"'", b"\\", b"${", b"$", b"#", b"\n", b"--[[", b"]]", b"_by_lua_block {", b"include ",
            b"a { ", b"\xef\xbb\xbf",
        ],
    },
    Target {
        name: "messages",
        run: http::messages,
        seeds: &[
            b"\x03Content-Length: 2\r\n\r\n{}Content-Type: a/b\r\ncontent-length:0\r\n\r\nContent-Length: 9\r\n\r\n[",
            b"\x01Content-Length: x\r\n\r\n",
        ],
        tokens: &[b"Content-Length: ", b"\r\n\r\n", b"\r\n", b"0", b"99999999999999999999", b"-1"],
    },
    Target {
        name: "conf_format",
        run: conf::conf_format,
        seeds: &[
            b"events{}http { server{listen  80; # a\r\n\n\n\tlocation ~ \"\\.php$\"{ return 200 'a b'; } } }\n# end",
            b"log_format  main 'a'\n                 'b'  # c\n  ;include conf.d/*.conf;\nroot  /a; # x\nindex b;  # y\n",
            b"server {\n\tcontent_by_lua_block {\n\t\tlocal s = [==[ } ]==] -- }\n\t\tngx.say(\"}\")\n\t}\n}",
            b"types {\n a/b    c d;\n e/fgh  i;\n}\nif ($a = \"b\"){}",
        ],
        tokens: &[
            b"{", b"}", b";", b"\"", b"'", b"\\", b"${", b"$", b"#", b"\n", b"\r\n", b"    ", b"\t", b"--[[", b"[[", b"]]",
            b"_by_lua_block {", b"a { ", b"a  b;\n", b" # c\n",
        ],
    },
    Target {
        name: "target",
        run: http::target,
        seeds: &[
            b"/",
            b"/index.html?a=b#c",
            b"/a/b/../c/./d//e.tar.gz",
            b"/%7euser/%2e%2e/x%2Fy?z",
            b"/a%20long/path/that/fills/several/words/of/eight.bytes",
            b"?args",
        ],
        tokens: PATHS,
    },
    Target {
        name: "internal_target",
        run: http::internal_target,
        seeds: &[b"/protected/file.bin?x", b"/a%20b", b"relative/..name"],
        tokens: PATHS,
    },
    Target {
        name: "uri_reference",
        run: http::uri_reference,
        seeds: &[b"http://a.example:8080/x?y#z", b"//[::1]/a", b"../a/./b?c", b"https://[unix:/run/a]/x"],
        tokens: PATHS,
    },
    Target {
        name: "control",
        run: see::control,
        seeds: &[b"trace match=~%20^/a%20b n=3 json=", b"level set=full for=10m", b"out 3\na\nbdone 0\n", b"note 4\nhalf"],
        tokens: &[b"out ", b"done 0\n", b"fail 2\nab", b"%20", b"%", b"=", b" ", b"\n", b"1073741825"],
    },
    Target {
        name: "stacks",
        run: see::stacks,
        seeds: &[
            b"cpu\t10101010\t3000000000\t1700000000000\t7\n=55d0-55d1 r-xp 0 0:1 2 /weir\n1\t2\tr/\tpcontent\tmstatic\t@7f00\n",
            b"wait\t0\t1\t2\t3\n3\t4\n5\t6\tr~%20^/a%09b%0a%25\tk\twtimer",
        ],
        tokens: &[b"\t", b"\n", b"\r\n", b"\n=", b"\t@", b"\tr", b"%0a", b"%", b"18446744073709551616", b"-1", b"+1"],
    },
    Target {
        name: "host",
        run: http::host_field,
        seeds: &[b"Example.COM:8080", b"[2001:db8::1]:443", b"a.b.", b"192.0.2.1"],
        tokens: &[b":", b":80", b":65536", b"[", b"]", b".", b"..", b"%41", b"[::1]"],
    },
    Target {
        name: "date",
        run: http::http_date,
        seeds: &[
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sunday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
            b"Thu, 29 Feb 2024 23:59:59 GMT",
        ],
        tokens: &[b"Feb", b"29", b"31", b"00", b"9999", b" ", b"-", b":", b", "],
    },
    Target {
        name: "range",
        run: http::range_field,
        seeds: &[b"\x20bytes=0-4,10-20,-5", b"\xffbytes=100-", b"\x00bytes=0-", b"\x10bytes= 1 - 2 , 3-"],
        tokens: &[b"bytes=", b",", b"-", b"0-0,", b"9223372036854775807", b"18446744073709551616", b" "],
    },
    Target {
        name: "ssi",
        run: http::ssi,
        seeds: &[
            b"\x05a<!--#include virtual=\"/x\" wait='y' -->b",
            b"\x01<<!--#if expr=\"$a = /b/\" -->c<!--#endif--><!--#echo var -->",
            b"\xff<!--#set var=\"a\" value=\"\\\"\\$\" x<!-",
        ],
        tokens: &[b"<!--#", b"-->", b"<", b"--", b"=\"", b"\" ", b"\\", b"echo ", b"var"],
    },
    Target {
        name: "conditions",
        run: http::conditions,
        seeds: &[b"*", b"\"a\", W/\"5f3c1a2b-1f4\"", b"W/\"a\"", b"Sun, 06 Nov 1994 08:49:37 GMT"],
        tokens: &[b"W/", b"\"a\"", b",", b"*", b"\"5f3c1a2b-1f4\"", b"\t"],
    },
    Target {
        name: "accept_encoding",
        run: http::accept_encoding,
        seeds: &[b"gzip, deflate, br", b"br;q=1.0, gzip;q=0.8, *;q=0.1", b"x-gzip"],
        tokens: &[b"gzip", b"br", b";q=", b"0.001", b"1.000", b",", b" "],
    },
    Target {
        name: "traceparent",
        run: http::traceparent,
        seeds: &[
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more",
        ],
        tokens: &[b"00-", b"ff-", b"-01", b"-", b"00000000"],
    },
    Target {
        name: "cookies",
        run: http::cookies,
        seeds: &[b"a=1; b=2;c=\"3\"", b"x=1&a=%41&A&=", b"public, max-age=60, no-cache", b"a=1; Path=/; HttpOnly"],
        tokens: &[b"a=", b"; ", b"&", b"=", b",", b"max-age=", b"no-cache"],
    },
    Target {
        name: "proxy_header",
        run: http::proxy_header,
        seeds: &[
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
            b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\nGET /",
            b"PROXY UNKNOWN\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x12\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb\x02\x00\x03abc",
            b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
        ],
        tokens: &[b"PROXY ", b"TCP4 ", b"UNKNOWN", b"\r\n", b" ", b"\x20\x00\x05\x01\0\0\0\0", b"\x21\x11\x00"],
    },
    Target {
        name: "memcached",
        run: http::memcached_answer,
        seeds: &[
            b"\x02/kVALUE /k 0 5\r\nhello\r\nEND\r\n",
            b"\x01kEND\r\n",
            b"\x01kVALUE k 2 0\r\n\r\nEND\r\n",
        ],
        tokens: &[b"VALUE ", b"END\r\n", b"\r\n", b" ", b"0", b"18446744073709551615"],
    },
    Target {
        name: "cgi_head",
        run: weir_modules::fuzzed::cgi_head,
        seeds: &[
            b"Status: 404 Not Found\r\nContent-Type: text/html\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            b"Location: /a\nStatus: 100\n\n",
            b"HTTP/: 1\r\nX: y\r\n\r\n",
        ],
        tokens: FIELDS,
    },
    Target {
        name: "fastcgi",
        run: http::fastcgi_records,
        seeds: &[
            b"\x01\x06\x00\x01\x00\x03\x05\x00abc\0\0\0\0\0\x01\x06\x00\x01\x00\x00\x00\x00\x01\x03\x00\x01\x00\x08\x00\x00\0\0\0\0\0\0\0\0",
            b"\x01\x07\x00\x01\x00\x02\x00\x00no",
        ],
        tokens: &[b"\x01\x06\x00\x01\x00\x01\x00\x00a", b"\x01\x03\x00\x01\x00\x08\x00\x00", b"\x80\0\0\x01", b"\x01"],
    },
    Target {
        name: "escapes",
        run: http::escapes,
        seeds: &[b"/a b?c=d&e", b"%41%zz%4", b"<a href=\"\">\\\n\xff"],
        tokens: &[b"%", b"%25", b"%3f", b"?", b"\"", b"\\"],
    },
    Target {
        name: "types",
        run: http::types,
        seeds: &[b"html HTM shtml", b"averyveryverylongextension x"],
        tokens: &[b" ", b"html", b"\0", b"fifteen-letters"],
    },
    Target {
        name: "map",
        run: modules::map,
        seeds: &[b"default 0; ~^x+$ 1; ~*(?<n>.)y $n; '' e; \\\\default d;", b"hostnames; volatile; *.a.b 1; .c 2; d.* 3; include x;"],
        tokens: &[b"hostnames; ", b"default ", b"~*", b"~^(", b"*.", b".*", b";", b"$", b"'", b"volatile;"],
    },
    Target {
        name: "geo",
        run: modules::geo,
        seeds: &[b"default a; 10.0.0.0/8 b; delete 10.1.0.0/16; 2001:db8::/32 c; proxy 192.0.2.1; proxy_recursive;", b"127.0.0.1 1; 10.0.0.1/33 x;"],
        tokens: &[b"10.0.0.0/8 ", b"::/0 ", b"delete ", b"default ", b"proxy ", b"/", b";", b".", b":", b"255"],
    },
    Target {
        name: "geo_ranges",
        run: modules::geo_ranges,
        seeds: &[b"default a; 10.0.0.0-10.255.255.255 b; delete 10.1.0.0-10.1.0.9;", b"0.0.0.0-255.255.255.255 x; 1.2.3.4-1.2.3.4 y;"],
        tokens: &[b"10.0.0.0-10.0.0.255 ", b"255.255.255.255", b"-", b"delete ", b"default ", b";", b"."],
    },
    Target {
        name: "charset_map",
        run: modules::charset_map,
        seeds: &[b"\x0080 E1; 95 B1; 9A A0;", b"\x01C0 D18E; 80 E282AC; FF;"],
        tokens: &[b"80 ", b"FF", b"E282AC", b";", b" ", b"G", b"100"],
    },
    Target {
        name: "sub_lines",
        run: modules::sub_lines,
        seeds: &[b"\x00'</head>' '$uri</head>'", b"\x01'a(b)*' '${1}x$2' gir", b"\x01a b o"],
        tokens: &[b"'", b"\"", b"$1", b"${", b"$", b" r", b" i", b"(", b")", b"[", b"*", b"\\"],
    },
    Target {
        name: "forms",
        run: modules::forms,
        seeds: &[
            b"\x00a:10m rate=1r/s", b"\x0110r/m", b"\x02$binary_remote_addr", b"\x030.5% a; 50% b; * c;", b"\x0410.0.0.0/8",
            b"\x05modified +24h", b"\x06msie 5.5", b"\x07none blocked *.a.b ~\\.c/ d.e/f",
        ],
        tokens: &[b"zone=", b"rate=", b"r/s", b"r/m", b"%", b"*", b"/", b"@", b"-", b"18446744073709551616", b";", b"$"],
    },
    Target {
        name: "log_servers",
        run: modules::log_servers,
        seeds: &[b"127.0.0.1:514", b"[::1]:9", b"127.0.0.1:12345,", b"facility=local7,tag=a,severity=info,nohostname"],
        tokens: &[b":", b"[", b"]", b"facility=", b"tag=", b"severity=", b",", b"65536", b"nohostname"],
    },
    Target {
        name: "log_line",
        run: weir_modules::fuzzed::log_line,
        seeds: &[
            b"combined\n1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200 5 \"-\" \"a\\x22b\"",
            b"escape=json {\"a\":\"$a\"}\n{\"a\":\"x\\\"y\\u00e4\"}", b"$a|${b}\n1|2",
            b"json a=$a b=$b\n{\"a\":1,\"b\":\"x\"}",
        ],
        tokens: &[b"$", b"${", b"}", b"\"", b"\\", b"\\x", b"\\u", b"-", b"\n", b"escape=json ", b"escape=none "],
    },
    Target {
        name: "gunzip",
        run: weir_modules::fuzzed::gunzip,
        seeds: &[
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\x00\xc2\x41\x24\x35\x03\0\0\0",
            b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03\x02\0ab\x6e\0\x63\0\0\0\x03\0\0\0\0\0\0\0\0\0",
        ],
        tokens: &[b"\x1f\x8b\x08", b"\0\0\0\0", b"\x03\0", b"\x01\x01\0\xfe\xffa", b"\xff\xff"],
    },
    Target {
        name: "gzip",
        run: weir_modules::fuzzed::gzip,
        seeds: &[b"\x00\x05\x20abcabcabcabcabcabcabc", b"\x05\x00\x01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        tokens: &[b"aaaaaaaa", b"abcdefgh", b"\0\0\0\0\0\0\0\0", b"\xff"],
    },
    Target {
        name: "sub",
        run: weir_modules::fuzzed::sub,
        seeds: &[b"ab\nX\nabc\nYY\n\nabcabABC aabbcc", b"a\n\n\naaa"],
        tokens: &[b"\n", b"\n\n", b"ab", b"abc", b"A", b"aaaa"],
    },
    Target {
        name: "htpasswd",
        run: weir_modules::fuzzed::htpasswd,
        seeds: &[b"a:{PLAIN}b\n#c:d\ne:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=\n", b"f:{SSHA}AAAA:x\r\ng:xyJkVhXGAZ8tM\n"],
        tokens: &[b":", b"\n", b"\r\n", b"#", b"{PLAIN}", b"{SHA}", b"{SSHA}", b"$apr1$a$", b"xy"],
    },
    Target {
        name: "secure_link",
        run: weir_modules::fuzzed::secure_link,
        seeds: &[b"/p/d41d8cd98f00b204e9800998ecf8427e/rest", b"/p/ab/x"],
        tokens: &[b"/", b"d41d8cd98f00b204e9800998ecf8427e", b"0", b"g"],
    },
    Target {
        name: "mp4",
        run: weir_modules::fuzzed::mp4,
        seeds: &[MP4],
        tokens: &[b"moov", b"trak", b"mdat", b"stts", b"stsc", b"stco", b"co64", b"\0\0\0\x01", b"\xff\xff\xff\xff", b"\0\0\0\0"],
    },
    Target {
        name: "user_id",
        run: weir_modules::fuzzed::user_id,
        seeds: &[b"fwAAAVTxR7Y8tQAZAwMEAg==", b"fwAAAVTxR7Y8tQAZAwMEAgE=", b"short"],
        tokens: &[b"=", b"==", b"A", b"/", b"+"],
    },
    Target {
        name: "cjson",
        run: weir_lua::fuzzed::cjson,
        seeds: &[b"{\"a\":[1,2.5e3,null,true],\"b\":\"\\u00e9\\ud83d\\ude00\\n\"}", b"[[[]],{},-0,\"\"]", b"[1e400]"],
        tokens: &[b"{", b"}", b"[", b"]", b"\"", b":", b",", b"\\u", b"null", b"1e", b"nan", b"-"],
    },
];

const FIELDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b": ",
    b" HTTP/1.1",
    b" HTTP/2.0",
    b"http://",
    b"Host: a\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b" folded",
    b"%00",
    b"\0",
];

const PATHS: &[&[u8]] = &[
    b"/", b"//", b"/./", b"/../", b"..", b".", b"%2e", b"%2F", b"%25", b"%00", b"%3f", b"%", b"?", b"#",
    b".x",
];

/// A movie of one track with four samples in two chunks, after the bytes that choose the times.
const MP4: &[u8] =
    b"\x0a\x14\0\0\0\0\x10ftypisom\0\0\0\0\0\0\x01\xdcmoov\0\0\0lmvhd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\xe8\0\
    \0\x01\x90\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01htrak\0\0\0\x5ctkhd\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x90\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x04mdia\0\0\0 mdhd\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\x03\xe8\0\0\x01\x90\0\0\0\0\0\0\0\xdcminf\0\0\0\x14vmhd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\xc0stbl\0\0\0\x18stsd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x18stts\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\
    \0d\0\0\0\x18stss\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x03\0\0\0\x18ctts\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\
    \0\x07\0\0\0\x1cstsc\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0$stsz\0\0\0\0\0\0\0\0\0\0\0\
    \x04\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x18stco\0\0\0\0\0\0\0\x02\0\0\x01\xf4\0\0\x01\xf7\0\
    \0\0\x12mdatabcdefghij";
