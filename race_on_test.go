//go:build race

package segtier_test

// raceDetector: the test binary is several times as large and slow as the code.
const raceDetector = true
