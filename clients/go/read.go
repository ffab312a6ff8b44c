package bloomgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// repeat is the pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for.
	repeat = 100 * time.Millisecond
	// early is how long before a caller's deadline a timeout of its load is taken for that deadline.
	early = 100 * time.Millisecond
	// smoothing is the weight of the newest load in the average duration of loads.
	smoothing = 0.2
	// backgroundLoads is the most loads of a guard that continue in the background after its soft timeout.
	backgroundLoads = 64
)

// loader loads rows: one for each id, nil where there is none.
type loader[T any] func(ctx context.Context, ids []string) ([]*T, error)

// known is what is known of a row. With a lease the caller has to load the row, and row is what may be served if that fails.
type known[T any] struct {
	row   *T
	lease *lease
	// isReadable says that a value is cached that the codec can decode, or that there is no row.
	isReadable bool
}

// checkCall refuses a call of a guard with invalid options or with an invalid time to live, and one whose context has ended.
func (g *Guard[T]) checkCall(ctx context.Context, ttl time.Duration) error {
	if g.err != nil {
		return g.err
	}
	if err := ttlRange.check(inMS(ttl)); err != nil {
		return err
	}
	return ctx.Err()
}

// get reads a row.
func (g *Guard[T]) get(ctx context.Context, id string, ttl time.Duration, load loader[T]) (*T, error) {
	if err := g.checkCall(ctx, ttl); err != nil {
		return nil, err
	}
	if g.isLoading(ctx, id) {
		rows, err := g.unguarded(ctx, []string{id}, g.clock.Add(1), load)
		return first(rows), err
	}
	mine := g.flights.begin(id)
	defer mine.end()
	found, err := g.fetchRow(ctx, mine, time.Now().Add(time.Duration(g.options.attempts)*g.options.wait))
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		// The server does not answer, or another caller loads the row and takes too long: query the database, fill nothing.
		mine.end()
		rows, err := g.unguarded(ctx, []string{id}, mine.number, load)
		return first(rows), err
	case found.lease == nil:
		return found.row, nil
	}
	rows, err := g.loadLeased(ctx, []lease{*found.lease}, []*flight{mine}, load, ttl, found.isReadable)
	return first(rows), err
}

// peek returns a row that is cached and not old.
func (g *Guard[T]) peek(ctx context.Context, id string) (*T, error) {
	if err := g.checkCall(ctx, g.options.ttl); err != nil {
		return nil, err
	}
	staleMS := milliseconds(g.options.failSafe)
	answers, err := g.fetch(ctx, []string{id}, fetching{staleMS: &staleMS})
	if err != nil {
		return nil, err
	}
	g.giveUp(ctx, leasesIn([]string{id}, answers))
	if one := answers[0]; one.err == nil && one.word == "hit" {
		row, _ := g.read(one.fetched, nil)
		return row, nil
	}
	return nil, nil
}

