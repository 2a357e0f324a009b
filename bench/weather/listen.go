package weather

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// Addresses are where a server listens.
type Addresses struct {
	HTTP  string `json:"http,omitempty"`  // URL
	HTTPS string `json:"https,omitempty"` // URL
	Admin string `json:"admin,omitempty"` // URL, to which /_weather/… is appended
	CA    string `json:"ca,omitempty"`    // PEM, of the authority that signed for HTTPS
}

// started is what Start made.
type started struct {
	conns sync.Map // of net.Conn to *conn

	mu      sync.Mutex
	servers []*http.Server // guarded by mu
	closed  bool           // guarded by mu
}

// Start opens the ports of Options and serves until Close.
func (s *Server) Start(ctx context.Context) (Addresses, error) {
	var at Addresses
	cert, ca, err := newCertificate()
	if err != nil {
		return at, fmt.Errorf("weather: %w", err)
	}
	at.CA = ca
	for _, port := range []struct {
		address string
		url     *string
		scheme  string
		handler http.Handler
	}{
		{s.o.HTTP, &at.HTTP, "http", s},
		{s.o.HTTPS, &at.HTTPS, "https", s},
		{s.o.Admin, &at.Admin, "http", s.Admin()},
	} {
		if port.address == "none" {
			continue
		}
		if port.address == "" {
			port.address = "127.0.0.1:0"
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", port.address)
		if err != nil {
			return Addresses{}, errors.Join(fmt.Errorf("weather: %w", err), s.Close())
		}
		*port.url = port.scheme + "://" + l.Addr().String()
		server := &http.Server{
			Handler: port.handler, ReadHeaderTimeout: time.Minute,
			ErrorLog: log.New(io.Discard, "", 0), // of clients that leave, as they do here
		}
		server.ConnState = s.joinConn
		if port.url != &at.Admin {
			server.ConnState, server.ConnContext = s.connState, s.connContext
		}
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true) // as S3
		if port.scheme == "https" {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
		}
		s.started.mu.Lock()
		closed := s.started.closed
		if !closed {
			s.started.servers = append(s.started.servers, server)
			s.running.Add(1)
		}
		s.started.mu.Unlock()
		if closed {
			_ = l.Close() // nobody was told of it
			return Addresses{}, errors.New("weather: the server is closed")
		}
		go func() {
			defer s.running.Done()
			_ = server.Serve(l) // ends with http.ErrServerClosed
		}()
	}
	return at, nil
}

// Close closes all ports and connections and waits for the handlers.
func (s *Server) Close() error {
	s.started.mu.Lock()
	servers := s.started.servers
	s.started.servers, s.started.closed = nil, true
	s.started.mu.Unlock()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}

// newCertificate makes a self-signed certificate for this machine, and its PEM.
func newCertificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "weather"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(ca), nil
}
