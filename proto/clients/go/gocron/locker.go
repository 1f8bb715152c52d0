// Package holdfastgocron has several hosts share the jobs of gocron, by locks
// of a Holdfast broker.
//
//	locker := holdfastgocron.NewLocker(client)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// With a Locker each run of a job is on one host, whichever comes first. With
// an Elector all jobs are on one host, the leader. Both let another host go on
// as soon as the connection of a crashed one ends.
package holdfastgocron

import (
	"context"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	holdfast "holdfast.example/proto/clients/go"
)

// AtLeastDefault is the time of AtLeast if the option is not given.
const AtLeastDefault = 500 * time.Millisecond

// Locker is a gocron.Locker: a lock for each run of a job. Any number of
// schedulers may use it.
type Locker struct {
	client  *holdfast.Client
	prefix  string
	atLeast time.Duration
	options []holdfast.LockOption

	mu   sync.Mutex
	held map[string]*holdfast.Lock
}

var _ gocron.Locker = (*Locker)(nil)

// LockerOption is one of NewLocker.
type LockerOption func(*Locker)

// Prefix is put before the name of a job. Both are the name of its lock. The
// default is "gocron/".
func Prefix(prefix string) LockerOption {
	return func(l *Locker) { l.prefix = prefix }
}

// AtLeast has a run keep its lock for d, however short the run is. A host whose
// clock is behind by less than d then finds the lock taken, and does not run
// the job a second time. After a crash of the host the lock is free d later. d
// must be shorter than the time between two runs. The default is
// AtLeastDefault; 0 releases the lock at once.
func AtLeast(d time.Duration) LockerOption {
	return func(l *Locker) { l.atLeast = d }
}

// LockOptions are more options for the locks, such as a Note.
func LockOptions(options ...holdfast.LockOption) LockerOption {
	return func(l *Locker) { l.options = append(l.options, options...) }
}

// NewLocker has its locks in the session of c. It does not close c.
func NewLocker(c *holdfast.Client, options ...LockerOption) *Locker {
	l := &Locker{client: c, prefix: "gocron/", atLeast: AtLeastDefault,
		held: map[string]*holdfast.Lock{}}
	for _, option := range options {
		option(l)
	}
	return l
}

// Lock takes the lock of a job, and never waits: holdfast.ErrBusy says that
// another host runs the job, or has just run it. gocron then skips the run.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	options := []holdfast.LockOption{holdfast.Wait(0),
		holdfast.Delay(l.atLeast)}
	lock, err := l.client.Lock(ctx, l.prefix+job,
		append(options, l.options...)...)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.held[job] = lock
	l.mu.Unlock()
	return &run{l, job, lock, time.Now()}, nil
}

// Held is the lock of a job that runs in this process, or nil. The job takes
// the fence and the context from it: the context ends if the lock is lost.
func (l *Locker) Held(job string) *holdfast.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[job]
}

// run is one run of a job.
type run struct {
	l     *Locker
	job   string
	lock  *holdfast.Lock
	began time.Time
}

// Unlock is the end of the run. A release is asked for even if ctx has ended.
func (r *run) Unlock(ctx context.Context) error {
	r.l.mu.Lock()
	if r.l.held[r.job] == r.lock { // and no run after a loss
		delete(r.l.held, r.job)
	}
	r.l.mu.Unlock()
	left := r.l.atLeast - time.Since(r.began)
	return r.lock.Unlock(ctx, holdfast.UnlockDelay(max(left, 0)))
}
