package holdfast

import (
	"context"
	"crypto/tls"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
	"holdfast.example/proto/clients/go/internal/wire"
)

// Hooks are functions for metrics and tracing. Each may be nil, and may call
// the client. OnWait and OnGrant run in the goroutine of the call. OnLost and
// OnMove run one after the other in a goroutine of their own, in the order of
// the events. While one of them does not return, up to 65536 events wait for
// it, and later ones are left out. The context of a lock tells its loss all the
// same.
type Hooks struct {
	// OnWait: a call has asked for these locks.
	OnWait func(ctx context.Context, names []string)
	// OnGrant: it has an answer after this time; err is nil if they are held.
	OnGrant func(ctx context.Context, names []string, after time.Duration,
		err error)
	// OnLost: a held lock was lost.
	OnLost func(lock *Lock, why error)
	// OnMove: a kept session goes on at this address.
	OnMove func(address string)
}

// Option is one of Dial.
type Option func(*config)

type config struct {
	core  core.Config
	tls   *tls.Config
	hooks Hooks
}

// Keep has the session outlive its connection by d, at most an hour. The client
// then goes on at the next address, with its holds and waits. Without Keep all
// of them end with the connection. 0: not kept, the default.
func Keep(d time.Duration) Option {
	return func(c *config) { c.core.Keep = d }
}

// Heartbeat has the broker ask for a sign of life after d without one, and end
// the session after 3 d. The default is 2 s; 0: never. At least 100 ms.
func Heartbeat(d time.Duration) Option {
	return func(c *config) { c.core.Heartbeat = d }
}

// User is for a broker with users.
func User(name, secret string) Option {
	return func(c *config) { c.core.User, c.core.Secret = name, secret }
}

// TLS has all connections speak TLS. An empty ServerName is replaced by the
// host of the address. Functions in cfg must not call the client.
func TLS(cfg *tls.Config) Option {
	return func(c *config) { c.tls = cfg }
}

// Name of the client, which others see in SHOW and SESSIONS.
func Name(name string) Option {
	return func(c *config) { c.core.Name = name }
}

// WithHooks sets the hooks.
func WithHooks(hooks Hooks) Option {
	return func(c *config) { c.hooks = hooks }
}

func (c *config) check() error {
	switch {
	case c.core.Keep < 0 || c.core.Keep > time.Hour:
		return usage("Keep is %v; it is 0 to 1h", c.core.Keep)
	case c.core.Heartbeat != 0 && (c.core.Heartbeat < 100*time.Millisecond ||
		c.core.Heartbeat > time.Hour):
		return usage("Heartbeat is %v; it is 0, or 100ms to 1h",
			c.core.Heartbeat)
	}
	words := []struct {
		what, word string
		max        int
	}{{"name", c.core.Name, wire.WordMax}, {"user", c.core.User, wire.WordMax},
		{"secret", c.core.Secret, wire.SecretMax}}
	for i, w := range words {
		if w.word == "" && (i == 0 || c.core.User == "" &&
			c.core.Secret == "") {
			continue
		}
		if err := wire.Check(w.what, w.word, w.max); err != nil {
			return usage("%v", err)
		}
	}
	return nil
}

// LockOption says how to lock.
type LockOption func(*request)

type request struct {
	names  []string
	owner  string
	mode   string
	keys   []byte
	wait   time.Duration
	lease  time.Duration
	wanted bool
	bad    error
}

func (r *request) duration(key string, d, least, most time.Duration) {
	if d < least || d > most {
		r.fail(usage("%s is %v; it is %v to %v", key, d, least, most))
		return
	}
	r.keys = wire.AppendDuration(r.keys, key, d)
}