// first returns the row of a load of one row, which has none if it failed.
func first[T any](rows []*T) *T {
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// read decodes the value of a reply other than wait. undecodable is a value that the codec has failed on already.
func (g *Guard[T]) read(found fetched, undecodable *string) (row *T, isReadable bool) {
	switch {
	case found.word == "absent":
		return nil, true
	case found.word == "load" || undecodable != nil && *undecodable == found.value:
		return nil, false
	}
	decoded, err := g.codec.Decode([]byte(found.value))
	if err != nil {
		g.count("undecodable", 1)
		g.warn("a cached value could not be decoded, and is replaced", err)
		return nil, false
	}
	return &decoded, true
}

// readLeased reads a reply. A lease in it is given up if the codec panics.
func (g *Guard[T]) readLeased(ctx context.Context, id string, found answer, undecodable *string) (row *T, isReadable bool) {
	hasEnded := false
	defer func() {
		if !hasEnded {
			g.giveUp(ctx, leasesIn([]string{id}, []answer{found}))
		}
	}()
	row, isReadable = g.read(found.fetched, undecodable)
	hasEnded = true
	return row, isReadable
}

// fetchRow fetches a row until the answer is final. It returns nothing if the server fails, or nobody brings the row in time.
func (g *Guard[T]) fetchRow(ctx context.Context, flight *flight, deadline time.Time) (*known[T], error) {
	var undecodable *string
	var given *answer
	replace := false
	for waits := 1; ; {
		if given == nil {
			var err error
			if given, err = g.fetchOne(ctx, flight, fetching{replace: replace}); err != nil {
				return nil, err
			}
		}
		found := *given
		given = nil
		if found.err != nil {
			flight.shares.noServer = true
			return nil, nil
		}
		if found.word != "wait" {
			row, isReadable := g.readLeased(ctx, flight.id, found, undecodable)
			if isReadable && (replace || found.token == "") {
				// With replace, another caller has replaced the value meanwhile. The new one is not due for a refresh.
				g.giveUp(ctx, leasesIn([]string{flight.id}, []answer{found}))
				flight.shares = found.shared()
				return &known[T]{row: row, isReadable: true}, nil
			}
			if found.token != "" {
				return &known[T]{row: row, lease: &lease{flight.id, found.token}, isReadable: isReadable}, nil
			}
			undecodable = &found.value
			if !replace {
				replace = true
				continue
			}
		}
		left := time.Until(deadline)
		if left <= 0 && (waits >= g.options.attempts || g.options.wait == 0) {
			return nil, nil
		}
		waits++
		var err error
		if given, err = g.await(ctx, flight, left, found.word == "hit"); err != nil {
			return nil, err
		}
		replace = false
	}
}

// fetchOne fetches the row of a flight.
func (g *commands) fetchOne(ctx context.Context, flight *flight, how fetching) (*answer, error) {
	flight.ask()
	if how.wait == 0 && !how.replace {
		if !take(g.alone) {
			return g.fetchInTurn(ctx, flight.id)
		}
		how.place = g.alone
	}
	answers, err := g.fetch(ctx, []string{flight.id}, how)
	if err != nil {
		return nil, err
	}
	return &answers[0], nil
}

// await waits for the caller that holds the lease: in this process, or else inside the server. It returns what another caller
// shares, or what the server answers. A server that has a value cached makes nobody wait for another; then, and if half of the
// connections wait in the server already, it pauses.
func (g *commands) await(ctx context.Context, flight *flight, left time.Duration, isCached bool) (*answer, error) {
	if left <= 0 {
		return nil, nil
	}
	if resumed := make(chan struct{}, 1); flight.beginWait(resumed) {
		err := sleep(ctx, left, resumed)
		given := flight.endWait()
		switch {
		case err != nil:
			return nil, err
		case given.err != nil:
			g.count("shared", 1)
			return nil, given.err
		case given.found != nil:
			g.count("shared", 1)
			return &answer{fetched: *given.found}, nil
		}
		return nil, nil
	}
	if isCached || !take(g.client.slots) {
		return nil, sleep(ctx, min(repeat, left), nil)
	}
	wait := max(time.Millisecond, min(g.options.wait, left))
	begun := time.Now()
	found, err := g.fetchOne(ctx, flight, fetching{wait: wait, place: g.client.slots})
	took := time.Since(begun)
	if err != nil || found.err != nil || found.word != "wait" || took >= wait/2 {
		flight.unblocked = false
		return found, err
	}
	// A caller that waits for a lease waits for all of that. A back-off is answered at once, every time; CLIENT UNBLOCK may come once.
	if flight.unblocked && g.options.failSafe > 0 {
		flight.shares.err = &Error{Kind: ErrLoadFailed, IDs: []string{flight.id}}
		return nil, flight.shares.err
	}
	flight.unblocked = true
	return found, sleep(ctx, min(left, repeat)-took, nil)
}

// take takes a place in a channel, if one is free.
func take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// sleep waits for some time, or until a channel is closed. It fails if ctx ends before.
func sleep(ctx context.Context, most time.Duration, ready <-chan struct{}) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// learn takes the duration of a load into the average.
func (g *commands) learn(took time.Duration) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.loadTime == 0 {
		g.loadTime = took
	} else {
		g.loadTime += time.Duration(smoothing * float64(took-g.loadTime))
	}
}

// convert returns loaded rows as they are cached, and as callers get them: as everybody gets them who finds them in the cache.
func (g *Guard[T]) convert(rows []*T) (encoded [][]byte, decoded []*T, err error) {
	encoded, decoded = make([][]byte, len(rows)), make([]*T, len(rows))
	for i, row := range rows {
		if row == nil {
			continue
		}
		if encoded[i], err = g.codec.Encode(*row); err != nil {
			return nil, nil, refused("the codec cannot encode a row: %w", err)
		}
		if encoded[i] == nil {
			encoded[i] = []byte{}
		}
		again, err := g.codec.Decode(encoded[i])
		if err != nil {
			return nil, nil, refused("the codec cannot decode what it has encoded: %w", err)
		}
		decoded[i] = &again
	}
	return encoded, decoded, nil
}

