// .NET's HttpClient as a client that reads and sends as fast as it can.
//
//     Http get VERSION COUNT WORKERS URL SHA1    so many GETs in all, each body with this digest
//     Http put VERSION COUNT WORKERS URL FILE    so many PUTs of a file to URL0, URL1, ...
//
// VERSION is 1.1 or 2; without TLS 2 is by prior knowledge. It prints "all well", or what failed. The digest is computed
// here: the runtime's own needs a version of OpenSSL that a distribution may not have.
using System;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;

/// SHA-1 (RFC 3174).
class Digest
{
    readonly uint[] state = { 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0 };
    readonly uint[] words = new uint[80];
    readonly byte[] block = new byte[64];
    int used;
    ulong length;

    static uint Rotated(uint word, int bits) => word << bits | word >> 32 - bits;

    void Step(byte[] bytes, int at)
    {
        for (int i = 0; i < 16; i++, at += 4)
            words[i] = (uint)(bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3]);
        for (int i = 16; i < 80; i++)
            words[i] = Rotated(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
        uint a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (int i = 0; i < 80; i++)
        {
            uint mixed = i < 20 ? (b & c | ~b & d) + 0x5A827999 : i < 40 ? (b ^ c ^ d) + 0x6ED9EBA1
                : i < 60 ? (b & c | b & d | c & d) + 0x8F1BBCDC : (b ^ c ^ d) + 0xCA62C1D6;
            uint next = Rotated(a, 5) + mixed + e + words[i];
            e = d; d = c; c = Rotated(b, 30); b = a; a = next;
        }
        state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e;
    }

    public void Add(byte[] bytes, int count)
    {
        length += (ulong)count;
        int at = 0;
        while (at < count)
        {
            if (used == 0 && count - at >= 64) { Step(bytes, at); at += 64; continue; }
            int taken = Math.Min(64 - used, count - at);
            Buffer.BlockCopy(bytes, at, block, used, taken);
            used = used + taken & 63;
            at += taken;
            if (used == 0) Step(block, 0);
        }
    }

    public string Text()
    {
        ulong bits = length * 8;
        Add(new byte[] { 0x80 }, 1);
        while (used != 56) Add(new byte[1], 1);
        Add(Enumerable.Range(0, 8).Select(i => (byte)(bits >> 56 - 8 * i)).ToArray(), 8);
        return string.Concat(state.Select(word => word.ToString("x8")));
    }
}

static class Http
{
    static async Task Ask(HttpClient client, string kind, string version, string url, string last)
    {
        bool get = kind == "get";
        var request = new HttpRequestMessage(get ? HttpMethod.Get : HttpMethod.Put, url);
        request.Version = new Version(version == "2" ? "2.0" : version);
        if (!get) request.Content = new StreamContent(File.OpenRead(last));
        using (var response = await client.SendAsync(request, HttpCompletionOption.ResponseHeadersRead))
        using (var body = await response.Content.ReadAsStreamAsync())
        {
            var digest = new Digest();
            var buffer = new byte[65536];
            for (int count; (count = await body.ReadAsync(buffer, 0, buffer.Length)) > 0;) digest.Add(buffer, count);
            if (response.Version != request.Version) throw new Exception("the response came over " + response.Version);
            if ((int)response.StatusCode / 100 != 2) throw new Exception("the response is " + response.StatusCode);
            string found = digest.Text();
            if (get && found != last) throw new Exception("the digest is " + found + ", not " + last);
        }
    }

    static async Task<int> Run(string[] words)
    {
        int count = int.Parse(words[2]), turn = -1, failed = 0;
        var client = new HttpClient(new SocketsHttpHandler { UseProxy = false }) { Timeout = Timeout.InfiniteTimeSpan };
        var workers = Enumerable.Range(0, int.Parse(words[3])).Select(_ => Task.Run(async () =>
        {
            for (int own; (own = Interlocked.Increment(ref turn)) < count;)
            {
                try { await Ask(client, words[0], words[1], words[0] == "get" ? words[4] : words[4] + own, words[5]); }
                catch (Exception error) { Interlocked.Increment(ref failed); Console.WriteLine(error.ToString().Replace('\n', ' ')); }
            }
        }));
        await Task.WhenAll(workers.ToArray());
        Console.WriteLine(failed == 0 ? "all well" : failed + " of " + count + " failed");
        return failed == 0 ? 0 : 1;
    }

    static int Main(string[] words)
    {
        AppContext.SetSwitch("System.Net.Http.SocketsHttpHandler.Http2UnencryptedSupport", true);
        return Run(words).Result;
    }
}
