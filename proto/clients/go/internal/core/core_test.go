package core

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

const greeting = "* HELLO proto=1 server=s session=s1 max_line=4096"

// script is a core with a clock, and what it has said.
type script struct {
	*testing.T
	*Core
	at Time
}

func begin(t *testing.T, cfg Config) *script {
	cfg.Random = func(Time) Time { return 0 }
	s := &script{T: t, Core: New(cfg), at: time.Hour}
	s.Want(s.at)
	s.connect("gen=")
	return s
}

// connect has a broker greet, and serve the session s1.
func (s *script) connect(keys string) {
	s.Helper()
	s.Connecting(s.at)
	s.Connected(s.at, "x:1")
	s.Line(s.at, greeting)
	hello := s.sent("HELLO")
	if keys != "gen=" && !strings.Contains(hello, keys) {
		s.Fatalf("%q has no %s", hello, keys)
	}
	s.Line(s.at, tag(hello)+" OK session=s1 proto=1 keep_ms=5000")
	s.told("Opened")
}

func tag(line string) string { return strings.Fields(line)[0] }

// sent is the only line to the broker but for PONG, and has this verb.
func (s *script) sent(verb string) string {
	s.Helper()
	out := strings.TrimSuffix(string(s.Take(nil)), "\n")
	if verb == "" && out == "" {
		return ""
	}
	if strings.Contains(out, "\n") || !strings.Contains(out, " "+verb) {
		s.Fatalf("sent %q, expected %s", out, verb)
	}
	return out
}

// told is what the effects are, in words.
func (s *script) told(expected ...string) []Effect {
	s.Helper()
	words := []string{}
	list := append([]Effect(nil), s.Effects()...)
	for _, e := range list {
		switch e.Kind {
		case Finished:
			words = append(words, strings.TrimSpace(fmt.Sprint(
				e.Request.Ref, " ", e.Request.Failure.Code)))
		case Lost:
			words = append(words, "lost "+e.Word)
		case Opened:
			words = append(words, "Opened")
		default:
			words = append(words, fmt.Sprint(e.Kind))
		}
	}
	if fmt.Sprint(words) != fmt.Sprint(expected) {
		s.Fatalf("told %q, expected %q", words, expected)
	}
	return list
}

// pass lets time pass, with all ticks that are due.
func (s *script) pass(d time.Duration) {
	s.Helper()
	end := s.at + d
	for n := 0; s.Due() <= end; n++ {
		if n > 1000 {
			s.Fatal("the ticks have no end")
		}
		s.at = max(s.at, s.Due())
		s.Tick(s.at)
	}
	s.at = end
}

func (s *script) lock(name string) *Request {
	r := &Request{Kind: Lock, Names: []string{name}, Owner: "o",
		Line: []byte("LOCK " + name + " owner=o"), Wait: Forever, Ref: name}
	s.Submit(s.at, r)
	return r
}

// granted is a lock that was granted at once.
func (s *script) granted(name string) *Hold {
	s.Helper()
	r := s.lock(name)
	s.Line(s.at, tag(s.sent("LOCK"))+" OK fence=7 ttl_ms=6000 count=1")
	s.told(name)
	return r.Holds[0]
}

func (s *script) unlock(h *Hold) *Request {
	r := &Request{Kind: Unlock, Names: []string{h.Name}, Owner: h.Owner,
		Line: []byte("UNLOCK " + h.Name), Wait: Forever, Hold: h, Ref: "un"}
	s.Submit(s.at, r)
	return r
}

