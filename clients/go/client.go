// Package bloomgate is a client of bloomgate, a Bloom filter module for Redis and Valkey: filters, and a guard in front of a
// database. It sends its commands through go-redis.
//
// Items of filters and ids of rows are strings, whose bytes are hashed unchanged. [Int] formats an integer.
package bloomgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client sends the commands of all filters and guards to a server or a cluster, through a client of go-redis.
//
// A command whose connection is lost fails: no command is sent twice, even if MaxRetries is set. The time limit of a command is the
// ReadTimeout of the go-redis client, best set to a second; a command that waits in the server extends it by that wait. At most half of the
// connections wait in the server.
type Client struct {
	server  *redis.Client
	cluster *redis.ClusterClient
	limit   time.Duration
	// waitPermits limits the connections that wait in the server to half of the pool, so that others are free to load, fill and announce. If a
	// caller has no connection to fill a row, every caller that waits for the row is delayed.
	waitPermits chan struct{}
	tasks       tasks
	deadlines   sharedDeadlines
	// closing is cancelled when the client is closed.
	closing context.Context
	stop    context.CancelFunc
	err     error
}

// New returns a client on a [*redis.Client] or a [*redis.ClusterClient]; with any other client, its calls fail with [ErrRefused]. Make one
// per go-redis client, because its filters and guards share the limit of waiting connections.
func New(c redis.UniversalClient) *Client {
	client := &Client{tasks: tasks{idle: sync.NewCond(&sync.Mutex{})}}
	client.closing, client.stop = context.WithCancel(context.Background())
	connections := 0
	switch c := c.(type) {
	case *redis.Client:
		client.server = c
		client.limit, connections = c.Options().ReadTimeout, c.Options().PoolSize
	case *redis.ClusterClient:
		client.cluster = c
		client.limit, connections = c.Options().ReadTimeout, c.Options().PoolSize
	default:
		client.err = refused("a client of bloomgate needs a *redis.Client or a *redis.ClusterClient, not a %T", c)
	}
	client.waitPermits = make(chan struct{}, connections/2)
	return client
}

// Close cancels loads in the background, and waits for them and for the replies to cancelled calls. Call it after the last call has ended and
// before closing the go-redis client.
func (c *Client) Close() {
	c.stop()
	c.tasks.wait()
	c.deadlines.stop()
}

// tasks counts goroutines.
type tasks struct {
	idle    *sync.Cond
	running int
}

func (t *tasks) add(number int) {
	t.idle.L.Lock()
	defer t.idle.L.Unlock()
	if t.running += number; t.running == 0 {
		t.idle.Broadcast()
	}
}

// start runs work in a goroutine.
func (t *tasks) start(work func()) {
	t.add(1)
	go func() {
		defer t.add(-1)
		work()
	}()
}

// wait waits until no goroutine is left.
func (t *tasks) wait() {
	t.idle.L.Lock()
	defer t.idle.L.Unlock()
	for t.running > 0 {
		t.idle.Wait()
	}
}

// finish runs work to completion. If ctx is done first, finish returns its error at once, and discard receives the result.
func finish[T any](ctx context.Context, c *Client, work func(context.Context) T, discard func(context.Context, T)) (T, error) {
	detached := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return work(detached), nil
	}
	done := make(chan T, 1)
	c.tasks.start(func() { done <- work(detached) })
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		c.tasks.start(func() { discard(detached, <-done) })
		var none T
		return none, ctx.Err()
	}
}

// sharedDeadlines are the contexts that limit how long commands wait for a connection. A timer for each would take a third of a command's CPU
// time, so commands that begin within a tenth of their time limit share one.
type sharedDeadlines struct {
	mutex sync.Mutex
	last  context.Context
	// cancel ends the last context early; earlier ones expire.
	cancel context.CancelFunc
	until  time.Time
}

// after returns a context with the values of ctx that ends after the time limit, or up to a tenth later.
func (e *sharedDeadlines) after(ctx context.Context, limit time.Duration) context.Context {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if now := time.Now(); !now.Before(e.until) {
		e.last, e.cancel = context.WithTimeout(context.Background(), limit+limit/10)
		e.until = now.Add(limit / 10)
	}
	return sharedDeadline{e.last, ctx}
}

func (e *sharedDeadlines) stop() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.cancel != nil {
		e.cancel()
		e.until = time.Time{}
	}
}

// sharedDeadline is a context with the values of another one.
type sharedDeadline struct {
	context.Context
	values context.Context
}

