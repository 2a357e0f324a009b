package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// TestEventsTellRetriesAndResumes: what was tried again and why, and which parts
// an earlier copy had left.
func TestEventsTellRetriesAndResumes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := testseg.Random(14, testseg.Options{Segments: 1, Batches: 40})
		broken := errors.New("connection reset")
		store := storetest.Inject(resuming{storetest.NewMem()}, storetest.Rules(storetest.Rule{
			Op: "upload", Key: "*/*/*/*.seg", Times: 2, Fault: storetest.Fault{Kind: storetest.FailBefore, Err: broken},
		}))
		ep, err := endpoint.New(store, endpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		var mu sync.Mutex
		var causes []error
		var parts, resumed int
		var said bytes.Buffer
		copier, err := lifecycle.NewCopier(metadatatest.NewMem(), ep, lifecycle.CopierOptions{
			Scan:   scan,
			Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Events: lifecycle.Events{
				Retried: func(seg *metadata.Segment, cause error) {
					mu.Lock()
					defer mu.Unlock()
					if seg.StartOffset != log.Segments[0].Info().StartOffset {
						t.Errorf("retried: %v", seg)
					}
					causes = append(causes, cause)
				},
				PartConfirmed: func(_ *metadata.Segment, e objstore.PartEvidence) {
					mu.Lock()
					defer mu.Unlock()
					parts++
					if e.Resumed {
						resumed++
					}
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := copier.Copy(t.Context(), log.Segments[0], writer); err != nil {
			t.Fatal(err)
		}
		if len(causes) != 2 || !errors.Is(causes[0], broken) || !errors.Is(causes[1], broken) {
			t.Errorf("retried because of %v", causes)
		}
		if parts < 2 || resumed != 1 {
			t.Errorf("%d parts, %d of them resumed, want 1", parts, resumed)
		}
		for _, s := range []string{"tried again", "connection reset", "resumed", "parts=1"} {
			if !strings.Contains(said.String(), s) {
				t.Errorf("the log does not say %q:\n%s", s, &said)
			}
		}
	})
}

// resuming is a store that claims to have had every first part.
type resuming struct{ objstore.Store }

func (r resuming) Upload(ctx context.Context, req objstore.UploadRequest) (objstore.Evidence, error) {
	confirmed := req.Confirmed
	req.Confirmed = func(e objstore.PartEvidence) {
		e.Resumed = e.Part == 0
		if confirmed != nil {
			confirmed(e)
		}
	}
	return r.Store.Upload(ctx, req)
}
