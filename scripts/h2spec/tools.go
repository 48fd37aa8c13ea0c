//go:build tools

// Package h2spec pins the program that tests ask about HTTP/2, and what it is made of: it comes from before modules, and would
// be built of whatever is newest, which Debian's Go cannot build.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
