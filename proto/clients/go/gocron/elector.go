package holdfastgocron

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"
	holdfast "holdfast.example/proto/clients/go"
)

// ErrNotLeader is the answer of IsLeader where another host leads.
var ErrNotLeader = errors.New("holdfastgocron: this host does not lead")

// Elector is a gocron.Elector. The leader is the holder of a lock, from the
// grant to Close, or to a loss. After a loss it waits for its turn again.
type Elector struct {
	stop context.CancelFunc
	over chan struct{}

	mu   sync.Mutex
	lock *holdfast.Lock
	err  error // the election is over
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector takes part in the election of this name at once, in the session of
// c. It does not close c. The options are those of the lock, such as a Note
// with the address of the host.
func NewElector(c *holdfast.Client, name string,
	options ...holdfast.LockOption) *Elector {
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{stop: stop, over: make(chan struct{})}
	go func() {
		defer close(e.over)
		e.set(nil, c.Lead(ctx, name, e.lead, options...))
	}()
	return e
}

func (e *Elector) lead(ctx context.Context, lock *holdfast.Lock) error {
	e.set(lock, nil)
	<-ctx.Done()
	e.set(nil, nil)
	return context.Cause(ctx)
}

func (e *Elector) set(lock *holdfast.Lock, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lock, e.err = lock, err
}

// IsLeader is nil if this host leads. It asks nobody. A leader that no broker
// answers in time is none from the deadline of its lock on: by then no other
// host leads. Errors are ErrNotLeader, that of a lost lock, and the one that
// has ended the election, such as holdfast.ErrDenied or holdfast.ErrClosed.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.lock != nil:
		return e.lock.Check()
	case e.err != nil:
		return e.err
	}
	return ErrNotLeader
}

// Held is the lock of the leader, or nil if this host does not lead. A job
// takes the fence and the context from it: a run may outlast the leadership.
func (e *Elector) Held() *holdfast.Lock {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lock
}

// Close gives the leadership up, so that another host has it at once.
func (e *Elector) Close() {
	e.stop()
	<-e.over
}
