// Package testdata holds files written by a real Apache Kafka broker: partition
// directories, the store of Kafka's LocalTieredStorage, the segments of the topic
// __remote_log_metadata, and log directory checkpoints. README.md says how they
// were made and what each of them covers; expected.jsonl holds what the broker
// and Kafka's own classes say about them.
//
// Tests read the files from this directory. Two small partitions are also
// embedded, for demonstrations that must work without a checkout: see [Demo].
package testdata

import (
	"embed"
	"io/fs"
)

//go:embed all:partitions/payments.tx_commit-abort-0
//go:embed all:partitions/sensor-readings.v2_raw-0
var files embed.FS

// Demo returns a file system whose top-level entries are two partition
// directories, as a broker leaves them after a clean shutdown:
//
//   - payments.tx_commit-abort-0: 13 segments with every codec, committed and
//     aborted transactions (some across segments), transaction indexes;
//   - sensor-readings.v2_raw-0: 6 segments in three leader epochs, timestamps
//     out of order.
//
// Together they take about 200 KB.
func Demo() fs.FS {
	sub, err := fs.Sub(files, "partitions")
	if err != nil {
		panic(err) // cannot happen: the path is valid
	}
	return sub
}
