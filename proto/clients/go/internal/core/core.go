// Package core is a session with a broker, without a socket, a clock or a
// goroutine. Its caller gives it lines, the time, and requests. It gives back
// bytes to send, effects, and the time of its next tick.
//
//	from        event                          to
//	Idle        a request                      Away
//	Away        the end of the pause           Connecting
//	Connecting  the connection is there        Greeting
//	Greeting    the greeting; HELLO is sent    Resuming
//	Resuming    OK to HELLO                    Open
//	Open        the connection ended, kept     Away
//	others      an error                       Away, or Idle after all addresses
//
// Without keep a session ends with its connection. The next request begins a
// new session. All times count from an arbitrary moment.
package core

import (
	"math"
	"sort"
	"time"

	"holdfast.example/proto/clients/go/internal/wire"
)

// Time is a moment.
type Time = time.Duration

// Never is later than all times.
const Never Time = math.MaxInt64

// Forever is a wait without an end.
const Forever time.Duration = -1

// Times of a connection. They are those of the C client.
const (
	ConnectTime   = 3 * time.Second  // to connect, and to be greeted
	authTime      = 15 * time.Second // a broker delays the answer to AUTH
	silenceMax    = 20 * time.Second // of a PING, in a session without keep
	keptSilence   = 5 * time.Second  // with keep
	keptSilentMin = time.Second
	waitingPause  = 10 * time.Second // between PINGs without holds
	missingPause  = time.Second      // after a PING whose answer has no ttl_ms
	pingMin       = 50 * time.Millisecond
	pauseMin      = 50 * time.Millisecond // between rounds of the addresses
	pauseMax      = 2 * time.Second
	steady        = 500 * time.Millisecond // a longer connection ends pauses
	claimPause    = 200 * time.Millisecond
	moveSoon      = 200 * time.Millisecond
	moveMax       = 5 * time.Second
)

// Config is fixed for the life of a client. Zero values turn things off.
type Config struct {
	Name, User, Secret string
	Keep, Heartbeat    time.Duration
	Elsewhere          bool              // there is more than one address
	Random             func(n Time) Time // below n, which is above 0
}

// State is that of the connection.
type State uint8

// The states, as in the table above.
const (
	Idle State = iota
	Away
	Connecting
	Greeting
	Resuming
	Open
	Closed
)

// Core is one session at a time. The caller serialises all calls.
type Core struct {
	cfg     Config
	state   State
	now     Time
	due     Time // a tick is due then, or later
	message wire.Message
	out     []byte
	effects []Effect

	session    string // its ID; "" before a broker serves it
	kept       time.Duration
	generation uint64
	lineMax    int
	until      Time // the end of Greeting and Resuming
	retryAt    Time // the end of Away
	awayAt     Time
	openedAt   Time
	moveAt     Time // when to leave a draining broker
	rounds     uint // failed attempts in a row
	draining   bool
	dropping   bool // the caller ends the connection
	final      bool // and the session
	why        Failure
	peer       string // of the connection, for errors

	tag     uint64
	sent    map[uint64]*Request
	waits   int // LOCKs and AWAITs in sent
	parked  []*Request
	holds   map[holder]*Hold
	granted []*Request // LOCKs whose OK waits for a PING
	watches map[string]*Watch

	heardAt  Time // the last line of the broker
	provenAt Time // the latest sending of an answered request
	pingAt   Time
	pingSent Time
	pinging  bool
}

// New is a session that is Idle.
func New(cfg Config) *Core {
	return &Core{
		cfg: cfg, due: Never, pingAt: Never, moveAt: Never,
		sent:    map[uint64]*Request{},
		holds:   map[holder]*Hold{},
		watches: map[string]*Watch{},
	}
}

// State of the connection.
func (c *Core) State() State { return c.state }

// Due is when to call Tick; an earlier or later call does no harm.
func (c *Core) Due() Time { return c.due }

// Take gives the bytes to send, which the caller then owns, and keeps the
// memory of free for later ones.
func (c *Core) Take(free []byte) []byte {
	out := c.out
	c.out = free[:0]
	return out
}

// HasOutput tells if there are bytes to send.
func (c *Core) HasOutput() bool { return len(c.out) > 0 }

// Dropping tells if the caller must end the connection.
func (c *Core) Dropping() bool { return c.dropping }

// Effects gives what happened since the last call, valid until the next call
// of the core.
func (c *Core) Effects() []Effect {
	list := c.effects
	c.effects = c.effects[:0]
	return list
}

// WantsConnection tells if the caller is to connect now.
func (c *Core) WantsConnection(now Time) bool {
	return c.state == Away && now >= c.retryAt
}

// Want asks for a connection, as the first request does.
func (c *Core) Want(now Time) {
	c.now = now
	if c.state != Idle {
		return
	}
	c.state = Away
	c.retryAt = max(c.retryAt, now)
	c.wakeAt(c.retryAt)
}

// Connecting says that the caller has begun to connect.
func (c *Core) Connecting(now Time) {
	c.now = now
	if c.state == Away {
		c.state = Connecting
	}
}

// Connected says that bytes go to a broker from now on. Errors name peer.
func (c *Core) Connected(now Time, peer string) {
	c.now = now
	c.peer = peer
	c.heardAt = now
	if c.state != Connecting {
		c.drop(Failure{Code: CodeGone, Text: "the session has ended"}, false)
		return
	}
	c.state = Greeting
	c.until = now + ConnectTime
	c.wakeAt(c.until)
}

