// Node's http, https and http2 as clients that read and send as fast as they can.
//
//     http.mjs get VERSION COUNT WORKERS URL SHA1    so many GETs in all, each body with this digest
//     http.mjs put VERSION COUNT WORKERS URL FILE    so many PUTs of a file to URL0, URL1, ...
//
// VERSION is 1.1 or 2; without TLS 2 is by prior knowledge. Certificates are not checked. It prints "all well", or what failed.
import { createHash } from 'node:crypto';
import { createReadStream, statSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import { pipeline } from 'node:stream/promises';

const [kind, version, count, workers, url, last] = process.argv.slice(2);
const { protocol, host } = new URL(url);
const secure = protocol === 'https:';
// A request that a GOAWAY did not take is asked again, as RFC 9113, section 8.7 allows.
const AGAIN = ['ERR_HTTP2_GOAWAY_SESSION', 'ERR_HTTP2_INVALID_SESSION'];

let session;
function connected() {
    if (!session || session.closed || session.destroyed) {
        session = http2.connect(`${protocol}//${host}`, { rejectUnauthorized: false });
        // The streams have it, too.
        session.on('error', () => {});
    }
    return session;
}

const agent = new (secure ? https : http).Agent({ keepAlive: true, maxSockets: Number(workers), rejectUnauthorized: false });

/** The request's stream to write to, and a promise of status and stream to read from. */
function begin(method, target, length) {
    const head = length === undefined ? {} : { 'content-length': length };
    const path = new URL(target).pathname;
    if (version === '2') {
        const stream = connected().request({ ':method': method, ':path': path, ...head }, { endStream: method === 'GET' });
        const response = new Promise((resolve, reject) => {
            stream.on('response', (fields) => resolve([fields[':status'], stream]));
            stream.on('error', (error) => { error.refused = stream.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM; reject(error); });
            stream.on('close', () => reject(new Error(`closed without a response, ${stream.rstCode}`)));
        });
        return [stream, response];
    }
    const request = (secure ? https : http).request(target, { method, agent, headers: head });
    const response = new Promise((resolve, reject) => {
        request.on('response', (message) => resolve([message.statusCode, message]));
        request.on('error', reject);
    });
    if (method === 'GET') request.end();
    return [request, response];
}

async function once(turn) {
    const method = kind === 'get' ? 'GET' : 'PUT';
    const [sink, promise] = begin(method, kind === 'get' ? url : url + turn, kind === 'get' ? undefined : statSync(last).size);
    const sent = kind === 'get' ? undefined : pipeline(createReadStream(last), sink);
    sent?.catch(() => {});
    const [status, body] = await promise;
    const digest = createHash('sha1');
    let length = 0;
    for await (const chunk of body) {
        digest.update(chunk);
        length += chunk.length;
    }
    await sent;
    if (Math.floor(status / 100) !== 2) throw new Error(`the response is ${status}`);
    const found = digest.digest('hex');
    if (kind === 'get' && found !== last) throw new Error(`${length} bytes with the digest ${found}, not ${last}`);
}

let turn = 0;
let failed = 0;
async function work() {
    while (turn < Number(count)) {
        const own = turn++;
        for (;;) {
            try {
                await once(own);
            } catch (error) {
                if (kind === 'get' && (error.refused || AGAIN.includes(error.code))) continue;
                failed++;
                console.log(`${error.code ?? ''} ${error.message}`);
            }
            break;
        }
    }
}
await Promise.all(Array.from({ length: Number(workers) }, work));
session?.close();
console.log(failed ? `${failed} of ${count} failed` : 'all well');
process.exit(failed ? 1 : 0);
