package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// spread dials the addresses of a host in turn, so that connections do not all go
// to the first one that DNS names: each address of a service is a front end with a
// rate of its own. An address that did not answer comes last for a while.
type spread struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	next atomic.Uint64
	mu   sync.Mutex
	bad  map[netip.Addr]time.Time // until when; guarded by mu
}

const (
	// badFor is how long an address that did not answer comes last.
	badFor = 30 * time.Second
	// dialOneTimeout bounds the dial of one of several addresses.
	dialOneTimeout = 3 * time.Second
)

func newSpread() *spread {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &spread{dial: d.DialContext, lookup: net.DefaultResolver.LookupNetIP, bad: make(map[netip.Addr]time.Time)}
}

// DialContext is http.Transport's.
func (s *spread) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return s.dial(ctx, network, address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return s.dial(ctx, network, address)
	}
	addrs, err := s.lookup(ctx, "ip", host)
	if err != nil || len(addrs) < 2 {
		return s.dial(ctx, network, address) // which says what is wrong with the name
	}
	var errs []error
	for _, addr := range s.order(addrs) {
		one, cancel := context.WithTimeout(ctx, dialOneTimeout)
		conn, err := s.dial(one, network, net.JoinHostPort(addr.String(), port))
		cancel()
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		s.mu.Lock()
		s.bad[addr] = time.Now().Add(badFor)
		s.mu.Unlock()
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("none of the %d addresses of %s: %w", len(addrs), host, errors.Join(errs...))
}

// order returns the addresses, each time beginning with another, those that did
// not answer lately behind the others.
func (s *spread) order(addrs []netip.Addr) []netip.Addr {
	turn := s.next.Add(1)
	now := time.Now()
	good := make([]netip.Addr, 0, len(addrs))
	var late []netip.Addr
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, until := range s.bad { // few, and none stays longer than its time
		if now.After(until) {
			delete(s.bad, addr)
		}
	}
	// Turns are of those that answer: one that does not gives its turn to each of
	// them, not always to the one behind it.
	for _, addr := range addrs {
		if _, bad := s.bad[addr]; bad {
			late = append(late, addr)
		} else {
			good = append(good, addr)
		}
	}
	if len(good) > 0 {
		first := int(turn % uint64(len(good)))
		good = append(good[first:len(good):len(good)], good[:first]...)
	}
	return append(good, late...)
}
