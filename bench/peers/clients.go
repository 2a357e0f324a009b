package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/minio/minio-go/v7"
	miniocreds "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/segtier/segtier/bench/job"
)

const region = "us-east-1"

// transport is the same for all: connections are kept, bodies are left as they are.
func transport(j job.Job) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 512
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false
	if j.CAFile != "" {
		pem, err := os.ReadFile(j.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", j.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

// sdk returns a client of the AWS SDK.
func sdk(j job.Job) (*s3.Client, error) {
	t, err := transport(j)
	if err != nil {
		return nil, err
	}
	return s3.New(s3.Options{
		Region:       region,
		BaseEndpoint: aws.String(j.Server),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(j.Client, "secret", ""),
		HTTPClient:   &http.Client{Transport: t},

		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}), nil
}

// minioClient returns a client of minio-go.
func minioClient(j job.Job, trailing bool) (*minio.Client, error) {
	t, err := transport(j)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(j.Server)
	if err != nil {
		return nil, err
	}
	return minio.New(u.Host, &minio.Options{
		Creds:           miniocreds.NewStaticV4(j.Client, "secret", ""),
		Secure:          u.Scheme == "https",
		Transport:       t,
		Region:          region,
		BucketLookup:    minio.BucketLookupPath,
		TrailingHeaders: trailing,
	})
}
