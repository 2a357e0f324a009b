//go:build !race

package bubble

// RaceDetector: this binary has it. It is several times as large and slow.
const RaceDetector = false
