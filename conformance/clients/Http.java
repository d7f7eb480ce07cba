// Java's HttpClient as a client that reads and sends as fast as it can; run as `java Http.java ...`.
//
//     Http get VERSION COUNT WORKERS URL SHA1    so many GETs in all, each body with this digest
//     Http put VERSION COUNT WORKERS URL FILE    so many PUTs of a file to URL0, URL1, ...
//
// VERSION is 1.1 or 2; without TLS the client asks for 2 by Upgrade, which a server may pass over. Certificates are not
// checked. It prints "all well", or what failed.

import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

public class Http {
    static class AnyCertificate implements X509TrustManager {
        public void checkClientTrusted(X509Certificate[] chain, String type) {}
        public void checkServerTrusted(X509Certificate[] chain, String type) {}
        public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
    }

    static HttpClient client(String version) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] {new AnyCertificate()}, new SecureRandom());
        HttpClient.Version wanted = version.equals("2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
        return HttpClient.newBuilder().version(wanted).sslContext(context).build();
    }

    static void check(HttpResponse<?> response, String version, String url) throws Exception {
        boolean two = response.version() == HttpClient.Version.HTTP_2;
        if (url.startsWith("https") && two != version.equals("2")) {
            throw new Exception("the response came over " + response.version());
        }
        if (response.statusCode() / 100 != 2) {
            throw new Exception("the response is " + response.statusCode());
        }
    }

    static void get(HttpClient client, String version, String url, String wanted) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
        HttpResponse<InputStream> response = client.send(request, HttpResponse.BodyHandlers.ofInputStream());
        MessageDigest digest = MessageDigest.getInstance("SHA-1");
        byte[] buffer = new byte[65536];
        try (InputStream body = response.body()) {
            for (int length = body.read(buffer); length >= 0; length = body.read(buffer)) {
                digest.update(buffer, 0, length);
            }
        }
        String found = HexFormat.of().formatHex(digest.digest());
        if (!found.equals(wanted)) {
            throw new Exception("the digest is " + found + ", not " + wanted);
        }
        check(response, version, url);
    }

    static void put(HttpClient client, String version, String url, String file) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
            .PUT(HttpRequest.BodyPublishers.ofFile(Path.of(file))).build();
        check(client.send(request, HttpResponse.BodyHandlers.discarding()), version, url);
    }

    public static void main(String[] words) throws Exception {
        String kind = words[0], version = words[1], url = words[4], last = words[5];
        int count = Integer.parseInt(words[2]), workers = Integer.parseInt(words[3]);
        HttpClient client = client(version);
        AtomicInteger failed = new AtomicInteger();
        var pool = Executors.newFixedThreadPool(workers);
        for (int turn = 0; turn < count; turn++) {
            String own = url + turn;
            pool.execute(() -> {
                try {
                    if (kind.equals("get")) get(client, version, url, last);
                    else put(client, version, own, last);
                } catch (Exception error) {
                    failed.incrementAndGet();
                    System.out.println(error);
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        System.out.println(failed.get() == 0 ? "all well" : failed.get() + " of " + count + " failed");
        System.exit(failed.get() == 0 ? 0 : 1);
    }
}
