package s3

import (
	"fmt"

	"github.com/segtier/segtier/checksum"
	"github.com/segtier/segtier/objstore"
)

// S3's limits of a multipart upload.
const (
	minPartSize = 5 << 20 // of every part but the last
	maxPartSize = 5 << 30 // also of an object made by one PutObject
	maxParts    = 10_000
)

// sentPart is a part as it is sent: one part of the request, or several where
// those are smaller than S3 takes, or more. Its sum is put together from theirs, so
// that what confirms it confirms each of them.
type sentPart struct {
	off   int64
	sum   checksum.Sum
	first int // part of the request
	count int // parts of the request
}

// planParts divides an upload. It is a function of the request alone: a later
// try finds the parts of an earlier one.
func planParts(req *objstore.UploadRequest) (size int64, parts []sentPart, err error) {
	n := int64(len(req.PartSums))
	group := int64(1)
	if n > 1 && req.PartSize < minPartSize {
		group = (minPartSize-1)/req.PartSize + 1
	}
	if (n-1)/group+1 > maxParts {
		group = (n-1)/maxParts + 1
	}
	group = min(group, n)
	if longest := min(req.PartSize, req.Size); longest > maxPartSize/group {
		return 0, nil, fmt.Errorf("upload of %d bytes in parts of %d bytes: S3 takes %d parts of at most %d bytes", req.Size, req.PartSize, maxParts, int64(maxPartSize))
	}
	parts = make([]sentPart, 0, (n-1)/group+1)
	for first := int64(0); first < n; first += group {
		p := sentPart{first: int(first), count: int(min(group, n-first))}
		p.off, _ = req.Part(p.first)
		for _, sum := range req.PartSums[first:min(first+group, n)] {
			p.sum = p.sum.Append(sum)
		}
		parts = append(parts, p)
	}
	return req.PartSize * group, parts, nil
}
