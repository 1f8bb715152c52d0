package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	holdfast "holdfast.example/proto/clients/go"
)

func (d *driver) act(verb string, cmd *command) {
	switch verb {
	case "connect":
		d.connect(cmd)
		return
	case "close":
		d.client.Close()
		d.say("closed")
		return
	}
	if d.client == nil {
		d.say(cmd.id, "err GONE")
		return
	}
	switch verb {
	case "lock", "await", "watch":
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.items[cmd.id] = &item{cancel: cancel}
		d.mu.Unlock()
		go map[string]func(context.Context, *command){"lock": d.lock,
			"await": d.await, "watch": d.watch}[verb](ctx, cmd)
	case "adopt":
		fence, _ := strconv.ParseUint(cmd.names[1], 10, 64)
		d.items[cmd.id] = &item{
			detached: d.client.Detached(cmd.names[0], fence)}
		d.say(cmd.id, "adopted")
	default:
		d.about(verb, cmd)
	}
}

// about is a command about an ID that is there.
func (d *driver) about(verb string, cmd *command) {
	d.mu.Lock()
	it := d.items[cmd.id]
	d.mu.Unlock()
	ctx := context.Background()
	switch {
	case it == nil:
		d.say(cmd.id, "unsupported")
	case verb == "cancel" || verb == "unwatch":
		it.cancel()
	case it.detached == nil && it.locks == nil && verb == "check":
		d.say(cmd.id, "lost notheld")
	case it.detached == nil && it.locks == nil:
		d.say(cmd.id, "err NOTHELD")
	case verb == "check":
		d.check(cmd, it)
	case verb == "left":
		d.left(cmd, it)
	case verb == "unlock":
		go func() { d.result(cmd.id, "released", it.unlock(ctx, cmd)) }()
	case verb == "renew":
		go func() {
			d.result(cmd.id, "renewed", it.renew(ctx, cmd))
		}()
	case verb == "note" && it.locks != nil:
		note := strings.Join(cmd.names, "")
		go func() {
			d.result(cmd.id, "noted", it.locks[0].SetNote(ctx, note))
		}()
	default:
		d.say(cmd.id, "unsupported")
	}
}

func options(cmd *command) []holdfast.LockOption {
	var opts []holdfast.LockOption
	if cmd.has("wait") {
		opts = append(opts, holdfast.Wait(cmd.duration("wait")))
	}
	if cmd.has("lease") && !cmd.has("detached") {
		opts = append(opts, holdfast.Lease(cmd.duration("lease")))
	}
	if cmd.has("delay") {
		opts = append(opts, holdfast.Delay(cmd.duration("delay")))
	}
	if cmd.has("note") {
		opts = append(opts, holdfast.Note(cmd.keys["note"]))
	}
	if cmd.has("limit") {
		opts = append(opts, holdfast.Semaphore(cmd.number("limit", 0),
			cmd.number("permits", 1)))
	}
	if cmd.has("wanted") {
		opts = append(opts, holdfast.Wanted())
	}
	if cmd.has("tree") {
		opts = append(opts, holdfast.Tree())
	}
	switch cmd.keys["mode"] {
	case "shared":
		opts = append(opts, holdfast.Shared())
	case "upgradable":
		opts = append(opts, holdfast.Upgradable())
	}
	return opts
}

func (d *driver) lock(ctx context.Context, cmd *command) {
	if cmd.has("owner") {
		ctx = holdfast.WithOwner(ctx, cmd.keys["owner"])
	}
	if cmd.has("detached") {
		d.lockDetached(ctx, cmd)
		return
	}
	locks, err := d.client.LockAll(ctx, cmd.names, options(cmd)...)
	if err != nil {
		d.say(cmd.id, told(err))
		return
	}
	fences := make([]string, len(locks))
	for i, lock := range locks {
		fences[i] = strconv.FormatUint(lock.Fence(), 10)
	}
	d.mu.Lock()
	it := d.items[cmd.id]
	it.locks = locks
	d.mu.Unlock()
	d.say(cmd.id, "held", strings.Join(fences, ","))
	for _, lock := range locks {
		held := lock.Context()
		context.AfterFunc(held, func() { d.lost(cmd.id, context.Cause(held)) })
	}
	if wanted := locks[0].Wanted(); wanted != nil {
		go func() {
			for waiters := range wanted {
				d.say(cmd.id, "wanted", waiters)
			}
		}()
	}
}

