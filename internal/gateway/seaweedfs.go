package gateway

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// StartSeaweedFS starts SeaweedFS, a second opinion on what S3 is, which takes
// minutes to build (`make tools-soak`) and seconds to start. It is stopped when the
// test ends. SEGTIER_SEAWEEDFS names another program than bin/weed. Its telemetry is
// off.
func StartSeaweedFS(t testing.TB) *Server {
	t.Helper()
	ports := freePorts(t, 4)
	s := newServer(t, program(t, "SEGTIER_SEAWEEDFS", "weed", "make tools-soak"), net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[3])))
	if err := os.MkdirAll(s.DataDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	type credential struct {
		AccessKey string `json:"accessKey"`
		SecretKey string `json:"secretKey"`
	}
	type identity struct {
		Name        string       `json:"name"`
		Credentials []credential `json:"credentials"`
		Actions     []string     `json:"actions"`
	}
	config, err := json.Marshal(map[string][]identity{"identities": {{
		Name: "root", Credentials: []credential{{s.AccessKey, s.SecretKey}}, Actions: []string{"Admin", "Read", "Write", "List", "Tagging"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.dir, "s3.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	port := func(name string, i int) string { return "-" + name + ".port=" + strconv.Itoa(ports[i]) }
	s.args = []string{
		"server", "-dir=" + s.DataDir(), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
		port("master", 0), port("volume", 1), "-filer", port("filer", 2), "-s3", port("s3", 3), "-s3.config=" + file,
		"-master.volumeSizeLimitMB=64", "-volume.max=200",
	}
	s.env = []string{"HOME=" + s.dir}
	s.health = "/healthz"
	s.start(t)

	// A bucket is a directory of the filer.
	url := "http://127.0.0.1:" + strconv.Itoa(ports[2]) + "/buckets/" + Bucket + "/"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // nothing is in it
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("making the bucket: status %d", res.StatusCode)
	}
	return s
}

// freePorts returns n ports that nobody listens on, nor on the ones 10,000 above,
// where SeaweedFS has its second protocol.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	free := func(port int) bool {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		return l.Close() == nil
	}
	for range 100 {
		first := 20_000 + rand.IntN(10_000)
		var ports []int
		for i := range n {
			if free(first+i) && free(first+i+10_000) {
				ports = append(ports, first+i)
			}
		}
		if len(ports) == n {
			return ports
		}
	}
	t.Fatal("no free ports")
	return nil
}