// loading is in the context of a load: the rows that it loads, and the load that it is part of, if any.
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

// isLoading says whether a row is read inside of a load of that row. The lease that it would wait for is its own.
func (g *commands) isLoading(ctx context.Context, id string) bool {
	for one := loadingIn(ctx); one != nil; one = one.outer {
		if one.guard == g && slices.Contains(one.ids, id) {
			return true
		}
	}
	return false
}

// load calls a loader, and returns the rows as they are cached and as callers get them. If the load panics or ends its goroutine, fatal
// gets an error.
func (g *Guard[T]) load(ctx context.Context, ids []string, load loader[T], fatal func(error)) (encoded [][]byte, rows []*T, err error) {
	hasEnded := false
	defer onFatal(&hasEnded, ids, func(failed error) {
		g.count("load_failed", len(ids))
		fatal(failed)
	})
	begun := time.Now()
	inside := context.WithValue(ctx, loadingKey{}, &loading{g.commands, ids, loadingIn(ctx)})
	if rows, err = load(inside, ids); err == nil {
		g.learn(time.Since(begun))
		encoded, rows, err = g.convert(rows)
	}
	if hasEnded = true; err != nil {
		g.count("load_failed", len(ids))
	}
	return encoded, rows, err
}

// loadShared loads the rows of flights into a map, and ends the flights: callers that wait for the load share the rows or the error.
func (g *Guard[T]) loadShared(ctx context.Context, loads []*flight, load loader[T], into map[string]*T) error {
	g.count("unguarded", len(loads))
	ids := make([]string, len(loads))
	for i, one := range loads {
		ids[i] = one.id
		one.ask()
	}
	fail := func(failed error) {
		for _, one := range loads {
			if cancelled(ctx, failed) == nil {
				one.shares = outcome{err: failed}
			}
		}
	}
	defer endAll(loads)
	encoded, rows, err := g.load(ctx, ids, load, fail)
	if err != nil {
		fail(err)
		return err
	}
	for i, one := range loads {
		into[one.id] = rows[i]
		found := fetched{word: "absent"}
		if encoded[i] != nil {
			found = fetched{word: "hit", value: string(encoded[i])}
		}
		one.shares = outcome{found: &found}
	}
	return nil
}

// beginLoads begins flights for loads without leases, of a call that began at since. Those whose rows other callers load wait for these.
func (g *commands) beginLoads(ctx context.Context, ids []string, since uint64, resumed chan<- struct{}) []*flight {
	loads := make([]*flight, len(ids))
	for i, id := range ids {
		loads[i] = g.loads.begin(id)
		loads[i].number = since
		if !g.isLoading(ctx, id) {
			loads[i].beginWait(resumed)
		}
	}
	return loads
}

// unguarded loads rows without leases. While another caller of this process loads one of them, this one waits, and shares a load that began
// after since, the beginning of its call. Inside of a load it does not wait for its own row, and for others for no longer than others wait for
// it at a time: two loads may need each other's rows.
func (g *Guard[T]) unguarded(ctx context.Context, ids []string, since uint64, load loader[T]) ([]*T, error) {
	most := time.Duration(math.MaxInt64)
	if loadingIn(ctx) != nil {
		most = g.options.wait
	}
	begun, resumed := time.Now(), make(chan struct{}, 1)
	loads := g.beginLoads(ctx, ids, since, resumed)
	defer endAll(loads)
	rows := make(map[string]*T, len(ids))
	for left := loads; len(left) > 0; {
		var waiting, mine []*flight
		for _, one := range left {
			waits, given := one.state()
			switch {
			case waits:
				waiting = append(waiting, one)
			case given == (outcome{}):
				mine = append(mine, one)
			default:
				g.count("shared", 1)
				row, err := g.readShared(given)
				if err != nil {
					return nil, err
				}
				rows[one.id] = row
			}
		}
		if len(mine) > 0 {
			if err := g.loadShared(ctx, mine, load, rows); err != nil {
				return nil, err
			}
		}
		if left = waiting; len(left) == 0 {
			break
		}
		if err := sleep(ctx, most-time.Since(begun), resumed); err != nil {
			return nil, err
		}
		if time.Since(begun) >= most {
			for _, one := range left {
				one.endWait()
			}
		}
	}
	ordered := make([]*T, len(ids))
	for i, id := range ids {
		ordered[i] = rows[id]
	}
	return ordered, nil
}

