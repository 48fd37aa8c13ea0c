// A client with Go's crypto/tls that comes again: visitor ADDRESS PORT CA NAME KIND SESSIONS RESUMPTIONS
//
// It does the same as visitor.c. KIND is `tickets` (TLS 1.2) or `psk` (TLS 1.3): crypto/tls does not resume by session
// ids.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

const (
	timeout = time.Minute
	bodyLen  = 1024
)

type visitor struct {
	address, name string
	config        *tls.Config
}

func main() {
	address := net.JoinHostPort(os.Args[1], os.Args[2])
	guest := visitor{address, os.Args[4], config(os.Args[3], os.Args[4], os.Args[5])}
	full, resumed := 0, 0
	for session := number(os.Args[6]); session > 0; session-- {
		// A connection uses the latest ticket for the name.
		guest.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for visits := number(os.Args[7]); visits >= 0; visits-- {
			if guest.visit() {
				resumed++
			} else {
				full++
			}
		}
	}
	fmt.Printf("full=%d resumed=%d\n", full, resumed)
}

func config(ca, name, kind string) *tls.Config {
	versions := map[string]uint16{"tickets": tls.VersionTLS12, "psk": tls.VersionTLS13}
	version, isKnown := versions[kind]
	pem, err := os.ReadFile(ca)
	check(err)
	roots := x509.NewCertPool()
	if !isKnown || !roots.AppendCertsFromPEM(pem) {
		check(fmt.Errorf("%s or %s is of no use", kind, ca))
	}
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: version, MaxVersion: version}
}

// Returns whether the handshake resumed a session.
func (guest *visitor) visit() bool {
	tcp, err := net.DialTimeout("tcp", guest.address, timeout)
	check(err)
	check(tcp.SetDeadline(time.Now().Add(timeout)))
	connection := tls.Client(tcp, guest.config)
	defer connection.Close()
	check(connection.Handshake())
	get(connection, guest.name)
	return connection.ConnectionState().DidResume
}

// Tickets of TLS 1.3 arrive before the response.
func get(connection *tls.Conn, name string) {
	_, err := fmt.Fprintf(connection, "GET /1024.bin HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name)
	check(err)
	response, err := io.ReadAll(connection)
	check(err)
	body := bytes.Index(response, []byte("\r\n\r\n")) + 4
	if !bytes.HasPrefix(response, []byte("HTTP/1.1 200 ")) || len(response)-body != bodyLen {
		check(fmt.Errorf("answered %q", response))
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
