package core

import (
	"strconv"
	"strings"

	"holdfast.example/proto/clients/go/internal/wire"
)

// Line takes a line of the broker, without its LF.
func (c *Core) Line(now Time, line string) {
	c.now = now
	c.heardAt = now
	if line == "" || c.dropping || c.state < Greeting || c.state == Closed {
		return
	}
	m := &c.message
	err := m.Parse(line)
	switch {
	case err != nil:
		c.garbage(err.Error())
	case m.Tag == "*":
		c.event(m)
	case c.state == Greeting:
		c.garbage("the peer is not a Holdfast broker")
	default:
		c.reply(m)
	}
}

// Overlong says that a line of the broker has no end.
func (c *Core) Overlong(now Time) {
	c.now = now
	c.garbage("a line of the broker is too long")
}

// garbage ends the session. A peer that was no broker from the start is one
// address that fails.
func (c *Core) garbage(text string) {
	c.drop(Failure{Code: CodeProtocol, Text: text}, c.state == Open)
}

func (c *Core) event(m *wire.Message) {
	if c.state == Greeting && m.Verb != "HELLO" && m.Verb != "BYE" {
		c.garbage("the peer is not a Holdfast broker")
		return
	}
	switch m.Verb {
	case "HELLO":
		if c.state == Greeting {
			c.welcome(m)
		}
	case "LOST":
		c.lost(m)
	case "PING":
		c.out = append(c.out, "PONG "...)
		c.out = append(wire.AppendWord(c.out, m.Word), '\n')
	case "WANTED":
		c.wantedBy(m)
	case "HELD", "FREE", "MEMBERS", "JOINED", "CHANGED", "LEFT":
		c.watched(m)
	case "DRAIN":
		grace, _ := m.Milliseconds("grace_ms")
		c.drain(min(grace/4, moveMax))
	case "BYE":
		c.bye(m)
	}
}

// wantedBy is the event WANTED. It names no fence: an upgrade hears it, too.
func (c *Core) wantedBy(m *wire.Message) {
	waiters, _ := m.Number("waiters")
	h := c.holds[holder{m.Word, m.Value("owner")}]
	for ; h != nil; h = h.beside {
		if h.stands() {
			c.tell(Effect{Kind: Wanted, Hold: h, Waiters: waiters})
		}
	}
}

// drain leaves the broker at a random time, so that not all clients move at
// once. A session that is not kept stays: the broker ends it.
func (c *Core) drain(within Time) {
	if c.kept == 0 || c.state != Open {
		return
	}
	c.draining = true
	if c.cfg.Elsewhere && c.moveAt > c.now+within {
		c.moveAt = c.now + c.cfg.Random(within+1)
		c.wakeAt(c.moveAt)
	}
}

func (c *Core) bye(m *wire.Message) {
	final := false
	switch m.Word {
	case "killed", "quit", "resumed", "protocol", "auth":
		final = true
	}
	if keep := m.Value("keep"); keep != "" {
		final = keep == "0"
	}
	code := CodeGone
	switch m.Word {
	case "auth":
		code = "AUTH"
	case "protocol":
		code = CodeProtocol
	}
	c.drop(Failure{Code: code, Text: "the broker said BYE " + m.Word},
		final && c.state == Open)
}

// welcome answers the greeting with AUTH, or HELLO. Nothing else is sent before
// the OK to HELLO: after a refusal it would belong to another session.
func (c *Core) welcome(m *wire.Message) {
	if m.Value("proto") != "1" {
		c.garbage("the broker speaks another version of the protocol")
		return
	}
	if n, ok := m.Number("max_line"); ok && n < 1<<20 {
		c.lineMax = max(int(n), 64)
	}
	c.generation++
	c.state = Resuming
	c.until = c.now + ConnectTime
	if c.cfg.User != "" {
		c.until = c.now + authTime
		line := wire.AppendWord([]byte("AUTH "), c.cfg.User)
		line = wire.AppendWord(append(line, ' '), c.cfg.Secret)
		c.send(&Request{Kind: auth, Line: line, Wait: Forever})
	} else if m.Value("auth") != "" {
		c.drop(Failure{Code: "AUTH",
			Text: "the broker has users: give User and secret"}, true)
	} else {
		c.hello()
	}
	c.wakeAt(c.until)
}

