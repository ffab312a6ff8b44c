package bloomgate

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// A caller that waits inside the server occupies its connection, and gets the lease if the loading caller gives up. So at most one
// caller per row waits there. The others wait in the process until that caller is done, and share the answer to the next fetch.
//
// Loads without a lease, while there is no server, have flights of their own: callers of a row do not wait behind one that tries a server
// that hangs. At most one load of a row runs. Callers that arrive during it share the next one.

// outcome is what a flight that ends shares with those that wait for it. By default nothing: it has filled the row, or was
// cancelled.
type outcome struct {
	// found is the answer that ended its call, for those that began before that was asked for. One that began later may know of a
	// change that the answer does not have.
	found *fetched
	// err is the error of its load. It is shared with all, so that a crowd sees one failed load.
	err error
	// noServer says that the server failed: nobody waits any longer.
	noServer bool
}

// flights are the rows that callers of this process fetch now, or load now. While flights of a row wait, another one is active.
type flights struct {
	mutex sync.Mutex
	rows  map[string]*row
	// clock numbers calls, fetches and loads in the order in which they begin.
	clock *atomic.Uint64
	// areLoads says that these flights load their rows: one that gets a row or an error from another flight has ended.
	areLoads bool
}

// row has the flights of one row: how many are active, and those that wait in the process, by their numbers.
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
	number  uint64
	asked   uint64
	ended   bool
	waits   bool
	// resumed gets something when another flight ends the wait of this one, which then has given.
	resumed chan<- struct{}
	given   outcome
	// unblocked says that its last wait inside the server has ended early.
	unblocked bool
	// shares is what it shares when it ends.
	shares outcome
}

// begin begins an active flight.
func (f *flights) begin(id string) *flight {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.rows == nil {
		f.rows = map[string]*row{}
	}
	of := f.rows[id]
	if of == nil {
		of = &row{}
		f.rows[id] = of
	}
	of.active++
	now := f.clock.Add(1)
	return &flight{flights: f, row: of, id: id, number: now, asked: now}
}

// ask is called right before a fetch is sent, or a load begins: what it brings may be shared with the flights that began earlier.
func (f *flight) ask() {
	f.asked = f.flights.clock.Add(1)
}

// beginWait makes an active flight wait for the channel, which has room for one. If it is the only active one of its row, it stays
// active, and false is returned.
func (f *flight) beginWait(resumed chan<- struct{}) bool {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	if f.row.active == 1 {
		return false
	}
	f.row.active--
	f.resumed, f.given = resumed, outcome{}
	at, _ := slices.BinarySearchFunc(f.row.waiting, f.number, func(other *flight, number uint64) int {
		return cmp.Compare(other.number, number)
	})
	f.row.waiting, f.waits = slices.Insert(f.row.waiting, at, f), true
	return true
}

// state returns whether a flight still waits, and otherwise what another one shares with it.
func (f *flight) state() (waits bool, given outcome) {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	return f.waits, f.given
}

// endWait makes a flight active again that was resumed or has waited for long enough. It returns what another flight shares, which
// stays as old as it is if this one hands it on.
func (f *flight) endWait() outcome {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	f.activate()
	return f.given
}

func (f *flight) activate() {
	if f.waits {
		f.waits = false
		f.row.waiting = slices.DeleteFunc(f.row.waiting, func(other *flight) bool { return other == f })
		f.row.active++
	}
}

// resumeFirst resumes the flight that began first. It is active from now on, though its caller may be cancelled before it notices:
// then the end of the flight resumes the next one.
func (r *row) resumeFirst(given outcome, asked uint64) {
	first := r.waiting[0]
	r.waiting = r.waiting[1:]
	first.waits, first.given, first.asked = false, given, asked
	if first.flights.areLoads && given != (outcome{}) {
		first.ended = true
	} else {
		r.active++
	}
	select {
	case first.resumed <- struct{}{}:
	default:
		// Another row of the same call has told it.
	}
}

// end ends a flight.
func (f *flight) end() { endAll([]*flight{f}) }

// endAll ends flights of one kind together, and resumes the callers that share their outcomes. If other callers still wait for a row and none
// is active, the first of them resumes, and fetches or loads for the others.
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
	switch {
	case f.shares.found != nil:
		before = f.asked
	case f.shares.err != nil || f.shares.noServer:
		before = math.MaxUint64
	}
	for len(f.row.waiting) > 0 && f.row.waiting[0].number < before {
		f.row.resumeFirst(f.shares, f.asked)
	}
	if f.row.active == 0 && len(f.row.waiting) > 0 {
		f.row.resumeFirst(outcome{}, 0)
	}
	if f.row.active == 0 {
		delete(f.flights.rows, f.id)
	}
}
