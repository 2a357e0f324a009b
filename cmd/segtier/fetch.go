package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/segment"
	"github.com/segtier/segtier/transfer"
)

func (a *app) fetchCommand() *cobra.Command {
	o := fetchOptions{maxBytes: 1 << 20}
	cmd := &cobra.Command{
		Use:   "fetch PARTITION OFFSET",
		Short: "Read whole batches from an offset on",
		Long: `fetch reads whole record batches from the one that holds OFFSET on, or from the
next one if OFFSET lies in a gap: as many as fit in --max-bytes, and at least
one. Every byte was checked before it is shown. OFFSET "earliest" is where the
tier begins.

--format table and json show records, one a line, from OFFSET on; transaction
markers are shown as such. --format raw gives the batches as they are in the log,
from the first byte of the first batch on. The next offset to ask for is told on
stderr.

--isolation read_committed leaves aborted records and markers out, as a consumer
would.

Exit status 4: the offset is not in the tier. The message says which is the first
or the next that is.`,
		Example: `  segtier fetch orders/0 100
  segtier fetch orders/0 earliest --format raw --max-bytes 64MiB --out orders.log`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completePartitions(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.json && cmd.Flags().Changed("format") && o.format != "json" {
				return usagef("--json and --format %s contradict each other", o.format)
			}
			if a.json {
				o.format = "json"
			}
			return a.fetch(cmd.Context(), o, args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.Var(&o.maxBytes, "max-bytes", "greatest number of bytes of batches")
	flags.StringVar(&o.format, "format", "table", "table, raw or json")
	flags.StringVar(&o.out, "out", "", "write to `FILE` instead of stdout; it appears when it is complete")
	flags.StringVar(&o.isolation, "isolation", readUncommitted, "read_uncommitted or read_committed")
	a.completeFlag(cmd, "format", "table", "raw", "json")
	a.completeFlag(cmd, "isolation", readUncommitted, readCommitted)
	return cmd
}

// Kafka's names of the isolation levels.
const (
	readUncommitted = "read_uncommitted"
	readCommitted   = "read_committed"
)

type fetchOptions struct {
	maxBytes  byteSize
	format    string
	out       string
	isolation string
}

func (o *fetchOptions) validate() error {
	switch {
	case !slices.Contains([]string{"table", "raw", "json"}, o.format):
		return usagef("--format %q: write table, raw or json", o.format)
	case o.isolation != readCommitted && o.isolation != readUncommitted:
		return usagef("--isolation %q: write %s or %s", o.isolation, readUncommitted, readCommitted)
	case o.isolation == readCommitted && o.format == "raw":
		return usagef("--isolation %s needs --format table or json: raw batches are given as they are", readCommitted)
	case o.maxBytes <= 0:
		return usagef("--max-bytes: write 1 or more")
	}
	return nil
}

func (a *app) fetch(ctx context.Context, o fetchOptions, partition, offset string) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	tier, req, err := a.openRequest(ctx, partition, offset)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()
	if o.isolation == readCommitted {
		req.Isolation = fetch.ReadCommitted
	}
	out, err := a.output(o.out)
	if err != nil {
		return err
	}
	defer out.abort()
	f := &fetcher{a: a, tier: tier, sink: newSink(o.format, out, req.Offset, o.isolation == readCommitted), left: int64(o.maxBytes)}
	err = f.run(ctx, req)
	if err = errors.Join(err, f.sink.flush()); err != nil {
		return err
	}
	return out.commit()
}

// openRequest opens what is there to read the offset that the user means; the
// caller closes it.
func (a *app) openRequest(ctx context.Context, partition, offset string) (*opened, fetch.Request, error) {
	at, err := parseOffset(offset)
	if err != nil {
		return nil, fetch.Request{}, err
	}
	tier, p, err := a.openPartition(ctx, partition)
	if err != nil {
		return nil, fetch.Request{}, err
	}
	req, err := tier.requestOf(p, at)
	if err != nil {
		return nil, req, errors.Join(err, tier.Close())
	}
	return tier, req, nil
}

// requestOf is the fetch of an offset as the command makes it: along the newest
// history, with the tier's first offset as the log's start, because what lies
// below it is not here.
func (o *opened) requestOf(p segment.Partition, offset int64) (fetch.Request, error) {
	view, err := o.View(p)
	if err != nil {
		return fetch.Request{}, err
	}
	first, ok := view.Earliest(nil)
	if !ok {
		if start := view.LogStart(); start > 0 {
			return fetch.Request{}, notInTierf("partition %s has no readable segment in the tier, and its log start is %d: what ends below that has expired and is not copied again", p, start)
		}
		return fetch.Request{}, notInTierf("partition %s has no readable segment in the tier; 'segtier ls --all' shows what there is", p)
	}
	if offset < 0 {
		offset = first.StartOffset
	}
	return fetch.Request{Partition: p, LogStart: first.StartOffset, Offset: offset}, nil
}

// reading adds to the error of a read what it does not know: of an offset behind the
// tier, where that ends; of bytes that are not there, that the store is another one.
func (o *opened) reading(ctx context.Context, p segment.Partition, err error) error {
	if errors.Is(err, fetch.ErrCorruption) || errors.Is(err, fetch.ErrUnavailable) {
		owner, ok := errors.AsType[*transfer.OwnerError](o.CheckOwner(ctx))
		switch {
		case !ok:
		case owner.Owner == "":
			return fmt.Errorf("%w; so this fails: %v", owner, err) //nolint:errorlint // what to do about err is not what to do
		default: // as for whoever reads with metadata that was imported
			return fmt.Errorf("%w; so this fails, unless that is where the metadata was imported from: %v", owner, err) //nolint:errorlint // the same
		}
	}
	if !errors.Is(err, fetch.ErrEndOfTier) {
		return err
	}
	if view, verr := o.View(p); verr == nil {
		if last, ok := view.Latest(nil); ok {
			return fmt.Errorf("%w; the last offset in the tier is %d", err, last.EndOffset)
		}
	}
	return err
}

// fetcher reads batches until the bytes that were asked for are used up or the
// tier ends. It asks for a part at a time, so that what it holds is bounded.
type fetcher struct {
	a    *app
	tier *opened
	sink sink
	left int64 // bytes that may still be read

	next    int64 // offset
	batches int
	bytes   int64
}

// step is the greatest number of bytes asked for at once.
const step = 8 << 20

func (f *fetcher) run(ctx context.Context, req fetch.Request) error {
	var res fetch.Result
	defer res.Release()
	end := ""
	for f.left > 0 {
		req.MaxBytes = int(min(f.left, step))
		err := f.tier.Fetch(ctx, req, &res)
		if f.batches > 0 && errors.Is(err, fetch.ErrEndOfTier) {
			end = ", where the tier ends"
			break
		}
		if err != nil {
			return f.tier.reading(ctx, req.Partition, err)
		}
		size := int64(res.Size())
		if f.batches > 0 && size > f.left {
			break // one batch, larger than what is left
		}
		if err := f.take(&res); err != nil {
			return err
		}
		f.left -= size
		req.Offset = res.NextOffset()
	}
	f.a.messagef("%s, %s; next offset %d%s", plural(f.batches, "batch"), sizeText(f.bytes), f.next, end)
	return nil
}

// take writes one result out.
func (f *fetcher) take(res *fetch.Result) error {
	for range res.Batches() {
		f.batches++
	}
	f.bytes += int64(res.Size())
	f.next = res.NextOffset()
	return f.sink.write(f.a, res)
}

// completeFlag completes the value of a flag.
func (a *app) completeFlag(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is not there: a mistake in this file
	}
}

// output is where data goes: stdout, or a file that appears when it is complete.
type output struct {
	io.Writer

	path string
	file *os.File // nil: stdout
	temp bool     // file has a temporary name
}

// output opens the output. What exists and is no regular file, a pipe or a
// device, is written to directly.
func (a *app) output(path string) (*output, error) {
	if path == "" {
		return &output{Writer: a.stdout}, nil
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		return &output{Writer: f, path: path, file: f}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".segtier-partial-*")
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return &output{Writer: f, path: path, file: f, temp: true}, nil
}

// commit makes the file visible under its name.
func (o *output) commit() error {
	if o.file == nil {
		return nil
	}
	f := o.file
	var err error
	if o.temp {
		err = errors.Join(f.Chmod(0o644), f.Sync()) // a crash must not leave an empty file under the name
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if o.temp {
		if err := os.Rename(f.Name(), o.path); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	o.file = nil
	return nil
}

// abort removes what was not committed.
func (o *output) abort() {
	if o.file == nil {
		return
	}
	_ = o.file.Close()
	if o.temp {
		_ = os.Remove(o.file.Name())
	}
}
