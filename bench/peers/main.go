// Command peers does the lab's jobs with what others use to move data to and from
// an object store: feature/s3/manager, feature/s3/transfermanager, minio-go,
// GetObject with io.ReadAll and with io.ReadFull, net/http bare, and what a
// team writes in a week: singleflight, ristretto and GetObject of 1 MiB chunks.
// It also runs cache policies that live in other modules: ristretto and otter.
//
// It reads jobs from standard input and writes results to standard output; see
// package job. With -list it prints what it can do.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/segtier/segtier/bench/job"
)

func main() {
	list := flag.Bool("list", false, "print the works of this runner, subject/work, and exit")
	flag.Parse()
	if *list {
		for _, name := range job.Names(works()) {
			fmt.Println(name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := job.Serve(ctx, os.Stdin, os.Stdout, works()); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func works() map[string]job.Work {
	return map[string]job.Work{
		"http-readfull/fill":      job.FillFrom(openHTTP),
		"getobject-readfull/fill": job.FillFrom(openReadFull),
		"getobject-readall/fill":  job.FillFrom(openReadAll),
		"minio/fill":              job.FillFrom(openMinio),
		"week/fill":               job.FillFrom(openWeek),
		"manager/fill":            fillWhole(openManager),
		"transfermanager/fill":    fillWhole(openTransferManager),
		"week/fanout":             fanout,
		"week/serve":              serve,
		"http-readfull/latency":   latency(openHTTP),
		"manager/upload":          upload(uploadManager),
		"transfermanager/upload":  upload(uploadTransferManager),
		"minio/upload":            upload(uploadMinio),
		"ristretto/policy":        policyWork(newRistretto),
		"otter/policy":            policyWork(newOtter),
	}
}
