package core

import (
	"slices"
	"sort"
	"strconv"
	"time"

	"holdfast.example/proto/clients/go/internal/wire"
)

// Codes that are no code of the wire.
const (
	CodeGone     = "GONE"     // no broker, or the session has ended
	CodeClosed   = "CLOSED"   // the client was closed
	CodeProtocol = "PROTOCOL" // the peer speaks another protocol
	CodeCanceled = "CANCELLED"
	CodeInDoubt  = "INDOUBT"
)

// Failure is an ERR, or a code of the above. The zero value is no failure.
type Failure struct {
	Code, Text string
	Retry      bool
	Pairs      []wire.Pair // of the ERR
	Cause      error       // of the socket, or nil
}

// Kind of a request.
type Kind uint8

// The kinds. A Call is a request that the core does not look at.
const (
	Lock Kind = iota
	Unlock
	Part // UNLOCK permits=
	Renew
	Note
	Await
	Detached // LOCK detached=1
	Call
	claim
	discard // the UNLOCK of a hold that nobody has any more
	ping
	survey // HELD in place of PING
	greet  // HELLO
	auth
	watch
	unwatch
	cancel
)

// Request is one request of the caller, from Submit to Finished.
type Request struct {
	Kind   Kind
	Names  []string
	Owner  string
	Line   []byte        // without tag, LF and wait=
	Wait   time.Duration // Forever: no wait=
	Lease  time.Duration // of LOCK and RENEW; 0: none
	Wanted bool
	Repeat bool // after a move, if it is a Call
	Hold   *Hold
	Watch  *Watch
	Ref    any // of the caller

	Failure Failure     // when it is finished; zero: OK
	Pairs   []wire.Pair // of the OK
	Holds   []*Hold     // that a LOCK was granted
	Queued  bool        // it waits in the queue
	Stands  bool        // after an UNLOCK: the broker has refused it

	tag       uint64
	asked     Time
	sentAt    Time
	after     Time // it is not sent before
	base      Time
	bound     Time // a sent RENEW may have set this end; Never: not sent
	grantedAt Time
	put       bool // it was sent
	again     bool // it was sent on an earlier connection
	abandoned bool // its caller does not wait any more
	finished  bool
}

func (r *Request) waits() bool {
	return r.Kind == Lock || r.Kind == Await || r.Kind == Detached
}

// Base is when the answer's ttl_ms begins to count.
func (r *Request) Base() Time { return r.base }

// Submit sends a request, or keeps it until a broker may have it.
func (c *Core) Submit(now Time, r *Request) {
	c.now = now
	r.asked = now
	if c.state == Closed {
		c.finish(r, Failure{Code: CodeClosed, Text: "the client was closed"})
		return
	}
	switch r.Kind {
	case Unlock:
		r.Hold.releasing++
	case Renew: // the hold has its own end from now on
		r.Hold.leased = true
		r.Hold.leaseEnd = Never
		r.Hold.renewing.Add(r)
	}
	if c.state != Open || c.blocked(r, c.parked) {
		c.parked = append(c.parked, r)
		c.Want(now)
		return
	}
	c.send(r)
}

// blocked tells if a request must wait for earlier ones on its name and owner,
// or for another broker.
func (c *Core) blocked(r *Request, before []*Request) bool {
	if c.draining && c.kept > 0 && r.waits() {
		return true
	}
	if c.now < r.after {
		c.wakeAt(r.after)
		return true
	}
	for _, name := range r.Names {
		for h := c.holds[holder{name, r.Owner}]; h != nil; h = h.beside {
			if h.claim != claimNone {
				return true
			}
		}
	}
	for _, other := range before {
		if other.Owner == r.Owner && common(other.Names, r.Names) {
			return true
		}
	}
	return false
}

// later sends a request again, after a pause.
func (c *Core) later(r *Request) {
	r.after = c.now + claimPause/2 + c.cfg.Random(claimPause)
	c.parked = append(c.parked, r)
	c.wakeAt(r.after)
}

func common(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}

// flush sends the parked requests that may go.
func (c *Core) flush() {
	if c.state != Open || c.dropping {
		return
	}
	kept := c.parked[:0]
	for _, r := range c.parked {
		if c.blocked(r, kept) {
			kept = append(kept, r)
		} else {
			c.send(r)
		}
	}
	for i := len(kept); i < len(c.parked); i++ {
		c.parked[i] = nil
	}
	c.parked = kept
}

