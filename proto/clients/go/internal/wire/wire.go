// Package wire has the lines of the protocol: it parses those of the broker,
// and writes the words of requests. It knows no state and does no I/O.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of section 1.3 of PROTOCOL.md, in bytes of the decoded word.
const (
	NameMax   = 255
	OwnerMax  = 64
	NoteMax   = 128
	WordMax   = 64 // of a session's name, and of a user
	SecretMax = 255
	NamesMax  = 16
)

// LineMax bounds a line of the broker, in bytes.
const LineMax = 16384

// Pair is a key and its value, which is decoded.
type Pair struct{ Key, Value string }

// Message is a line of the broker.
type Message struct {
	Tag   string // "*" of an event, "-" of a reply without a tag
	Verb  string
	Word  string // the first word after the verb, decoded; or ""
	Pairs []Pair
	Text  string // free text; for people
}

var errMalformed = errors.New("a line of the broker is malformed")

// Parse takes a line without its LF. It keeps the memory of m.Pairs.
func (m *Message) Parse(line string) error {
	line = strings.TrimSuffix(line, "\r")
	*m = Message{Pairs: m.Pairs[:0]}
	head, text, _ := strings.Cut(line, " :")
	m.Text = text
	for i := 0; head != ""; i++ {
		var word string
		word, head, _ = strings.Cut(head, " ")
		if !printable(word) {
			return errMalformed
		}
		if err := m.add(i, word); err != nil {
			return err
		}
	}
	if m.Verb == "" {
		return errMalformed
	}
	return nil
}

func (m *Message) add(i int, word string) error {
	switch {
	case i == 0:
		m.Tag = word
		return nil
	case i == 1:
		m.Verb = word
		return nil
	}
	key, value, pair := strings.Cut(word, "=")
	if !pair {
		value = word
	}
	value, err := Decode(value)
	switch {
	case err != nil:
		return err
	case pair:
		m.Pairs = append(m.Pairs, Pair{key, value})
	case i == 2:
		m.Word = value
	}
	return nil // further words belong to a later version
}

// Value is that of a key, or "".
func (m *Message) Value(key string) string {
	for _, pair := range m.Pairs {
		if pair.Key == key {
			return pair.Value
		}
	}
	return ""
}

// Number is the value of a key. False: the key is absent, or no number.
func (m *Message) Number(key string) (uint64, bool) {
	n, err := strconv.ParseUint(m.Value(key), 10, 64)
	return n, err == nil
}

// Milliseconds is the value of a key whose name ends in _ms. False: as Number,
// or the number is too large for a sum of times.
func (m *Message) Milliseconds(key string) (time.Duration, bool) {
	n, ok := m.Number(key)
	if !ok || n > 1<<42 {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// Numbers are those of a list with commas. False: one of them is no number.
func (m *Message) Numbers(key string) ([]uint64, bool) {
	words := strings.Split(m.Value(key), ",")
	if len(words) > NamesMax {
		return nil, false
	}
	list := make([]uint64, len(words))
	for i, word := range words {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return nil, false
		}
		list[i] = n
	}
	return list, true
}

// Names are those of a list such as cycle=, whose commas are encoded twice.
func (m *Message) Names(key string) []string {
	value := m.Value(key)
	if value == "" {
		return nil
	}
	list := strings.Split(value, ",")
	for i, word := range list {
		if name, err := Decode(word); err == nil {
			list[i] = name
		}
	}
	return list
}

func printable(word string) bool {
	for i := 0; i < len(word); i++ {
		if word[i] < 0x21 || word[i] > 0x7e {
			return false
		}
	}
	return word != ""
}

// Decode takes the percent-encoding off a word.
func Decode(word string) (string, error) {
	at := strings.IndexByte(word, '%')
	if at < 0 {
		return word, nil
	}
	out := append(make([]byte, 0, len(word)), word[:at]...)
	for ; at < len(word); at++ {
		if word[at] != '%' {
			out = append(out, word[at])
			continue
		}
		if at+2 >= len(word) {
			return "", errMalformed
		}
		n, err := strconv.ParseUint(word[at+1:at+3], 16, 8)
		if err != nil {
			return "", errMalformed
		}
		out = append(out, byte(n))
		at += 2
	}
	return string(out), nil
}

// AppendWord writes a word with percent-encoding.
func AppendWord(out []byte, word string) []byte {
	const digits = "0123456789ABCDEF"
	for i := 0; i < len(word); i++ {
		b := word[i]
		if b < 0x21 || b > 0x7e || b == '%' || b == '=' || b == ':' && i == 0 {
			out = append(out, '%', digits[b>>4], digits[b&15])
		} else {
			out = append(out, b)
		}
	}
	return out
}

// AppendKey writes a blank, the key, and its value with percent-encoding.
func AppendKey(out []byte, key, value string) []byte {
	out = append(out, ' ')
	out = append(out, key...)
	return AppendWord(append(out, '='), value)
}

// AppendNumber writes a blank, the key, and a number.
func AppendNumber(out []byte, key string, n uint64) []byte {
	out = append(out, ' ')
	out = append(out, key...)
	return strconv.AppendUint(append(out, '='), n, 10)
}

// AppendDuration writes a duration in milliseconds, rounded up.
func AppendDuration(out []byte, key string, d time.Duration) []byte {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return AppendNumber(out, key, uint64(ms))
}

// Check says what is wrong with a word of 1 to max bytes.
func Check(what, word string, max int) error {
	switch {
	case word == "":
		return fmt.Errorf("the %s is empty", what)
	case len(word) > max:
		return fmt.Errorf("the %s has %d bytes; %d are the most",
			what, len(word), max)
	}
	return nil
}
