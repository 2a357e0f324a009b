package s3_test

import (
	"errors"
	"testing"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

func TestLyingEchoIsCorrupt(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(func(r request) fault {
			if r.op == "UploadPart" && r.part == 2 && !isProbe(r) {
				return fault{kind: wrongEcho}
			}
			return fault{}
		})
		_, err := s.Upload(t.Context(), upload("a", content(1, threeParts), 5*mib))
		wantError(t, err, "upload", objstore.ErrCorrupt)
		var m *checksum.MismatchError
		if !errors.As(err, &m) || m.Off != 5*mib || m.What != "part 1" {
			t.Errorf("the part is not named: %v", err)
		}
		if _, uploads := f.names(); f.object("a") != nil || uploads != 0 {
			t.Errorf("an object of %d bytes and %d uploads are left", len(f.object("a")), uploads)
		}
	})
}

// Of one request the object is there before the echo is seen: it is read, and
// what it holds decides.
func TestLyingEchoOfPutIsSettledByReading(t *testing.T) {
	inBubble(t, dialect{noHeadCRC: true}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(func(r request) fault {
			if r.op == "PutObject" && !isProbe(r) {
				return fault{kind: wrongEcho}
			}
			return fault{}
		})
		data := content(1, 1000)
		if ev := mustUpload(t, f, s, upload("a", data, mib), data); ev.Parts[0].Level != objstore.ReadBack {
			t.Errorf("level %v, want %v", ev.Parts[0].Level, objstore.ReadBack)
		}
	})
}

func TestMissingEchoIsConfirmedByListing(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		f.set(func(r request) fault {
			if r.op == "UploadPart" && !isProbe(r) {
				return fault{kind: noAnswerSum}
			}
			return fault{}
		})
		data, told := content(1, threeParts), 0
		req := upload("a", data, 5*mib)
		req.Confirmed = func(objstore.PartEvidence) { told++ } // in one goroutine: after the parts
		ev := mustUpload(t, f, s, req, data)
		for _, p := range ev.Parts {
			if p.Level != objstore.Listed {
				t.Errorf("part %d: %v, want %v", p.Part, p.Level, objstore.Listed)
			}
		}
		if told != 3 {
			t.Errorf("%d parts confirmed of 3", told)
		}
	})
}

func TestEvidenceLevels(t *testing.T) {
	data := content(1, threeParts)
	for _, c := range []struct {
		asked   objstore.Level
		d       dialect
		want    objstore.Level
		reading bool
	}{
		{objstore.Unconfirmed, dialect{name: "aws"}, objstore.Echoed, false},
		{objstore.Echoed, dialect{name: "aws"}, objstore.Echoed, false},
		{objstore.Listed, dialect{name: "aws"}, objstore.Listed, false},
		{objstore.Attributed, dialect{name: "aws"}, objstore.Attributed, false},
		{objstore.Attributed, dialect{name: "aws, small pages", pageSize: 1}, objstore.Attributed, false},
		{objstore.Attributed, dialect{name: "suffix", suffix: true}, objstore.Attributed, false},
		{objstore.Attributed, dialect{name: "none", noAttributes: true}, objstore.ReadBack, true},
		{objstore.ReadBack, dialect{name: "aws"}, objstore.ReadBack, true},
		{objstore.Echoed, dialect{name: "blind", blind: true}, objstore.ReadBack, true},
		{objstore.Echoed, dialect{name: "silent", noEcho: true, noListCRC: true, noHeadCRC: true}, objstore.ReadBack, true},
	} {
		t.Run(c.asked.String()+"/"+c.d.name, func(t *testing.T) {
			inBubble(t, c.d, func(o *s3.Options) { o.Evidence = c.asked }, func(t *testing.T, f *fake, s *s3.Store) {
				req := upload("a", data, 5*mib)
				ev := mustUpload(t, f, s, req, data)
				checkEvidence(t, req, ev, c.want)
				if read := s.Stats().BytesRead; (read > 0) != c.reading {
					t.Errorf("%d bytes were read back", read)
				}
			})
		})
	}
}

// The same bytes from somebody else are success, whatever they are recognised by:
// the sum of the same parts, or, where it says nothing, what is read.
func TestSameBytesOfSomebodyElse(t *testing.T) {
	data := content(1, threeParts)
	for name, c := range map[string]struct {
		d       dialect
		layout  int64
		reading bool
	}{
		"same parts":        {dialect{}, 5 * mib, false},
		"other parts":       {dialect{}, 6 * mib, true},
		"no sum":            {dialect{noHeadCRC: true}, 5 * mib, true},
		"unverified":        {dialect{blind: true}, 5 * mib, true},
		"sum with a suffix": {dialect{suffix: true}, 5 * mib, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.d, nil, func(t *testing.T, f *fake, s *s3.Store) {
				f.gate = func(r request) { // just before our Complete
					f.mu.Lock()
					taken := f.objects["logs/a"] != nil
					f.mu.Unlock()
					if r.op != "CompleteMultipartUpload" || isProbe(r) || taken {
						return
					}
					other := &fakeObject{data: data, etag: `"other"`, kind: "COMPOSITE", meta: map[string]string{"segtier-token": "another"}}
					other.crc = compositeText(data, c.layout)
					f.mu.Lock()
					f.objects["logs/a"] = other
					f.mu.Unlock()
				}
				ev := mustUpload(t, f, s, upload("a", data, 5*mib), data)
				if read := s.Stats().BytesRead; !ev.Existed || ev.Identity != `"other"` || (read > 0) != c.reading {
					t.Errorf("existed %v, identity %s, %d bytes read", ev.Existed, ev.Identity, read)
				}
				if _, uploads := f.names(); uploads != 0 {
					t.Errorf("%d uploads are left", uploads)
				}
			})
		})
	}
}

// What the service says of a finished object, or of a part that it echoed, counts
// for more than the echo.
func TestServiceThatChangesItsMind(t *testing.T) {
	data := content(1, threeParts)
	for _, d := range []dialect{{name: "misassembles", misassembles: true}, {name: "lists other", listsOther: true}} {
		inBubble(t, d, func(o *s3.Options) {
			if d.listsOther {
				o.Evidence = objstore.Listed
			}
		}, func(t *testing.T, f *fake, s *s3.Store) {
			_, err := s.Upload(t.Context(), upload("a", data, 5*mib))
			wantError(t, err, "upload", objstore.ErrCorrupt)
			if _, uploads := f.names(); f.object("a") != nil || uploads != 0 {
				t.Errorf("%s: an object of %d bytes, %d uploads", d.name, len(f.object("a")), uploads)
			}
		})
	}
}

// A conflict that the sums show is not read.
func TestConflictBySums(t *testing.T) {
	inBubble(t, dialect{}, nil, func(t *testing.T, f *fake, s *s3.Store) {
		mustUpload(t, f, s, upload("a", content(1, mib), 5*mib), content(1, mib))
		_, err := s.Upload(t.Context(), upload("a", content(2, mib), 5*mib))
		wantError(t, err, "upload", objstore.ErrConflict)
		if read, puts := s.Stats().BytesRead, f.count("PutObject"); read != 0 || puts != 1 {
			t.Errorf("%d bytes were read, %d objects sent", read, puts)
		}
	})
}
