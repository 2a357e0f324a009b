//go:build !race

package segtier_test

const raceDetector = false
