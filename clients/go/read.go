package bloomgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// retryInterval is the pause before a confirmation is repeated, and before a row is fetched again if no permit is free.
	retryInterval = 100 * time.Millisecond
	// deadlineMargin is the interval before a caller's deadline in which a time-out of its load counts as the caller's deadline.
	deadlineMargin = 100 * time.Millisecond
	// backgroundLoads is the maximum number of a guard's loads that run in the background after its soft timeout.
	backgroundLoads = 64
)

// loader loads rows: one for each id, nil where there is none.
type loader[T any] func(ctx context.Context, ids []string) ([]*T, error)

// call is a call of Get or GetMany. since is its beginning by the guard's clock.
type call[T any] struct {
	*Guard[T]
	load  loader[T]
	ttl   time.Duration
	since uint64
}

// begin begins a call. It fails if the guard's options or the time to live are invalid, or if the context has ended.
func (g *Guard[T]) begin(ctx context.Context, ttl time.Duration, load loader[T]) (*call[T], error) {
	if g.err != nil {
		return nil, g.err
	}
	if err := ttlRange.check(inMS(ttl)); err != nil {
		return nil, err
	}
	return &call[T]{g, load, ttl, g.clock.Add(1)}, ctx.Err()
}

// get reads a row.
func (c *call[T]) get(ctx context.Context, id string) (*T, error) {
	rows := map[string]*T{}
	unsettled, err := []string{id}, error(nil)
	if !c.isLoading(ctx, id) {
		unsettled, err = c.read(ctx, id, time.Now().Add(time.Duration(c.options.attempts)*c.options.wait), rows)
	}
	if err == nil {
		err = c.unguarded(ctx, unsettled, rows)
	}
	return rows[id], err
}

// peek returns a row that is cached and not old.
func (g *Guard[T]) peek(ctx context.Context, id string) (*T, error) {
	if _, err := g.begin(ctx, g.options.ttl, nil); err != nil {
		return nil, err
	}
	mine := &flight{flights: g.flights, id: id}
	found, err := g.fetchOne(ctx, mine, fetching{})
	if err != nil {
		return nil, err
	}
	g.giveUp(ctx, leasesIn([]*flight{mine}, []answer{found}))
	if row, isKnown, _ := g.decode(found); isKnown && found.word == "hit" {
		return row, nil
	}
	return nil, nil
}

// getMany reads rows.
func (c *call[T]) getMany(ctx context.Context, ids []string) (map[string]T, error) {
	rows := make(map[string]*T, len(ids))
	var left, direct []string
	for _, id := range ids {
		if _, isSeen := rows[id]; isSeen {
			continue
		}
		if rows[id] = nil; c.isLoading(ctx, id) {
			direct = append(direct, id)
		} else {
			left = append(left, id)
		}
	}
	for deadline := time.Now().Add(c.options.wait); len(left) > 0; {
		waiting, failed, err := c.readAll(ctx, left, time.Time{}, rows)
		if err != nil {
			return nil, err
		}
		direct = append(direct, failed...)
		if left = waiting; len(left) == 0 || !time.Now().Before(deadline) {
			break
		}
		// By then most of the other rows are loaded, too.
		unsettled, err := c.read(ctx, left[0], deadline, rows)
		if err != nil {
			return nil, err
		}
		if len(unsettled) > 0 {
			break
		}
		left = left[1:]
	}
	if err := c.unguarded(ctx, append(direct, left...), rows); err != nil {
		return nil, err
	}
	found := make(map[string]T, len(rows))
	for id, row := range rows {
		if row != nil {
			found[id] = *row
		}
	}
	return found, nil
}

// read reads a row into a map, or waits for a caller that loads it. It returns the id if the server fails, or if no load completes before the
// deadline.
func (c *call[T]) read(ctx context.Context, id string, deadline time.Time, into map[string]*T) (unsettled []string, err error) {
	waiting, failed, err := c.readAll(ctx, []string{id}, deadline, into)
	return append(waiting, failed...), err
}

// readAll reads rows into a map. With a deadline it waits for a caller that loads the only row. It returns the ids of rows that other callers
// load, and the ids for which the server failed.
func (c *call[T]) readAll(ctx context.Context, ids []string, deadline time.Time, into map[string]*T) (waiting, failed []string, err error) {
	mine := make([]*flight, len(ids))
	for i, id := range ids {
		mine[i] = c.flights.begin(id, c.since)
	}
	defer func() { endAll(mine) }()
	answers, err := c.fetch(ctx, mine, fetching{})
	for err == nil {
		waiting, failed, err = c.settle(ctx, mine, answers, into)
		left := time.Until(deadline)
		if err != nil || len(waiting) == 0 || left <= 0 {
			return waiting, failed, err
		}
		answers = make([]answer, 1)
		answers[0], err = c.await(ctx, mine[0], left)
	}
	return nil, nil, err
}

