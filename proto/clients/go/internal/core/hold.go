package core

import (
	"sort"
	"time"

	"holdfast.example/proto/clients/go/internal/wire"
)

type holder struct{ name, owner string }

type claimState uint8

const (
	claimNone claimState = iota
	claimNeeded
	claimAsked
)

// Hold is what the broker counts as one: a name, an owner and a fence. Several
// grants of a named owner share it.
type Hold struct {
	Name, Owner string
	Fence       uint64
	Refs        []any // of the caller

	beside    *Hold // the next one of this name and owner: an upgrade
	order     uint64
	count     uint64 // entries whose release is not confirmed
	releasing uint64 // UNLOCKs without an answer
	orphans   uint64 // entries that nobody has, to be released after a claim
	deadline  Time   // by the last answer
	renewing  Renewals
	ttl       time.Duration
	leaseEnd  Time
	leased    bool // it has its own deadline, apart from PING
	upgrade   bool
	wanted    bool
	unsure    bool // its OK waits for a PING
	givenUp   bool // nobody believes in it; the broker may still have it
	gone      bool // it is in no list
	claim     claimState
	claimAt   Time
}

// Good tells if the hold may be relied on now.
func (h *Hold) Good(now Time) bool { return h.Left(now) > 0 }

// Left is how long the hold may be relied on without another answer.
func (h *Hold) Left(now Time) time.Duration {
	if end := h.end(); h.stands() && now < end {
		return end - now
	}
	return 0
}

// end is the deadline, or sooner by a RENEW without a reply.
func (h *Hold) end() Time { return h.renewing.Sooner(h.deadline) }

func (h *Hold) stands() bool {
	return !h.gone && !h.givenUp && h.releasing+h.orphans < h.count
}

// set counts a deadline from the sending of the request. It takes off what
// clocks may differ by, and the time to act.
func (c *Core) set(h *Hold, base Time, ttl time.Duration) {
	slack := min(max(ttl/50, 5*time.Millisecond), 250*time.Millisecond)
	h.ttl = ttl
	h.deadline = base + ttl - slack
	c.wakeAt(h.deadline)
}

// list has all holds, the oldest first.
func (c *Core) list() []*Hold {
	list := make([]*Hold, 0, len(c.holds))
	for _, h := range c.holds {
		for ; h != nil; h = h.beside {
			list = append(list, h)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].order < list[j].order
	})
	return list
}

func (c *Core) find(name, owner string, fence uint64) *Hold {
	h := c.holds[holder{name, owner}]
	for h != nil && h.Fence != fence {
		h = h.beside
	}
	return h
}

// enter counts one entry of a hold, which may be new.
func (c *Core) enter(r *Request, name string, fence uint64, up bool) *Hold {
	h := c.find(name, r.Owner, fence)
	if h == nil {
		key := holder{name, r.Owner}
		h = &Hold{Name: name, Owner: r.Owner, Fence: fence, order: r.tag,
			leased: r.Lease > 0, leaseEnd: Never, upgrade: up,
			beside: c.holds[key]}
		c.holds[key] = h
	}
	h.count++
	h.wanted = h.wanted || r.Wanted
	return h
}

// remove takes a hold out of the list, once.
func (c *Core) remove(h *Hold) {
	if h.gone {
		return
	}
	h.gone = true
	key := holder{h.Name, h.Owner}
	first := c.holds[key]
	if first == h {
		if h.beside == nil {
			delete(c.holds, key)
		} else {
			c.holds[key] = h.beside
		}
		return
	}
	for ; first != nil; first = first.beside {
		if first.beside == h {
			first.beside = h.beside
		}
	}
}

// lose tells those who rely on a hold that it has ended.
func (c *Core) lose(h *Hold, why string) {
	if h.givenUp || h.releasing >= h.count {
		return
	}
	h.givenUp = true
	c.tell(Effect{Kind: Lost, Hold: h, Word: why})
}

// lost is the event LOST.
func (c *Core) lost(m *wire.Message) {
	fence, _ := m.Number("fence")
	h := c.find(m.Word, m.Value("owner"), fence)
	if h == nil {
		return
	}
	if h.unsure {
		c.confirm(func(r *Request) bool { return has(r, h) })
	}
	c.remove(h)
	c.lose(h, m.Value("reason"))
	c.flush()
}

func has(r *Request, h *Hold) bool {
	for _, other := range r.Holds {
		if other == h {
			return true
		}
	}
	return false
}

