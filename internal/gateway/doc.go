// Package gateway gives tests a real S3 server: versitygw, built by `make
// tools`, in a process of its own on a loopback port, over a temporary directory
// and with keys that are thrown away. [Start] starts it, [Server.Kill] and
// [Server.Restart] make it die and come back at the same place with what it had
// stored, and [Front] puts a proxy before it that counts what was sent and can
// hurt any request.
//
//	test ── client ──► Proxy ──► versitygw ──► directory
//	                     │            ▲
//	                     └── Kill ────┘ before, inside or after a request
//
// Without the program, tests that need it are skipped and say how to get it; where
// SEGTIER_GATEWAY is "required" they fail instead, so that a check cannot pass
// without them. SEGTIER_VERSITYGW names another program than bin/versitygw.
//
// A server never outlives its test: it is stopped when the test ends, and on
// Linux the kernel kills it if the test's process dies first.
package gateway