// readShared returns the row or the error of another caller's load.
func (g *Guard[T]) readShared(given outcome) (*T, error) {
	if given.err != nil {
		return nil, given.err
	}
	row, isReadable := g.read(*given.found, nil)
	if !isReadable {
		return nil, refused("the codec cannot decode what it has decoded for another caller")
	}
	return row, nil
}

// loadLeased loads rows under leases, and fills them or gives the leases up. If all of them have old values in the cache
// (hasValues), these are served when the load fails or takes longer than the soft timeout. In the latter case the load continues in
// the background. It returns the rows in the order of their leases. The flights share its error.
func (g *Guard[T]) loadLeased(
	ctx context.Context, leases []lease, flights []*flight, load loader[T], ttl time.Duration, hasValues bool,
) (rows []*T, err error) {
	share := func(err error) {
		for _, flight := range flights {
			if cancelled(ctx, err) == nil {
				flight.shares = outcome{err: err}
			}
		}
	}
	defer func() {
		if err != nil {
			share(err)
		}
	}()
	if g.options.softTimeout == 0 || !hasValues {
		return g.loadAndFill(ctx, leases, load, ttl, hasValues, share)
	}
	select {
	case g.background <- struct{}{}:
	default:
		// Too many loads are running already.
		g.backOff(ctx, leases)
		if old, err := g.oldValues(ctx, leases); old != nil || err != nil {
			g.count("soft_timeout", len(old))
			return old, err
		}
		return g.unguarded(ctx, idsOf(leases), g.clock.Add(1), load)
	}
	// The load is cancelled with its caller until that has gone on with an old value, and at last with the client.
	loading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	withCaller, withClient := context.AfterFunc(ctx, cancel), context.AfterFunc(g.client.closing, cancel)
	var loaded []*T
	var failed error
	done := make(chan struct{})
	g.client.tasks.start(func() {
		defer func() {
			if recover() != nil {
				// The caller may have gone on, so it gets an error.
				g.warn("a load in the background panicked", fmt.Errorf("%w\n%s", failed, debug.Stack()))
			}
			withCaller()
			withClient()
			cancel()
			<-g.background
			close(done)
		}()
		loaded, failed = g.loadAndFill(loading, leases, load, ttl, true, func(err error) { failed = err })
	})
	err = sleep(ctx, g.options.softTimeout, done)
	if err == nil && !isClosed(done) {
		old, ended := g.oldValues(ctx, leases)
		if old != nil {
			withCaller()
			g.count("soft_timeout", len(old))
			return old, nil
		}
		if err = ended; err == nil {
			err = sleep(ctx, math.MaxInt64, done)
		}
	}
	if err != nil {
		return nil, err
	}
	return loaded, failed
}

// loadAndFill loads rows under leases, and fills them or ends the leases. If the load panics or ends its goroutine, fatal gets an error.
func (g *Guard[T]) loadAndFill(
	ctx context.Context, leases []lease, load loader[T], ttl time.Duration, hasValues bool, fatal func(error),
) ([]*T, error) {
	encoded, rows, err := g.load(ctx, idsOf(leases), load, func(failed error) {
		g.endFailed(ctx, leases, failed)
		fatal(failed)
	})
	if err == nil {
		return rows, g.fillAll(ctx, leases, encoded, ttl)
	}
	if ended := g.endFailed(ctx, leases, err); ended != nil {
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return nil, err
	}
	if hasValues {
		if old, _ := g.oldValues(ctx, leases); old != nil {
			g.count("stale_served", len(old))
			g.warn("a load failed, and old values were served", err)
			return old, nil
		}
	}
	return nil, err
}

// endFailed ends the leases of a load that has failed. It returns the error of the context if that has ended the load.
func (g *commands) endFailed(ctx context.Context, leases []lease, failed error) error {
	ended := cancelled(ctx, failed)
	if ended != nil {
		g.giveUp(ctx, leases)
	} else {
		g.backOff(ctx, leases)
	}
	return ended
}

// onFatal is deferred around the caller's functions. If one of them panics or ends its goroutine, share gets an error for other callers,
// and the panic continues.
func onFatal(hasEnded *bool, ids []string, share func(error)) {
	if *hasEnded {
		return
	}
	failed := &Error{Kind: ErrLoadFailed, IDs: ids, Err: errors.New("the load has ended its goroutine")}
	cause := recover()
	if err, isError := cause.(error); isError {
		failed.Err = fmt.Errorf("the load panicked: %w", err)
	} else if cause != nil {
		failed.Err = fmt.Errorf("the load panicked: %v", cause)
	}
	share(failed)
	if cause != nil {
		panic(cause)
	}
}

