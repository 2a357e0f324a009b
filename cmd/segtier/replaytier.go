package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/bench/replay"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/segment"
)

// openReplayed opens what is replayed against: the store and the metadata of the
// command, or the virtual segments of a weather server.
func (a *app) openReplayed(ctx context.Context, server string) (*opened, error) {
	if server == "" {
		return a.openReader(ctx)
	}
	if a.store != "" || a.meta != "" {
		return nil, usagef("--weather takes the place of --store and --meta")
	}
	endpoint, spec, err := parseWeather(server)
	if err != nil {
		return nil, usagef("--weather %q: %w", server, err)
	}
	tier, err := spec.Tier()
	if err != nil {
		return nil, usagef("--weather %q: %w", server, err)
	}
	meta, err := tier.Metadata()
	if err != nil {
		return nil, err
	}
	// Nobody looks at the credentials, but a request has some.
	store, err := s3.Open(ctx, s3.Options{
		Bucket: "weather", Endpoint: endpoint, PathStyle: true, AccessKeyID: "replay", SecretAccessKey: "replay", ReadOnly: true, Logger: a.logger(),
	})
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	return a.wire(ctx, segtier.Options{Store: store, Metadata: meta})
}

// parseWeather splits the URL of a weather server from what is to be read there.
func parseWeather(server string) (endpoint string, spec weather.Spec, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", spec, bare(err)
	}
	if u.Scheme != "http" || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.Fragment != "" {
		return "", spec, errors.New("write http://host:port")
	}
	spec = weather.Spec{Partitions: 40, Segments: 16, SegmentBytes: 256 << 20}
	numbers := map[string]func(int64){
		"partitions":    func(n int64) { spec.Partitions = int(n) },
		"segments":      func(n int64) { spec.Segments = int(n) },
		"segment-bytes": func(n int64) { spec.SegmentBytes = n },
		"batch-bytes":   func(n int64) { spec.BatchBytes = int(n) },
	}
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", spec, bare(err)
	}
	for name, values := range params {
		set, ok := numbers[name]
		if !ok {
			return "", spec, fmt.Errorf("parameter %q is not known", name)
		}
		n, err := strconv.ParseInt(values[0], 10, 32)
		if err != nil || n < 1 || len(values) > 1 {
			return "", spec, fmt.Errorf("parameter %s: write one number from 1 on", name)
		}
		set(n)
	}
	return "http://" + u.Host, spec, nil
}

// recorded runs f and writes a trace of what it fetches to a file, if it has a
// name.
func (a *app) recorded(name string, f func() error) (err error) {
	if name == "" {
		return f()
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	r := replay.NewRecorder(file, nil)
	a.tune = func(o *segtier.Options) { o.FetchEvents.Fetched = r.Fetched }
	err = f()
	if failed := errors.Join(r.Close(), file.Close()); failed != nil {
		err = errors.Join(err, fmt.Errorf("--record %s: %w", name, failed))
	}
	return err
}

func readable(seg *metadata.Segment) bool { return seg.State == metadata.CopySegmentFinished }

func contains(known []segment.Partition, p segment.Partition) bool { return slices.Contains(known, p) }

// sortWorld puts the largest partitions first: a workload that reads one takes
// that.
func sortWorld(world replay.World) {
	slices.SortFunc(world, func(a, b replay.Extent) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), comparePartitions(a.Partition, b.Partition))
	})
}
