// A rate-limited API: two HTTP servers together serve five requests a second,
// and answer all others with 429. A request takes a permit of a semaphore. The
// permit ends by itself a second later, also if the server has crashed.
//
//	build/holdfastd --dev &
//	go -C proto/clients/examples/go run ./ratelimit
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	holdfast "holdfast.example/proto/clients/go"
)

const (
	limit  = 5
	window = time.Second
)

// limited lets through what the semaphore has permits for.
func limited(c *holdfast.Client, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		permit, err := c.LockDetached(r.Context(), "example/api", window,
			holdfast.Semaphore(limit, 1), holdfast.Wait(0))
		switch {
		case errors.Is(err, holdfast.ErrBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the limit is reached", http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			w.Header().Set("X-Fence", fmt.Sprint(permit.Fence()))
			next.ServeHTTP(w, r)
		}
	})
}

func api(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// serve is one server, which has a client of its own.
func serve(ctx context.Context, broker, listen string) (string, error) {
	c, err := holdfast.Dial(ctx, broker)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		c.Close()
		return "", err
	}
	go http.Serve(l, limited(c, http.HandlerFunc(api)))
	return "http://" + l.Addr().String(), nil
}

func main() {
	broker := flag.String("broker", "127.0.0.1:4653", "`addresses` of brokers")
	listen := flag.String("listen", "", "only serve, at this `address`")
	flag.Parse()
	ctx := context.Background()
	if *listen != "" {
		url, err := serve(ctx, *broker, *listen)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(url)
		select {}
	}
	if err := demo(ctx, *broker); err != nil {
		log.Fatal(err)
	}
}

// demo has eight users call two servers for three seconds.
func demo(ctx context.Context, broker string) error {
	var urls []string
	for i := 0; i < 2; i++ {
		url, err := serve(ctx, broker, "127.0.0.1:0")
		if err != nil {
			return err
		}
		urls = append(urls, url)
	}
	var counts [600]atomic.Int64 // by status
	var users sync.WaitGroup
	began := time.Now()
	for i := 0; i < 8; i++ {
		users.Add(1)
		go func() {
			defer users.Done()
			for n := i; time.Since(began) < 3*window; n++ {
				answer, err := http.Get(urls[n%2])
				if err != nil {
					log.Print(err)
					return
				}
				answer.Body.Close()
				counts[answer.StatusCode].Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	users.Wait()
	fmt.Printf("served %d, refused %d, failed %d in %.3f s; "+
		"the limit is %d a second\n", counts[http.StatusOK].Load(),
		counts[http.StatusTooManyRequests].Load(),
		counts[http.StatusServiceUnavailable].Load(),
		time.Since(began).Seconds(), limit)
	return nil
}
