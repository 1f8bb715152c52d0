package holdfast

import (
	"context"

	"holdfast.example/proto/clients/go/internal/core"
)

// Member is a hold as others see it.
type Member struct {
	Name     string // of the lock
	Fence    uint64
	Note     string // "": none
	Client   string // the name of the client
	Owner    string
	Session  string // its short ID; "" in a Watch
	Permits  uint64 // of a semaphore
	Holders  uint64 // of the lock; 0 in a list of members
	Detached bool
}

// Holder is the state of a watched lock: free, or held by Member, the newest
// of its holders.
type Holder struct {
	Held bool
	Member
}

// newsMax bounds the states that wait for a slow reader. The oldest ones are
// left out: later ones replace them.
const newsMax = 64

// watcher is one iteration.
type watcher struct {
	// In the lock of the client:
	news []*core.News
	err  error
	over bool
	wake chan struct{}
}

func (w *watcher) add(news *core.News) {
	if len(w.news) == newsMax {
		w.news = w.news[1:]
	}
	w.news = append(w.news, news)
	notify(w.wake)
}

func (w *watcher) end(err error) {
	w.err, w.over = err, true
	notify(w.wake)
}

// Watch tells who holds a lock: the present state, then each change, until ctx
// ends. Quick changes may be merged. A watch holds nothing, and keeps nobody
// waiting.
//
//	for holder, err := range c.Watch(ctx, "leader/shop") { ... }
//
// Before go 1.23 the function is called with the body of the loop, which
// returns false to end it. An error is the last element. The end of ctx is no
// error. A kept session watches on at the next broker; else a watch ends with
// its connection, with ErrGone. A client watches a name in one way at a time:
// Watch and Members of one name are ErrConflict.
func (c *Client) Watch(ctx context.Context, name string) func(
	yield func(Holder, error) bool) {
	return func(yield func(Holder, error) bool) {
		c.watch(ctx, name, false, func(news *core.News, err error) bool {
			if err != nil {
				return yield(Holder{}, err)
			}
			return yield(Holder{news.Held, Member(news.Holder)}, nil)
		})
	}
}

// Members tells all holders of a lock, the oldest first: the present ones, then
// the list after each change, in the way of Watch.
func (c *Client) Members(ctx context.Context, name string) func(
	yield func([]Member, error) bool) {
	return func(yield func([]Member, error) bool) {
		c.watch(ctx, name, true, func(news *core.News, err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			list := make([]Member, len(news.Members))
			for i, member := range news.Members {
				list[i] = Member(member)
			}
			return yield(list, nil)
		})
	}
}

func (c *Client) watch(ctx context.Context, name string, members bool,
	yield func(*core.News, error) bool) {
	r := ask(context.Background(), []string{name}, nil)
	if ctx == nil {
		r.fail(errNoContext)
	}
	if r.bad != nil {
		yield(nil, r.bad)
		return
	}
	w := &watcher{wake: make(chan struct{}, 1)}
	at := c.enter()
	var watch *core.Watch
	if c.core.State() == core.Closed {
		w.end(ErrClosed)
	} else if watch = c.core.Watch(at, name, members, w); watch == nil {
		w.end(&Error{Code: "CONFLICT", Name: name,
			Text: "this client watches it in the other way"})
	}
	c.leave()
	if watch != nil {
		defer func() {
			c.core.Unwatch(c.enter(), watch, w)
			c.leave()
		}()
	}
	for ctx.Err() == nil {
		c.mu.Lock()
		news, over, err := w.news, w.over, w.err
		w.news = nil
		c.mu.Unlock()
		for _, one := range news {
			if ctx.Err() != nil || !yield(one, nil) {
				return
			}
		}
		if over {
			yield(nil, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		}
	}
}
