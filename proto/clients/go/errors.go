package holdfast

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
	"holdfast.example/proto/clients/go/internal/wire"
)

// Error is each error of this package but those of a context. Compare it with
// errors.Is and the variables below, which have a code only.
type Error struct {
	// Code is that of the wire, such as BUSY, or GONE, CLOSED, PROTOCOL, TLS
	// or USAGE.
	Code string
	// Name is the lock that the error is about; "" if it is about none.
	Name string
	// Text is for people.
	Text string
	// Retry says that the same call may succeed later.
	Retry bool
	// Cycle has the locks of a DEADLOCK. A last "" says that there are more.
	Cycle []string
	// After is the time before which another try is in vain; 0: not known.
	After time.Duration
	// Reason says why a lock was lost: the reason= of LOST, or "deadline" if
	// no broker has answered in time, or "session" if the session has ended.
	// For UNAVAILABLE it is a word of STATUS.
	Reason string
	// Note is that of the holder, if the broker told it with BUSY.
	Note string
	// Cause is an error of the socket or of TLS, or nil.
	Cause error
}

// The errors by their codes, for errors.Is.
var (
	// ErrBusy: the lock is held, and the wait was 0.
	ErrBusy error = &Error{Code: "BUSY"}
	// ErrTimeout: the lock was held until Wait was over.
	ErrTimeout error = &Error{Code: "TIMEOUT"}
	// ErrDeadlock: the wait was part of a cycle. Release what is held, and
	// begin again.
	ErrDeadlock error = &Error{Code: "DEADLOCK"}
	// ErrLost: the hold has ended, and the program did not ask for it.
	ErrLost error = &Error{Code: "LOST"}
	// ErrNotHeld: there is no such hold.
	ErrNotHeld error = &Error{Code: "NOTHELD"}
	// ErrUnavailable: Redis is unavailable.
	ErrUnavailable error = &Error{Code: "UNAVAILABLE"}
	// ErrInDoubt: the outcome is not known. The caller does not hold the lock.
	ErrInDoubt error = &Error{Code: "INDOUBT"}
	// ErrConflict: the request does not fit what is held or waited for.
	ErrConflict error = &Error{Code: "CONFLICT"}
	// ErrLimit: a limit of the broker.
	ErrLimit error = &Error{Code: "LIMIT"}
	// ErrDraining: the broker is going, and the session is not kept.
	ErrDraining error = &Error{Code: "DRAINING"}
	// ErrAuth: the broker does not know the user, or the secret is wrong.
	ErrAuth error = &Error{Code: "AUTH"}
	// ErrDenied: the user lacks a right.
	ErrDenied error = &Error{Code: "DENIED"}
	// ErrGone: no broker is reachable, or the session ended before the answer.
	ErrGone error = &Error{Code: core.CodeGone}
	// ErrClosed: the client was closed.
	ErrClosed error = &Error{Code: core.CodeClosed}
	// ErrProtocol: the peer speaks another protocol.
	ErrProtocol error = &Error{Code: core.CodeProtocol}
	// ErrTLS: the handshake failed, or the certificate is not trusted.
	ErrTLS error = &Error{Code: codeTLS}
	// ErrUsage: the arguments of a call are wrong, or its context is nil.
	ErrUsage error = &Error{Code: codeUsage}
)

const (
	codeTLS   = "TLS"
	codeUsage = "USAGE"
)

func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("holdfast: " + e.Code)
	if e.Name != "" {
		text.WriteString(" " + strconv.Quote(e.Name))
	}
	if e.Reason != "" {
		text.WriteString(" (" + e.Reason + ")")
	}
	if e.Text != "" {
		text.WriteString(": " + e.Text)
	}
	if e.Cause != nil {
		text.WriteString(": " + e.Cause.Error())
	}
	return text.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is compares codes.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

var errNoContext error = usage("the context is nil")

func usage(format string, args ...any) *Error {
	return &Error{Code: codeUsage, Text: fmt.Sprintf(format, args...)}
}

// failed makes an error of what the core says; nil for its zero value.
func failed(f core.Failure, name string) error {
	if f.Code == "" {
		return nil
	}
	m := wire.Message{Pairs: f.Pairs}
	e := &Error{Code: f.Code, Name: name, Text: f.Text, Retry: f.Retry,
		Cycle: m.Names("cycle"), Reason: m.Value("reason"),
		Note: m.Value("note"), Cause: f.Cause}
	if e.Code == core.CodeGone {
		e.Retry = true
	}
	if which := m.Value("name"); which != "" {
		e.Name = which
	}
	e.After, _ = m.Milliseconds("after_ms")
	return e
}

func lost(name, reason string) *Error {
	if reason == "closed" {
		return &Error{Code: core.CodeClosed, Name: name,
			Text: "the client was closed"}
	}
	return &Error{Code: "LOST", Name: name, Reason: reason}
}
