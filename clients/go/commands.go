package bloomgate

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// batch is the most ids that are sent together.
	batch = 500
	// jitter is the share by up to which times to live are shortened, at random: rows that are filled together do not expire
	// together.
	jitter = 0.1
	// anyAgeMS is the longest STALE that BF.FETCH accepts. Every value with a time to live has less than this left.
	anyAgeMS = 1 << 61
	// slowLoad is the time of loads whose renewals should not come together. Faster ones are over soon.
	slowLoad = 50 * time.Millisecond
	// pause is how long callers query the database at once after the server has not answered in time, or has refused to end a lease.
	pause = 2 * time.Second
	// warnEvery is how often a guard warns of each kind of trouble at most.
	warnEvery = time.Minute
	// firstBackOffMS is the back-off after the first failed load of a row. It doubles with each further failure, up to
	// mostBackOffMS.
	firstBackOffMS, mostBackOffMS = 100, 10_000
	// mostFailing is the most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is
	// forgotten.
	mostFailing = 10_000
)

// errPaused is the answer to a fetch that is not sent.
var errPaused = errors.New("bloomgate: the server did not answer in time a moment ago")

// fetched is a reply of BF.FETCH: hit and stale have a value, load and stale the token of a lease.
type fetched struct{ word, value, token string }

func parseFetched(one reply) (fetched, error) {
	if one.err != nil && strings.HasPrefix(one.err.Error(), "UNBLOCKED ") {
		// CLIENT UNBLOCK has ended the wait.
		return fetched{word: "wait"}, nil
	}
	if one.err != nil {
		return fetched{}, withoutModule(one.err)
	}
	parts, _ := one.value.([]any)
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i], _ = part.(string)
	}
	switch {
	case len(texts) == 1 && texts[0] == "absent":
		return fetched{word: "absent"}, nil
	case len(texts) == 2 && texts[0] == "hit":
		return fetched{word: "hit", value: texts[1]}, nil
	case len(texts) == 2 && texts[0] == "load":
		return fetched{word: "load", token: texts[1]}, nil
	case len(texts) == 2 && texts[0] == "wait":
		return fetched{word: "wait"}, nil
	case len(texts) == 3 && texts[0] == "stale":
		return fetched{word: "stale", value: texts[1], token: texts[2]}, nil
	}
	return fetched{}, unexpected(one.value)
}

// shared returns what a flight with this answer shares: the answer without its lease.
func (f fetched) shared() outcome {
	if f.word == "absent" {
		return outcome{found: &f}
	}
	return outcome{found: &fetched{word: "hit", value: f.value}}
}

// answer is the reply for one row.
type answer struct {
	fetched
	err error
}

// lease is a row that this caller has to load.
type lease struct{ id, token string }

// leasesIn returns the leases in some answers.
func leasesIn(ids []string, answers []answer) []lease {
	var found []lease
	for i, one := range answers {
		if one.token != "" {
			found = append(found, lease{ids[i], one.token})
		}
	}
	return found
}

// fetching is how rows are fetched.
type fetching struct {
	// replace is for rows whose cached value could not be decoded: it asks for the lease to replace the value. STALE with the
	// longest time gives one caller a token for any value with a time to live; a value without one, which is never stale, gets one
	// first. Deleting the value instead would not be safe: every caller that has seen it would delete what the first of them has
	// filled since.
	replace bool
	// wait is how long the server may hold the reply back.
	wait time.Duration
	// staleMS replaces the guard's STALE.
	staleMS *int64
	// place is the channel in which the caller has taken a place until the replies have arrived, by default that of fetches of many rows.
	place chan struct{}
}

// The events that a guard counts.
var events = []string{
	"absent", "hit", "stale", "load", "wait", "filled", "lease_lost", "load_failed", "stale_served", "soft_timeout", "unguarded",
	"shared", "undecodable", "errors",
}

// commands are the commands of one guard, and what it has learned of its server and its database.
type commands struct {
	client     *Client
	filter     string
	prefix     string
	options    options
	feed       *feedKeys
	clock      atomic.Uint64
	flights    flights
	loads      flights
	alone      chan struct{}
	together   chan struct{}
	fetches    turns[waitingRow]
	fills      turns[waitingFill]
	counts     map[string]*atomic.Uint64
	background chan struct{}

	mutex sync.Mutex
	// loadTime is the average duration of loads.
	loadTime time.Duration
	// failing has how often in succession the load of each row has failed, and when it failed last.
	failing map[string]failures
	// pausedUntil is until when no fetch is sent.
	pausedUntil time.Time
	// warned has when each kind of trouble was logged last.
	warned map[string]time.Time
}

type failures struct {
	number int
	last   time.Time
}

