package core

import (
	"sort"

	"holdfast.example/proto/clients/go/internal/wire"
)

// EffectKind is what happened.
type EffectKind uint8

// The effects.
const (
	Finished   EffectKind = iota // Request has its answer
	Waiting                      // Request, a LOCK, stands in the queue
	Lost                         // Hold; Word is the reason
	Wanted                       // Hold; Waiters
	Event                        // Watch; News
	WatchEnded                   // Watch; Failure
	Opened                       // a broker serves the session; Moved: again
	Refused                      // no address serves; Failure
)

// Effect is one thing that happened, for the caller.
type Effect struct {
	Kind    EffectKind
	Request *Request
	Hold    *Hold
	Watch   *Watch
	News    *News
	Failure Failure
	Word    string
	Waiters uint64
	Moved   bool
}

// Member is a hold as others see it.
type Member struct {
	Name     string // of the lock
	Fence    uint64
	Note     string
	Client   string // the name of the client
	Owner    string
	Session  string // its short ID; "" in a Watch without members
	Permits  uint64
	Holders  uint64 // of the lock; 0 in a list of members
	Detached bool
}

// News is a state of a watched name: who holds it, by the newest hold, or all
// members, the oldest first.
type News struct {
	Held    bool
	Holder  Member
	Members []Member
}

// Watch is a name that is watched. Refs are those who want its news.
type Watch struct {
	Name    string
	Members bool
	Refs    []any

	last    *News
	all     map[uint64]Member
	listing bool // the list of members is not complete
	asked   bool
	ever    bool // a broker has agreed to it
	at      Time // when to ask
}

// Watch adds ref to those who want the news of a name. A session has one
// watch for a name, of one kind. Nil: the other kind is there.
func (c *Core) Watch(now Time, name string, members bool, ref any) *Watch {
	c.now = now
	w := c.watches[name]
	switch {
	case w == nil:
		w = &Watch{Name: name, Members: members}
		c.watches[name] = w
	case w.Members != members:
		return nil
	}
	w.Refs = append(w.Refs, ref)
	if w.last != nil {
		one := &Watch{Name: name, Refs: []any{ref}}
		c.tell(Effect{Kind: Event, Watch: one, News: w.last})
	}
	if c.state == Open {
		c.rewatch()
	} else {
		c.Want(now)
	}
	return w
}

// Unwatch ends what Watch began.
func (c *Core) Unwatch(now Time, w *Watch, ref any) {
	c.now = now
	for i, other := range w.Refs {
		if other == ref {
			w.Refs = append(w.Refs[:i:i], w.Refs[i+1:]...)
			break
		}
	}
	if len(w.Refs) > 0 || c.watches[w.Name] != w {
		return
	}
	delete(c.watches, w.Name)
	if w.asked && c.state == Open {
		c.unwatch(w)
	}
}

func (c *Core) unwatch(w *Watch) {
	line := wire.AppendWord([]byte("UNWATCH "), w.Name)
	c.send(&Request{Kind: unwatch, Line: line, Wait: Forever})
}

// rewatch sends the WATCHes that are due.
func (c *Core) rewatch() {
	for _, w := range c.watches {
		switch {
		case w.asked:
		case c.now < w.at:
			c.wakeAt(w.at)
		default:
			w.asked = true
			line := wire.AppendWord([]byte("WATCH "), w.Name)
			if w.Members {
				line = append(line, " members=1"...)
			}
			c.send(&Request{Kind: watch, Line: line, Wait: Forever, Watch: w})
		}
	}
}

func (c *Core) watchAnswered(r *Request, why Failure) {
	w := r.Watch
	switch {
	case c.watches[w.Name] != w || why.Code == "CANCELLED":
	case why.Code == "":
		w.ever = true
	case why.Retry && w.ever:
		w.asked = false
		w.at = c.now + claimPause/2 + c.cfg.Random(claimPause)
		c.wakeAt(w.at)
	default:
		delete(c.watches, w.Name)
		c.tell(Effect{Kind: WatchEnded, Watch: w, Failure: why})
	}
}

// watched is an event of a watch.
func (c *Core) watched(m *wire.Message) {
	w := c.watches[m.Word]
	if w == nil || w.Members == (m.Verb == "HELD" || m.Verb == "FREE") {
		return
	}
	news := &News{Held: m.Verb == "HELD"}
	if w.Members {
		if !w.count(m) {
			return
		}
		news.Members = make([]Member, 0, len(w.all))
		for _, member := range w.all {
			news.Members = append(news.Members, member)
		}
		sort.Slice(news.Members, func(i, j int) bool {
			return news.Members[i].Fence < news.Members[j].Fence
		})
	} else {
		if news.Held {
			news.Holder = member(m)
		}
		if w.last != nil && w.last.Held == news.Held &&
			w.last.Holder == news.Holder {
			return // the same, told by the next broker
		}
	}
	w.last = news
	c.tell(Effect{Kind: Event, Watch: w, News: news})
}

func member(m *wire.Message) Member {
	fence, _ := m.Number("fence")
	permits, ok := m.Number("permits")
	if !ok {
		permits = 1
	}
	holders, ok := m.Number("holders")
	if !ok && m.Verb == "HELD" {
		holders = 1
	}
	return Member{
		Name: m.Word, Fence: fence, Note: m.Value("note"),
		Client: m.Value("name"), Owner: m.Value("owner"),
		Session: m.Value("session"), Permits: permits, Holders: holders,
		Detached: m.Value("detached") == "1",
	}
}

// count keeps the list of members. False: it is not complete.
func (w *Watch) count(m *wire.Message) bool {
	switch {
	case m.Verb == "MEMBERS" && m.Value("begin") != "":
		w.all, w.listing = map[uint64]Member{}, true
	case m.Verb == "MEMBERS":
		w.listing = false
	case w.all == nil:
		return false
	case m.Verb == "LEFT":
		delete(w.all, member(m).Fence)
	default:
		one := member(m)
		w.all[one.Fence] = one
	}
	return !w.listing && w.all != nil
}
