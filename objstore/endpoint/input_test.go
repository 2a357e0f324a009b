package endpoint

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/internal/bubble"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/storetest"
)

// A key that is none is refused at once, without a request or a retry; so is a nil Endpoint.
func TestKeysAreChecked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := open(t, storetest.NewMem(), Options{})
		for _, key := range []string{"", "/a", "a//b", "../a"} {
			_, err := e.Stat(t.Context(), key)
			for what, err := range map[string]error{"stat": err, "delete": e.Delete(t.Context(), "good", key)} {
				var at *objstore.Error
				if !errors.As(err, &at) || at.Op != what || at.Key != key {
					t.Errorf("%s of %q: %v", what, key, err)
				}
			}
		}
		if s := e.Stats(); s.Stats+s.Deletes+s.Retries != 0 {
			t.Errorf("the store was asked: %+v", s)
		}
		var none *Endpoint
		_, err := none.Stat(t.Context(), "a")
		_, uploaded := none.Upload(t.Context(), upload("a", content(10), 10))
		_, read := none.Read(t.Context(), read(content(10), 10))
		for what, err := range map[string]error{"stat": err, "upload": uploaded, "read": read, "delete": none.Delete(t.Context(), "a")} {
			if !errors.Is(err, errNoEndpoint) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
