package holdfast

import (
	"context"
	"slices"
	"strconv"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
	"holdfast.example/proto/clients/go/internal/wire"
)

// Lock is a lock that was granted. Any goroutine may use it.
type Lock struct {
	c    *Client
	hold *core.Hold

	// In the lock of the client:
	ctx      context.Context // nil: nobody has asked for it
	cancel   context.CancelCauseFunc
	values   context.Context // of the call
	why      error           // nil: it was not lost
	released bool
	waiters  chan int // nil: not wanted
	ended    bool     // the signals have ended
}

// Lock waits for the lock, in its turn, until ctx ends. If ctx ends first, a
// grant that comes late is given back. Errors are those of a context, and
// *Error.
func (c *Client) Lock(ctx context.Context, name string, opts ...LockOption) (
	*Lock, error) {
	locks, err := c.LockAll(ctx, []string{name}, opts...)
	if err != nil {
		return nil, err
	}
	return locks[0], nil
}

// LockAll waits for all of 1 to 16 names, or none. The locks are in the order
// of the names.
func (c *Client) LockAll(ctx context.Context, names []string,
	opts ...LockOption) (Locks, error) {
	return c.take(ctx, ask(ctx, names, opts))
}

func (c *Client) take(ctx context.Context, r *request) (Locks, error) {
	if r.bad != nil {
		return nil, r.bad
	}
	hooks := &c.cfg.hooks
	var began core.Time
	if hooks.OnGrant != nil {
		began = now()
	}
	if hooks.OnWait != nil {
		hooks.OnWait(ctx, r.names)
	}
	locks, err := c.takeNow(ctx, r)
	if hooks.OnGrant != nil {
		hooks.OnGrant(ctx, r.names, now()-began, err)
	}
	return locks, err
}

func (c *Client) takeNow(ctx context.Context, r *request) (Locks, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r.owner == "" {
		r.owner = c.newOwner()
	}
	w, err := c.do(ctx, r.lock(), nil)
	if err != nil {
		return nil, err
	}
	return w.locks, nil
}

func (r *request) lock() *core.Request {
	return &core.Request{Kind: core.Lock, Names: r.names, Owner: r.owner,
		Line: r.line("LOCK"), Wait: r.wait, Lease: r.lease, Wanted: r.wanted}
}

// newOwner is unlike all others of this client.
func (c *Client) newOwner() string {
	return "~" + strconv.FormatUint(c.owners.Add(1), 36)
}

// Name of the lock.
func (l *Lock) Name() string { return l.hold.Name }

// Owner of the lock within the session.
func (l *Lock) Owner() string { return l.hold.Owner }

// Fence is larger than that of each earlier grant of this lock. Give it to what
// the lock protects, and have that refuse smaller ones.
func (l *Lock) Fence() uint64 { return l.hold.Fence }

// Context ends when the lock is lost, with the cause ErrLost, and when Unlock
// or Close is called. It does not end with the context of the call of Lock.
func (l *Lock) Context() context.Context {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(
			context.WithoutCancel(l.values))
		if l.ended {
			l.cancel(l.why)
		}
	}
	return l.ctx
}

// Check asks nobody. It returns nil while the lock may be relied on, and else
// ErrLost, ErrClosed, or ErrNotHeld after Unlock.
func (l *Lock) Check() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	switch {
	case l.why != nil:
		return l.why
	case l.released:
		return l.notHeld()
	case !l.hold.Good(now()):
		return lost(l.Name(), "deadline")
	}
	return nil
}

// Left is how long the lock may be relied on if no broker answers any more.
func (l *Lock) Left() time.Duration {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.why != nil || l.released {
		return 0
	}
	return l.hold.Left(now())
}

// lose is in the lock of the client.
func (l *Lock) lose(reason string) {
	if l.released || l.why != nil {
		return
	}
	why := lost(l.Name(), reason)
	l.why = why
	l.over(why)
	if hook := l.c.cfg.hooks.OnLost; hook != nil && reason != "closed" {
		l.c.hook(func() { hook(l, why) })
	}
}

// over ends the signals of the lock.
func (l *Lock) over(why error) {
	if l.cancel != nil {
		l.cancel(why)
	}
	if l.waiters != nil && !l.ended {
		close(l.waiters)
	}
	l.ended = true
}

// release is in the lock of the client.
func (l *Lock) release() error {
	switch {
	case l.why != nil:
		return l.why
	case l.released:
		return l.notHeld()
	}
	l.released = true
	l.over(nil)
	return nil
}

func (l *Lock) notHeld() error {
	return &Error{Code: "NOTHELD", Name: l.Name(), Text: "it was released"}
}

