package bloomgate

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// A caller that waits inside the server occupies its connection, and gets the lease if the loading caller gives up. So at most one
// caller per row waits there. The others wait in the process until that caller is done, and share the answer to the next fetch.

// outcome is what a flight that ends shares with those that wait for it. By default nothing: it has filled the row, or was
// cancelled.
type outcome struct {
	// found is the answer that ended its call, for those that began before that was asked for. One that began later may know of a
	// change that the answer does not have.
	found *fetched
	// err is the error of its load.
	err error
	// noServer says that the server failed: nobody waits any longer.
	noServer bool
}

// flights are the rows that callers of this process fetch and load now. While flights of a row wait, another one is active.
type flights struct {
	mutex sync.Mutex
	rows  map[string]*row
	// next numbers flights and fetches in the order in which they begin.
	next uint64
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
	// resumed is closed when another flight ends the wait of this one, which then has given.
	resumed chan struct{}
	given   outcome
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
	f.next++
	return &flight{flights: f, row: of, id: id, number: f.next, asked: f.next}
}

// ask is called right before a fetch is sent: its answer may be shared with the flights that began earlier.
func (f *flight) ask() {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	f.flights.next++
	f.asked = f.flights.next
}

// beginWait makes an active flight wait for the channel that it returns. If it is the only active one of its row, it stays active,
// and nothing is returned.
func (f *flight) beginWait() <-chan struct{} {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
	if f.row.active == 1 {
		return nil
	}
	f.row.active--
	f.resumed, f.given = make(chan struct{}), outcome{}
	at, _ := slices.BinarySearchFunc(f.row.waiting, f.number, func(other *flight, number uint64) int {
		return cmp.Compare(other.number, number)
	})
	f.row.waiting, f.waits = slices.Insert(f.row.waiting, at, f), true
	return f.resumed
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
	r.active++
	first.waits, first.given, first.asked = false, given, asked
	close(first.resumed)
}

// end ends a flight. Those that share its outcome go on. If others still wait and none is active, the first of them goes on, and
// fetches for the others.
func (f *flight) end() {
	f.flights.mutex.Lock()
	defer f.flights.mutex.Unlock()
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
