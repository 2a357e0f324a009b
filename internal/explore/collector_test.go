package explore_test

import (
	"github.com/segtier/segtier/lifecycle"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/objstore/endpoint"
)

const collects = false

func (w *world) collect(metadata.Store, *endpoint.Endpoint, *lifecycle.Deleter) {}

func collections() []scenario     { return nil }
func collectedCrowds() []scenario { return nil }