func newCommands(client *Client, filter string, chosen []Option) (*commands, error) {
	g := &commands{
		client: client, filter: filter, options: defaults(), counts: map[string]*atomic.Uint64{}, failing: map[string]failures{},
		warned: map[string]time.Time{}, background: make(chan struct{}, backgroundLoads), alone: make(chan struct{}, mostAlone),
		together: make(chan struct{}, mostTogether),
	}
	g.fetches.take, g.fetches.send = func(waiting []waitingRow) int { return min(turnRows, len(waiting)) }, g.fetchPart
	g.fills.take, g.fills.send = takeFills, g.fillPart
	g.flights.clock, g.loads.clock, g.loads.areLoads = &g.clock, &g.clock, true
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
	return g, errors.Join(err, nameless)
}

func (g *commands) count(event string, number int) {
	if number > 0 {
		g.counts[event].Add(uint64(number))
		g.options.observe(event, number)
	}
}

// warn logs trouble that the guard goes on after.
func (g *commands) warn(what string, err error) {
	g.mutex.Lock()
	isDue := time.Since(g.warned[what]) >= warnEvery
	if isDue {
		g.warned[what] = time.Now()
	}
	g.mutex.Unlock()
	if isDue {
		g.options.logger.Warn("bloomgate: "+what, "filter", g.filter, "error", err)
	}
}

// isPaused says whether a fetch has to be left out. After a pause one caller fetches, while the pause goes on for the others.
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

