import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * A client with the JDK's own TLS that comes again: {@code Visitor ADDRESS PORT CA NAME KIND SESSIONS RESUMPTIONS}.
 *
 * <p>It does the same as visitor.c. Tickets in TLS 1.2 are a setting of the whole JVM, so its command line sets it:
 * {@code jdk.tls.client.enableSessionTicketExtension}.
 */
final class Visitor {
    private final InetSocketAddress address;
    private final String name;
    private final String version;
    private final Trust trust;

    private Visitor(InetSocketAddress address, String name, String kind, Trust trust) {
        this.address = address;
        this.name = name;
        this.version = kind.equals("psk") ? "TLSv1.3" : "TLSv1.2";
        this.trust = trust;
    }

    public static void main(String[] arguments) throws Exception {
        var address = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        var visitor = new Visitor(address, arguments[3], arguments[4], Trust.in(Path.of(arguments[2])));
        int full = 0;
        int resumed = 0;
        for (int session = Integer.parseInt(arguments[5]); session > 0; session--) {
            // A context has the sessions of its connections: of each server, the latest one.
            var context = SSLContext.getInstance("TLS");
            context.init(null, new TrustManager[] {visitor.trust}, null);
            for (int visits = Integer.parseInt(arguments[6]); visits >= 0; visits--) {
                if (visitor.visit(context)) {
                    resumed++;
                } else {
                    full++;
                }
            }
        }
        System.out.println("full=" + full + " resumed=" + resumed);
    }

    /** Returns whether the handshake resumed a session. JSSE does not report it, but no certificate comes then. */
    private boolean visit(SSLContext context) throws IOException {
        trust.wasAsked = false;
        var tcp = new Socket();
        tcp.setTcpNoDelay(true);
        tcp.setSoTimeout(TIMEOUT_MS);
        tcp.connect(address, TIMEOUT_MS);
        try (var tls = (SSLSocket) context.getSocketFactory().createSocket(tcp, name, address.getPort(), true)) {
            SSLParameters parameters = tls.getSSLParameters();
            parameters.setProtocols(new String[] {version});
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            tls.setSSLParameters(parameters);
            get(tls);
        }
        return !trust.wasAsked;
    }

    /** Tickets of TLS 1.3 arrive before the response. */
    private void get(SSLSocket tls) throws IOException {
        String request = "GET /1024.bin HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n";
        tls.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
        String response = new String(tls.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1);
        int body = response.indexOf("\r\n\r\n") + 4;
        if (!response.startsWith("HTTP/1.1 200 ") || response.length() - body != BODY_LEN) {
            throw new IOException("answered " + response);
        }
    }

    private static final int TIMEOUT_MS = 60_000;
    private static final int BODY_LEN = 1024;
}

/** Trusts the same certificates as another manager, and records that it was called. */
final class Trust extends X509ExtendedTrustManager {
    boolean wasAsked;
    private final X509ExtendedTrustManager inner;

    private Trust(X509ExtendedTrustManager inner) {
        this.inner = inner;
    }

    /** Trusts the authority in a file. */
    static Trust in(Path file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(file)) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return new Trust((X509ExtendedTrustManager) factory.getTrustManagers()[0]);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
        wasAsked = true;
        inner.checkServerTrusted(chain, type, socket);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
        wasAsked = true;
        inner.checkServerTrusted(chain, type, engine);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
        wasAsked = true;
        inner.checkServerTrusted(chain, type);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
        inner.checkClientTrusted(chain, type, socket);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
        inner.checkClientTrusted(chain, type, engine);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
        inner.checkClientTrusted(chain, type);
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
        return inner.getAcceptedIssuers();
    }
}
