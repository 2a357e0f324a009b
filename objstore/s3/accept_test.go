package s3_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/objstore/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(sinkVariable) != "" {
		serveSink()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// dialects are those on which the whole law holds.
func dialects() []dialect {
	return []dialect{
		{name: "aws"},
		// Verifies nothing, answers nothing: everything is read back.
		{name: "legacy", blind: true, noEcho: true, noListCRC: true, noCondition: true, noSize: true, noHeadCRC: true, noAttributes: true, noReplay: true, noBatchDelete: true},
		{name: "bare", noMeta: true, noHeadCRC: true, noEcho: true, refuseIfNone: true, pageSize: 3},
		{name: "versity", noAttributes: true, suffix: true},
		{name: "weed", noListCRC: true, listTwice: true, noSize: true, replay412: true},
		{name: "minio", noReplay: true},
		{name: "mirror", blind: true, noCondition: true},
	}
}

func TestAcceptance(t *testing.T) {
	for i, d := range dialects() {
		if i >= soak(3, len(dialects())) {
			break // the rest is between these
		}
		t.Run(d.name, func(t *testing.T) {
			f := newFake(d)
			url := f.serve(t)
			storetest.Acceptance(t, func(t *testing.T) objstore.Store {
				f.reset()
				return open(t, f.options(url))
			})
			if names, uploads := f.names(); uploads > 0 {
				t.Errorf("%d uploads left, objects %q", uploads, names)
			}
		})
	}
}

func open(t testing.TB, o s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