func (e sharedDeadline) Value(key any) any { return e.values.Value(key) }

// reply is the reply to one command.
type reply struct {
	value any
	err   error
}

// sender is the part of go-redis's clients that sends commands.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// sender returns a sender for commands about a key with a time limit of limit plus wait. A cluster client's time limit is fixed, so commands
// that wait are sent to the node directly.
func (c *Client) sender(ctx context.Context, key string, wait time.Duration) (sender, error) {
	node := c.server
	if c.cluster != nil {
		if wait == 0 {
			return c.cluster, nil
		}
		var err error
		if node, err = c.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	if wait == 0 || c.limit <= 0 {
		return node, nil
	}
	return node.WithTimeout(c.limit + wait), nil
}

// ask sends commands about a key together on one connection, and returns their replies in order. wait is how long they may wait in the server.
func (c *Client) ask(ctx context.Context, key string, wait time.Duration, commands ...[]any) []reply {
	replies := make([]reply, len(commands))
	fail := func(err error) []reply {
		for i := range replies {
			replies[i].err = err
		}
		return replies
	}
	if c.err != nil {
		return fail(c.err)
	}
	if c.limit > 0 && (wait > 0 || ctx.Done() != nil) {
		limited, cancel := context.WithTimeout(ctx, c.limit+wait)
		defer cancel()
		ctx = limited
	} else if c.limit > 0 {
		ctx = c.deadlines.after(ctx, c.limit)
	}
	to, err := c.sender(ctx, key, wait)
	if err != nil {
		return fail(err)
	}
	// Commands of this type are never repeated by go-redis.
	sent := make([]redis.Cmder, len(commands))
	buffers := make([]*replyBuffer, len(commands))
	for i, words := range commands {
		buffers[i] = takeBuffer()
		defer buffers[i].free()
		sent[i] = redis.NewRawWriteToCmd(ctx, buffers[i], words...)
	}
	if len(sent) == 1 {
		_ = to.Process(ctx, sent[0]) // The error is stored in the command.
	} else {
		pipeline := to.Pipeline()
		for _, one := range sent {
			_ = pipeline.Process(ctx, one) // This only queues the command.
		}
		_, _ = pipeline.Exec(ctx) // The errors are stored in the commands.
	}
	isRefused := false
	for i, one := range sent {
		// A complete reply is used, although go-redis reports the error of a later command for it.
		value, rest, err := parseReply(buffers[i].Bytes())
		if failed := one.Err(); failed != nil && (err != nil || len(rest) > 0) {
			err = failed
		}
		if err != nil {
			var refused refusal
			if errors.As(err, &refused) {
				err, isRefused = refused.answer, true
			}
		}
		replies[i] = reply{value, err}
	}
	if c.cluster != nil && (isRefused || wait > 0 && slices.ContainsFunc(replies, isMoved)) {
		c.cluster.ReloadState(ctx)
	}
	return replies
}

// askAtOnce is like ask, for callers that can ignore late replies: if ctx ends, every command fails at once with the error of ctx.
func (c *Client) askAtOnce(ctx context.Context, key string, wait time.Duration, commands ...[]any) []reply {
	err := ctx.Err()
	if err == nil {
		var replies []reply
		ask := func(ctx context.Context) []reply { return c.ask(ctx, key, wait, commands...) }
		if replies, err = finish(ctx, c, ask, func(context.Context, []reply) {}); err == nil {
			return replies
		}
	}
	return slices.Repeat([]reply{{err: err}}, len(commands))
}

// isMoved reports whether the command must be sent to another node.
func isMoved(one reply) bool {
	return one.err != nil && strings.HasPrefix(one.err.Error(), "MOVED ")
}

// one sends one command.
func (c *Client) one(ctx context.Context, key string, words ...any) (any, error) {
	replies := c.askAtOnce(ctx, key, 0, words)
	return replies[0].value, replies[0].err
}

// isTimeout reports whether a command exceeded its time limit.
func isTimeout(err error) bool {
	if err == nil {
		return false
	}
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &timeout) && timeout.Timeout()
}

// isAnswer reports whether the server has answered, even with an error.
func isAnswer(err error) bool {
	if err == nil {
		return true
	}
	var answer redis.Error
	return errors.As(err, &answer)
}

func unexpected(value any) error {
	return &Error{Kind: ErrUnexpectedReply, Err: fmt.Errorf("%.200v", value)}
}