// cancelled returns the error of a context that has ended a load, or nil if the load failed by itself. A driver that gives the context's
// deadline to its connection, or to the database, fails at that time: often a moment before the context ends.
func cancelled(ctx context.Context, failed error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, isSet := ctx.Deadline(); isSet {
		if left := time.Until(deadline); left <= 0 || left < early && isLate(failed) {
			return context.DeadlineExceeded
		}
	}
	return nil
}

func idsOf(leases []lease) []string {
	ids := make([]string, len(leases))
	for i, one := range leases {
		ids[i] = one.id
	}
	return ids
}

// oldValues fetches values that may be served though they are old. The values that were fetched before a load do not qualify: a row
// may have been changed during the load, and then its value has been deleted. It returns nothing unless all have one.
func (g *Guard[T]) oldValues(ctx context.Context, leases []lease) ([]*T, error) {
	ids := idsOf(leases)
	answers, err := g.fetch(ctx, ids, fetching{staleMS: new(int64)})
	if err != nil {
		return nil, err
	}
	g.giveUp(ctx, leasesIn(ids, answers))
	var rows []*T
	for _, one := range answers {
		if one.err != nil || one.word == "wait" {
			return nil, nil
		}
		row, isReadable := g.read(one.fetched, nil)
		if !isReadable {
			return nil, nil
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// fillAll fills rows, nil where there is none. If ctx ends meanwhile, it returns its error at once, and the fills go on.
func (g *commands) fillAll(ctx context.Context, leases []lease, values [][]byte, ttl time.Duration) error {
	fill := func(ctx context.Context) struct{} {
		g.fillEach(ctx, leases, values, ttl)
		return struct{}{}
	}
	_, err := finish(ctx, g.client, fill, func(context.Context, struct{}) {})
	return err
}

// fillEach fills rows. A lease whose fill the server refuses, because it is out of memory for instance, is given up, so that no caller waits until it
// ends. A server that did not answer in time would not answer GIVEUP either. A token outlives its lease, so a fill that had to wait still counts.
func (g *commands) fillEach(ctx context.Context, leases []lease, values [][]byte, ttl time.Duration) {
	words := make([][]any, len(leases))
	for i, one := range leases {
		if values[i] == nil {
			words[i] = g.fill(one, "NONE", "PX", jittered(g.options.absentTTL))
		} else {
			words[i] = g.fill(one, "VALUE", values[i], "PX", jittered(ttl)+milliseconds(g.options.failSafe))
		}
	}
	var refused []lease
	for i, one := range g.fillInTurn(ctx, words...) {
		switch {
		case one.err != nil:
			g.count("errors", 1)
			if !isLate(one.err) {
				refused = append(refused, leases[i])
			}
		case one.value == nil:
			g.count("lease_lost", 1)
		default:
			g.count("filled", 1)
		}
	}
	g.giveUp(ctx, refused)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, one := range leases {
		delete(g.failing, one.id)
	}
}

// jittered returns milliseconds that are shortened by up to a tenth, at random.
func jittered(duration time.Duration) int64 {
	ms := milliseconds(duration)
	return max(1, ms-int64(float64(ms)*jitter*rand.Float64()))
}

// backOff ends the leases of rows whose load has failed. With FailSafe, nobody gets another lease for them before a back-off has
// passed. A server that does not know BACKOFF ends the leases only.
func (g *commands) backOff(ctx context.Context, leases []lease) {
	if g.options.failSafe == 0 {
		g.giveUp(ctx, leases)
		return
	}
	var words [][]any
	for _, one := range leases {
		words = append(words, g.fill(one, "GIVEUP", "BACKOFF", g.nextBackOffMS(one.id)))
	}
	var refused []lease
	for i, one := range g.fillInTurn(ctx, words...) {
		if one.err != nil && !isLate(one.err) {
			refused = append(refused, leases[i])
		}
	}
	g.giveUp(ctx, refused)
}

// nextBackOffMS counts a failed load of a row, and returns how long nobody may try again.
func (g *commands) nextBackOffMS(id string) int64 {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	before := g.failing[id].number
	g.failing[id] = failures{before + 1, time.Now()}
	if len(g.failing) > mostFailing {
		oldest := id
		for other, of := range g.failing {
			if of.last.Before(g.failing[oldest].last) {
				oldest = other
			}
		}
		delete(g.failing, oldest)
	}
	return int64(min(firstBackOffMS<<min(before, 16), mostBackOffMS))
}
