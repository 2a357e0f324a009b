package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/metadata/embedded"
	"github.com/segtier/segtier/objstore"
	"github.com/segtier/segtier/objstore/dir"
	"github.com/segtier/segtier/objstore/s3"
	"github.com/segtier/segtier/segment"
)

// opened is a Tier with the store and the metadata that belong to it.
type opened struct {
	*segtier.Tier

	meta  metadata.Store
	store objstore.Store
}

// Close closes all three, the Tier first.
func (o *opened) Close() error {
	var errs []error
	if o.Tier != nil {
		errs = append(errs, o.Tier.Close())
	}
	if o.store != nil {
		errs = append(errs, o.store.Close())
	}
	if o.meta != nil {
		errs = append(errs, o.meta.Close())
	}
	return errors.Join(errs...)
}

// openReader opens what is there, read-only. It creates nothing.
func (a *app) openReader(ctx context.Context) (*opened, error) {
	meta, err := a.openMeta()
	if err != nil {
		return nil, err
	}
	where, err := a.storeLocation()
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	store, err := a.openStore(ctx, where, true)
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	return a.wire(ctx, segtier.Options{Store: store, Metadata: meta})
}

// openPartition opens what is there to read the partition that the user means; the
// caller closes it.
func (a *app) openPartition(ctx context.Context, partition string) (*opened, segment.Partition, error) {
	arg, err := parsePartition(partition)
	if err != nil {
		return nil, segment.Partition{}, err
	}
	tier, err := a.openReader(ctx)
	if err != nil {
		return nil, segment.Partition{}, err
	}
	p, err := tier.partition(arg)
	if err != nil {
		return nil, p, errors.Join(err, tier.Close())
	}
	return tier, p, nil
}

// openMeta opens the metadata that is there, read-only.
func (a *app) openMeta() (*embedded.Store, error) {
	where, err := a.metaLocation()
	if err != nil {
		return nil, err
	}
	if err := present(where, "metadata", "--meta or SEGTIER_META"); err != nil {
		return nil, err
	}
	return embedded.Open(where.path, embedded.Options{ReadOnly: true, Logger: a.logger()})
}

// openWriter opens store and metadata and creates what is not there.
func (a *app) openWriter(ctx context.Context, o segtier.Options) (*opened, error) {
	metaAt, storeAt, err := a.locations()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(metaAt.path), 0o777); err != nil {
		return nil, fmt.Errorf("metadata file %s: %w", metaAt, err)
	}
	return a.openAt(ctx, metaAt, storeAt, o)
}

// openExisting opens what is there for changes. It creates nothing.
func (a *app) openExisting(ctx context.Context, o segtier.Options) (*opened, error) {
	metaAt, storeAt, err := a.locations()
	if err != nil {
		return nil, err
	}
	if err := present(metaAt, "metadata", "--meta or SEGTIER_META"); err != nil {
		return nil, err
	}
	if err := presentStore(storeAt); err != nil {
		return nil, err
	}
	return a.openAt(ctx, metaAt, storeAt, o)
}

func (a *app) locations() (metaAt, storeAt location, err error) {
	if metaAt, err = a.metaLocation(); err == nil {
		storeAt, err = a.storeLocation()
	}
	return metaAt, storeAt, err
}

// openAt opens both for changes.
func (a *app) openAt(ctx context.Context, metaAt, storeAt location, o segtier.Options) (*opened, error) {
	meta, err := embedded.Open(metaAt.path, embedded.Options{Logger: a.logger()})
	if err != nil {
		return nil, err
	}
	store, err := a.openStore(ctx, storeAt, false)
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	o.Store, o.Metadata = store, meta
	return a.wire(ctx, o)
}

// openReport opens the metadata that is there, read-only, and no store: for
// reports that metadata alone can give.
func (a *app) openReport() (*opened, error) {
	if _, err := a.storeLocation(); err != nil {
		return nil, err // not asked, but wrong is wrong
	}
	meta, err := a.openMeta()
	if err != nil {
		return nil, err
	}
	return &opened{meta: meta}, nil
}

// openStore opens the store. A directory that is only read must be there; one
// that is written is created. A bucket must be there in any case, which its
// first request finds out.
func (a *app) openStore(ctx context.Context, where location, readOnly bool) (objstore.Store, error) {
	if where.s3 != nil {
		o := *where.s3
		o.ReadOnly = o.ReadOnly || readOnly
		o.Logger = a.logger()
		return s3.Open(ctx, o)
	}
	if readOnly {
		if err := presentStore(where); err != nil {
			return nil, err
		}
	}
	return dir.Open(where.path, dir.Options{ReadOnly: readOnly, Create: !readOnly})
}

func (a *app) wire(ctx context.Context, o segtier.Options) (*opened, error) {
	o.Logger = a.logger()
	if a.tune != nil {
		a.tune(&o)
	}
	tier, err := segtier.Open(ctx, o)
	res := &opened{Tier: tier, meta: o.Metadata, store: o.Store}
	if err != nil {
		return nil, errors.Join(err, res.Close())
	}
	return res, nil
}

// present says what to do when there is nothing to read.
func present(l location, what, by string) error {
	_, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s at %s: name it with %s, or make one with 'segtier copy DIR'", what, l, by)
	}
	return err
}

// presentStore is present for a store: whether a bucket is there, its first request
// says.
func presentStore(l location) error {
	if l.s3 != nil {
		return nil
	}
	return present(l, "store", "--store or SEGTIER_STORE")
}

// partition returns the partition that the user means.
func (o *opened) partition(arg partitionArg) (segment.Partition, error) {
	known, err := o.Partitions()
	if err != nil {
		return segment.Partition{}, err
	}
	return resolve(known, arg)
}
