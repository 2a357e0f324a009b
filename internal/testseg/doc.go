// Package testseg makes valid Kafka segments for tests, as a broker's writer
// would: record batches of every kind ([Batch]), whole segments with their
// indexes ([Build]), and random partitions of several segments from a seed
// ([Random]), in memory or as a partition directory. What was put in stays
// beside the bytes, for brute-force comparison.
//
// Its encoders share no code with the decoders they test.
package testseg
