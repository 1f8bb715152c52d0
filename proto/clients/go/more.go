package holdfast

import (
	"context"
	"errors"
	"math/rand"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
	"holdfast.example/proto/clients/go/internal/wire"
)

// Do runs work with the lock, and releases it. The context of work ends with
// ctx, and at the loss of the lock. Do then returns ErrLost, joined with the
// error of work.
func (c *Client) Do(ctx context.Context, name string,
	work func(ctx context.Context, lock *Lock) error,
	opts ...LockOption) error {
	lock, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	_, err = lock.do(ctx, work)
	return err
}

// do also tells whether the lock itself was lost.
func (l *Lock) do(ctx context.Context,
	work func(ctx context.Context, lock *Lock) error) (gone bool, err error) {
	defer func() {
		why := l.Check()
		release := l.Unlock(context.WithoutCancel(ctx))
		gone = errors.Is(why, ErrLost)
		switch {
		case gone || errors.Is(why, ErrClosed):
			err = errors.Join(why, err)
		case err == nil && why == nil:
			err, gone = release, errors.Is(release, ErrLost)
		}
	}()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := l.Context()
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	defer stop()
	return false, work(inner, l)
}

// Lead waits until this client leads, and runs work as the leader: with the
// lock, whose fence is the epoch. After a loss it waits again. Lead returns
// what work returns if the lock was not lost, or the error of ctx, or of a
// request that no later try would help. Followers watch the lock: a Note tells
// them where the leader is.
func (c *Client) Lead(ctx context.Context, name string,
	work func(ctx context.Context, lock *Lock) error,
	opts ...LockOption) error {
	pause := leadPause
	for {
		lock, err := c.Lock(ctx, name, opts...)
		if err == nil {
			pause = leadPause
			gone, err := lock.do(ctx, work)
			if !gone || ctx.Err() != nil {
				return err
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || !e.Retry {
			return err
		}
		wait := max(e.After, pause/2+time.Duration(rand.Int63n(int64(pause))))
		pause = min(2*pause, leadPauseMax)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.closed:
			return ErrClosed
		case <-time.After(wait):
		}
	}
}

const (
	leadPause    = 100 * time.Millisecond
	leadPauseMax = 5 * time.Second
)

// Free is the answer to Await: the last grant, as far as the broker knows it.
type Free struct {
	Fence uint64 // 0: not known
	Note  string
}

// Await waits until nobody holds the lock, and takes nothing. Another client
// may hold it again when Await returns. Of the options it takes Wait.
func (c *Client) Await(ctx context.Context, name string, opts ...LockOption) (
	Free, error) {
	r := ask(context.Background(), []string{name}, opts)
	if r.bad == nil && (len(r.keys) > 0 || r.mode != "") {
		r.fail(usage("Await takes no option but Wait"))
	}
	if r.bad != nil {
		return Free{}, r.bad
	}
	w, err := c.do(ctx, &core.Request{Kind: core.Await, Names: r.names,
		Line: r.line("AWAIT"), Wait: r.wait}, nil)
	if err != nil {
		return Free{}, err
	}
	m := wire.Message{Pairs: w.Pairs}
	fence, _ := m.Number("fence")
	return Free{Fence: fence, Note: m.Value("note")}, nil
}

// Resize sets another limit for a semaphore that clients hold or wait for. It
// returns the permits that are out.
func (c *Client) Resize(ctx context.Context, name string, limit uint32) (
	uint64, error) {
	r := ask(context.Background(), []string{name}, nil)
	r.keys = wire.AppendNumber(r.keys, "limit", uint64(limit))
	if r.bad != nil {
		return 0, r.bad
	}
	w, err := c.do(ctx, &core.Request{Kind: core.Call, Names: r.names,
		Line: r.line("RESIZE"), Wait: core.Forever, Repeat: true}, nil)
	if err != nil {
		return 0, err
	}
	permits, _ := (&wire.Message{Pairs: w.Pairs}).Number("permits")
	return permits, nil
}

// Detached is a lock that outlives its session and its broker. The fence names
// it: any client that knows it may renew and release the lock.
type Detached struct {
	c        *Client
	name     string
	fence    uint64
	until    core.Time // by the last answer
	renewing core.Renewals
}

// LockDetached takes a lock that ends after lease, at most a day, or by Unlock
// of any client.
func (c *Client) LockDetached(ctx context.Context, name string,
	lease time.Duration, opts ...LockOption) (*Detached, error) {
	r := ask(ctx, []string{name}, opts)
	r.duration("lease", lease, time.Millisecond, day)
	r.keys = append(r.keys, " detached=1"...)
	if r.bad != nil {
		return nil, r.bad
	}
	if r.owner == "" {
		r.owner = c.newOwner()
	}
	w, err := c.do(ctx, &core.Request{Kind: core.Detached, Names: r.names,
		Owner: r.owner, Line: r.line("LOCK"), Wait: r.wait}, nil)
	if err != nil {
		return nil, err
	}
	fence, _ := (&wire.Message{Pairs: w.Pairs}).Number("fence")
	d := c.Detached(name, fence)
	d.date(w)
	return d, nil
}

// Detached is a handle of a lock that another program has detached.
func (c *Client) Detached(name string, fence uint64) *Detached {
	return &Detached{c: c, name: name, fence: fence}
}

// Name of the lock.
func (d *Detached) Name() string { return d.name }

// Fence of the lock.
func (d *Detached) Fence() uint64 { return d.fence }

// Left is how long the lock lasts, as this handle knows; 0: it does not know.
func (d *Detached) Left() time.Duration {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return max(d.renewing.Sooner(d.until)-now(), 0)
}

func (d *Detached) date(w *call) {
	ttl, _ := (&wire.Message{Pairs: w.Pairs}).Milliseconds("ttl_ms")
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.until = w.Base() + ttl
}

func (d *Detached) request(verb string, keys []byte) *core.Request {
	r := request{names: []string{d.name},
		keys: wire.AppendNumber(keys, "fence", d.fence)}
	r.keys = append(r.keys, " detached=1"...)
	return &core.Request{Kind: core.Call, Names: r.names, Line: r.line(verb),
		Wait: core.Forever}
}

// Renew has the lock end after lease, at most a day. After ErrInDoubt call it
// again.
func (d *Detached) Renew(ctx context.Context, lease time.Duration) error {
	var r request
	if r.duration("lease", lease, time.Millisecond, day); r.bad != nil {
		return r.bad
	}
	request := d.request("RENEW", r.keys)
	request.Lease = lease
	w, err := d.c.do(ctx, request, func() error {
		d.renewing.Add(request)
		return nil
	})
	if w == nil {
		return err
	}
	d.c.mu.Lock()
	why := w.Failure
	if err != nil && why.Code == "" { // ctx has ended
		why.Code = core.CodeInDoubt
	}
	d.until = d.renewing.Answered(request, why, d.until)
	d.c.mu.Unlock()
	if err == nil {
		d.date(w)
	}
	return err
}

// Unlock releases the lock. After ErrInDoubt call it again: ErrNotHeld then
// says that the lock has ended.
func (d *Detached) Unlock(ctx context.Context) error {
	_, err := d.c.do(ctx, d.request("UNLOCK", nil), nil)
	if err == nil {
		d.c.mu.Lock()
		d.until = 0
		d.c.mu.Unlock()
	}
	return err
}
