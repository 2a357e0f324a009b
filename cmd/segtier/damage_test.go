package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// damages are what can happen to an object behind our back.
func damages() map[string]func(t *testing.T, path string) {
	edit := func(f func(b []byte) []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = f(b)
			// Another file in its place, as a copy or a restore would make it.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(t *testing.T, path string){
		"flipped bit in the first batch": edit(func(b []byte) []byte { b[100] ^= 4; return b }),
		"flipped bit in the tail":        edit(func(b []byte) []byte { b[len(b)-60] ^= 4; return b }),
		"cut in the tail":                edit(func(b []byte) []byte { return b[:len(b)-1] }),
		"cut in the log":                 edit(func(b []byte) []byte { return b[:50] }),
		"emptied":                        edit(func([]byte) []byte { return nil }),
		"grown":                          edit(func(b []byte) []byte { return append(b, 0) }),
		"replaced by zeros":              edit(func(b []byte) []byte { return make([]byte, len(b)) }),
		"deleted": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// A damaged object is never served, fetch and verify name it, and the rest of
// the tier stays readable.
func TestDamagedObject(t *testing.T) {
	base := copied(t, source(payments), source(sensors))
	o := oracleOf(t, source(sensors))
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			copyTree(t, base.dir, b.dir)
			object := objectOf(t, b, o.name, 0)
			damage(t, filepath.Join(b.store, filepath.FromSlash(object)))

			res := b.want(statusFailed, "fetch", o.name, earliest, "--format", "raw")
			if name == "deleted" { // a minute ago it was copied: a store may be slow to show it
				res.oneError(t, object, "does not show", "try again later")
			} else {
				res.oneError(t, object, "bytes [", "damaged", "segtier verify")
			}
			if res.out != "" && !strings.HasPrefix(string(o.log), res.out) {
				t.Errorf("%d wrong bytes were served", len(res.out))
			}

			v := b.want(statusDamage, "verify", "--json")
			found := decode[findingLine](t, v.out)
			if len(found) == 0 || !strings.Contains(v.msg, "1 damaged") {
				t.Errorf("%+v", v)
			}
			for _, f := range found {
				if f.Object != object || f.Reason == "" || f.Message == "" || f.StartOffset != o.bases[0] {
					t.Errorf("finding %+v", f)
				}
			}
			text := b.want(statusDamage, "verify", o.name).out
			if strings.Count(text, object) < len(found) {
				t.Errorf("verify as text: %s", text)
			}
			b.done("verify", "payments.tx_commit-abort/0")
			equalsLog(t, b, oracleOf(t, source(payments)))
			next := o.bases[1]
			got := b.done("fetch", o.name, fmt.Sprint(next), "--format", "raw", "--max-bytes", "64MiB")
			if got != string(o.log[o.at(next):]) {
				t.Error("the segments behind the damaged one differ")
			}
		})
	}
}

// verify names every damaged object, not only the first.
func TestVerifyNamesAll(t *testing.T) {
	b := copied(t, source(payments), source(sensors))
	kinds := damages()
	var damaged []string
	for i, kind := range []string{"deleted", "cut in the log", "flipped bit in the first batch", "replaced by zeros"} {
		for _, p := range []string{"payments.tx_commit-abort/0", "sensor-readings.v2_raw/0"} {
			object := objectOf(t, b, p, i)
			kinds[kind](t, filepath.Join(b.store, filepath.FromSlash(object)))
			damaged = append(damaged, object)
		}
	}
	o := b.want(statusDamage, "verify", "--json")
	var named []string
	for _, f := range decode[findingLine](t, o.out) {
		named = append(named, f.Object)
	}
	slices.Sort(named)
	slices.Sort(damaged)
	if named = slices.Compact(named); !slices.Equal(named, damaged) {
		t.Errorf("named %v\nwant %v", named, damaged)
	}
	if !strings.Contains(o.msg, "8 damaged") {
		t.Error(o.msg)
	}
}