// Wanted tells how many others wait for the lock, at each change upwards, if it
// was taken with the option Wanted. The channel is closed when the lock ends.
func (l *Lock) Wanted() <-chan int { return l.waiters }

// tellWanted is in the lock of the client. A later number replaces one that
// nobody has read.
func (l *Lock) tellWanted(waiters int) {
	if l.waiters == nil || l.ended {
		return
	}
	select {
	case <-l.waiters:
	default:
	}
	l.waiters <- waiters
}

// UnlockOption says how to release.
type UnlockOption func(*request)

// UnlockDelay has nobody get the released lock for d, at most a day.
func UnlockDelay(d time.Duration) UnlockOption {
	return func(r *request) { r.duration("delay", d, 0, day) }
}

// Unlock releases the lock. It always asks for the release, and waits for the
// answer until ctx ends. ErrLost: the lock was lost before. The release is a
// success if Redis does not confirm it: the broker goes on with it.
func (l *Lock) Unlock(ctx context.Context, opts ...UnlockOption) error {
	return Locks{l}.Unlock(ctx, opts...)
}

// Locks are those of LockAll.
type Locks []*Lock

// Unlock releases all of the locks. It returns the first error.
func (list Locks) Unlock(ctx context.Context, opts ...UnlockOption) error {
	if ctx == nil {
		return errNoContext
	}
	var first error
	calls := make([]*call, len(list))
	for i, l := range list {
		r := l.request()
		for _, opt := range opts {
			opt(r)
		}
		if r.bad != nil {
			return r.bad
		}
		var err error
		calls[i], err = l.c.submit(ctx, &core.Request{Kind: core.Unlock,
			Names: r.names, Owner: r.owner, Line: r.line("UNLOCK"),
			Wait: core.Forever, Hold: l.hold}, l.release)
		if first == nil {
			first = err
		}
	}
	for i, l := range list {
		if calls[i] == nil {
			continue
		}
		if err := l.c.wait(ctx, calls[i]); err != nil && first == nil {
			first = err
		}
		l.restore(calls[i])
	}
	return first
}

// restore undoes a release that the broker has refused. The context has ended
// all the same. Else the hold forgets the lock.
func (l *Lock) restore(w *call) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if w.Stands {
		l.released = false
		return
	}
	l.hold.Refs = slices.DeleteFunc(l.hold.Refs, func(ref any) bool {
		return ref == any(l)
	})
}

// request names the hold.
func (l *Lock) request() *request {
	return &request{names: []string{l.Name()}, owner: l.Owner(),
		keys: wire.AppendNumber(nil, "fence", l.Fence())}
}

// ready is in the lock of the client. It refuses what needs a hold.
func (l *Lock) ready() error {
	if l.why == nil && l.released {
		return l.notHeld()
	}
	return l.why
}

// Renew has the lock end after d, whether it had a lease or not. It brings no
// lost lock back.
func (l *Lock) Renew(ctx context.Context, d time.Duration) error {
	r := l.request()
	Lease(d)(r)
	if r.bad != nil {
		return r.bad
	}
	_, err := l.c.do(ctx, &core.Request{Kind: core.Renew, Names: r.names,
		Owner: r.owner, Line: r.line("RENEW"), Wait: core.Forever,
		Hold: l.hold, Lease: d}, l.ready)
	return err
}

// SetNote sets another note; "" is none. Those who watch the lock see it.
func (l *Lock) SetNote(ctx context.Context, note string) error {
	r := l.request()
	if note != "" {
		Note(note)(r)
	}
	if r.bad != nil {
		return r.bad
	}
	_, err := l.c.do(ctx, &core.Request{Kind: core.Note, Names: r.names,
		Owner: r.owner, Line: r.line("NOTE"), Wait: core.Forever,
		Hold: l.hold}, l.ready)
	return err
}

// UnlockPart gives some permits of a semaphore back, and keeps the rest.
func (l *Lock) UnlockPart(ctx context.Context, permits uint32) error {
	r := l.request()
	if permits == 0 {
		return usage("permits is 0")
	}
	r.keys = wire.AppendNumber(r.keys, "permits", uint64(permits))
	_, err := l.c.do(ctx, &core.Request{Kind: core.Part, Names: r.names,
		Owner: r.owner, Line: r.line("UNLOCK"), Wait: core.Forever,
		Hold: l.hold}, l.ready)
	return err
}

// Upgrade waits until no other client shares the lock, and takes it alone. The
// upgrade is a lock of its own, with its own fence and Unlock.
func (l *Lock) Upgrade(ctx context.Context, opts ...LockOption) (*Lock, error) {
	r := ask(ctx, []string{l.Name()}, opts)
	r.owner = l.Owner()
	locks, err := l.c.take(ctx, r)
	if err != nil {
		return nil, err
	}
	return locks[0], nil
}
