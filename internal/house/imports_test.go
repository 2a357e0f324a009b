package house

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// mayImport is the map of the module: all that each package may import from
// ours, tests aside. DESIGN.md shows it as a picture and says why. A package
// that is not here fails the test: where does it belong?
var mayImport = map[string]string{
	".":                     "lifecycle audit fetch transfer metadata cache object index segment objstore objstore/endpoint checksum",
	"lifecycle":             "metadata transfer objstore objstore/endpoint object index segment checksum internal/header internal/pace",
	"audit":                 "metadata transfer objstore objstore/endpoint object index segment internal/header internal/pace",
	"fetch":                 "metadata objstore objstore/endpoint cache object index segment internal/pace",
	"transfer":              "objstore objstore/endpoint object index segment checksum internal/mint",
	"metadata":              "segment checksum internal/mint",
	"metadata/embedded":     "metadata segment checksum",
	"metadata/kafkatopic":   "metadata segment checksum",
	"metadata/metadatatest": "metadata transfer objstore objstore/endpoint objstore/storetest object segment internal/testseg",
	"cache":                 "checksum",
	"object":                "index segment checksum",
	"index":                 "segment checksum",
	"objstore":              "checksum",
	"objstore/dir":          "objstore checksum",
	"objstore/s3":           "objstore checksum",
	"objstore/endpoint":     "objstore checksum internal/pace",
	"objstore/storetest":    "objstore checksum",
	"segment":               "checksum",
	"checksum":              "",
	"internal/bubble":       "",
	"internal/explore":      "",
	"internal/header":       "metadata object",
	"internal/mint":         "segment checksum",
	"internal/pace":         "",
	"internal/gateway":      "",
	"internal/testseg":      "segment index checksum",
	"internal/house":        "",
}

// onlyIn says which packages may import a module of somebody else's, tests
// aside: each has one job here, and a host links only what it names. Programs
// may import any of them.
var onlyIn = map[string]string{
	"github.com/aws/":                "objstore/s3",
	"github.com/twmb/franz-go":       "metadata/kafkatopic",
	"go.etcd.io/bbolt":               "metadata/embedded",
	"github.com/dgraph-io/ristretto": "cache",
	"github.com/cespare/xxhash":      "checksum cache",
	"github.com/klauspost/compress":  "segment internal/testseg",
	"github.com/pierrec/lz4":         "segment internal/testseg",
	"golang.org/x/sync":              "objstore/dir objstore/s3 objstore/endpoint cache fetch transfer lifecycle audit",
	"golang.org/x/sys":               "objstore/dir cache segment",
	"pgregory.net/rapid":             "objstore/storetest metadata/metadatatest internal/testseg",
	"go.uber.org/goleak":             "objstore/storetest metadata/metadatatest",
	"github.com/spf13/cobra":         "",
	"github.com/schollz/progressbar": "",
	"github.com/dustin/go-humanize":  "",
	"github.com/google/go-cmp":       "",
	"github.com/stretchr/testify":    "",
}

func TestImportsFollowTheMap(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		if p.program() || len(p.shipped()) == 0 {
			continue
		}
		allowed, ok := mayImport[p.dir]
		if !ok {
			t.Errorf("package %s is not on the map: add it to mayImport and to DESIGN.md", p.dir)
			continue
		}
		may := strings.Fields(allowed)
		for _, f := range p.shipped() {
			for _, imp := range f.imports() {
				ours, ok := inModule(imp)
				if ok && !slices.Contains(may, ours) {
					t.Errorf("%s imports %s; %s may import only: %s", f.path, ours, p.dir, allowed)
				}
			}
		}
	}
}

// The map itself must keep what DESIGN.md promises, whatever is edited above.
func TestMapKeepsItsPromises(t *testing.T) {
	never := func(from, to string) {
		if slices.Contains(strings.Fields(mayImport[from]), to) {
			t.Errorf("the map lets %s import %s", from, to)
		}
	}
	never("transfer", "fetch")
	never("fetch", "transfer")
	never("transfer", "metadata") // transfer knows nothing of states
	for _, store := range []string{"objstore", "objstore/dir", "objstore/s3", "objstore/endpoint"} {
		never("metadata", store) // metadata knows nothing of stores
	}
	for _, backend := range []string{"objstore/dir", "objstore/s3", "metadata/embedded", "metadata/kafkatopic"} {
		for from := range mayImport {
			never(from, backend) // a host links only the backends that it names
		}
	}
	for from, allowed := range mayImport {
		for _, to := range strings.Fields(allowed) {
			if _, ok := mayImport[to]; !ok {
				t.Errorf("the map lets %s import %s, which is not on it", from, to)
			}
			if strings.HasSuffix(to, "test") || to == "internal/testseg" || to == "internal/gateway" {
				if !strings.HasSuffix(from, "test") {
					t.Errorf("the map lets %s import %s, which is for tests", from, to)
				}
			}
			if to == "internal/mint" && from != "transfer" && from != "metadata" {
				t.Errorf("the map lets %s make receipts", from)
			}
		}
	}
}

func TestOthersModulesHaveOneJob(t *testing.T) {
	tr := sourceTree(t)
	known := slices.Collect(maps.Keys(onlyIn))
	for _, p := range tr.packages {
		if p.program() {
			continue
		}
		for _, f := range p.shipped() {
			for _, imp := range f.imports() {
				if _, ours := inModule(imp); ours || !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
					continue // ours, or the standard library
				}
				i := slices.IndexFunc(known, func(prefix string) bool { return strings.HasPrefix(imp, prefix) })
				if i < 0 {
					t.Errorf("%s imports %s, which has no job here yet: give it one in onlyIn", f.path, imp)
				} else if !slices.Contains(strings.Fields(onlyIn[known[i]]), p.dir) {
					t.Errorf("%s imports %s, which only these may: %s", f.path, imp, onlyIn[known[i]])
				}
			}
		}
	}
}

func TestShippedPackagesDoNotImportTesting(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		if p.forTests() {
			continue
		}
		for _, f := range p.shipped() {
			for _, imp := range f.imports() {
				if imp == "testing" || strings.HasPrefix(imp, "testing/") {
					t.Errorf("%s imports %s", f.path, imp)
				}
			}
		}
	}
}

// A Receipt is proof because nobody else can make one.
func TestOnlyUploadAndConfirmMint(t *testing.T) {
	tr := sourceTree(t)
	for _, p := range tr.packages {
		if p.dir == "internal/mint" {
			continue
		}
		for _, f := range p.files {
			if f.importName(module+"/internal/mint") == "." {
				t.Errorf("%s imports internal/mint under no name, which would hide calls", f.path)
			}
			for _, decl := range f.ast.Decls {
				where := "a declaration"
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
					where = fn.Name.Name
				}
				f.mentions(decl, module+"/internal/mint", "New", func(n ast.Node) {
					if p.dir != "transfer" || f.test || where != "Upload" && where != "Confirm" {
						t.Errorf("%s: %s mentions mint.New; only transfer.Upload and transfer.Confirm may", tr.pos(n.Pos()), where)
					}
				})
			}
		}
	}
}

// inModule returns the folder of one of our packages.
func inModule(imp string) (dir string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}
