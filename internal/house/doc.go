// Package house holds the project's house rules as tests: what a reviewer would
// otherwise have to look for in every change, and no linter knows.
//
//	imports_test.go    which package may import which, ours and others'
//	exported_test.go   the golden list of exported names
//	code_test.go       no globals, no init, no sleeps, goleak, sizes, fuzzing
//	docs_test.go       links, README against its example, errors against docs/errors.md
//
// The tests parse the source of every file, whatever its build constraints, and
// never build or run it. A rule that must be broken somewhere has a list of
// exceptions beside it, each with its reason; an exception that is no longer
// needed fails too.
package house