// settle stores the rows of answers in a map, and loads the rows with leases. It fetches rows again whose values cannot be decoded. It returns
// the ids of rows that other callers load, and the ids for which the server failed.
func (c *call[T]) settle(ctx context.Context, of []*flight, answers []answer, into map[string]*T) (waiting, failed []string, err error) {
	var leases, unused, others []*flight
	hasValues := true
	defer func() { c.giveUp(ctx, unused) }()
	for len(of) > 0 {
		var unreadable, replaced []*flight
		// If the codec panics, all leases are given up.
		unused = slices.Concat(leases, leasesIn(of, answers))
		for i, one := range answers {
			mine := of[i]
			row, isKnown, broken := c.decode(one)
			switch {
			case one.token != "" && isKnown && mine.replaces:
				// Another caller has replaced the value in the meantime.
				replaced = append(replaced, mine)
				fallthrough
			case isKnown && one.token == "":
				into[mine.id] = row
				mine.share(one.shared())
			case one.token != "":
				leases, hasValues = append(leases, mine), hasValues && isKnown
				continue
			case one.err != nil:
				failed = append(failed, mine.id)
				mine.share(one.shared())
			case one.word == "failed":
				err = &Error{Kind: ErrLoadFailed, IDs: []string{mine.id}}
				mine.share(outcome{err: err})
			case broken != nil && !mine.replaces:
				c.count("undecodable", 1)
				c.warn("a cached value could not be decoded, and is replaced", broken)
				mine.replaces, unreadable = true, append(unreadable, mine)
				continue
			default:
				waiting = append(waiting, mine.id)
			}
			others = append(others, mine)
		}
		c.giveUp(ctx, replaced)
		if unused, of = leases, unreadable; err == nil && len(of) > 0 {
			answers, err = c.fetch(ctx, of, fetching{replace: true})
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if unused = nil; len(leases) == 0 {
		return waiting, failed, nil
	}
	// Only flights with a lease will load a row, so no caller in this process needs to wait for the others.
	endAll(others)
	rows, err := c.loadLeased(ctx, leases, hasValues)
	for i, row := range rows {
		into[leases[i].id] = row
	}
	return waiting, failed, err
}

// decode returns the row in an answer, and whether the answer determines if the row exists. err is the error of the codec.
func (g *Guard[T]) decode(one answer) (row *T, isKnown bool, err error) {
	if one.word != "hit" && one.word != "stale" {
		return nil, one.word == "absent", nil
	}
	decoded, err := g.codec.Decode([]byte(one.value))
	return &decoded, err == nil, err
}

// await waits for the holder of the lease, in this process or inside the server. It returns the outcome that another caller shares, or the
// server's answer. If half of the connections are waiting in the server, it sleeps and fetches again.
func (g *commands) await(ctx context.Context, mine *flight, left time.Duration) (answer, error) {
	if resumed := make(chan struct{}, 1); mine.wait(resumed) {
		_, err := sleep(ctx, left, resumed)
		_, given := mine.stop(true)
		switch {
		case err != nil:
			return answer{}, err
		case given == (outcome{}):
			return g.fetchOne(ctx, mine, fetching{})
		}
		g.count("shared", 1)
		if given.err != nil {
			return answer{}, given.err
		}
		return *given.answer, nil
	}
	how := fetching{replace: mine.replaces}
	if !tryAcquire(g.client.waitPermits) {
		if _, err := sleep(ctx, min(retryInterval, left), nil); err != nil {
			return answer{}, err
		}
		return g.fetchOne(ctx, mine, how)
	}
	begun := time.Now()
	how.wait = max(time.Millisecond, min(g.options.wait, left))
	found, err := g.fetchOne(ctx, mine, how)
	if err == nil && found.word == "wait" {
		// CLIENT UNBLOCK has ended the wait.
		_, err = sleep(ctx, min(retryInterval, left)-time.Since(begun), nil)
	}
	return found, err
}

// tryAcquire acquires a permit, an element of a channel, and returns whether one was free.
func tryAcquire(permits chan struct{}) bool {
	select {
	case permits <- struct{}{}:
		return true
	default:
		return false
	}
}

// sleep waits for some time, or until a channel is closed or receives a value (isReady). It fails if ctx ends first.
func sleep(ctx context.Context, most time.Duration, ready <-chan struct{}) (isReady bool, err error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ready:
		return true, nil
	case <-ctx.Done():
		err = ctx.Err()
	}
	return false, err
}

// convert returns loaded rows encoded, and decoded again, so that every caller gets the value that the cache would return.
func (g *Guard[T]) convert(rows []*T) (encoded [][]byte, decoded []*T, err error) {
	encoded, decoded = make([][]byte, len(rows)), make([]*T, len(rows))
	for i, row := range rows {
		if row == nil {
			continue
		}
		data, err := g.codec.Encode(*row)
		if err != nil {
			return nil, nil, refused("the codec cannot encode a row: %w", err)
		}
		again, err := g.codec.Decode(data)
		if err != nil {
			return nil, nil, refused("the codec cannot decode its own encoding: %w", err)
		}
		// An empty slice is a row, too.
		encoded[i], decoded[i] = append([]byte{}, data...), &again
	}
	return encoded, decoded, nil
}

// loading is stored in the context of a load: its rows, and the load that it is part of, if any.
type loading struct {
	guard *commands
	ids   []string
	outer *loading
}

type loadingKey struct{}

func loadingIn(ctx context.Context) *loading {
	found, _ := ctx.Value(loadingKey{}).(*loading)
	return found
}

// isLoading reports whether a row is read inside a load of that row, which would wait for its own lease.
func (g *commands) isLoading(ctx context.Context, id string) bool {
	for one := loadingIn(ctx); one != nil; one = one.outer {
		if one.guard == g && slices.Contains(one.ids, id) {
			return true
		}
	}
	return false
}

// run calls the loader for the rows of flights, which share the rows, or the error unless the caller was cancelled. It returns the rows
// encoded and decoded. If the load fails, panics or ends its goroutine, failed is called first.
func (c *call[T]) run(ctx context.Context, loads []*flight, failed func(isCancelled bool)) (encoded [][]byte, rows []*T, err error) {
	ids := idsOf(loads)
	fail := func(err error) error {
		c.count("load_failed", len(ids))
		ended := cancelled(ctx, err)
		if failed(ended != nil); ended == nil {
			shareAll(loads, outcome{err: err})
		}
		return ended
	}
	hasEnded := false
	defer func() {
		if !hasEnded {
			cause := recover()
			_ = fail(fatal(ids, cause))
			if cause != nil {
				panic(cause)
			}
		}
	}()
	inside := context.WithValue(ctx, loadingKey{}, &loading{c.commands, ids, loadingIn(ctx)})
	if rows, err = c.load(inside, ids); err == nil {
		encoded, rows, err = c.convert(rows)
	}
	if hasEnded = true; err != nil {
		if ended := fail(err); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return nil, nil, err
	}
	for i, one := range loads {
		found := answer{word: "absent"}
		if encoded[i] != nil {
			found = answer{word: "hit", value: string(encoded[i])}
		}
		one.share(found.shared())
	}
	return encoded, rows, nil
}

// fatal returns the error for other callers of a load that panicked or ended its goroutine.
func fatal(ids []string, cause any) error {
	failed := &Error{Kind: ErrLoadFailed, IDs: ids, Err: errors.New("the load ended its goroutine")}
	if err, isError := cause.(error); isError {
		failed.Err = fmt.Errorf("the load panicked: %w", err)
	} else if cause != nil {
		failed.Err = fmt.Errorf("the load panicked: %v", cause)
	}
	return failed
}

// cancelled returns the error of a context that has ended a load, or nil if the load failed by itself. A driver that passes the context's
// deadline to its connection or to the database often fails a moment before the context ends.
func cancelled(ctx context.Context, failed error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, isSet := ctx.Deadline(); isSet {
		if left := time.Until(deadline); left <= 0 || left < deadlineMargin && isTimeout(failed) {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// unguarded loads rows without leases. While another caller of this process loads one of them, this caller waits, and shares a load that began
// after its call. Inside a load it does not wait for its own row, and waits for other rows only as long as one wait: two loads may need each
// other's rows.
func (c *call[T]) unguarded(ctx context.Context, ids []string, into map[string]*T) error {
	most := time.Duration(math.MaxInt64)
	if loadingIn(ctx) != nil {
		most = c.options.wait
	}
	begun, resumed := time.Now(), make(chan struct{}, 1)
	all := make([]*flight, len(ids))
	for i, id := range ids {
		if all[i] = c.loads.begin(id, c.since); !c.isLoading(ctx, id) {
			all[i].wait(resumed)
		}
	}
	defer endAll(all)
	for left := all; len(left) > 0; {
		var waiting, mine []*flight
		isOver := time.Since(begun) >= most
		for _, one := range left {
			waits, given := one.stop(isOver)
			switch {
			case waits:
				waiting = append(waiting, one)
				continue
			case given == (outcome{}):
				mine = append(mine, one)
				one.ask()
				continue
			}
			c.count("shared", 1)
			if given.err != nil {
				return given.err
			}
			row, _, err := c.decode(*given.answer)
			if err != nil {
				return refused("the codec cannot decode a value that it decoded for another caller: %w", err)
			}
			into[one.id] = row
		}
		if len(mine) > 0 {
			c.count("unguarded", len(mine))
			_, rows, err := c.run(ctx, mine, func(bool) {})
			if err != nil {
				return err
			}
			for i, row := range rows {
				into[mine[i].id] = row
			}
			endAll(mine)
		}
		if left = waiting; len(left) > 0 {
			if _, err := sleep(ctx, most-time.Since(begun), resumed); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadLeased loads rows under leases, and fills them or gives the leases up. If old values of all rows are cached (hasValues), they are
// returned if the load fails or exceeds the soft timeout; in the latter case the load continues in the background. It returns the rows in the
// order of their leases. The flights share the rows, or the error.
func (c *call[T]) loadLeased(ctx context.Context, leases []*flight, hasValues bool) ([]*T, error) {
	if c.options.softTimeout == 0 || !hasValues {
		return c.loadAndFill(ctx, leases, hasValues)
	}
	if !tryAcquire(c.background) {
		// Too many loads are running in the background.
		if old, err := c.oldValues(ctx, leases); old != nil || err != nil {
			c.endFailed(ctx, leases, err != nil)
			c.count("soft_timeout", len(old))
			return old, err
		}
		return c.loadAndFill(ctx, leases, hasValues)
	}
	// The load is cancelled with its caller, unless the caller has returned an old value; it is always cancelled with the client.
	loading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	withCaller, withClient := context.AfterFunc(ctx, cancel), context.AfterFunc(c.client.closing, cancel)
	var loaded []*T
	// This remains the error if the load does not return.
	failed := fatal(idsOf(leases), nil)
	done := make(chan struct{})
	c.client.tasks.start(func() {
		defer func() {
			if cause := recover(); cause != nil {
				// The caller may have returned already, so the panic becomes an error.
				failed = fatal(idsOf(leases), cause)
				c.warn("a load in the background panicked", fmt.Errorf("%w\n%s", failed, debug.Stack()))
			}
			withCaller()
			withClient()
			cancel()
			<-c.background
			close(done)
		}()
		loaded, failed = c.loadAndFill(loading, leases, true)
	})
	isDone, err := sleep(ctx, c.options.softTimeout, done)
	if err == nil && !isDone {
		var old []*T
		if old, err = c.oldValues(ctx, leases); old != nil {
			withCaller()
			c.count("soft_timeout", len(old))
			return old, nil
		}
	}
	if err == nil {
		_, err = sleep(ctx, math.MaxInt64, done)
	}
	if err != nil {
		return nil, err
	}
	return loaded, failed
}

// loadAndFill loads rows under leases, and fills them or ends the leases.
func (c *call[T]) loadAndFill(ctx context.Context, leases []*flight, hasValues bool) ([]*T, error) {
	servesOld := false
	encoded, rows, err := c.run(ctx, leases, func(isCancelled bool) {
		servesOld = hasValues && !isCancelled
		c.endFailed(ctx, leases, isCancelled)
	})
	if err == nil {
		return rows, c.fillAll(ctx, leases, encoded, c.ttl)
	}
	if servesOld {
		if old, _ := c.oldValues(ctx, leases); old != nil {
			shareAll(leases, outcome{})
			c.count("stale_served", len(old))
			c.warn("a load failed, and old values were served", err)
			return old, nil
		}
	}
	return nil, err
}

// oldValues fetches cached values that may be old. Values that were fetched before a load must not be used: a row may have changed during the
// load, which deletes its value. It returns nothing unless all rows have a value.
func (c *call[T]) oldValues(ctx context.Context, of []*flight) ([]*T, error) {
	answers, err := c.fetch(ctx, of, fetching{peek: true})
	if err != nil {
		return nil, err
	}
	rows := make([]*T, len(answers))
	for i, one := range answers {
		isKnown := false
		if rows[i], isKnown, _ = c.decode(one); !isKnown {
			return nil, nil
		}
	}
	return rows, nil
}
