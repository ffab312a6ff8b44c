package bloomgate

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// A caller that waits inside the server occupies its connection, and gets the lease if the loading caller gives up. So at most one caller per
// row waits there. Others wait in the process until that caller is done, and share its row if they began before its fetch. Of the rest, the
// caller that has waited longest fetches next.
//
// Loads without a lease, while the server is unavailable, have separate flights: callers of a row do not wait for a caller that probes a hung
// server. At most one load of a row runs. Callers that arrive during it share the next one.

// outcome is what a flight shares when it ends. It is empty if the call was cancelled or returned an old value.
type outcome struct {
	// answer is shared with flights that began before its fetch. A later caller may be aware of a change that the answer does not include. If
	// the server failed, it is shared with all waiting callers.
	answer *answer
	// err is the error of its load. It is shared with all, so that a crowd causes one failed load.
	err error
}

// flights are the rows that callers of this process are fetching, or loading. While flights of a row wait, another flight is active.
type flights struct {
	mutex sync.Mutex
	rows  map[string]*row
	// clock numbers calls, fetches and loads in the order in which they begin.
	clock *atomic.Uint64
	// areLoads is set for flights that load rows: such a flight ends when it receives a row or an error.
	areLoads bool
}

// row is the number of active flights of one row, and its waiting flights in the order in which their calls began.
type row struct {
	active  int
	waiting []*flight
}

// flight is one caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or
// loads it.
type flight struct {
	flights *flights
	row     *row
	id      string
	// begun and asked are times on the clock.
	begun, asked uint64
	ended, waits bool
	// token is the token of the lease.
	token string
	// replaces is set if the caller could not decode the cached value.
	replaces bool
	// resumed receives a value when another flight resumes this one, after setting given.
	resumed       chan<- struct{}
	given, shares outcome
}

func newFlights(clock *atomic.Uint64) *flights {
	return &flights{rows: map[string]*row{}, clock: clock}
}

// begin begins an active flight of a call that began at a time of the clock.
func (f *flights) begin(id string, begun uint64) *flight {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	of := f.rows[id]
	if of == nil {
		of = &row{}
		f.rows[id] = of
	}
	of.active++
	return &flight{flights: f, row: of, id: id, begun: begun}
}

// ask must be called right before a fetch is sent or a load begins: the outcome may be shared with flights that began earlier.
func (f *flight) ask() { f.asked = f.flights.clock.Add(1) }

// share sets the outcome that a flight shares when it ends.
func (f *flight) share(what outcome) {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	f.shares = what
}

// wait makes an active flight wait for the channel, which has a capacity of one. The only active flight of a row stays active, and wait
// returns false.
func (f *flight) wait(resumed chan<- struct{}) bool {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	if f.row.active == 1 {
		return false
	}
	f.row.active--
	f.resumed, f.given = resumed, outcome{}
	at, _ := slices.BinarySearchFunc(f.row.waiting, f.begun, func(other *flight, begun uint64) int { return cmp.Compare(other.begun, begun) })
	f.row.waiting, f.waits = slices.Insert(f.row.waiting, at, f), true
	return true
}

// stop returns whether a flight still waits, and the outcome that another flight shares with it. isOver ends the wait.
func (f *flight) stop(isOver bool) (waits bool, given outcome) {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	if isOver {
		f.activate()
	}
	return f.waits, f.given
}

func (f *flight) activate() {
	if f.waits {
		f.waits = false
		f.row.waiting = slices.DeleteFunc(f.row.waiting, func(other *flight) bool { return other == f })
		f.row.active++
	}
}

// resumeFirst resumes the flight that began first. Unless it has ended, it is active from now on. If its caller is cancelled before it
// notices, the end of the flight resumes the next one. The shared outcome keeps the time of its fetch.
func (r *row) resumeFirst(given outcome, asked uint64) {
	first := r.waiting[0]
	r.waiting = r.waiting[1:]
	if first.ended = first.flights.areLoads && given != (outcome{}); !first.ended {
		r.active++
	}
	first.waits, first.given, first.asked = false, given, asked
	select {
	case first.resumed <- struct{}{}:
	default:
		// Another row of the same call has already signalled it.
	}
}

// end ends a flight.
func (f *flight) end() { endAll([]*flight{f}) }

// endAll ends flights together, and resumes the callers that share their outcomes. If callers still wait for a row without an active flight,
// the first of them resumes, and fetches or loads for the others.
func endAll(all []*flight) {
	if len(all) == 0 {
		return
	}
	all[0].flights.mutex.Lock()
	defer all[0].flights.mutex.Unlock()
	for _, one := range all {
		one.endLocked()
	}
}

func (f *flight) endLocked() {
	if f.ended {
		return
	}
	f.ended = true
	f.activate()
	f.row.active--
	before := uint64(0)
	switch answer := f.shares.answer; {
	case f.shares.err != nil || answer != nil && answer.err != nil:
		before = math.MaxUint64
	case answer != nil:
		before = f.asked
	}
	for len(f.row.waiting) > 0 && f.row.waiting[0].begun < before {
		f.row.resumeFirst(f.shares, f.asked)
	}
	if f.row.active == 0 && len(f.row.waiting) > 0 {
		f.row.resumeFirst(outcome{}, 0)
	}
	if f.row.active == 0 {
		delete(f.flights.rows, f.id)
	}
}

func shareAll(all []*flight, what outcome) {
	for _, one := range all {
		one.share(what)
	}
}

func idsOf(all []*flight) []string {
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = one.id
	}
	return ids
}