func TestDeadlineCountsFromTheSending(t *testing.T) {
	s := begin(t, Config{})
	h := s.granted("a")
	s.pass(2 * time.Second)
	ping := s.sent("PING")
	s.pass(time.Second)
	s.Line(s.at, tag(ping)+" OK ttl_ms=4000") // sooner than the old one
	if left := h.Left(s.at); left < 2700*time.Millisecond ||
		left > 2900*time.Millisecond {
		t.Error(left)
	}
	s.pass(time.Second)
	s.sent("PING")
	s.pass(1700 * time.Millisecond)
	s.told()
	s.pass(300 * time.Millisecond)
	s.told("lost deadline")
	un := s.sent("UNLOCK")
	if h.Good(s.at) || !strings.Contains(un, "fence=7 owner=o") {
		t.Error(un)
	}
	s.Line(s.at, tag(un)+" OK count=0")
	if len(s.holds) != 0 {
		t.Error("a hold is left")
	}
}

func TestRefusedRenewMayHaveSetTheNewEnd(t *testing.T) {
	for code, lease := range map[string]time.Duration{
		"INDOUBT": time.Second, "UNAVAILABLE": time.Second,
		"INTERNAL": time.Second, "LIMIT": Never} {
		s := begin(t, Config{})
		h := s.granted("a")
		want := min(lease-lease/100-2*time.Millisecond, h.Left(s.at))
		s.Line(s.at, s.renew(h, time.Second)+" ERR "+code+" retry=1")
		s.told("renew " + code)
		if left := h.Left(s.at); left != want {
			t.Error(code, left, want)
		}
	}
}

func (s *script) renew(h *Hold, lease time.Duration) string {
	s.Helper()
	s.Submit(s.at, &Request{Kind: Renew, Names: []string{"a"}, Owner: "o",
		Line: []byte("RENEW a"), Wait: Forever, Hold: h, Ref: "renew",
		Lease: lease})
	return tag(s.sent("RENEW"))
}

func TestRenewBoundsItsHoldFromTheSendingOn(t *testing.T) {
	const end = time.Second - time.Second/100 - 2*time.Millisecond
	for reply, want := range map[string]time.Duration{
		" OK ttl_ms=5000 lease_ms=5000": 4900 * time.Millisecond,
		" ERR DENIED retry=0":           5880 * time.Millisecond,
		" ERR INDOUBT retry=1":          end,
		"":                              end,
	} {
		s := begin(t, Config{})
		h := s.granted("a")
		renewal := s.renew(h, time.Second)
		s.renew(h, time.Hour)
		if left := h.Left(s.at); left != end {
			t.Errorf("%v without a reply", left)
		}
		if reply != "" {
			s.Line(s.at, renewal+reply)
		}
		if left := h.Left(s.at); left != want {
			t.Errorf("%v, not %v, after %q", left, want, reply)
		}
	}
}

func TestRenewWithoutAReplyEndsItsHold(t *testing.T) {
	s := begin(t, Config{})
	h := s.granted("a")
	renewal := s.renew(h, 3*time.Second)
	s.pass(2 * time.Second)
	survey := tag(s.sent("HELD"))
	s.Line(s.at, survey+" ITEM name=a owner=o fence=7 ttl_ms=6000")
	s.Line(s.at, survey+" OK n=1")
	s.told()
	s.pass(time.Second)
	s.told("lost deadline")
	s.Line(s.at, renewal+" OK ttl_ms=6000 lease_ms=6000")
	s.told("renew LOST")
	if h.Good(s.at) {
		t.Error("a lost hold is good again")
	}
}

func TestGrantAfterALongWaitIsConfirmed(t *testing.T) {
	s := begin(t, Config{})
	lock := s.lock("a")
	line := s.sent("LOCK")
	s.pass(9 * time.Second)
	s.Line(s.at, tag(line)+" OK fence=7 ttl_ms=6000 count=1 renewed=1")
	s.told()
	s.pass(0)
	s.Line(s.at, tag(s.sent("PING"))+" OK ttl_ms=6000")
	s.told("a")
	if !lock.Holds[0].Good(s.at + 5*time.Second) {
		t.Error("the deadline is that of the LOCK")
	}
}