func (d *driver) lockDetached(ctx context.Context, cmd *command) {
	lock, err := d.client.LockDetached(ctx, cmd.names[0],
		cmd.duration("lease"), options(cmd)...)
	if err != nil {
		d.say(cmd.id, told(err))
		return
	}
	d.mu.Lock()
	d.items[cmd.id].detached = lock
	d.mu.Unlock()
	d.say(cmd.id, "held", lock.Fence())
}

// lost tells the first loss of an ID.
func (d *driver) lost(id string, why error) {
	var e *holdfast.Error
	if !errors.As(why, &e) || e.Code != "LOST" {
		return
	}
	d.mu.Lock()
	it := d.items[id]
	told := it.cancel == nil
	it.cancel = nil
	d.mu.Unlock()
	if !told {
		d.say(id, "lost", e.Reason)
	}
}

func (d *driver) check(cmd *command, it *item) {
	if it.detached != nil {
		if it.detached.Left() > 0 {
			d.say(cmd.id, "good")
		} else {
			d.say(cmd.id, "lost deadline")
		}
		return
	}
	for _, lock := range it.locks {
		var e *holdfast.Error
		if errors.As(lock.Check(), &e) {
			why := e.Reason
			if why == "" {
				why = strings.ToLower(e.Code)
			}
			d.say(cmd.id, "lost", why)
			return
		}
	}
	d.say(cmd.id, "good")
}

func (d *driver) left(cmd *command, it *item) {
	if it.detached != nil {
		d.say(cmd.id, "left", it.detached.Left().Milliseconds())
		return
	}
	least := it.locks[0].Left()
	for _, lock := range it.locks {
		least = min(least, lock.Left())
	}
	d.say(cmd.id, "left", least.Milliseconds())
}

func (it *item) unlock(ctx context.Context, cmd *command) error {
	var opts []holdfast.UnlockOption
	if cmd.has("delay") {
		opts = append(opts, holdfast.UnlockDelay(cmd.duration("delay")))
	}
	if it.detached != nil {
		return it.detached.Unlock(ctx)
	}
	return it.locks.Unlock(ctx, opts...)
}

func (it *item) renew(ctx context.Context, cmd *command) error {
	if it.detached != nil {
		return it.detached.Renew(ctx, cmd.duration("lease"))
	}
	return it.locks[0].Renew(ctx, cmd.duration("lease"))
}

func (d *driver) await(ctx context.Context, cmd *command) {
	free, err := d.client.Await(ctx, cmd.names[0], options(cmd)...)
	words := "free"
	if free.Fence > 0 {
		words += " fence=" + strconv.FormatUint(free.Fence, 10)
	}
	if free.Note != "" {
		words += " note=" + encode(free.Note)
	}
	d.result(cmd.id, words, err)
}

func (d *driver) watch(ctx context.Context, cmd *command) {
	var failed error
	if cmd.has("members") {
		failed = d.watchMembers(ctx, cmd)
	} else {
		d.client.Watch(ctx, cmd.names[0])(
			func(h holdfast.Holder, err error) bool {
				words := "free"
				if h.Held {
					words = "held " + strconv.FormatUint(h.Fence, 10)
				}
				if h.Note != "" {
					words += " note=" + encode(h.Note)
				}
				if failed = err; err == nil {
					d.say(cmd.id, words)
				}
				return true
			})
	}
	d.result(cmd.id, "over", failed)
}

func (d *driver) watchMembers(ctx context.Context, cmd *command) (
	failed error) {
	d.client.Members(ctx, cmd.names[0])(
		func(members []holdfast.Member, err error) bool {
			words := "members"
			for _, m := range members {
				words += " " + strconv.FormatUint(m.Fence, 10)
				if m.Note != "" {
					words += "=" + encode(m.Note)
				}
			}
			if failed = err; err == nil {
				d.say(cmd.id, words)
			}
			return true
		})
	return failed
}
