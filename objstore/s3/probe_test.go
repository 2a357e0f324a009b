package s3_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// A caller that has left takes no slot with it, and no part is sent without one.
func TestSlotsArePartBytesAndNothingElse(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, 6*5*mib)
		req := upload("a", data, 5*mib)
		slots := make(chan struct{}, 2)
		req.Slots = func(ctx context.Context, n int64) (func(), error) {
			if n != 5*mib {
				t.Errorf("a slot for %d bytes", n)
			}
			select {
			case slots <- struct{}{}:
				return func() { <-slots }, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		f.gate = func(r request) {
			if r.op == "UploadPart" && !isProbe(r) && len(slots) == 0 {
				t.Error("a part was sent without a slot")
			}
		}
		mustUpload(t, f, s, req, data)
		f.set(only("UploadPart", 7, fault{kind: failBefore, status: 500, code: "InternalError"}))
		req.Key = "b"
		if _, err := s.Upload(t.Context(), req); err == nil {
			t.Error("it succeeded")
		}
		if len(slots) != 0 {
			t.Errorf("%d slots are kept", len(slots))
		}
	})
}

// Parts that S3 does not take are put together, and the evidence is for what was
// asked for.
func TestSmallPartsArePutTogether(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, threeParts)
		for partSize, want := range map[int64][]int{1 << 20: {1, 2, 3}, 3_000_000: {1, 2}, 100_000: {1, 2, 3}, 6 * mib: {1, 2}} {
			f.reset()
			req := upload("a", data, partSize)
			told := make([]int, len(req.PartSums))
			confirmed := make(chan int, len(told))
			req.Confirmed = func(p objstore.PartEvidence) { confirmed <- p.Part }
			ev := mustUpload(t, f, s, req, data)
			close(confirmed)
			for i := range confirmed {
				told[i]++
			}
			if slices.Max(told) != 1 || slices.Min(told) != 1 || len(ev.Parts) != len(told) {
				t.Errorf("parts of %d: confirmed %v times", partSize, told)
			}
			if got := f.partNumbers(); !slices.Equal(got, want) {
				t.Errorf("parts of %d: sent as %v, want %v", partSize, got, want)
			}
		}
	})
}

func TestProbesAreSharedAndCleanedUp(t *testing.T) {
	for _, d := range dialects() {
		inBubble(t, d, nil, func(t *testing.T, f *fake, s *s3.Store) {
			if _, ok := s.Abilities(); ok {
				t.Error("abilities are known before they were looked for")
			}
			done := make(chan error, 8)
			for i := range 8 {
				go func() {
					_, err := s.Upload(t.Context(), upload(fmt.Sprint("k", i), content(1, 100), mib))
					done <- err
				}()
			}
			for range 8 {
				if err := <-done; err != nil {
					t.Errorf("%s: %v", d.name, err)
				}
			}
			synctest.Wait()
			if n := len(f.requests("")); n == 0 {
				t.Error("no requests")
			}
			f.mu.Lock()
			probes := len(f.log)
			f.mu.Unlock()
			if probes -= len(f.requests("")); probes > 12 {
				t.Errorf("%s: %d requests of probes", d.name, probes)
			}
			if names, uploads := f.names(); len(names) != 8 || uploads != 0 {
				t.Errorf("%s: left are %q and %d uploads", d.name, names, uploads)
			}
			a, ok := s.Abilities()
			if !ok || a.PutChecksum == d.blind || a.PartChecksum == d.blind || a.ConditionalPut != !(d.noCondition || d.refuseIfNone) || a.Token == d.noMeta || a.PutEcho == d.noEcho {
				t.Errorf("%s: %v, known %v", d.name, a, ok)
			}
		})
	}
}

func TestServicesThatLackAnAbilityAreRefused(t *testing.T) {
	for ability, d := range map[string]dialect{
		"read after write": {forgets: true},
		"stored bytes":     {framing: true},
		"ranged reads":     {ignoresRange: true},
		"checksum headers": {noHeaders: true},
	} {
		t.Run(ability, func(t *testing.T) {
			inBubble(t, d, nil, func(t *testing.T, f *fake, s *s3.Store) {
				for range 2 {
					_, err := s.Upload(t.Context(), upload("a", content(1, 100), mib))
					wantError(t, err, "upload", objstore.ErrRefused)
					var lacks *s3.AbilityError
					if !errors.As(err, &lacks) || lacks.Ability != ability {
						t.Errorf("%v, want an *AbilityError for %q", err, ability)
					}
				}
				if names, _ := f.names(); f.object("a") != nil || len(names) > 0 {
					t.Errorf("objects %q", names)
				}
			})
		})
	}
}

// A probe that fails for a reason that passes is made again, and reading needs
// none.
func TestProbeThatFailsIsRepeated(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		data := content(1, 100)
		if _, err := s.Stat(t.Context(), "a"); !errors.Is(err, objstore.ErrNotExist) {
			t.Error(err)
		}
		for _, op := range []string{"PutObject", "GetObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"} {
			for nth := 1; nth <= 3; nth++ {
				for _, kind := range []faultKind{cutBefore, cutAfter, stallAfter} {
					f.reset()
					f.set(func(r request) fault {
						if isProbe(r) && r.op == op && r.nth == nth {
							return fault{kind: kind}
						}
						return fault{}
					})
					other := f.another(t, nil)
					_, err := other.Upload(t.Context(), upload("a", data, mib))
					if err != nil {
						wantError(t, err, "upload", nil)
						if _, known := other.Abilities(); known {
							t.Errorf("%s %d: abilities are known after %v", op, nth, err)
						}
					}
					mustUpload(t, f, other, upload("b", data, mib), data)
					if names, uploads := f.names(); uploads > 1 || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "probe") }) && kind != stallAfter {
						t.Errorf("%s %d: left are %q and %d uploads", op, nth, names, uploads)
					}
				}
			}
		}
	})
}
