// The driver of the Go client for the conformance suite, whose README.md has
// the commands and the results. It uses the public API; of the internal package
// it takes the percent-encoding alone.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	holdfast "holdfast.example/proto/clients/go"
	"holdfast.example/proto/clients/go/internal/wire"
)

// item is what an ID names.
type item struct {
	cancel   context.CancelFunc
	locks    holdfast.Locks
	detached *holdfast.Detached
}

type driver struct {
	client *holdfast.Client

	mu    sync.Mutex // of stdout and items
	items map[string]*item
}

// command is a line of stdin, decoded.
type command struct {
	id    string
	names []string
	keys  map[string]string
}

func main() {
	d := &driver{items: map[string]*item{}}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		d.act(verb, parse(rest))
	}
	if d.client != nil {
		d.client.Close()
	}
}

func parse(rest string) *command {
	cmd := &command{keys: map[string]string{}}
	for i, word := range strings.Fields(rest) {
		key, value, pair := strings.Cut(word, "=")
		key, _ = wire.Decode(key)
		value, _ = wire.Decode(value)
		switch {
		case i == 0:
			cmd.id = key
		case pair:
			cmd.keys[key] = value
		default:
			cmd.names = append(cmd.names, key)
		}
	}
	return cmd
}

// duration is the value of a key, in the units of the wire.
func (cmd *command) duration(key string) time.Duration {
	value := cmd.keys[key]
	if n, err := strconv.Atoi(value); err == nil {
		return time.Duration(n) * time.Millisecond
	}
	d, _ := time.ParseDuration(value)
	return d
}

func (cmd *command) has(key string) bool {
	_, has := cmd.keys[key]
	return has
}

func (cmd *command) number(key string, otherwise uint32) uint32 {
	n, err := strconv.ParseUint(cmd.keys[key], 10, 32)
	if err != nil {
		return otherwise
	}
	return uint32(n)
}

// say writes words, of which those of errors are encoded.
func (d *driver) say(words ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Println(words...)
}

func encode(word string) string { return string(wire.AppendWord(nil, word)) }

// told is err, as the words of a result.
func told(err error) string {
	var e *holdfast.Error
	switch {
	case errors.As(err, &e) && e.Code == "DEADLOCK":
		names := make([]string, len(e.Cycle))
		for i, name := range e.Cycle {
			names[i] = strings.ReplaceAll(encode(name), ",", "%2C")
		}
		return "err DEADLOCK cycle=" + strings.Join(names, ",")
	case errors.As(err, &e):
		return "err " + e.Code
	case errors.Is(err, context.Canceled):
		return "err CANCELLED"
	}
	return "err " + encode(err.Error())
}

// result says the word, or what err is.
func (d *driver) result(id, word string, err error) {
	d.mu.Lock()
	it := d.items[id]
	d.mu.Unlock()
	for _, lock := range it.locks {
		if held := lock.Context(); held.Err() != nil {
			d.lost(id, context.Cause(held)) // before the answer
		}
	}
	if err != nil {
		word = told(err)
	}
	d.say(id, word)
}

func (d *driver) connect(cmd *command) {
	opts := []holdfast.Option{holdfast.WithHooks(holdfast.Hooks{
		OnMove: func(string) { d.say("moved") }})}
	if cmd.has("keep") {
		opts = append(opts, holdfast.Keep(cmd.duration("keep")))
	}
	if cmd.has("heartbeat") {
		opts = append(opts, holdfast.Heartbeat(cmd.duration("heartbeat")))
	}
	if cmd.has("name") {
		opts = append(opts, holdfast.Name(cmd.keys["name"]))
	}
	if cmd.has("user") {
		opts = append(opts, holdfast.User(cmd.keys["user"],
			cmd.keys["secret"]))
	}
	if cmd.has("ca") {
		cfg, err := secure(cmd)
		if err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(1)
		}
		opts = append(opts, holdfast.TLS(cfg))
	}
	var err error
	d.client, err = holdfast.Dial(context.Background(), cmd.id, opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		d.say(told(err))
		return
	}
	d.say("connected")
}

func secure(cmd *command) (*tls.Config, error) {
	pem, err := os.ReadFile(cmd.keys["ca"])
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool(),
		ServerName: cmd.keys["server_name"]}
	cfg.RootCAs.AppendCertsFromPEM(pem)
	if cmd.has("cert") {
		pair, err := tls.LoadX509KeyPair(cmd.keys["cert"], cmd.keys["key"])
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