// grant is the OK of a LOCK. The deadline counts from the sending of the LOCK,
// or of a later request that was answered before. If that was long ago, a PING
// comes first: the OK may have lain unread.
func (c *Core) grant(r *Request, m *wire.Message) {
	ttl, ok := m.Milliseconds("ttl_ms")
	fences, list := m.Numbers("fence")
	if !ok || !list || len(fences) != len(r.Names) {
		why := Failure{Code: CodeProtocol,
			Text: "an OK of the broker lacks fence or ttl_ms"}
		c.finish(r, why)
		c.drop(why, true)
		return
	}
	base := r.base
	lease, leased := m.Milliseconds("lease_ms")
	r.Holds = r.Holds[:0]
	for i, name := range r.Names {
		h := c.enter(r, name, fences[i], m.Value("upgrade") != "")
		if leased {
			h.leased, h.leaseEnd = true, base+lease
		}
		c.set(h, base, ttl)
		r.Holds = append(r.Holds, h)
	}
	c.pingBy(base + c.pingPause(ttl))
	switch {
	case r.abandoned:
		c.giveBack(r)
	case c.now <= base+ttl/2:
		c.finish(r, Failure{})
	default:
		for _, h := range r.Holds {
			h.unsure = true
		}
		r.grantedAt = c.now
		c.granted = append(c.granted, r)
		c.pingBy(c.now)
	}
}

// confirm finishes the LOCKs whose OK waited.
func (c *Core) confirm(which func(r *Request) bool) {
	left := c.granted[:0]
	for _, r := range c.granted {
		if !which(r) {
			left = append(left, r)
			continue
		}
		for _, h := range r.Holds {
			h.unsure = false
			c.wakeAt(h.deadline)
		}
		c.finish(r, Failure{})
	}
	c.granted = left
}

// revoke undoes a grant that was not told. The LOCK is sent again, and finds
// its hold.
func (c *Core) revoke(r *Request) {
	for _, h := range r.Holds {
		h.unsure = false
		if h.count--; h.count == 0 {
			c.remove(h)
		}
	}
	r.Holds = r.Holds[:0]
}

// released is the answer to UNLOCK.
func (c *Core) released(r *Request, m *wire.Message, why Failure) {
	h := r.Hold
	if why.Code == "LIMIT" {
		c.later(r) // nothing was done
		return
	}
	h.releasing--
	left, _ := m.Number("count")
	switch why.Code {
	case "":
		h.count--
		if h.count == 0 && left > 0 && c.alone(h) {
			h.count, h.givenUp = left, true // a repeated LOCK counted twice
		}
	case "NOTHELD", "LOST", "STALE", "INDOUBT", "INTERNAL":
		h.count-- // its other entries are lost
		c.remove(h)
		c.lose(h, "gone")
		if why.Code == "INDOUBT" {
			why = Failure{} // the broker goes on with the release
		}
	default:
		r.Stands = true
		c.pingBy(c.now)
	}
	if h.count == 0 {
		c.remove(h)
	} else if h.givenUp && h.releasing == 0 && why.Code == "" {
		c.discard(h)
	}
	c.finish(r, why)
}

// alone tells if the owner has no other hold of this name.
func (c *Core) alone(h *Hold) bool {
	first := c.holds[holder{h.Name, h.Owner}]
	return first == h && h.beside == nil
}

// discard releases one entry that nobody has any more. A hold with an open
// claim is released after it.
func (c *Core) discard(h *Hold) {
	if h.gone || c.state != Open || h.claim != claimNone {
		return
	}
	h.releasing++
	line := wire.AppendWord([]byte("UNLOCK "), h.Name)
	line = wire.AppendNumber(line, "fence", h.Fence)
	line = wire.AppendKey(line, "owner", h.Owner)
	c.send(&Request{Kind: discard, Line: line, Wait: Forever, Hold: h})
}

// giveBackDetached releases what an abandoned LOCK detached=1 was granted.
func (c *Core) giveBackDetached(r *Request, m *wire.Message) {
	fence, _ := m.Number("fence")
	line := wire.AppendWord([]byte("UNLOCK "), r.Names[0])
	line = wire.AppendNumber(line, "fence", fence)
	line = append(line, " detached=1"...)
	c.send(&Request{Kind: cancel, Line: line, Wait: Forever})
}