func (c *Core) hello() {
	line := []byte("HELLO")
	if c.cfg.Name != "" {
		line = wire.AppendKey(line, "name", c.cfg.Name)
	}
	if c.cfg.Heartbeat > 0 {
		line = wire.AppendDuration(line, "heartbeat", c.cfg.Heartbeat)
	}
	if c.cfg.Keep > 0 {
		line = wire.AppendDuration(line, "keep", c.cfg.Keep)
	}
	if c.session != "" {
		line = wire.AppendKey(line, "resume", c.session)
		line = wire.AppendNumber(line, "gen", c.generation)
	}
	c.send(&Request{Kind: greet, Line: line, Wait: Forever})
}

// opened is the OK to HELLO.
func (c *Core) opened(m *wire.Message) {
	moved := c.session != ""
	if moved && m.Value("session") != c.session {
		c.garbage("the broker resumes another session")
		return
	}
	keep, _ := m.Milliseconds("keep_ms")
	c.kept = min(keep, c.cfg.Keep)
	c.session = m.Value("session")
	c.state = Open
	c.openedAt = c.now
	c.tell(Effect{Kind: Opened, Moved: moved})
	c.claims()
	c.rewatch()
	c.flush()
	c.pingBy(c.now + c.waitingPause())
}

func failure(m *wire.Message) Failure {
	code := m.Word
	if code == "" {
		code = CodeProtocol
	}
	return Failure{
		Code: code, Text: m.Text, Retry: m.Value("retry") == "1",
		Pairs: append([]wire.Pair(nil), m.Pairs...),
	}
}

func (c *Core) reply(m *wire.Message) {
	if m.Tag == "-" {
		return // of a PONG, or of QUIT
	}
	tag, err := strconv.ParseUint(m.Tag, 10, 64)
	if err != nil || tag == 0 || tag > c.tag {
		c.garbage("the broker answers a request that was not sent")
		return
	}
	r := c.sent[tag]
	if r == nil {
		return
	}
	switch m.Verb {
	case "OK":
		c.answer(r, m, Failure{})
	case "ERR":
		c.answer(r, m, failure(m))
	case "ITEM":
		if r.Kind == survey {
			c.surveyed(r, m)
		}
	case "QUEUED":
		if !r.Queued {
			r.Queued = true
			c.tell(Effect{Kind: Waiting, Request: r})
		}
	}
}

// answer is the final reply to a request.
func (c *Core) answer(r *Request, m *wire.Message, why Failure) {
	c.take(r)
	r.base = max(r.sentAt, c.provenAt)
	if why.Code == "DRAINING" && c.kept > 0 && r.Kind <= claim {
		c.refused(r)
		return
	}
	switch r.Kind {
	case Lock:
		if why.Code == "" {
			c.grant(r, m)
		} else {
			c.finish(r, why)
		}
	case Unlock, discard:
		c.released(r, m, why)
	case Part:
		if left, ok := m.Number("count"); ok && left == 0 {
			c.remove(r.Hold)
		}
		c.finish(r, why)
	case Renew:
		c.renewed(r, m, why)
	case Note, Await, Detached, Call:
		r.Pairs = append([]wire.Pair(nil), m.Pairs...)
		if r.Kind == Detached && r.abandoned && why.Code == "" {
			c.giveBackDetached(r, m)
		}
		c.finish(r, why)
	case claim:
		c.claimed(r, m, why)
	case ping, survey:
		c.pinged(r, m)
	case greet, auth:
		c.greeted(r, m, why)
	case watch:
		c.watchAnswered(r, why)
	}
	c.provenAt = max(c.provenAt, r.sentAt)
}

// refused keeps a request for the next broker.
func (c *Core) refused(r *Request) {
	c.drain(moveSoon)
	c.draining = true
	if r.Kind == claim {
		r.Hold.claim, r.Hold.claimAt = claimNeeded, Never
		return
	}
	r.again = true
	r.bound = Never // nothing was done
	c.parked = append(c.parked, r)
}

// greeted is the answer to AUTH and to HELLO.
func (c *Core) greeted(r *Request, m *wire.Message, why Failure) {
	switch {
	case c.state != Resuming:
	case why.Code == "" && r.Kind == greet:
		c.opened(m)
	case why.Code == "":
		c.hello()
	case c.session != "":
		c.drop(Failure{Code: CodeGone,
			Text: "the broker does not resume the session: " +
				strings.TrimSpace(why.Code+" "+why.Text)}, false)
	default:
		c.drop(why, why.Code == "AUTH")
	}
}
