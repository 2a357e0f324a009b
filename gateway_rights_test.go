package segtier_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/internal/gateway"
	"github.com/segtier/segtier/internal/testseg"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/metadatatest"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/s3"
)

// policies returns the policies that docs/stores.md shows, by job.
func policies(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```json policy=([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		found[m[1]] = m[2]
	}
	return found
}

type policyStatement struct {
	Effect    string
	Action    any // a string or several
	Resource  string
	Principal map[string]string `json:",omitempty"`
}

type policy struct {
	Version   string
	Statement []policyStatement
}

// forUser makes of a policy for the holder of credentials one for a bucket, and
// leaves out one action if it is not "".
func forUser(t *testing.T, text, user, without string) (p policy, actions []string) {
	t.Helper()
	text = strings.NewReplacer("arn:aws:s3:::logs/tier/*", "arn:aws:s3:::"+gateway.Bucket+"/tier/*", "arn:aws:s3:::logs", "arn:aws:s3:::"+gateway.Bucket).Replace(text)
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	var kept []policyStatement
	for _, s := range p.Statement {
		var mine []string
		switch a := s.Action.(type) {
		case string:
			mine = []string{a}
		case []any:
			for _, one := range a {
				mine = append(mine, one.(string))
			}
		}
		actions = append(actions, mine...)
		var left []string
		for _, a := range mine {
			if a != without {
				left = append(left, a)
			}
		}
		if len(left) == 0 {
			continue
		}
		s.Action, s.Principal = left, map[string]string{"AWS": user}
		kept = append(kept, s)
	}
	p.Statement = kept
	return p, actions
}

// TestGatewayRights gives a user exactly what docs/stores.md says that a job
// needs, and lets it do the job; then all but one of it, which must either cost
// nothing but comfort, or end in an error that names what is missing.
func TestGatewayRights(t *testing.T) {
	s := gateway.Start(t, gateway.Options{Users: true})
	root := awss3.New(awss3.Options{
		Region: gateway.Region, BaseEndpoint: aws.String(s.URL()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
	})
	allow := func(p policy) {
		t.Helper()
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		_, err = root.PutBucketPolicy(t.Context(), &awss3.PutBucketPolicyInput{Bucket: aws.String(gateway.Bucket), Policy: aws.String(string(text))})
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	key, secret := s.AddUser(t, "segtier")
	open := func(prefix string, readOnly bool) *s3.Store {
		t.Helper()
		store, err := s3.Open(t.Context(), s3.Options{
			Bucket: gateway.Bucket, Prefix: "tier/" + prefix, Region: gateway.Region, Endpoint: s.URL(), PathStyle: true,
			AccessKeyID: key, SecretAccessKey: secret, ReadOnly: readOnly,
		})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	docs := policies(t)
	if len(docs) != 3 {
		t.Fatalf("docs/stores.md shows %d policies", len(docs))
	}
	small := testseg.Random(1, testseg.Options{Segments: 1}).Segments[0]
	big := testseg.Big(1, 11<<20, testseg.Options{}).Segments[0]
	w := metadata.Writer{BrokerID: 1, LeaderEpoch: 9}
	copyBoth := func(prefix string) error {
		for i, seg := range []*testseg.Segment{small, big} {
			tier := openTierOn(t, open(fmt.Sprint(prefix, i), false), t.TempDir(), segtier.Options{PartSize: s3Part})
			if _, err := tier.Copy(t.Context(), seg, w); err != nil {
				return err
			}
		}
		return nil
	}

	full, actions := forUser(t, docs["copy"], key, "")
	allow(full)
	if err := copyBoth("all"); err != nil {
		t.Errorf("with the policy to copy: %v", err)
	}
	optional := map[string]bool{ // see docs/stores.md
		"s3:ListBucket":                 true, // versitygw says 404 where S3 says 403
		"s3:ListBucketMultipartUploads": true, "s3:ListMultipartUploadParts": true, "s3:AbortMultipartUpload": true, "s3:DeleteObject": true,
	}
	for i, action := range actions {
		less, _ := forUser(t, docs["copy"], key, action)
		allow(less)
		err := copyBoth(fmt.Sprint("without", i))
		switch {
		case optional[action] && err != nil:
			t.Errorf("copy without %s: %v", action, err)
		case !optional[action] && (!errors.Is(err, objstore.ErrRefused) || !strings.Contains(err.Error(), action)):
			t.Errorf("copy without %s: %v; want it to be refused and named", action, err)
		}
	}

	// Reading what root has copied, opened as those do who only read.
	meta := metadatatest.NewMem()
	over := func(store *s3.Store) (tier *segtier.Tier, done func()) {
		t.Helper()
		tier, err := segtier.Open(t.Context(), segtier.Options{Store: store, Metadata: meta, PartSize: s3Part})
		if err != nil {
			t.Fatal(err)
		}
		return tier, func() {
			if err := errors.Join(tier.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	writer, done := over(openS3(t, s, s.URL(), "tier/read"))
	if _, err := writer.Copy(t.Context(), big, w); err != nil {
		t.Fatal(err)
	}
	done()
	read, actions := forUser(t, docs["read"], key, "")
	for _, without := range append([]string{""}, actions...) {
		less, _ := forUser(t, docs["read"], key, without)
		allow(less)
		reader, done := over(open("read", true))
		report, err := reader.Verify(t.Context(), audit.Options{})
		if optional[without] || without == "" {
			if err != nil || report.Segments != 1 {
				t.Errorf("verify without %q: %d segments, %v", without, report.Segments, err)
			}
			checkSegment(t, reader, big)
		} else if !errors.Is(err, objstore.ErrRefused) || !strings.Contains(err.Error(), without) {
			t.Errorf("verify without %s: %v; want it to be refused and named", without, err)
		}
		done()
	}
	// Who only reads changes nothing, whatever he tries.
	allow(read)
	store := open("read", false)
	if err := store.Delete(t.Context(), "segtier.json"); !errors.Is(err, objstore.ErrRefused) || !strings.Contains(err.Error(), "s3:DeleteObject") {
		t.Errorf("deleting with the rights to read: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}

	// What collecting will do.
	collect, _ := forUser(t, docs["delete"], key, "")
	allow(collect)
	store = open("read", false)
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), info.Key); err != nil {
			t.Errorf("deleting %s: %v", info.Key, err)
		}
	}
	for _, err := range store.Uploads(t.Context(), "") {
		if err != nil {
			t.Errorf("listing uploads: %v", err)
		}
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
