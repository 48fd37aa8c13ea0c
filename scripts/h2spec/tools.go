//go:build tools

// Package h2spec pins the program h2spec, which tests HTTP/2 servers, and its dependencies. h2spec is older than Go
// modules and pins nothing itself. So Go would take the newest dependencies, which Debian's Go cannot build.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
