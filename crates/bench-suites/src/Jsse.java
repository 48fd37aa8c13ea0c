import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The tasks of `watari bench suites` in a JVM, with the TLS implementation of the JDK. The equivalent of loopback.rs.
 *
 * <p>The first line of the output contains the version and the supported suites. Each line of the input is a task,
 * {@code SUITE KEY BULK_BYTES CONNECTIONS}. The answer is one line of JSON. The only argument is a directory. For each
 * KEY it contains files with the authority, the certificate and the private key in DER.
 */
final class Jsse {
    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        System.out.println(hello());
        var tasks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String task; (task = tasks.readLine()) != null; ) {
            System.out.println(answer(directory, task.split(" ")));
        }
    }

    private static String hello() throws GeneralSecurityException {
        String[] suites = SSLContext.getDefault().getSupportedSSLParameters().getCipherSuites();
        String names = Arrays.stream(suites).map(Jsse::quoted).collect(Collectors.joining(","));
        return "{\"version\":" + quoted(System.getProperty("java.version")) + ",\"suites\":[" + names + "]}";
    }

    private static String answer(Path directory, String[] task) {
        try {
            Ends ends = Ends.load(directory, task[0], task[1]);
            return measure(ends, Long.parseLong(task[2]), Integer.parseInt(task[3]));
        } catch (Exception error) {
            return "{\"error\":" + quoted(reasons(error)) + "}";
        }
    }

    /** A tenth of the work runs first and is not measured, so that the JVM compiles the frequently executed code. */
    private static String measure(Ends ends, long bulkBytes, int connections) throws Exception {
        work(ends, bulkBytes / 10 + 1, connections / 10 + 1);
        return work(ends, bulkBytes, connections);
    }

    private static String work(Ends ends, long bulkBytes, int connections) throws Exception {
        Visits bulk = new Visits(ends, 1, bulkBytes, null);
        Visits fresh = new Visits(ends, connections, 1, null);
        Kept kept = new Kept(ends.client());
        Visits first = new Visits(ends, 1, 1, kept);
        Visits reuse = new Visits(ends, connections, 1, kept);
        bulk.run();
        fresh.run();
        // Clients look up their sessions by the server's port.
        try (SSLServerSocket listener = ends.listen()) {
            first.run(listener);
            reuse.run(listener);
        }
        return "{\"version\":" + quoted(bulk.version) + ",\"bulk\":" + bulk.cost() + ",\"new\":" + fresh.cost()
                + ",\"reuse\":" + reuse.cost() + ",\"not_new\":" + fresh.resumed + ",\"reused\":" + reuse.resumed + "}";
    }

    /** An error and its causes, as one line. */
    static String reasons(Throwable error) {
        String own = String.valueOf(error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage());
        return error.getCause() == null ? own : own + ": " + reasons(error.getCause());
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else {
                json.append(c < ' ' ? ' ' : c);
            }
        }
        return json.append('"').toString();
    }
}

/** Client and server, configured for one suite. */
final class Ends {
    final String suite;
    private final SSLContext server;
    private final TrustManager[] trusted;

    private Ends(String suite, SSLContext server, TrustManager[] trusted) {
        this.suite = suite;
        this.server = server;
        this.trusted = trusted;
    }

    /** {@code key} is the name of the files without extension, or {@code none}. */
    static Ends load(Path directory, String suite, String key) throws Exception {
        KeyStore keys = emptyStore();
        KeyStore authorities = emptyStore();
        if (!key.equals("none")) {
            Certificate[] chain = {certificate(directory.resolve(key + ".certificate"))};
            keys.setKeyEntry("server", privateKey(directory.resolve(key + ".key"), chain[0]), new char[0], chain);
            authorities.setCertificateEntry("authority", certificate(directory.resolve(key + ".authority")));
        }
        return new Ends(suite, context(keyManagers(keys), null), trustManagers(authorities));
    }

    /** A client without sessions. */
    Client client() throws GeneralSecurityException {
        WatchedTrust watched = trusted.length == 0 ? null : new WatchedTrust((X509ExtendedTrustManager) trusted[0]);
        return new Client(suite, context(null, watched == null ? trusted : new TrustManager[] {watched}), watched);
    }

    SSLServerSocket listen() throws IOException {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        var socket = (SSLServerSocket) server.getServerSocketFactory().createServerSocket(0, 50, loopback);
        socket.setEnabledCipherSuites(new String[] {suite});
        socket.setEnabledProtocols(Client.VERSIONS);
        socket.setSoTimeout(Client.PATIENCE_MS);
        return socket;
    }

    private static SSLContext context(KeyManager[] keys, TrustManager[] trusted) throws GeneralSecurityException {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys, trusted, RANDOM);
        return context;
    }

    private static KeyManager[] keyManagers(KeyStore keys) throws GeneralSecurityException {
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(keys, new char[0]);
        return factory.getKeyManagers();
    }

    /** Empty if there is no authority: the server sends no certificate then. */
    private static TrustManager[] trustManagers(KeyStore authorities) throws GeneralSecurityException {
        if (authorities.size() == 0) {
            return new TrustManager[0];
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(authorities);
        return factory.getTrustManagers();
    }

    private static KeyStore emptyStore() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Certificate certificate(Path file) throws Exception {
        try (InputStream der = Files.newInputStream(file)) {
            return CertificateFactory.getInstance("X.509").generateCertificate(der);
        }
    }

    private static PrivateKey privateKey(Path file, Certificate certificate) throws Exception {
        String algorithm = certificate.getPublicKey().getAlgorithm();
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(Files.readAllBytes(file)));
    }

    private static final SecureRandom RANDOM = new SecureRandom();
}

