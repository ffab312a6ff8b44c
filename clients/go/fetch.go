package bloomgate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// batch is the maximum number of ids sent together.
	batch = 500
	// defaultLeaseMS is the server's default lease.
	defaultLeaseMS = 3000
	// jitter is the largest share by which times to live are shortened at random, so that rows filled together do not expire together.
	jitter = 0.1
	// pause is how long callers query the database directly after the server has timed out, or has refused to end a lease.
	pause = 2 * time.Second
	// warnInterval is the shortest interval between two warnings of a kind.
	warnInterval = time.Minute
)

// errPaused is the answer to a fetch that is not sent during a pause.
var errPaused = errors.New("bloomgate: the server did not answer in time a moment ago")

// answer is the reply of BF.FETCH for one row: hit and stale contain a value, load and stale the token of a lease.
type answer struct {
	word, value, token string
	err                error
}

// elements is the number of elements of each reply.
var elements = map[string]int{"absent": 1, "hit": 2, "load": 2, "wait": 2, "failed": 2, "stale": 3}

func parseAnswer(one reply) answer {
	if one.err != nil && strings.HasPrefix(one.err.Error(), "UNBLOCKED ") {
		// CLIENT UNBLOCK has ended the wait.
		return answer{word: "wait"}
	}
	if one.err != nil {
		return answer{err: withoutModule(one.err)}
	}
	list, _ := one.value.([]any)
	var texts [3]string
	for i, part := range list[:min(len(list), len(texts))] {
		texts[i], _ = part.(string)
	}
	found := answer{word: texts[0]}
	switch {
	case len(list) == 0 || len(list) != elements[found.word]:
		return answer{err: unexpected(one.value)}
	case found.word == "hit":
		found.value = texts[1]
	case found.word == "load":
		found.token = texts[1]
	case found.word == "stale":
		found.value, found.token = texts[1], texts[2]
	}
	return found
}

// shared returns the outcome to share with other flights: the answer without its lease.
func (a answer) shared() outcome {
	if a.word == "stale" {
		a.word = "hit"
	}
	a.token = ""
	return outcome{answer: &a}
}

// leasesIn returns the flights that received a lease, and stores the tokens in them.
func leasesIn(of []*flight, answers []answer) []*flight {
	var found []*flight
	for i, one := range answers {
		if of[i].token = one.token; one.token != "" {
			found = append(found, of[i])
		}
	}
	return found
}

// fetching is how rows are fetched.
type fetching struct {
	// replace requests a lease to replace a value that could not be decoded. Deleting the value instead would be unsafe: every caller that has
	// seen it would delete the first caller's new value.
	replace bool
	// peek fetches without requesting a lease.
	peek bool
	// wait is how long the server may delay the reply. The caller has acquired one of the client's waitPermits.
	wait time.Duration
}

// The events that a guard counts.
var events = []string{
	"absent", "hit", "stale", "load", "wait", "failed", "filled", "lease_lost", "load_failed", "stale_served", "soft_timeout", "unguarded",
	"shared", "undecodable", "errors",
}

// commands sends the commands of one guard, and keeps the state of its server.
type commands struct {
	client        *Client
	filter        string
	prefix        string
	options       options
	feed          *feedKeys
	clock         atomic.Uint64
	flights       *flights
	loads         *flights
	directFetches chan struct{}
	fetches       batcher
	fills         batcher
	counts        map[string]*atomic.Uint64
	background    chan struct{}
	// err makes every call fail: the options are invalid.
	err error

	mutex sync.Mutex
	// pausedUntil is the time until which no fetch is sent.
	pausedUntil time.Time
	// warned is the time of the last warning of each kind.
	warned map[string]time.Time
}

func newCommands(client *Client, filter string, chosen []Option) *commands {
	g := &commands{
		client: client, filter: filter, options: defaults(), counts: map[string]*atomic.Uint64{}, warned: map[string]time.Time{},
		background: make(chan struct{}, backgroundLoads), directFetches: make(chan struct{}, maxDirectFetches),
	}
	g.fetches = batcher{tasks: &client.tasks, most: batchRows, send: g.sendFetches}
	g.fills = batcher{tasks: &client.tasks, most: commandBytes, send: g.sendFills}
	g.flights, g.loads = newFlights(&g.clock), newFlights(&g.clock)
	g.loads.areLoads = true
	for _, choose := range chosen {
		choose(&g.options)
	}
	for _, event := range events {
		g.counts[event] = &atomic.Uint64{}
	}
	err := errors.Join(client.err, g.options.check(client.cluster != nil))
	var nameless error
	if g.options.prefix != nil {
		g.prefix = *g.options.prefix
	} else {
		g.prefix, nameless = CachePrefix(filter)
	}
	if g.options.feed && nameless == nil {
		g.feed, nameless = feedKeysOf(filter)
	}
	g.err = errors.Join(err, nameless)
	return g
}