func (c *Core) line(tag uint64) []byte {
	return append(strconv.AppendUint(c.out, tag, 10), ' ')
}

func (c *Core) send(r *Request) {
	c.tag++
	r.tag, r.sentAt, r.put = c.tag, c.now, true
	c.sent[r.tag] = r
	begin := len(c.out)
	out := append(c.line(r.tag), r.Line...)
	if r.waits() && (r.Wait != Forever || r.abandoned) {
		out = wire.AppendDuration(out, "wait", c.waitLeft(r))
	}
	c.out = append(out, '\n')
	if r.waits() {
		c.waits++
		c.pingBy(c.now + c.waitingPause())
	}
	if len(c.out)-begin > c.lineMax && c.lineMax > 0 {
		c.out = c.out[:begin]
		c.take(r)
		c.finish(r, Failure{Code: "TOOLONG",
			Text: "the request is longer than the broker's max_line"})
		return
	}
	if r.Lease > 0 && r.Kind != Lock {
		r.bound = min(r.bound, c.now+r.Lease-r.Lease/100-leaseSlack)
		c.wakeAt(r.bound)
	}
}

// waitLeft is at least 1 ms: 0 is no wait at all.
func (c *Core) waitLeft(r *Request) time.Duration {
	if r.Wait == 0 || r.abandoned {
		return 0
	}
	return max(r.Wait-(c.now-r.asked), time.Millisecond)
}

// take removes a request from those without an answer.
func (c *Core) take(r *Request) {
	delete(c.sent, r.tag)
	if r.waits() {
		c.waits--
	}
}

func (c *Core) finish(r *Request, why Failure) {
	if r.finished || r.Kind > Call {
		return
	}
	r.finished = true
	r.Failure = why
	if !r.abandoned {
		c.tell(Effect{Kind: Finished, Request: r})
	}
}

// Cancel ends the wait of a LOCK or AWAIT. Its caller hears no more of it, and
// the core gives back what is granted late. False: it has its answer.
func (c *Core) Cancel(now Time, r *Request) bool {
	c.now = now
	if r.finished {
		return false
	}
	r.abandoned = true
	if !r.waits() {
		if r.Hold == nil && r.Lease > 0 { // nobody would know its bound
			c.parked = slices.DeleteFunc(c.parked, func(other *Request) bool {
				return other == r && !r.again
			})
		}
		return true // it is carried out all the same, once it was sent
	}
	for i, other := range c.parked {
		if other == r && !r.again {
			c.parked = append(c.parked[:i], c.parked[i+1:]...)
			r.finished = true
			return true
		}
	}
	for i, other := range c.granted {
		if other == r {
			c.granted = append(c.granted[:i], c.granted[i+1:]...)
			c.giveBack(r)
			return true
		}
	}
	if c.state == Open && c.sent[r.tag] == r {
		line := strconv.AppendUint([]byte("CANCEL "), r.tag, 10)
		c.send(&Request{Kind: cancel, Line: line, Wait: Forever})
	}
	return true
}

// giveBack releases what an abandoned LOCK was granted.
func (c *Core) giveBack(r *Request) {
	r.finished = true
	for _, h := range r.Holds {
		c.discard(h)
	}
}

// unsettle parks what the lost connection did not answer, and asks for claims.
func (c *Core) unsettle() {
	for _, r := range c.granted {
		c.revoke(r)
	}
	list := c.unsent()
	list = append(list, c.granted...)
	c.granted = nil
	sort.SliceStable(list, func(i, j int) bool {
		return list[i].tag < list[j].tag
	})
	var parked []*Request
	for _, r := range list {
		r.again = true
		switch {
		case r.Kind == Part || r.Kind == Detached ||
			r.Kind == Call && !r.Repeat:
			c.finish(r, Failure{Code: "INDOUBT", Retry: true,
				Text: "the connection ended before the answer"})
		case r.Kind == Await && r.abandoned:
			r.finished = true
		case r.Kind == discard:
			r.Hold.releasing--
			r.Hold.orphans++
		case r.Kind <= Call:
			parked = append(parked, r)
		}
	}
	for _, r := range c.parked {
		if r.Kind != discard {
			parked = append(parked, r)
		} else {
			r.Hold.releasing--
			r.Hold.orphans++
		}
	}
	c.parked = parked
	c.unclaim()
	for _, w := range c.watches {
		w.asked, w.at = false, 0
	}
}

// unsend forgets the requests of a connection that served nothing.
func (c *Core) unsend() { c.unsent() }