// record logs a failed command. It begins a pause if a reply did not arrive in time; any answer ends it.
func (g *commands) record(replies []reply) {
	var failed error
	late, answered := false, false
	for _, one := range replies {
		if failed == nil {
			failed = one.err
		}
		late = late || isLate(one.err)
		answered = answered || isAnswer(one.err)
	}
	if failed != nil {
		g.warn("a command failed", failed)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if late {
		g.pausedUntil = time.Now().Add(pause)
	} else if answered {
		g.pausedUntil = time.Time{}
	}
}

// send sends commands as [Client.ask] does, and records whether they were answered.
func (g *commands) send(ctx context.Context, wait time.Duration, words ...[]any) []reply {
	replies := g.client.ask(ctx, g.filter, wait, words...)
	g.record(replies)
	return replies
}

// staleMS returns the STALE of a fetch: one caller refreshes a value with less than this to live.
//
// A value with less than FailSafe left is due. Before that, it is renewed with a probability that grows as its end approaches, and
// the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB
// 2015, figure 3.
func (g *commands) staleMS() int64 {
	earlyMS := g.averageLoad().Seconds() * 1000 * g.options.beta * -math.Log(1-rand.Float64())
	return int64(min(anyAgeMS, float64(milliseconds(g.options.failSafe))+earlyMS))
}

func (g *commands) averageLoad() time.Duration {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.loadTime
}

func (g *commands) fetchOptions(words []any, staleMS int64) []any {
	words = append(words, "LEASE", milliseconds(g.options.lease))
	if staleMS > 0 {
		words = append(words, "STALE", staleMS)
	}
	if g.feed != nil {
		words = append(words, "WHILE", g.feed.heartbeat, "UNLESS", g.feed.inFlight)
	}
	return words
}

// fetch fetches rows. If ctx ends before the replies arrive, it returns ctx's error, and gives up the leases in the replies. A usual fetch, which most often
// is a hit, runs in the caller's own goroutine, for half of the CPU time: then fetch returns when the replies have arrived. Others run in
// goroutines of their own, and it returns at once.
func (g *commands) fetch(ctx context.Context, ids []string, how fetching) ([]answer, error) {
	if how.place == nil {
		select {
		case g.together <- struct{}{}:
			how.place = g.together
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	find := func(ctx context.Context) []answer {
		defer func() { <-how.place }()
		return g.find(ctx, ids, how)
	}
	abandon := func(ctx context.Context, answers []answer) { g.giveUp(ctx, leasesIn(ids, answers)) }
	if isUsual := how == (fetching{place: how.place}); !isUsual {
		return finish(ctx, g.client, find, abandon)
	}
	answers := find(context.WithoutCancel(ctx))
	if err := ctx.Err(); err != nil {
		g.client.tasks.start(func() { abandon(context.WithoutCancel(ctx), answers) })
		return nil, err
	}
	return answers, nil
}

// find asks for rows, and counts the answers.
//
// An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would overwrite
// them. Such a row is read from the database.
func (g *commands) find(ctx context.Context, ids []string, how fetching) []answer {
	answers := make([]answer, len(ids))
	sent, places := make([]string, 0, len(ids)), make([]int, 0, len(ids))
	isPaused := g.isPaused()
	for i, id := range ids {
		if isPaused {
			answers[i].err = errPaused
		} else if g.feed != nil && g.feed.own(g.prefix+id) {
			answers[i].err = refused("the cache key of %q is a key of the follower", id)
		} else {
			sent, places = append(sent, id), append(places, i)
		}
	}
	if isPaused {
		return answers
	}
	var found []answer
	switch {
	case len(sent) > 1 && !how.replace:
		found = g.findTogether(ctx, sent, how.staleMS)
	case len(sent) > 0:
		found = g.findEach(ctx, sent, how)
	}
	for i, one := range found {
		answers[places[i]] = one
	}
	for _, one := range answers {
		if one.err != nil {
			g.count("errors", 1)
		} else {
			g.count(one.word, 1)
		}
	}
	return answers
}

// findTogether sends BF.MFETCH.
func (g *commands) findTogether(ctx context.Context, ids []string, staleMS *int64) []answer {
	groups := g.staleGroups(len(ids), staleMS)
	var words [][]any
	for _, group := range groups {
		fetch := append(g.fetchOptions([]any{"BF.MFETCH", g.filter}, group.staleMS), "ITEMS")
		for _, place := range group.places {
			fetch = append(fetch, ids[place], g.prefix+ids[place])
		}
		words = append(words, fetch)
	}
	answers := make([]answer, len(ids))
	for i, one := range g.send(ctx, 0, words...) {
		for j, row := range spread(one, len(groups[i].places)) {
			found := &answers[groups[i].places[j]]
			found.fetched, found.err = parseFetched(row)
		}
	}
	return answers
}

// staleGroups returns rows by the STALE of their fetch. If all rows of a batch shared what is drawn for their renewal, a large
// number would renew all that expire soon, at once. So slow loads are drawn for each row, and rows with similar numbers are fetched
// together.
func (g *commands) staleGroups(count int, fixedMS *int64) []group {
	var groups []group
	isSlow := fixedMS == nil && g.averageLoad().Seconds()*g.options.beta >= slowLoad.Seconds()
	drawn := g.staleMS()
	if fixedMS != nil {
		drawn = *fixedMS
	}
	byLength := map[int]int{}
	for place := range count {
		if isSlow {
			drawn = g.staleMS()
		}
		length := bits.Len64(uint64(max(0, drawn-milliseconds(g.options.failSafe))))
		at, isKnown := byLength[length]
		if !isKnown {
			at = len(groups)
			byLength[length] = at
			groups = append(groups, group{staleMS: drawn})
		}
		groups[at].staleMS = min(groups[at].staleMS, drawn)
		groups[at].places = append(groups[at].places, place)
	}
	return groups
}

// group is rows that are fetched with one STALE, by their places among the ids.
type group struct {
	staleMS int64
	places  []int
}

// findEach sends a BF.FETCH for each row, all together.
func (g *commands) findEach(ctx context.Context, ids []string, how fetching) []answer {
	var words [][]any
	for _, id := range ids {
		staleMS := int64(anyAgeMS)
		switch {
		case how.replace:
			words = append(words, []any{"PEXPIRE", g.prefix + id, milliseconds(g.options.ttl), "NX"})
		case how.staleMS != nil:
			staleMS = *how.staleMS
		default:
			staleMS = g.staleMS()
		}
		fetch := g.fetchOptions([]any{"BF.FETCH", g.filter, id, g.prefix + id}, staleMS)
		if how.wait > 0 {
			fetch = append(fetch, "WAIT", milliseconds(how.wait))
		}
		words = append(words, fetch)
	}
	replies := g.send(ctx, how.wait, words...)
	each := len(words) / len(ids)
	answers := make([]answer, len(ids))
	for i := range answers {
		answers[i].fetched, answers[i].err = parseFetched(replies[i*each+each-1])
	}
	return answers
}

// fill returns a command about a lease.
func (g *commands) fill(one lease, rest ...any) []any {
	return append([]any{"BF.FILL", g.filter, one.id, g.prefix + one.id, one.token}, rest...)
}

// giveUp ends leases, so that other callers may load.
func (g *commands) giveUp(ctx context.Context, leases []lease) {
	var words [][]any
	for _, one := range leases {
		words = append(words, g.fill(one, "GIVEUP"))
	}
	if len(words) == 0 {
		return
	}
	replies := g.fillInTurn(ctx, words...)
	if slices.ContainsFunc(replies, func(one reply) bool { return one.err != nil && strings.HasPrefix(one.err.Error(), "NOPERM") }) {
		// The user may not fill, so others would wait until the leases end: they ask the database for a while.
		g.beginPause()
	}
}

// beginPause begins a pause, in which no fetch is sent.
func (g *commands) beginPause() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.pausedUntil = time.Now().Add(pause)
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

// split separates an error inside of a reply from other replies.
func split(value any) reply {
	if err, failed := value.(error); failed {
		return reply{err: err}
	}
	return reply{value: value}
}
