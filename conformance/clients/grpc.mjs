// A gRPC server and a gRPC client of Node's library (@grpc/grpc-js, found by NODE_PATH), with bytes for messages, as
// crates/weir/tests/data/grpc_peer.py has them.
//
//     grpc.mjs serve                 prints its port, serves until its input ends
//     grpc.mjs ask ADDR CA COUNT     makes calls of every kind to ADDR, with a CA over TLS (else "-"); prints "all calls well"
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const grpc = createRequire(import.meta.url)('@grpc/grpc-js');
const TIMEOUT = 600_000;
const UNLIMITED = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1, 'grpc.enable_http_proxy': 0 };
const asIs = (message) => message;

function method(name, requestStream, responseStream) {
    const codec = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs };
    return { path: `/t.T/${name}`, requestStream, responseStream, ...codec };
}

const SERVICE = {
    Unary: method('Unary', false, false),
    Down: method('Down', false, true),
    Up: method('Up', true, false),
    Both: method('Both', true, true),
};

const metadata = (name, value) => {
    const made = new grpc.Metadata();
    made.set(name, value);
    return made;
};
const reversed = (bytes) => Buffer.from(bytes).reverse();

function unary(call, done) {
    const request = call.request.toString('latin1');
    if (request === 'fail') {
        done({ code: grpc.status.NOT_FOUND, details: 'no such thing', metadata: metadata('why', 'asked for') });
    } else if (request === 'slow') {
        call.on('cancelled', () => done({ code: grpc.status.CANCELLED }));
    } else {
        call.sendMetadata(metadata('first', 'yes'));
        done(null, reversed(call.request), metadata('last', 'yes'));
    }
}

async function down(call) {
    if (call.request.toString() === 'hang') {
        call.on('cancelled', () => console.log('given up'));
        call.write(Buffer.from('begun'));
        return;
    }
    for (let number = 0; number < Number(call.request); number++) {
        if (!call.write(Buffer.from(String(number)))) await new Promise((resume) => call.once('drain', resume));
    }
    call.end();
}

function up(call, done) {
    let sum = 0;
    call.on('data', (message) => { sum += message.length; });
    call.on('end', () => done(null, Buffer.from(String(sum))));
}

function both(call) {
    call.on('data', (message) => call.write(Buffer.from(message.toString().toUpperCase())));
    call.on('end', () => call.end());
}

function serve() {
    const server = new grpc.Server(UNLIMITED);
    server.addService(SERVICE, { Unary: unary, Down: down, Up: up, Both: both });
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
        if (error) throw error;
        console.log(port);
    });
    process.stdin.resume().on('end', () => process.exit(0));
}

const until = () => ({ deadline: Date.now() + TIMEOUT });

/** The response of a unary call with its metadata; fails with the status. */
function one(client, message, options = until()) {
    return new Promise((resolve, reject) => {
        const found = {};
        const call = client.Unary(message, options, (error, response) => {
            if (error) reject(error);
            else setImmediate(() => resolve({ ...found, response }));
        });
        call.on('metadata', (fields) => { found.first = fields.get('first')[0]; });
        call.on('status', (status) => { found.last = status.metadata.get('last')[0]; });
    });
}

async function single(client) {
    assert.deepEqual(await one(client, Buffer.from('abc')), { first: 'yes', last: 'yes', response: Buffer.from('cba') });
    const large = Buffer.alloc(1 << 21, '0123456789abcdef');
    assert.ok((await one(client, large)).response.equals(reversed(large)));
    await assert.rejects(one(client, Buffer.from('fail')), (error) => error.code === grpc.status.NOT_FOUND
        && error.details === 'no such thing' && error.metadata.get('why')[0] === 'asked for');
    const short = one(client, Buffer.from('slow'), { deadline: Date.now() + 500 });
    // A server of Go's library counts the deadline, too, and resets the stream: of which a proxy makes status 502.
    await assert.rejects(short, (error) => [grpc.status.DEADLINE_EXCEEDED, grpc.status.UNAVAILABLE].includes(error.code));
}

async function downwards(client, count) {
    const hanging = client.Down(Buffer.from('hang'), until());
    for await (const message of cancelledEnds(hanging)) {
        assert.equal(message.toString(), 'begun');
        hanging.cancel();
    }
    let number = 0;
    for await (const message of client.Down(Buffer.from(String(count)), until())) assert.equal(message.toString(), String(number++));
    assert.equal(number, count);
}

async function* cancelledEnds(call) {
    try {
        yield* call;
    } catch (error) {
        assert.equal(error.code, grpc.status.CANCELLED);
    }
}

async function upwards(client, count) {
    let done;
    const sum = new Promise((resolve, reject) => { done = (error, response) => (error ? reject(error) : resolve(response)); });
    const call = client.Up(until(), done);
    for (let number = 0; number < count; number++) {
        if (!call.write(Buffer.alloc(100, 'x'))) await new Promise((resume) => call.once('drain', resume));
    }
    call.end();
    assert.equal((await sum).toString(), String(100 * count));
}

/** Each question is asked when the one before has its response. */
async function talk(client, count) {
    const call = client.Both(until());
    let number = 0;
    call.write(Buffer.from('q0'));
    for await (const message of call) {
        assert.equal(message.toString(), `Q${number}`);
        number++;
        if (number < count) call.write(Buffer.from(`q${number}`));
        else call.end();
    }
    assert.equal(number, count);
}

async function ask(address, ca, count) {
    const secure = ca !== '-';
    const credentials = secure ? grpc.credentials.createSsl(readFileSync(ca)) : grpc.credentials.createInsecure();
    const options = secure ? { ...UNLIMITED, 'grpc.ssl_target_name_override': 'localhost' } : UNLIMITED;
    const client = new (grpc.makeGenericClientConstructor(SERVICE, 'T'))(address, credentials, options);
    await single(client);
    await downwards(client, count);
    await upwards(client, count);
    await talk(client, count / 100);
    const texts = Array.from({ length: 1000 }, (_, number) => Buffer.from(String(number)));
    const responses = await Promise.all(texts.map((text) => one(client, text)));
    responses.forEach(({ response }, number) => assert.ok(response.equals(reversed(texts[number]))));
    client.close();
    console.log('all calls well');
}

const [kind, address, ca, count] = process.argv.slice(2);
if (kind === 'serve') serve();
else await ask(address, ca, Number(count));
