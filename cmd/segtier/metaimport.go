package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/internal/header"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/object"
	"github.com/segtier/segtier/objstore/endpoint"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

// maxMetaLine bounds a line of an export: a segment may have many leader epochs.
const maxMetaLine = 64 << 20

func (a *app) metaImportCommand() *cobra.Command {
	var apply bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make metadata of an export, for a second reader",
		Long: `import reads what 'segtier meta export' wrote (- is stdin) into a metadata file that
is new or empty. A segment becomes readable only after its object was read whole
and every byte was confirmed; one that cannot be confirmed is left out and listed,
and makes the exit status 3. Segments in other states are taken over as they are
and listed. Nothing in the store is changed.

Without --apply it only checks the export and says what it would do.

The new metadata has an id of its own, so it can be read by, and 'segtier copy'
refuses to write under the prefix with it. To restore lost metadata copy a
snapshot in its place instead.`,
		Example: `  segtier meta import metadata.jsonl --meta file:reader.db --apply`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.metaImport(cmd.Context(), args[0], apply) },
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "write; without it nothing is changed")
	return cmd
}

// imported is an export that was read and checked.
type imported struct {
	head       metaHead
	partitions []importedPartition
	counts     map[metadata.State]int
	bytes      int64 // to be confirmed
}

type importedPartition struct {
	partition segment.Partition
	info      metadata.PartitionInfo
	segments  []*metadata.Segment
}

func (a *app) metaImport(ctx context.Context, file string, apply bool) (err error) {
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		defer f.Close()
		in = f
	}
	ex, err := readExport(in)
	if err != nil {
		return fmt.Errorf("export %s: %w", file, err)
	}
	metaAt, err := a.metaLocation()
	if err != nil {
		return err
	}
	if err := a.mustBeEmpty(metaAt); err != nil {
		return err
	}
	a.messagef("export of metadata %s: %s; %d readable (%s to confirm), %d being copied, %d being deleted, %d deleted",
		ex.head.MetadataID, plural(len(ex.partitions), "partition"), ex.counts[metadata.CopySegmentFinished], sizeText(ex.bytes),
		ex.counts[metadata.CopySegmentStarted], ex.counts[metadata.DeleteSegmentStarted], ex.counts[metadata.DeleteSegmentFinished])
	if !apply {
		a.messagef("  next: run it again with --apply to write %s", metaAt)
		return nil
	}
	return a.applyImport(ctx, ex, metaAt)
}

// mustBeEmpty refuses a metadata file that has something in it.
func (a *app) mustBeEmpty(at location) error {
	if _, err := os.Stat(at.path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	meta, err := embedded.Open(at.path, embedded.Options{ReadOnly: true, Logger: a.logger()})
	if err != nil {
		return err
	}
	defer meta.Close()
	known, err := meta.Partitions()
	if err == nil && len(known) > 0 {
		err = fmt.Errorf("metadata file %s has %s in it: name a new file with --meta", at, plural(len(known), "partition"))
	}
	return err
}

// readExport reads and checks a whole export before anything is done with it.
func readExport(in io.Reader) (*imported, error) {
	ex := &imported{counts: map[metadata.State]int{}}
	ids := map[segment.UUID]bool{}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxMetaLine)
	n, ended := 0, false
	for scan.Scan() {
		if n++; ended {
			return nil, fmt.Errorf("line %d: goes on behind the end", n)
		}
		var err error
		if ended, err = ex.line(n, scan.Bytes(), ids); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch err := scan.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	case !ended:
		return nil, fmt.Errorf("it ends at line %d without its last line: it was cut short", n)
	}
	return ex, nil
}

// line takes one line over.
func (ex *imported) line(n int, b []byte, ids map[segment.UUID]bool) (ended bool, err error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return false, err
	}
	if (n == 1) != (kind.Type == typeMetadata) {
		return false, fmt.Errorf("type %q: an export begins with one line of type %q", kind.Type, typeMetadata)
	}
	switch kind.Type {
	case typeMetadata:
		if err := strictly(b, &ex.head); err != nil {
			return false, err
		}
		if ex.head.Format != metaFormat {
			return false, fmt.Errorf("format %d, this program knows %d", ex.head.Format, metaFormat)
		}
	case typePartition:
		var l metaPartition
		if err := strictly(b, &l); err != nil {
			return false, err
		}
		p, info, err := l.info()
		ex.partitions = append(ex.partitions, importedPartition{partition: p, info: info})
		return false, err
	case typeSegment:
		var l metaSegment
		if err := strictly(b, &l); err != nil {
			return false, err
		}
		return false, ex.segment(&l, ids)
	case typeEnd:
		var l metaEnd
		if err := strictly(b, &l); err != nil {
			return false, err
		}
		if l.Partitions != len(ex.partitions) || l.Segments != len(ids) {
			return false, fmt.Errorf("%d partitions and %d segments were written, %d and %d are here", l.Partitions, l.Segments, len(ex.partitions), len(ids))
		}
		return true, nil
	default:
		return false, fmt.Errorf("type %q is not known", kind.Type)
	}
	return false, nil
}

// strictly decodes a value and refuses fields that are not known, and what follows:
// they might say something that matters.
func strictly(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows at byte %d", dec.InputOffset())
	}
	return nil
}

