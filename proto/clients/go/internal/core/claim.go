package core

import "holdfast.example/proto/clients/go/internal/wire"

// unclaim has all holds claimed at the next broker. Until then their deadlines
// stand, but not beyond the time of keep. It counts from the sending of the
// last answered request: the broker may have seen the connection end then.
func (c *Core) unclaim() {
	for _, h := range c.list() {
		h.claim, h.claimAt = claimNeeded, 0
		h.deadline = min(h.deadline, c.provenAt+c.kept)
		c.wakeAt(h.deadline)
	}
}

// claims sends the CLAIMs that are due.
func (c *Core) claims() {
	if c.generation == 1 {
		return
	}
	for _, h := range c.list() {
		if h.claim != claimNeeded {
			continue
		}
		if c.now < h.claimAt {
			c.wakeAt(h.claimAt)
			continue
		}
		line := wire.AppendWord([]byte("CLAIM "), h.Name)
		line = wire.AppendNumber(line, "fence", h.Fence)
		line = wire.AppendKey(line, "owner", h.Owner)
		if h.count > 1 {
			line = wire.AppendNumber(line, "count", h.count)
		}
		if h.wanted {
			line = append(line, " wanted=1"...)
		}
		if h.upgrade {
			line = append(line, " upgrade=1"...)
		}
		h.claim = claimAsked
		c.send(&Request{Kind: claim, Line: line, Wait: Forever, Hold: h})
	}
}

// claimed is the answer to CLAIM.
func (c *Core) claimed(r *Request, m *wire.Message, why Failure) {
	h := r.Hold
	ttl, ok := m.Milliseconds("ttl_ms")
	switch {
	case h.gone:
	case why.Code == "" && ok:
		h.claim = claimNone
		c.set(h, r.sentAt, ttl)
		c.pingBy(r.sentAt + c.pingPause(ttl))
		if h.givenUp {
			h.orphans = 0
			c.discard(h)
		}
		for ; h.orphans > 0; h.orphans-- {
			c.discard(h)
		}
	case why.Code == "LOST" || why.Code == "NOTHELD" || why.Code == "STALE":
		c.claimLost(h)
	default: // it is not known: again and again, until the deadline
		h.claim = claimNeeded
		h.claimAt = c.now + claimPause/2 + c.cfg.Random(claimPause)
		c.wakeAt(h.claimAt)
		return
	}
	c.flush()
}

// claimLost ends a hold, and answers the parked requests about it. An UNLOCK
// that was sent before has ended it.
func (c *Core) claimLost(h *Hold) {
	inTime := c.now < h.end()
	c.lose(h, "gone")
	c.remove(h)
	left := c.parked[:0]
	for _, r := range c.parked {
		switch {
		case r.Hold != h:
			left = append(left, r)
		case r.Kind == Unlock && r.again && inTime:
			c.finish(r, Failure{})
		default:
			c.finish(r, Failure{Code: "LOST",
				Text: "the hold was yours and has ended"})
		}
	}
	c.parked = left
}
