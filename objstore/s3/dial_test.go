package s3

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/segtier/segtier/internal/bubble"
)

// dialing counts who is dialled, and fails for some.
type dialing struct {
	count map[string]int
	dead  string
}

func (d *dialing) dial(_ context.Context, _, address string) (net.Conn, error) {
	d.count[address]++
	if d.dead != "" && strings.HasPrefix(address, d.dead) {
		return nil, errors.New("no route")
	}
	c, _ := net.Pipe()
	return c, nil
}

func names(addrs ...string) func(context.Context, string, string) ([]netip.Addr, error) {
	return func(context.Context, string, string) ([]netip.Addr, error) {
		out := make([]netip.Addr, len(addrs))
		for i, a := range addrs {
			out[i] = netip.MustParseAddr(a)
		}
		return out, nil
	}
}

// Connections go to all addresses of a name alike; one that is dead is tried once
// in a while.
func TestConnectionsAreSpread(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &dialing{count: map[string]int{}}
		s := &spread{dial: d.dial, lookup: names("192.0.2.1", "192.0.2.2", "2001:db8::3"), bad: map[netip.Addr]time.Time{}}
		dial := func(n int) {
			t.Helper()
			for range n {
				c, err := s.DialContext(t.Context(), "tcp", "bucket.example:443")
				if err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
			}
		}
		dial(30)
		for _, a := range []string{"192.0.2.1:443", "192.0.2.2:443", "[2001:db8::3]:443"} {
			if d.count[a] != 10 {
				t.Errorf("%v", d.count)
			}
		}
		d.dead = "192.0.2.2"
		clear(d.count)
		dial(30)
		if d.count["192.0.2.2:443"] != 1 || d.count["192.0.2.1:443"] < 14 || d.count["[2001:db8::3]:443"] < 14 {
			t.Errorf("%v", d.count)
		}
		<-time.After(badFor + 1)
		d.dead = ""
		clear(d.count)
		dial(30)
		if d.count["192.0.2.2:443"] != 10 || len(s.bad) != 0 {
			t.Errorf("%v; %v", d.count, s.bad)
		}
		d.dead = "1"
		s.lookup = names("192.0.2.1", "192.0.2.2")
		if _, err := s.DialContext(t.Context(), "tcp", "bucket.example:443"); err == nil || !strings.Contains(err.Error(), "none of the 2 addresses of bucket.example") {
			t.Error(err)
		}
	})
}

// What has one address, or none, is the dialer's alone.
func TestOneAddressIsNotSpread(t *testing.T) {
	d := &dialing{count: map[string]int{}}
	s := &spread{dial: d.dial, lookup: names("192.0.2.1"), bad: map[netip.Addr]time.Time{}}
	for _, a := range []string{"127.0.0.1:80", "[::1]:80", "one.example:80", "nonsense"} {
		c, err := s.DialContext(t.Context(), "tcp", a)
		if err != nil || d.count[a] != 1 {
			t.Fatalf("%s: %v, %v", a, err, d.count)
		}
		_ = c.Close()
	}
}