func (ex *imported) segment(l *metaSegment, ids map[segment.UUID]bool) error {
	s, state, err := l.segment()
	if err != nil {
		return err
	}
	if len(ex.partitions) == 0 || ex.partitions[len(ex.partitions)-1].partition != s.Partition {
		return fmt.Errorf("segment %s is not of the partition before it", s.ID)
	}
	if ids[s.ID] {
		return fmt.Errorf("segment %s comes twice", s.ID)
	}
	ids[s.ID] = true
	p := &ex.partitions[len(ex.partitions)-1]
	p.segments = append(p.segments, s)
	ex.counts[state]++
	if state == metadata.CopySegmentFinished {
		ex.bytes += s.SizeBytes
	}
	return nil
}

// importer writes an export.
type importer struct {
	a    *app
	meta *embedded.Store
	ep   *endpoint.Endpoint
	bar  *progress

	written, left int
}

func (a *app) applyImport(ctx context.Context, ex *imported, at location) (err error) {
	storeAt, err := a.storeLocation()
	if err != nil {
		return err
	}
	store, err := a.openStore(ctx, storeAt, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ep, err := endpoint.New(store, endpoint.Options{Logger: a.logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.Close()) }()
	if err := os.MkdirAll(filepath.Dir(at.path), 0o777); err != nil {
		return fmt.Errorf("metadata file %s: %w", at, err)
	}
	meta, err := embedded.Open(at.path, embedded.Options{Logger: a.logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	im := &importer{a: a, meta: meta, ep: ep, bar: newProgress(a.stderr, a.terminal, ex.bytes, "confirming")}
	for i := range ex.partitions {
		if err = im.partition(ctx, &ex.partitions[i]); err != nil {
			break
		}
	}
	im.bar.clear()
	if err != nil {
		return fmt.Errorf("import stopped, remove %s and begin anew: %w", at, err)
	}
	a.messagef("%s imported, %d left out", plural(im.written, "segment"), im.left)
	if im.left > 0 {
		a.messagef("  next: bring the objects named above back from a copy of the store, and import into a new file")
		return &statusError{statusDamage, errTold}
	}
	return nil
}

// partition writes what an export says of a partition. Its writers are given the
// greatest leader epoch of the partition, because events are fenced in the order
// in which they are written now.
func (im *importer) partition(ctx context.Context, p *importedPartition) error {
	w := metadata.Writer{LeaderEpoch: -1}
	for _, s := range p.segments {
		w.LeaderEpoch = max(w.LeaderEpoch, s.LeaderEpoch)
	}
	if err := im.meta.Remember(ctx, p.partition, p.info, w); err != nil {
		return err
	}
	for _, s := range p.segments {
		w.BrokerID = s.BrokerID
		if err := im.segment(ctx, s, w); err != nil {
			return fmt.Errorf("segment %s of %s, offsets %d to %d: %w", s.ID, s.Partition, s.StartOffset, s.EndOffset, err)
		}
	}
	for from := metadata.PartitionKept; from < p.info.Deletion; from++ {
		ev, err := metadata.DeletePartition(p.partition, from, from+1, w, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		if err := im.meta.Publish(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// segment writes one segment through the states up to its own.
func (im *importer) segment(ctx context.Context, s *metadata.Segment, w metadata.Writer) error {
	var receipt metadata.Receipt
	if s.State == metadata.CopySegmentFinished {
		var err error
		if receipt, err = im.confirm(ctx, s); err != nil {
			return im.leaveOut(s, err)
		}
	}
	var err error
	publish := func(ev metadata.Event, made error) {
		if err = errors.Join(err, made); err == nil {
			err = im.meta.Publish(ctx, ev)
		}
	}
	publish(metadata.Started(s, w, s.EventTimestamp))
	if errors.Is(err, metadata.ErrDuplicate) {
		return im.leaveOut(s, err)
	}
	if s.State == metadata.CopySegmentFinished {
		publish(metadata.Finished(s, receipt, w, s.EventTimestamp))
	}
	was := *s
	was.State = metadata.CopySegmentStarted
	if s.State == metadata.DeleteSegmentStarted || s.State == metadata.DeleteSegmentFinished {
		publish(metadata.DeleteStarted(&was, w, s.EventTimestamp))
	}
	if s.State == metadata.DeleteSegmentFinished {
		publish(metadata.DeleteFinished(&was, w, s.EventTimestamp))
	}
	if err != nil {
		return err
	}
	im.written++
	if s.State == metadata.CopySegmentStarted || s.State == metadata.DeleteSegmentStarted {
		im.bar.clear()
		im.a.messagef("%s: segment %s, offsets %d to %d, is in %s", nameOf(s.Partition), s.ID, s.StartOffset, s.EndOffset, s.State)
	}
	if im.a.json {
		return jsonLines(im.a.stdout).Encode(lineOf(s))
	}
	return nil
}

// confirm reads the whole object of a segment.
func (im *importer) confirm(ctx context.Context, s *metadata.Segment) (metadata.Receipt, error) {
	im.bar.begin("confirming "+nameOf(s.Partition), s.SizeBytes)
	defer im.bar.end()
	loc, err := object.ParseLocation(s.Custom)
	if err != nil {
		return metadata.Receipt{}, err
	}
	return transfer.Confirm(ctx, im.ep, header.Of(s), loc, transfer.ConfirmOptions{})
}

// leaveOut lists a segment that is not taken over, if err says that it cannot be;
// an error of another kind stops the import.
func (im *importer) leaveOut(s *metadata.Segment, err error) error {
	if !errors.Is(err, transfer.ErrDamaged) && !errors.Is(err, object.ErrCorrupt) && !errors.Is(err, metadata.ErrDuplicate) {
		return err
	}
	im.left++
	im.bar.clear()
	im.a.messagef("%s: segment %s, offsets %d to %d, is left out: %v", nameOf(s.Partition), s.ID, s.StartOffset, s.EndOffset, err)
	return nil
}