func TestLateGrantIsGivenBack(t *testing.T) {
	s := begin(t, Config{})
	lock := s.lock("a")
	line := s.sent("LOCK")
	s.Cancel(s.at, lock)
	s.sent("CANCEL " + tag(line))
	s.Line(s.at, tag(line)+" OK fence=7 ttl_ms=6000 count=1 renewed=1")
	s.Line(s.at, tag(s.sent("UNLOCK a fence=7"))+" OK count=0")
	s.told()
	if len(s.holds) != 0 {
		t.Error("a hold is left")
	}
}

func TestUnlockIsSentAgain(t *testing.T) {
	s := begin(t, Config{})
	h := s.granted("a")
	s.unlock(h)
	for _, code := range []string{"LIMIT", "LIMIT", "INDOUBT"} {
		s.Line(s.at, tag(s.sent("UNLOCK"))+" ERR "+code+" retry=1")
		if code == "LIMIT" {
			s.told()
			s.pass(100 * time.Millisecond)
		}
	}
	s.told("un")
	if len(s.holds) != 0 {
		t.Error("a hold is left")
	}
}

func TestSessionMoves(t *testing.T) {
	s := begin(t, Config{Keep: 5 * time.Second, Elsewhere: true})
	h := s.granted("a")
	s.lock("b").Wait = 10 * time.Second
	s.sent("LOCK b")
	un := s.unlock(s.granted("c"))
	s.sent("UNLOCK c")
	s.pass(time.Second)
	s.Take(nil)
	s.Ended(s.at, Failure{Code: CodeGone}, false)
	s.told()
	s.pass(time.Second)
	if !s.WantsConnection(s.at) || h.Left(s.at) > 3*time.Second {
		t.Fatal("the bound of keep counts from the last answer", h.Left(s.at))
	}
	s.Connecting(s.at)
	s.Connected(s.at, "x:1")
	s.Line(s.at, greeting)
	s.Line(s.at, tag(s.sent("HELLO"))+" OK session=s1 keep_ms=5000 gen=2")
	out := string(s.Take(nil))
	want := `^(\d+) CLAIM a fence=7 owner=o\n(\d+) CLAIM c fence=7 owner=o\n` +
		`\d+ LOCK b owner=o wait=8000\n$`
	tags := regexp.MustCompile(want).FindStringSubmatch(out)
	if tags == nil {
		t.Fatalf("%q", out)
	}
	s.told("Opened")
	s.Line(s.at, tags[1]+" ERR UNAVAILABLE retry=1")
	s.Line(s.at, tags[2]+" ERR LOST retry=0")
	s.told("un") // it was carried out
	if un.Failure.Code != "" || !h.Good(s.at) {
		t.Error(un.Failure)
	}
	s.pass(200 * time.Millisecond)
	again := regexp.MustCompile(`(\d+) CLAIM a`).FindSubmatch(s.Take(nil))
	s.Line(s.at, string(again[1])+" ERR LOST retry=0")
	s.told("lost gone")
}

func TestKeptSessionEnds(t *testing.T) {
	s := begin(t, Config{Keep: 5 * time.Second})
	s.granted("a")
	s.Ended(s.at, Failure{Code: CodeGone}, false)
	s.lock("b")
	s.pass(4 * time.Second)
	s.told()
	s.pass(2 * time.Second)
	s.told("lost deadline", "b GONE")
	if s.State() != Idle {
		t.Error(s.State())
	}
}

func TestGarbageEndsTheSession(t *testing.T) {
	for _, line := range []string{"x OK", "99 OK", "1 OK a=%", "\x00"} {
		s := begin(t, Config{Keep: 5 * time.Second})
		s.granted("a")
		s.lock("b")
		s.Line(s.at, line)
		if !s.Dropping() {
			t.Fatalf("%q is taken", line)
		}
		s.Ended(s.at, Failure{Code: CodeGone}, false)
		s.told("lost session", "b PROTOCOL")
	}
}
