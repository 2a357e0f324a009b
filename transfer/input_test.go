package transfer

import (
	"strings"
	"testing"

	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/objstore/storetest"
)

// Nothing in place of a source, a plan or an endpoint is an error that says so.
func TestNothingIsNoArgument(t *testing.T) {
	ctx := t.Context()
	src := testseg.Random(1, testseg.Options{Segments: 1}).Segments[0]
	plan, err := Scan(ctx, src, ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.New(storetest.NewMem(), endpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	refused := func(what string, err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", what, err, says)
		}
	}
	_, err = Scan(ctx, nil, ScanOptions{})
	refused("Scan", err, "without a source")
	_, err = Upload(ctx, ep, nil, plan, object.Header{}, UploadOptions{})
	refused("Upload without a source", err, "needs a source")
	_, err = Upload(ctx, ep, src, nil, object.Header{}, UploadOptions{})
	refused("Upload without a plan", err, "the plan")
	_, err = Upload(ctx, nil, src, plan, record(plan), UploadOptions{})
	refused("Upload", err, "it is nil")
	h, loc := record(plan), object.Location{}
	_, err = Confirm(ctx, nil, h, loc, ConfirmOptions{})
	refused("Confirm", err, "it is nil")
	refused("SpotCheck", SpotCheck(ctx, nil, h, loc, SpotOptions{}), "it is nil")
	refused("Restore", Restore(ctx, nil, h, loc, t.TempDir()), "it is nil")
	_, _, err = Describe(ctx, nil, h.Key(), 1<<20)
	refused("Describe", err, "it is nil")
	refused("CheckOwner", CheckOwner(ctx, nil, "m"), "it is nil")
	refused("ClaimOwner", ClaimOwner(ctx, nil, "m"), "it is nil")
	refused("CheckRebuild", CheckRebuild(ctx, nil, "m"), "it is nil")
	refused("TakeOver", TakeOver(ctx, nil, "m"), "it is nil")
	refused("EndRebuild", EndRebuild(ctx, nil), "it is nil")
}
