package house

// The places where a rule of code_test.go does not hold, each with its reason.
// An entry that is not needed any more fails the test.

// packageVariables are tables that are written once, when the program is
// loaded, and only read from then on, and what belongs to the process: folder.name.
var packageVariables = map[string]string{
	"checksum.castagnoli": "the table that hash/crc32 makes for its fast path; a hash without it is ten times slower",
	"checksum.powers":     "32 constants that are computed from the polynomial instead of typed in",

	"internal/bubble.ps":                "who counts on GOMAXPROCS, which is the process's; only tests see it",
	"internal/testseg.DefaultPartition": "a struct, which cannot be a constant; only tests see it",
}

// sleepers are files that may call time.Sleep.
var sleepers = map[string]string{}

// backgrounds are files that may make a context of their own.
var backgrounds = map[string]string{}

// notByGoleak are packages that start goroutines without goleak in their tests.
var notByGoleak = map[string]string{}

// longFiles are files above the limit.
var longFiles = map[string]string{}

// notFuzzed are parsers without a fuzz target: folder.name.
var notFuzzed = map[string]string{}