func (g *commands) count(event string, number int) {
	if number > 0 {
		g.counts[event].Add(uint64(number))
		g.options.observe(event, number)
	}
}

// warn logs a failure that the guard recovers from.
func (g *commands) warn(what string, err error) {
	g.mutex.Lock()
	isDue := time.Since(g.warned[what]) >= warnInterval
	if isDue {
		g.warned[what] = time.Now()
	}
	g.mutex.Unlock()
	if isDue {
		g.options.logger.Warn("bloomgate: "+what, "filter", g.filter, "error", err)
	}
}

// isPaused reports whether to skip the fetch. After a pause, one caller probes the server; the rest stay paused.
func (g *commands) isPaused() bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.pausedUntil.IsZero() {
		return false
	}
	isPaused := time.Now().Before(g.pausedUntil)
	if !isPaused {
		g.pausedUntil = time.Now().Add(pause)
	}
	return isPaused
}

// record logs a failed command. A reply that did not arrive in time begins a pause; any answer ends it.
func (g *commands) record(replies []reply) {
	if at := slices.IndexFunc(replies, func(one reply) bool { return one.err != nil }); at >= 0 {
		g.warn("a command failed", withoutModule(replies[at].err))
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if slices.ContainsFunc(replies, func(one reply) bool { return isTimeout(one.err) }) {
		g.pausedUntil = time.Now().Add(pause)
	} else if slices.ContainsFunc(replies, func(one reply) bool { return isAnswer(one.err) }) {
		g.pausedUntil = time.Time{}
	}
}

// send sends commands as [Client.ask] does, and records whether they were answered.
func (g *commands) send(ctx context.Context, wait time.Duration, words ...[]any) []reply {
	replies := g.client.ask(ctx, g.filter, wait, words...)
	g.record(replies)
	return replies
}

// words returns the beginning of a fetch. Options with the server's default are omitted.
func (g *commands) words(name string, how fetching) []any {
	words := []any{name, g.filter}
	if leaseMS := milliseconds(g.options.lease); leaseMS != defaultLeaseMS {
		words = append(words, "LEASE", leaseMS)
	}
	if staleMS := milliseconds(g.options.failSafe); staleMS > 0 {
		words = append(words, "STALE", staleMS)
	}
	if percent := int64(math.Round(g.options.beta * 100)); percent > 0 {
		words = append(words, "RENEW", percent)
	}
	if g.feed != nil {
		words = append(words, "WHILE", g.feed.heartbeat, "UNLESS", g.feed.inFlight)
	}
	if freshMS := milliseconds(g.options.fresh); freshMS > 0 {
		words = append(words, "FRESH", freshMS)
	}
	if how.replace {
		words = append(words, "REPLACE")
	}
	if how.peek {
		words = append(words, "PEEK")
	}
	if how.wait > 0 {
		words = append(words, "WAIT", milliseconds(how.wait), "BACKOFF")
	}
	return words
}

// fetch fetches rows. If ctx ends before the replies arrive, it returns the error of ctx, and the leases in the replies are given up. The
// common fetch of one row, usually a hit, runs in the caller's goroutine for half the CPU time, and returns when the reply has arrived. Other
// fetches run in their own goroutines and return at once.
func (g *commands) fetch(ctx context.Context, of []*flight, how fetching) ([]answer, error) {
	discard := func(ctx context.Context, answers []answer) { g.giveUp(ctx, leasesIn(of, answers)) }
	detached := context.WithoutCancel(ctx)
	if !how.peek {
		for _, one := range of {
			one.ask()
		}
	}
	switch {
	case how.wait > 0:
		find := func(ctx context.Context) []answer {
			defer func() { <-g.client.waitPermits }()
			return g.find(ctx, idsOf(of), how)
		}
		return finish(ctx, g.client, find, discard)
	case len(of) == 1 && how == (fetching{}) && tryAcquire(g.directFetches):
		defer func() { <-g.directFetches }()
		answers := g.find(detached, idsOf(of), how)
		if err := ctx.Err(); err != nil {
			g.client.tasks.start(func() { discard(detached, answers) })
			return nil, err
		}
		return answers, nil
	}
	mine := &work{ctx: detached, size: len(of), ids: idsOf(of), how: how, done: make(chan struct{})}
	g.fetches.add(mine)
	select {
	case <-mine.done:
		return mine.answers, nil
	case <-ctx.Done():
		g.client.tasks.start(func() {
			<-mine.done
			discard(detached, mine.answers)
		})
		return nil, ctx.Err()
	}
}

// fetchOne fetches the row of a flight.
func (g *commands) fetchOne(ctx context.Context, mine *flight, how fetching) (answer, error) {
	answers, err := g.fetch(ctx, []*flight{mine}, how)
	if err != nil {
		return answer{}, err
	}
	return answers[0], nil
}

// find sends BF.FETCH for one row, or BF.MFETCH for each batch of more, and counts the answers.
func (g *commands) find(ctx context.Context, ids []string, how fetching) []answer {
	answers := make([]answer, 0, len(ids))
	for part := range slices.Chunk(ids, batch) {
		replies := slices.Repeat([]reply{{err: errPaused}}, len(part))
		switch {
		case g.isPaused():
		case len(ids) == 1:
			replies = g.send(ctx, how.wait, slices.Insert(g.words("BF.FETCH", how), 2, any(ids[0]), any(g.prefix+ids[0])))
		default:
			replies = spread(g.send(ctx, 0, g.withKeys(append(g.words("BF.MFETCH", how), "ITEMS"), part))[0], len(part))
		}
		for _, one := range replies {
			found := parseAnswer(one)
			if found.err != nil {
				g.count("errors", 1)
			} else {
				g.count(found.word, 1)
			}
			answers = append(answers, found)
		}
	}
	return answers
}

// withKeys appends ids and their cache keys to a command.
func (g *commands) withKeys(words []any, ids []string) []any {
	for _, id := range ids {
		words = append(words, id, g.prefix+id)
	}
	return words
}

// endLeases sends a BF.FILL for each lease. If the server refuses a fill, it ends the lease. A lease whose connection was lost is given up,
// so that no caller waits until it expires. GIVEUP is not sent after a time-out, because the server would not answer it either.
func (g *commands) endLeases(ctx context.Context, leases []*flight, rest func(i int) []any) []reply {
	all, replies := make([]*work, len(leases)), make([]reply, len(leases))
	for i, one := range leases {
		words := append([]any{"BF.FILL", g.filter, one.id, g.prefix + one.id, one.token}, rest(i)...)
		all[i] = &work{ctx: context.WithoutCancel(ctx), size: fillBytes, words: words, done: make(chan struct{})}
		if value, hasValue := words[len(words)-3].([]byte); hasValue {
			all[i].size += len(value)
		}
	}
	g.fills.add(all...)
	var lost []*flight
	for i, one := range all {
		<-one.done
		if replies[i] = one.reply; !isAnswer(one.reply.err) && !isTimeout(one.reply.err) && len(one.words) > 6 {
			lost = append(lost, leases[i])
		}
	}
	if len(lost) > 0 {
		g.giveUp(ctx, lost)
	}
	return replies
}

// giveUp ends leases, so that other callers may load.
func (g *commands) giveUp(ctx context.Context, leases []*flight) {
	g.endLeases(ctx, leases, func(int) []any { return []any{"GIVEUP"} })
}

// endFailed ends the leases of a cancelled or failed load. After a failure with FailSafe, the server grants no lease for these rows during a
// back-off, which doubles with each failure.
func (g *commands) endFailed(ctx context.Context, leases []*flight, isCancelled bool) {
	if isCancelled || g.options.failSafe == 0 {
		g.giveUp(ctx, leases)
	} else {
		g.endLeases(ctx, leases, func(int) []any { return []any{"GIVEUP", "BACKOFF"} })
	}
}

// fillAll fills rows, nil for rows that do not exist. If ctx ends first, it returns the error of ctx at once, and the fills continue. A token
// outlives its lease, so a delayed fill is still accepted.
func (g *commands) fillAll(ctx context.Context, leases []*flight, values [][]byte, ttl time.Duration) error {
	fill := func(ctx context.Context) []reply {
		replies := g.endLeases(ctx, leases, func(i int) []any {
			if values[i] == nil {
				return []any{"NONE", "PX", jittered(g.options.absentTTL)}
			}
			return []any{"VALUE", values[i], "PX", jittered(ttl) + milliseconds(g.options.failSafe)}
		})
		for _, one := range replies {
			switch {
			case one.err != nil:
				g.count("errors", 1)
			case one.value == nil:
				g.count("lease_lost", 1)
			default:
				g.count("filled", 1)
			}
		}
		return replies
	}
	_, err := finish(ctx, g.client, fill, func(context.Context, []reply) {})
	return err
}

// jittered returns milliseconds that are shortened by up to a tenth, at random.
func jittered(duration time.Duration) int64 {
	ms := milliseconds(duration)
	return max(1, ms-int64(float64(ms)*jitter*rand.Float64()))
}

// spread returns an answer for each row of a command, which itself may have failed.
func spread(one reply, count int) []reply {
	answers, isList := one.value.([]any)
	replies := make([]reply, count)
	for i := range replies {
		switch {
		case i < len(answers):
			replies[i] = split(answers[i])
		case isList:
			replies[i] = reply{err: unexpected(one.value)}
		default:
			replies[i] = one
		}
	}
	return replies
}

// split separates an error inside a reply from other replies.
func split(value any) reply {
	if err, failed := value.(error); failed {
		return reply{err: err}
	}
	return reply{value: value}
}