/** A client with the sessions of its connections. */
final class Client {
    private final String suite;
    private final SSLContext context;
    /** Null if the server sends no certificate. */
    private final WatchedTrust trust;

    Client(String suite, SSLContext context, WatchedTrust trust) {
        this.suite = suite;
        this.context = context;
        this.trust = trust;
    }

    SSLSocket connect(int port) throws IOException {
        if (trust != null) {
            trust.wasAsked = false;
        }
        var socket = (SSLSocket) context.getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), port);
        prepare(socket);
        socket.setEnabledCipherSuites(new String[] {suite});
        socket.setEnabledProtocols(VERSIONS);
        return socket;
    }

    /** Whether the server sent a certificate on the last connection. In a resumed handshake it sends none. */
    boolean sawCertificate() {
        return trust != null && trust.wasAsked;
    }

    static void prepare(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(PATIENCE_MS);
    }

    static final int PATIENCE_MS = 60_000;
    static final String[] VERSIONS = {"TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1"};
}

/** A client whose connections reuse a session, and the id of the first connection's session. */
final class Kept {
    final Client client;
    private byte[] firstId;

    Kept(Client client) {
        this.client = client;
    }

    /**
     * Whether a connection that began at {@code beganMs} resumed a session. JSSE does not report this directly. In
     * TLS 1.3, a server that sends no certificate has accepted a session. In earlier versions, a resumed session has
     * the id of the first session (the paper's proof). Without a first session, it is older than the connection.
     */
    boolean isResumed(SSLSession session, long beganMs) {
        boolean isKnown = firstId == null
                ? session.getCreationTime() < beganMs
                : Arrays.equals(session.getId(), firstId);
        if (firstId == null) {
            firstId = session.getId();
        }
        return (isKnown || session.getProtocol().equals("TLSv1.3")) && !client.sawCertificate();
    }
}

/** Connections, one after the other, and their results. */
final class Visits {
    private final Ends ends;
    private final int connections;
    private final long bytes;
    private final Kept kept;
    int resumed;
    String version;
    private long wallNs;
    private long clientCpuNs;
    private long serverCpuNs;

    /** Without {@code kept}, each connection has a new client. */
    Visits(Ends ends, int connections, long bytes, Kept kept) {
        this.ends = ends;
        this.connections = connections;
        this.bytes = bytes;
        this.kept = kept;
    }

    String cost() {
        return "{\"wall\":" + wallNs + ",\"client_cpu\":" + clientCpuNs + ",\"server_cpu\":" + serverCpuNs + "}";
    }

    void run() throws Exception {
        try (SSLServerSocket listener = ends.listen()) {
            run(listener);
        }
    }

    void run(SSLServerSocket listener) throws Exception {
        var serving = new FutureTask<>(() -> cpuNs(() -> serve(listener)));
        var calling = new FutureTask<>(() -> cpuNs(() -> call(listener.getLocalPort())));
        long began = System.nanoTime();
        for (var side : List.of(serving, calling)) {
            new Thread(side).start();
        }
        String client = failure("client", calling);
        if (client != null) {
            // Stops the server, which would wait for further connections.
            listener.close();
        }
        String server = failure("server", serving);
        wallNs = System.nanoTime() - began;
        if (client != null || server != null) {
            throw new IOException(Stream.of(client, server).filter(Objects::nonNull).collect(Collectors.joining("; ")));
        }
        clientCpuNs = calling.get();
        serverCpuNs = serving.get();
    }

    /** Waits for a side. Returns its error, or null. */
    private static String failure(String name, FutureTask<Long> side) throws InterruptedException {
        try {
            side.get();
            return null;
        } catch (ExecutionException error) {
            return name + ": " + Jsse.reasons(error.getCause());
        }
    }

    private void call(int port) throws Exception {
        for (int i = 0; i < connections; i++) {
            Kept one = kept == null ? new Kept(ends.client()) : kept;
            long began = System.currentTimeMillis();
            try (SSLSocket socket = one.client.connect(port)) {
                receive(socket.getInputStream());
                SSLSession session = socket.getSession();
                version = session.getProtocol();
                resumed += one.isResumed(session, began) ? 1 : 0;
            }
        }
    }

    private void serve(SSLServerSocket listener) throws Exception {
        for (int i = 0; i < connections; i++) {
            try (var socket = (SSLSocket) listener.accept()) {
                Client.prepare(socket);
                send(socket.getOutputStream());
                if (socket.getInputStream().read() != -1) {
                    throw new IOException("the client sent data");
                }
            }
        }
    }

    private void send(OutputStream out) throws IOException {
        byte[] record = new byte[RECORD];
        for (long rest = bytes; rest > 0; rest -= Math.min(rest, RECORD)) {
            out.write(record, 0, (int) Math.min(rest, RECORD));
        }
    }

    private void receive(InputStream in) throws IOException {
        byte[] buffer = new byte[RECORD];
        for (long rest = bytes; rest > 0; ) {
            int len = in.read(buffer, 0, (int) Math.min(rest, RECORD));
            if (len < 0) {
                throw new EOFException("the server closed early");
            }
            rest -= len;
        }
    }

    private static long cpuNs(Side side) throws Exception {
        long before = THREADS.getCurrentThreadCpuTime();
        side.run();
        return THREADS.getCurrentThreadCpuTime() - before;
    }

    private interface Side {
        void run() throws Exception;
    }

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final int RECORD = 16_384;
}

/** Delegates to another trust manager, and records that it was called. */
final class WatchedTrust extends X509ExtendedTrustManager {
    boolean wasAsked;
    private final X509ExtendedTrustManager inner;

    WatchedTrust(X509ExtendedTrustManager inner) {
        this.inner = inner;
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