func (r *request) fail(err error) {
	if r.bad == nil {
		r.bad = err
	}
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// Wait bounds the wait by the broker: ErrTimeout after d, and ErrBusy at once
// if d is 0 and the lock is held. Without it the context alone bounds the wait.
func Wait(d time.Duration) LockOption {
	return func(r *request) {
		if d < 0 || d > year {
			r.fail(usage("wait is %v; it is 0 to %v", d, year))
		}
		r.wait = d
	}
}

// Lease has the lock end after d. Only Renew sets a new end. Without it the
// broker renews the lock while the session lives.
func Lease(d time.Duration) LockOption {
	return func(r *request) {
		r.lease = d
		r.duration("lease", d, time.Millisecond, year)
	}
}

// Note is for people and for those who watch the lock: 1 to 128 bytes.
func Note(note string) LockOption {
	return func(r *request) {
		if err := wire.Check("note", note, wire.NoteMax); err != nil {
			r.fail(usage("%v", err))
		}
		r.keys = wire.AppendKey(r.keys, "note", note)
	}
}

// Delay has nobody get the lock for d after a crash of its holder, or a loss.
func Delay(d time.Duration) LockOption {
	return func(r *request) { r.duration("delay", d, 0, day) }
}

// Shared asks for a lock that others may share.
func Shared() LockOption {
	return func(r *request) { r.mode = "shared" }
}

// Upgradable asks for a lock beside shared ones, which Lock.Upgrade makes
// exclusive.
func Upgradable() LockOption {
	return func(r *request) { r.mode = "upgradable" }
}

// Semaphore asks for some permits of a lock that has limit of them.
func Semaphore(limit, permits uint32) LockOption {
	return func(r *request) {
		if limit == 0 {
			r.fail(usage("limit is 0; it is 1 or more"))
		}
		if permits == 0 || permits > limit {
			r.fail(usage("permits is %d; it is 1 to %d", permits, limit))
		}
		r.keys = wire.AppendNumber(r.keys, "limit", uint64(limit))
		if permits > 1 {
			r.keys = wire.AppendNumber(r.keys, "permits", uint64(permits))
		}
	}
}

// Tree takes names as paths: the lock excludes the names above it, and below.
func Tree() LockOption {
	return func(r *request) { r.keys = append(r.keys, " tree=1"...) }
}

// Wanted has Lock.Wanted tell when others wait for the lock.
func Wanted() LockOption {
	return func(r *request) {
		r.wanted = true
		r.keys = append(r.keys, " wanted=1"...)
	}
}

// NoDeadlock has no deadlock looked for through this wait.
func NoDeadlock() LockOption {
	return func(r *request) { r.keys = append(r.keys, " deadlock=0"...) }
}

type ownerKey struct{}

// WithOwner gives locks that are taken with this context an owner in common.
// They re-enter one another, and brokers find their deadlocks. Without it each
// lock has an owner of its own. The owner has 1 to 64 bytes, and must not begin
// with "~".
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// ask makes a request of the arguments of a call.
func ask(ctx context.Context, names []string, opts []LockOption) *request {
	r := &request{names: names, wait: core.Forever}
	if len(names) == 0 || len(names) > wire.NamesMax {
		r.fail(usage("%d names; 1 to %d are possible", len(names),
			wire.NamesMax))
	}
	for _, name := range names {
		if err := wire.Check("name", name, wire.NameMax); err != nil {
			r.fail(usage("%v", err))
		}
	}
	if ctx == nil {
		r.fail(errNoContext)
		return r
	}
	if owner, ok := ctx.Value(ownerKey{}).(string); ok {
		r.own(owner)
	}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

func (r *request) own(owner string) {
	if err := wire.Check("owner", owner, wire.OwnerMax); err != nil {
		r.fail(usage("%v", err))
	} else if owner[0] == '~' {
		r.fail(usage("an owner must not begin with ~"))
	}
	r.owner = owner
}

// line is the request with its owner, without tag and wait.
func (r *request) line(verb string) []byte {
	line := []byte(verb)
	for _, name := range r.names {
		line = wire.AppendWord(append(line, ' '), name)
	}
	if r.owner != "" {
		line = wire.AppendKey(line, "owner", r.owner)
	}
	if r.mode != "" {
		line = wire.AppendKey(line, "mode", r.mode)
	}
	return append(line, r.keys...)
}
