package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, word := range []string{"a", ":a", "a:b", "%", "a b=c", string(all)} {
		line := string(AppendWord(nil, word))
		if !printable(line) || strings.Contains(line, "=") || line[0] == ':' {
			t.Errorf("%q is sent as %q", word, line)
		}
		if got, err := Decode(line); got != word || err != nil {
			t.Errorf("%q comes back as %q, %v", word, got, err)
		}
	}
	line := string(AppendDuration(nil, "wait", 1500*time.Microsecond))
	if line != " wait=2" {
		t.Error(line)
	}
}

func TestParse(t *testing.T) {
	var m Message
	err := m.Parse("* LOST a%20b fence=7,3 reason=expired x= :a :b=c")
	if err != nil || m.Tag != "*" || m.Verb != "LOST" || m.Word != "a b" ||
		m.Value("reason") != "expired" || m.Text != "a :b=c" {
		t.Fatal(m, err)
	}
	if list, ok := m.Numbers("fence"); !ok ||
		!reflect.DeepEqual(list, []uint64{7, 3}) {
		t.Error(list, ok)
	}
	if _, ok := m.Number("fence"); ok {
		t.Error("a list is a number")
	}
	err = m.Parse("1 ERR DEADLOCK retry=1 cycle=a%252Cb,c%2525,")
	if want := []string{"a,b", "c%", ""}; err != nil ||
		!reflect.DeepEqual(m.Names("cycle"), want) {
		t.Error(m.Names("cycle"), err)
	}
	for _, bad := range []string{"1", " OK", "1 OK  a=b", "1 OK a=%4",
		"1 OK a=%zz", "1 OK\ta", "1 \xff", "\x16\x03\x01"} {
		if m.Parse(bad) == nil {
			t.Errorf("%q is parsed", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1 OK fence=7 ttl_ms=10000 count=1 renewed=1")
	f.Fuzz(func(t *testing.T, line string) {
		var m Message
		if m.Parse(line) == nil && m.Verb == "" {
			t.Error("no verb")
		}
		m.Names("cycle")
		m.Numbers("fence")
	})
}
