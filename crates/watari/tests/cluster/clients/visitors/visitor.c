/*
 * A client with OpenSSL that comes again: visitor ADDRESS PORT CA NAME KIND SESSIONS RESUMPTIONS
 *
 * Each session begins with a full handshake, and is resumed RESUMPTIONS times, without a pause. KIND is `ids` (TLS 1.2
 * without tickets), `tickets` (TLS 1.2) or `psk` (TLS 1.3). Prints the counts of handshakes: `full=N resumed=N`.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define TIMEOUT_S 60
#define BODY_LEN 1024

/* The latest session. */
static SSL_SESSION *newest;

static void fail(const char *what)
{
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static SSL_CTX *context(const char *ca, const char *kind)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    int version = strcmp(kind, "psk") == 0 ? TLS1_3_VERSION : TLS1_2_VERSION;

    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, version) || !SSL_CTX_set_max_proto_version(ctx, version))
        fail("context");
    if (SSL_CTX_load_verify_file(ctx, ca) != 1)
        fail(ca);
    if (strcmp(kind, "ids") == 0)
        SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ctx;
}

static int dial(const char *ip, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || inet_pton(AF_INET, ip, &address.sin_addr) != 1)
        fail(ip);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    return fd;
}

/* Tickets of TLS 1.3 arrive before the response. */
static void get(SSL *ssl, const char *name)
{
    char text[BODY_LEN * 4];
    size_t len = 0;
    int read, written = snprintf(text, sizeof text,
                                 "GET /1024.bin HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name);

    if (SSL_write(ssl, text, written) != written)
        fail("request");
    while (len < sizeof text - 1 && (read = SSL_read(ssl, text + len, sizeof text - 1 - len)) > 0)
        len += read;
    text[len] = 0;
    const char *body = strstr(text, "\r\n\r\n");
    if (SSL_get_error(ssl, read) != SSL_ERROR_ZERO_RETURN || strncmp(text, "HTTP/1.1 200 ", 13) != 0 || !body
        || text + len - (body + 4) != BODY_LEN)
        fail("response");
}

/* Whether the handshake resumed the session that was offered. */
static int visit(SSL_CTX *ctx, char **arguments)
{
    SSL *ssl = SSL_new(ctx);
    int resumed, fd = dial(arguments[0], arguments[1]);

    if (!ssl || !SSL_set_fd(ssl, fd) || !SSL_set1_host(ssl, arguments[3])
        || !SSL_set_tlsext_host_name(ssl, arguments[3]))
        fail("connection");
    if (newest && !SSL_set_session(ssl, newest))
        fail("session");
    if (SSL_connect(ssl) != 1)
        fail("handshake");
    get(ssl, arguments[3]);
    resumed = SSL_session_reused(ssl);
    SSL_SESSION_free(newest);
    newest = SSL_get1_session(ssl);
    SSL_shutdown(ssl);
    SSL_free(ssl);
    close(fd);
    return resumed;
}

int main(int count, char **arguments)
{
    int tally[2] = {0, 0};

    if (count != 8)
        return 2;
    SSL_CTX *ctx = context(arguments[3], arguments[5]);
    for (int session = atoi(arguments[6]); session > 0; session--) {
        SSL_SESSION_free(newest);
        newest = NULL;
        for (int visits = atoi(arguments[7]); visits >= 0; visits--)
            tally[visit(ctx, arguments + 1)]++;
    }
    printf("full=%d resumed=%d\n", tally[0], tally[1]);
    return 0;
}