// Ended says that the connection has ended, or was not made. With last it was
// the last address of a round.
func (c *Core) Ended(now Time, why Failure, last bool) {
	c.now = now
	final := c.final
	if c.dropping {
		why = c.why
	}
	c.dropping, c.final, c.draining, c.pinging = false, false, false, false
	c.moveAt, c.out = Never, c.out[:0]
	was := c.state
	if was == Closed || was == Idle || was == Away {
		return // the session had ended before
	}
	c.state = Away
	c.rounds++
	if was == Open && now >= c.openedAt+steady {
		c.rounds = 0
	}
	c.retryAt = now
	if last || was == Open {
		c.retryAt = now + c.pause()
	}
	switch {
	case was == Open && c.kept > 0 && !final:
		c.awayAt = now
		c.unsettle()
	case was == Open || final && c.session != "":
		c.endSession(why)
	case c.session != "":
		c.unsend() // the next address, until keep is over
	case last || final:
		c.tell(Effect{Kind: Refused, Failure: why})
		c.endSession(why)
	}
	c.wakeAt(c.retryAt)
	if c.kept > 0 && c.session != "" {
		c.wakeAt(c.awayAt + c.kept)
	}
}

// pause is 0 after a connection that served, and grows with each round.
func (c *Core) pause() Time {
	if c.rounds == 0 {
		return 0
	}
	pause := pauseMax
	if c.rounds < 6 {
		pause = pauseMin << c.rounds
	}
	return pause/2 + c.cfg.Random(pause)
}

// drop ends the connection; with final also the session, kept or not.
func (c *Core) drop(why Failure, final bool) {
	if !c.dropping {
		why.Text = c.peer + ": " + why.Text
		c.dropping, c.final, c.why = true, final, why
	}
}

// endSession ends all that the session has. The next request begins a new one.
func (c *Core) endSession(why Failure) {
	c.state = Idle
	c.session, c.kept, c.generation = "", 0, 0
	for _, h := range c.list() {
		c.remove(h)
		c.lose(h, "session")
	}
	for _, r := range c.outstanding() {
		c.finish(r, why)
	}
	for name, w := range c.watches {
		delete(c.watches, name)
		c.tell(Effect{Kind: WatchEnded, Watch: w, Failure: why})
	}
}

// Close ends the session. QUIT is the last request, if a broker serves it.
func (c *Core) Close(now Time) {
	c.now = now
	if c.state == Closed {
		return
	}
	serves := c.state == Open && !c.dropping
	for _, h := range c.list() {
		c.remove(h)
		c.lose(h, "closed")
	}
	c.endSession(Failure{Code: CodeClosed, Text: "the client was closed"})
	c.state = Closed
	if !serves {
		c.dropping = true
		return
	}
	c.out = append(c.out, "QUIT\n"...)
}

// outstanding takes all requests without an end, in their order.
func (c *Core) outstanding() []*Request {
	list := c.unsent()
	list = append(list, c.granted...)
	sort.SliceStable(list, func(i, j int) bool {
		return list[i].tag < list[j].tag
	})
	list = append(list, c.parked...)
	c.granted, c.parked = nil, nil
	return list
}

// unsent takes the requests without an answer.
func (c *Core) unsent() []*Request {
	list := make([]*Request, 0, len(c.sent))
	for tag, r := range c.sent {
		delete(c.sent, tag)
		list = append(list, r)
	}
	c.waits = 0
	sort.Slice(list, func(i, j int) bool { return list[i].tag < list[j].tag })
	return list
}

// Tick does what is due.
func (c *Core) Tick(now Time) {
	c.now = now
	if now < c.due {
		return
	}
	c.due = Never
	c.deadlines()
	switch c.state {
	case Away:
		if now < c.retryAt {
			c.wakeAt(c.retryAt)
		}
	case Greeting, Resuming:
		if now >= c.until {
			why := Failure{Code: CodeGone, Text: "no answer to HELLO in time"}
			if c.state == Greeting {
				why.Text = "no greeting in time: is it a port of a broker, " +
					"and without TLS?"
			}
			c.drop(why, false)
		} else {
			c.wakeAt(c.until)
		}
	case Open:
		c.flush()
		c.keepAlive()
		c.claims()
		c.rewatch()
		if now >= c.moveAt {
			c.drop(Failure{Code: CodeGone, Text: "the broker drains"}, false)
		} else {
			c.wakeAt(c.moveAt)
		}
	}
	if c.session != "" && c.kept > 0 && c.state != Open {
		c.sessionOver()
	}
}

// sessionOver ends a kept session that no broker has served for too long.
func (c *Core) sessionOver() {
	if c.now < c.awayAt+c.kept {
		c.wakeAt(c.awayAt + c.kept)
		return
	}
	why := Failure{Code: CodeGone, Text: "no broker serves the session"}
	if c.state == Greeting || c.state == Resuming {
		c.drop(why, true)
	}
	c.endSession(why)
}

func (c *Core) wakeAt(at Time) {
	if at < c.due {
		c.due = at
	}
}

func (c *Core) tell(e Effect) { c.effects = append(c.effects, e) }
