package holdfast

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/rand"
	"net"
	"strconv"
	"strings"
	"sync"

	"holdfast.example/proto/clients/go/internal/core"
	"holdfast.example/proto/clients/go/internal/wire"
)

// place is one address of Dial.
type place struct{ network, host, port string }

// target is one socket of a place.
type target struct {
	place
	address string
}

const (
	placesMax   = 16
	defaultPort = "4653"
	defaultTLS  = "4655"
)

func parsePlaces(addresses string, secure bool) ([]place, error) {
	var places []place
	port := defaultPort
	if secure {
		port = defaultTLS
	}
	for _, text := range strings.Split(addresses, ",") {
		p, err := parsePlace(strings.TrimSpace(text), port)
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	if len(places) > placesMax {
		return nil, usage("%d addresses; %d are the most", len(places),
			placesMax)
	}
	return places, nil
}

func parsePlace(text, port string) (place, error) {
	switch {
	case text == "":
		return place{}, usage("an address is empty")
	case strings.Contains(text, "://"):
		return place{}, usage("the address %q is a URL; use HOST:PORT", text)
	case strings.Contains(text, "/"):
		return place{network: "unix", host: text}, nil
	case !strings.Contains(text, ":"):
		return place{"tcp", text, port}, nil
	case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		return place{"tcp", text[1 : len(text)-1], port}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return place{}, usage("the address %q is not HOST:PORT", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return place{}, usage("the address %q has no port from 1 to 65535",
			text)
	}
	return place{"tcp", host, port}, nil
}

// run connects whenever the core wants a connection.
func (c *Client) run(ctx context.Context) {
	defer c.ended.Done()
	next := rand.Intn(len(c.places))
	var round []target
	left := 0 // places of this round
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		for c.wantsConnection() {
			if len(round) == 0 && left == 0 {
				left = len(c.places)
			}
			why := core.Failure{}
			if len(round) == 0 {
				round, why = resolve(ctx, c.places[next%len(c.places)])
				next++
				left--
			}
			served := false
			if len(round) > 0 {
				to := round[0]
				round = round[1:]
				served, why = c.attempt(ctx, to)
			}
			if served {
				round, left = nil, 0
			}
			now := c.enter()
			c.core.Ended(now, why, len(round) == 0 && left == 0)
			c.leave()
		}
	}
}

// wantsConnection tells the core that the connecting begins.
func (c *Client) wantsConnection() bool {
	now := c.enter()
	defer c.leave()
	wants := c.core.WantsConnection(now)
	if wants {
		c.core.Connecting(now)
	}
	return wants
}

// resolve gives all sockets of a place.
func resolve(ctx context.Context, p place) ([]target, core.Failure) {
	if p.network == "unix" {
		return []target{{p, p.host}}, core.Failure{}
	}
	ctx, cancel := context.WithTimeout(ctx, core.ConnectTime)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(ctx, p.host)
	var list []target
	for _, host := range hosts {
		list = append(list, target{p, net.JoinHostPort(host, p.port)})
	}
	return list, core.Failure{Code: core.CodeGone, Cause: err}
}

// attempt is one connection, from its begin to its end. It tells if a broker
// served the session, and why the connection has ended.
func (c *Client) attempt(ctx context.Context, to target) (bool, core.Failure) {
	ctx, cancel := context.WithTimeout(ctx, core.ConnectTime)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, to.network, to.address)
	if err != nil {
		return false, core.Failure{Code: core.CodeGone, Cause: err}
	}
	defer raw.Close()
	conn := raw
	if c.cfg.tls != nil {
		secure := c.secure(raw, to.host)
		if err := secure.HandshakeContext(ctx); err != nil {
			return false, core.Failure{Code: codeTLS, Cause: err,
				Text: "the handshake with " + to.address + " failed"}
		}
		conn = secure
	}
	if !c.begin(raw, to.address) {
		return false, core.Failure{Code: core.CodeClosed}
	}
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		c.write(conn, over)
	}()
	err = c.read(conn)
	raw.Close()
	close(over)
	writer.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = nil
	return c.core.State() == core.Open, core.Failure{Code: core.CodeGone,
		Text: "the connection to " + to.address + " ended", Cause: err}
}

func (c *Client) secure(raw net.Conn, host string) *tls.Conn {
	cfg := c.cfg.tls
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	return tls.Client(raw, cfg)
}

// begin makes a connection that of the core. False: the client was closed.
func (c *Client) begin(raw net.Conn, address string) bool {
	now := c.enter()
	defer c.leave()
	if c.core.State() == core.Closed {
		return false
	}
	c.conn, c.address = raw, address
	c.core.Connected(now, address)
	return true
}

// read gives the core all lines, as many at a time as there are.
func (c *Client) read(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, wire.LineMax)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				c.core.Overlong(c.enter())
				c.leave()
			}
			return err
		}
		now := c.enter()
		for err == nil {
			c.core.Line(now, string(line[:len(line)-1]))
			rest, _ := in.Peek(in.Buffered())
			if bytes.IndexByte(rest, '\n') < 0 {
				break
			}
			line, err = in.ReadSlice('\n')
		}
		c.leave()
	}
}

// write sends what the core has, as much at a time as there is.
func (c *Client) write(conn net.Conn, over <-chan struct{}) {
	var out []byte
	for {
		select {
		case <-over:
			return
		case <-c.wake:
		}
		c.mu.Lock()
		out = c.core.Take(out)
		c.mu.Unlock()
		if len(out) == 0 {
			continue // the wake was for an earlier connection
		}
		if _, err := conn.Write(out); err != nil {
			conn.Close()
			return
		}
	}
}
