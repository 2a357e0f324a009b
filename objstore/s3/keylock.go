package s3

import (
	"context"
	"sync"
)

// keyLocks lets one upload of a key at a time through. Two at once would both go
// on with the parts that an earlier try left, and where the service cannot
// create conditionally, one would overwrite the other. The zero value is ready.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock // guarded by mu
}

type keyLock struct {
	held  chan struct{} // has room for the holder
	users int           // holder and waiters; guarded by keyLocks.mu
}

// lock waits for key. unlock is to be called once.
func (l *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = make(map[string]*keyLock)
	}
	k := l.locks[key]
	if k == nil {
		k = &keyLock{held: make(chan struct{}, 1)}
		l.locks[key] = k
	}
	k.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		if k.users--; k.users == 0 {
			delete(l.locks, key)
		}
		l.mu.Unlock()
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ended(ctx)
	}
}
