package core

import (
	"time"

	"holdfast.example/proto/clients/go/internal/wire"
)

// waitingPause is the time between PINGs while a LOCK waits. They keep the
// latest answer fresh, so a grant needs no PING of its own.
func (c *Core) waitingPause() time.Duration {
	if c.cfg.Heartbeat > 0 && c.cfg.Heartbeat < waitingPause {
		return c.cfg.Heartbeat
	}
	return waitingPause
}

// pingPause is a little less than a third of a ttl. A short keep needs frequent
// answers: the broker may have seen the end of the connection after the last.
func (c *Core) pingPause(ttl time.Duration) time.Duration {
	if c.kept > 0 {
		ttl = min(ttl, c.kept)
	}
	return max(ttl*3/10, pingMin)
}

func (c *Core) pingBy(at Time) {
	if at < c.pingAt {
		c.pingAt = at
		c.wakeAt(at)
	}
}

// deadlines tells the holds that nobody may rely on any more.
func (c *Core) deadlines() {
	for _, first := range c.holds {
		for h := first; h != nil; h = h.beside {
			switch end := h.end(); {
			case h.unsure || !h.stands():
			case c.now < end:
				c.wakeAt(end)
			default:
				c.lose(h, "deadline")
				c.discard(h)
			}
		}
	}
}

// keepAlive sends PING, or HELD if a hold has a deadline of its own. It gives
// a silent broker up.
func (c *Core) keepAlive() {
	if c.pinging {
		if at := c.pingSent + c.silence(); c.now >= at {
			c.drop(Failure{Code: CodeGone, Text: "the broker is silent"}, false)
		} else {
			c.wakeAt(at)
		}
		return
	}
	if c.now < c.pingAt {
		c.wakeAt(c.pingAt)
		return
	}
	c.pingAt = Never
	if len(c.holds) == 0 && c.waits == 0 {
		if c.cfg.Heartbeat == 0 {
			return
		}
		// The broker sends PING to an idle client, so it is never silent.
		if idle := c.heardAt + 3*c.cfg.Heartbeat; c.now < idle {
			c.pingBy(idle)
			return
		}
	}
	kind, line := ping, "PING"
	if c.needsSurvey() {
		kind, line = survey, "HELD"
	}
	c.pinging, c.pingSent = true, c.now
	c.wakeAt(c.now + c.silence())
	c.send(&Request{Kind: kind, Line: []byte(line), Wait: Forever})
}

// needsSurvey tells if an own deadline could be later.
func (c *Core) needsSurvey() bool {
	for _, first := range c.holds {
		for h := first; h != nil; h = h.beside {
			if h.leased && (h.unsure || h.leaseEnd > h.deadline+h.ttl/50) {
				return true
			}
		}
	}
	return false
}

// silence is how long a PING may have no answer. In a kept session the time
// must suffice to reach another broker.
func (c *Core) silence() time.Duration {
	if c.kept == 0 {
		return silenceMax
	}
	limit := keptSilence
	for _, first := range c.holds {
		for h := first; h != nil; h = h.beside {
			if h.stands() {
				limit = min(limit, h.ttl/4)
			}
		}
	}
	return max(limit, keptSilentMin)
}

// surveyed is an ITEM of HELD.
func (c *Core) surveyed(r *Request, m *wire.Message) {
	fence, _ := m.Number("fence")
	ttl, ok := m.Milliseconds("ttl_ms")
	h := c.find(m.Value("name"), m.Value("owner"), fence)
	if h == nil || !ok || h.claim != claimNone {
		return
	}
	if lease, leased := m.Milliseconds("lease_ms"); leased {
		h.leaseEnd = r.sentAt + lease
	}
	c.set(h, r.sentAt, ttl)
	c.pingBy(r.sentAt + c.pingPause(ttl))
}

// pinged is the answer to PING or HELD. It counts from its sending.
func (c *Core) pinged(r *Request, m *wire.Message) {
	c.pinging = false
	ttl, ok := m.Milliseconds("ttl_ms")
	switch {
	case ok:
		c.pingBy(r.sentAt + c.pingPause(ttl))
		for _, first := range c.holds {
			for h := first; h != nil; h = h.beside {
				if h.claim == claimNone && !h.leased {
					c.set(h, r.sentAt, ttl)
				}
			}
		}
	case len(c.holds) > 0 && c.pingAt == Never:
		c.pingBy(c.now + missingPause)
	default:
		c.pingBy(c.now + c.waitingPause())
	}
	leased := r.Kind == survey
	c.confirm(func(l *Request) bool {
		return r.sentAt >= l.grantedAt && (leased || !l.Holds[0].leased)
	})
	if len(c.granted) > 0 {
		c.pingBy(c.now)
	}
}
