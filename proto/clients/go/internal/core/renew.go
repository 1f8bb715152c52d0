package core

import (
	"slices"
	"time"

	"holdfast.example/proto/clients/go/internal/wire"
)

// leaseSlack is how much sooner a lease ends for its client.
const leaseSlack = 2 * time.Millisecond

// Renewals are the RENEWs of a hold without a reply. The broker may have
// carried out each of them.
type Renewals []*Request

// Add is for a request that is about to be submitted.
func (list *Renewals) Add(r *Request) {
	r.bound = Never
	*list = append(*list, r)
}

// Sooner is the given end, or the soonest one that a renewal may have set.
func (list Renewals) Sooner(end Time) Time {
	for _, r := range list {
		end = min(end, r.bound)
	}
	return end
}

// Answered takes a renewal off. It returns the end of the hold, which was old
// before, if the reply is no OK. In doubt, the hold may have the sooner end.
func (list *Renewals) Answered(r *Request, why Failure, old Time) Time {
	*list = slices.DeleteFunc(*list, func(other *Request) bool {
		return other == r
	})
	switch why.Code {
	case "":
		return old
	case "UNAVAILABLE", "INDOUBT", "INTERNAL", CodeGone, CodeClosed,
		CodeProtocol:
		return min(old, r.bound)
	}
	// Of a first sending without an answer, only a CLAIM could tell.
	if r.again && r.Hold == nil {
		return min(old, r.bound)
	}
	return old
}

// renewed is the answer to RENEW.
func (c *Core) renewed(r *Request, m *wire.Message, why Failure) {
	h := r.Hold
	h.deadline = h.renewing.Answered(r, why, h.deadline)
	ttl, ok := m.Milliseconds("ttl_ms")
	switch {
	case h.givenUp && why.Code == "": // lost meanwhile, and given back
		why = Failure{Code: "LOST", Text: "the reply came after the deadline"}
	case why.Code == "" && ok:
		lease, _ := m.Milliseconds("lease_ms")
		h.leaseEnd = r.sentAt + lease
		c.set(h, r.sentAt, ttl)
		c.pingBy(r.sentAt + c.pingPause(ttl))
	case why.Code == "NOTHELD" || why.Code == "LOST" || why.Code == "STALE":
		c.remove(h)
		c.lose(h, "gone")
	default:
		c.wakeAt(h.end())
	}
	c.finish(r, why)
}
