// Command segtier moves closed Kafka log segments to an object store and reads
// them back by offset or by time. It runs the same code as the library.
//
//	segtier demo                        the main job on bundled segments, each step shown and checked
//	segtier copy DIR…                   copy the closed segments of Kafka partition directories
//	segtier ls [PARTITION]              list segments
//	segtier fetch PARTITION OFFSET      read whole batches from an offset on
//	segtier offset PARTITION TIME       find the earliest offset at or after a time
//	segtier explain PARTITION OFFSET    show how an offset is found: record, object, chunk, range
//	segtier verify [PARTITION…]         read every byte and check it
//	segtier expire [PARTITION…]         delete what retention lets go of
//	segtier rm WHAT…                    delete partitions, topics or segments
//	segtier gc                          find what no readable segment needs, and delete it
//	segtier rebuild                     make metadata from the objects in the store
//	segtier meta export                 write all metadata as JSON lines
//	segtier meta import FILE            make metadata of them, for a second reader
//	segtier replay [TRACE]              drive consumer traffic, recorded or made up, and measure it
//	segtier version                     the version of this build
//	segtier completion SHELL            a completion script for bash, zsh, fish or powershell
//
// # Where things are
//
// Stores and metadata are URLs: file:///dir and file:///path.db, or relative to
// the working directory, file:dir. A store may be a bucket of S3 or of a service
// like it:
//
//	s3://bucket/prefix?region=eu-west-1
//	s3://bucket/prefix?region=us-east-1&endpoint=http://127.0.0.1:7070&path-style=true
//
// docs/stores.md lists all parameters. Credentials come from the AWS default
// chain (AWS_ACCESS_KEY_ID and so on, shared files, the instance's role) and have
// no place in a URL.
//
// The URLs are given by --store and --meta, else by SEGTIER_STORE and
// SEGTIER_META, else they are files under ./segtier-data. Only copy, rebuild --apply
// and meta import create directories and files, and nothing creates a bucket.
// Commands that read open store and metadata read-only and share them; while copy
// runs, it has the metadata file to itself, and so have expire and rm with --apply,
// without which they only report.
//
// A partition is written topic/partition, or topicID/partition where two topics
// share a name. A time is RFC 3339 or milliseconds since 1970. A size is a number
// of bytes, or has a unit: KiB, MiB, GiB, kB, MB, GB.
//
// # Output
//
// Data goes to stdout and messages go to stderr. Progress is shown only if stderr
// is a terminal. With --json, stdout is JSON lines with Kafka's names in
// camelCase; times are in milliseconds, and -1 is none:
//
//	ls       topic topicId partition segmentId startOffset endOffset maxTimestamp
//	         state sizeBytes leaderEpochs: [{leaderEpoch offset}]
//	copy     the same, and existed: it was in the tier before
//	fetch    offset timestamp leaderEpoch key value headers: [{key value}], and if
//	         the batch has them producerId producerEpoch isTransactional controlType
//	offset   offset timestamp leaderEpoch
//	explain  the fields of ls, and object, chunk, batch and gets
//	verify   a line for each finding: reason severity topic topicId partition
//	         segmentId startOffset endOffset object position sizeBytes message
//	expire   the fields of ls, and cause, and applied: it was deleted
//	rm       the fields of ls, and applied: it was deleted
//	gc       a line for each thing found: reason action object uploadId topic topicId
//	         partition segmentId startOffset sizeBytes ageMillis message
//	rebuild  the fields of ls, and reason candidate object message
//	meta     export writes lines of its own, see segtier meta export --help;
//	         import the fields of ls of each segment that was taken over
//	replay   one line: consumers seconds fetches sizeBytes endOfTier errors cutShort, and
//	         latency, service and startDelay: {count meanMicros p50Micros p90Micros
//	         p99Micros p999Micros maxMicros}, gets fetchedBytes
//	version  version revision goVersion
//
// Keys and values of records are bytes. In a table, text is shown as it is and
// cut when long; what is not printable text, or could be taken for something
// else, is quoted with Go's escapes; null is shown as null. In JSON nothing is
// cut: "key" is a string or null, and where the bytes are not UTF-8 there is
// "keyBase64" in its place; the same goes for values and headers.
//
// # Exit status
//
//	0  done
//	1  failed
//	2  wrong usage
//	3  verify found damage; rebuild left objects that may be needed
//	4  the offset, or the whole partition, is not in the tier
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}
