package s3

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

const (
	// idleTimeout is below what services grant an idle connection (the shortest
	// we know of is 10 s), so that a request does not meet one that is being
	// closed.
	idleTimeout = 8 * time.Second
	// idlePerHost keeps the connections of parallel parts and ranges: with
	// net/http's default of 2 each request would dial anew.
	idlePerHost = 512
	// bodyBuffer is what a body is written by at a time. Larger ones save system calls;
	// 128 KiB has nearly all of that.
	bodyBuffer = 128 << 10
	// answerBuffer is for the head of an answer, and for as much of the body as comes with
	// it, which is copied once more: what asks for more than a buffer reads the
	// socket itself.
	answerBuffer = 16 << 10
	dialTimeout  = 10 * time.Second
)

// newHTTPClient makes the client of one Store and its transport.
func newHTTPClient(o Options) (*http.Client, *http.Transport, error) {
	roots, err := rootCAs(o)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           newSpread().DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   dialTimeout,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       idleTimeout,
		DisableCompression:    true, // ranges are of bytes as stored
		WriteBufferSize:       bodyBuffer,
		ReadBufferSize:        answerBuffer,
		ExpectContinueTimeout: time.Second,
	}
	// One connection for all streams would have one window and one loss for all
	// of them: HTTP/1.1 alone.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	// A redirect would be signed for another place; S3's own are errors to show.
	client := &http.Client{
		Transport:     plainText{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, transport, nil
}

func rootCAs(o Options) (*x509.CertPool, error) {
	if o.RootCAFile == "" {
		return o.RootCAs, nil // nil is the system's
	}
	pem, err := os.ReadFile(o.RootCAFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificate authorities: no PEM certificate in %s", o.RootCAFile)
	}
	return pool, nil
}

// errSpeaksTLS: plain HTTP was spoken to a port that speaks TLS.
var errSpeaksTLS = errors.New("the endpoint speaks TLS: its URL begins with https://")

// plainText notices a server that wants TLS: it answers an error that is no XML,
// of which the SDK would only say that it is unknown.
type plainText struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p plainText) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusBadRequest || req.URL.Scheme != "http" {
		return resp, err
	}
	r := bufio.NewReaderSize(resp.Body, 512)
	head, _ := r.Peek(512) // fewer are fine
	head = bytes.ToLower(head)
	if bytes.Contains(head, []byte("http request")) && bytes.Contains(head, []byte("https")) {
		_ = resp.Body.Close() // of an answer that is thrown away
		return nil, errSpeaksTLS
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{r, resp.Body}
	return resp, nil
}

// newClient makes the SDK's client. It contacts nobody: credentials are resolved
// by the first request.
func newClient(ctx context.Context, o Options, httpClient awss3.HTTPClient) (*awss3.Client, error) {
	cfg := aws.Config{Region: o.Region}
	if o.AccessKeyID == "" || o.Region == "" {
		var load []func(*config.LoadOptions) error
		if o.Region != "" {
			load = append(load, config.WithRegion(o.Region))
		}
		if o.Profile != "" {
			load = append(load, config.WithSharedConfigProfile(o.Profile))
		}
		var err error
		if cfg, err = config.LoadDefaultConfig(ctx, load...); err != nil {
			return nil, fmt.Errorf("AWS configuration: %w", err)
		}
	}
	if o.AccessKeyID != "" {
		cfg.Credentials = credentials.NewStaticCredentialsProvider(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)
	}
	if cfg.Region == "" {
		if o.Endpoint == "" && cfg.BaseEndpoint == nil {
			return nil, errors.New("no region: set Region (region=…), AWS_REGION, or one in the profile")
		}
		cfg.Region = defaultRegion
	}
	return awss3.NewFromConfig(cfg, func(so *awss3.Options) {
		so.HTTPClient = httpClient
		so.UsePathStyle = o.PathStyle
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(strings.TrimSuffix(o.Endpoint, "/"))
		}
		// One call is one attempt: package endpoint repeats, with one budget for
		// all. The SDK's own budget ends after 35 failures.
		so.Retryer = aws.NopRetryer{}
		// Sums are given where they are wanted, and ranges are checked by whoever
		// knows their sums: the SDK computes and compares none.
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		so.DisableLogOutputChecksumValidationSkipped = true
		// A clock that is off is told to the host, not hidden until something
		// else trips over it.
		so.DisableClockSkewCorrection = true
		so.ContinueHeaderThresholdBytes = -1 // Expect: 100-continue gains nothing here
		so.Logger = logging.Nop{}
		so.ClientLogMode = 0
		so.AppID = "segtier"
	}), nil
}

// counting counts requests.
type counting struct {
	next *http.Client
	n    *atomic.Int64
}

// Do implements the SDK's HTTPClient.
func (c counting) Do(req *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.Do(req)
}

// unsignedPayload spares the SDK a pass of SHA-256 over a body: the signature
// binds it all the same, through the checksum header, which is signed.
func unsignedPayload(o *awss3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}
