// Package s3 is an object store in a bucket of S3 or of a service that speaks
// its protocol.
package s3
