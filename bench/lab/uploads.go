package main

import (
	"encoding/json"
	"fmt"

	"github.com/segtier/segtier/bench/job"
	"github.com/segtier/segtier/bench/subject"
	"github.com/segtier/segtier/bench/weather"
	"github.com/segtier/segtier/checksum"
)

const mib = 1 << 20

// send uploads a segment with a client and reads it back.
func (l *lab) send(server, who string, seg subject.Segment, s settings, n int) (job.Result, error) {
	res, err := l.put(server, who, seg, job.Job{PartSize: s.PartSize, Concurrency: s.Concurrency}, n)
	if err != nil {
		return res, err
	}
	return res, l.written(res, seg, n)
}

// put uploads a segment n times at once with a client, as how says.
func (l *lab) put(server, who string, seg subject.Segment, how job.Job, n int) (job.Result, error) {
	if err := l.reset(); err != nil {
		return job.Result{}, err
	}
	how.Work, how.Subject, how.Server, how.Count = "upload", who, server, n
	if who == segtier {
		header, err := json.Marshal(seg.Header)
		if err != nil {
			return job.Result{}, err
		}
		how.File, how.World = seg.Dir, header
	} else {
		how.File, how.Key = seg.Object, fmt.Sprintf("uploaded-by-%s-%d", who, l.label)
	}
	return l.run(how, nil)
}

// written reads back what put wrote. Who finds the object there need not send it, which is
// no upload: at least its bytes must have come since put began.
func (l *lab) written(res job.Result, seg subject.Segment, n int) error {
	s, err := l.stats()
	if err != nil {
		return err
	}
	if want := int64(n) * seg.Size; s.BytesIn < want {
		return void{fmt.Sprintf("%s/%s sent %d bytes of %d", res.Subject, res.Work, s.BytesIn, want)}
	}
	return l.checkObjects(res, checksum.Sum{Len: seg.Size, CRC32C: seg.CRC32C}, n)
}

// uploads compares ours with a peer.
func (l *lab) uploads(server, peer string) ([]round[job.Result], subject.Segment, error) {
	if err := l.weather(weather.Schedule{}); err != nil {
		return nil, subject.Segment{}, err
	}
	seg, err := l.segment(scale[int64](l, 256*mib, 12*mib))
	if err != nil {
		return nil, seg, err
	}
	best, err := l.best("upload", peer)
	if err != nil {
		return nil, seg, err
	}
	rounds, err := l.compare(
		func() (job.Result, error) { return l.send(server, segtier, seg, ourUpload(), 1) },
		func() (job.Result, error) { return l.send(server, peer, seg, best, 1) })
	return rounds, seg, err
}

// ourUpload are our own settings: parts of the default size, as many at a time
// as the machine has use for.
func ourUpload() settings { return settings{16 * mib, 4} }

func uploadHTTP(l *lab) error {
	rounds, seg, err := l.uploads(l.at.HTTP, "manager")
	if err != nil {
		return err
	}
	ours := func(f func(job.Result) float64) func(round[job.Result]) float64 {
		return func(r round[job.Result]) float64 { return mean(r.a, f) }
	}
	if err := l.showRounds("upload_cpu_http", rounds, ratioOf(job.Result.CPU), ""); err != nil {
		return err
	}
	if err := l.showRounds("upload_wall", rounds, ratioOf(wall), ""); err != nil {
		return err
	}
	// Of a small upload the fixed part weighs more, so that is not scaled up.
	note := fmt.Sprintf("for %d MiB", seg.Size/mib)
	if err := l.showRounds("upload_alloc_mib", rounds, ours(func(r job.Result) float64 { return float64(r.AllocBytes) / mib }), note); err != nil {
		return err
	}
	return l.showRounds("workload_upload_one", rounds, ours(rate), "")
}

func wall(r job.Result) float64 { return r.Wall }

// rate is MiB/s.
func rate(r job.Result) float64 { return float64(r.Bytes) / mib / r.Wall }

func ratioOf(f func(job.Result) float64) func(round[job.Result]) float64 {
	return func(r round[job.Result]) float64 { return r.ratio(f) }
}

func uploadTLS(l *lab) error {
	rounds, _, err := l.uploads(l.at.HTTPS, "manager")
	if err != nil {
		return err
	}
	return l.showRounds("upload_cpu_tls", rounds, ratioOf(job.Result.CPU), "")
}

func uploadPeer(l *lab, id, peer string) error {
	rounds, _, err := l.uploads(l.at.HTTP, peer)
	if err != nil {
		return err
	}
	return l.showRounds(id, rounds, ratioOf(job.Result.CPU), l.describe("upload", peer))
}

func uploadMemory(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	seg, err := l.segment(scale[int64](l, 256*mib, 12*mib))
	if err != nil {
		return err
	}
	with := func(part int64) func() (job.Result, error) {
		return func() (job.Result, error) {
			return l.send(l.at.HTTP, segtier, seg, settings{part, ourUpload().Concurrency}, 1)
		}
	}
	rounds, err := l.compare(with(64*mib), with(8*mib))
	if err != nil {
		return err
	}
	return l.showRounds("upload_rss_growth", rounds, ratioOf(func(r job.Result) float64 { return float64(r.PeakRSS) }), "")
}

func uploadMany(l *lab) error {
	if err := l.weather(weather.Schedule{}); err != nil {
		return err
	}
	seg, err := l.segment(scale[int64](l, 8*mib, mib))
	if err != nil {
		return err
	}
	n := scale(l, 64, 16)
	rounds, err := l.repeat(func() (job.Result, error) { return l.send(l.at.HTTP, segtier, seg, ourUpload(), n) })
	if err != nil {
		return err
	}
	return l.showRounds("workload_upload_64", rounds, func(r round[job.Result]) float64 { return mean(r.a, rate) }, "")
}
