package bloomgate

import (
	"context"
	"time"
)

// many is one call of GetMany.
type many[T any] struct {
	guard *Guard[T]
	load  loader[T]
	ttl   time.Duration
	rows  map[string]*T
	// unguarded has the rows that the server failed for, or that nobody brought in time.
	unguarded []string
}

// getMany reads rows.
func (g *Guard[T]) getMany(ctx context.Context, ids []string, ttl time.Duration, load loader[T]) (map[string]T, error) {
	if err := g.checkCall(ctx, ttl); err != nil {
		return nil, err
	}
	since := g.clock.Add(1)
	call := &many[T]{guard: g, load: load, ttl: ttl, rows: map[string]*T{}}
	var left []string
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		if seen[id] = true; g.isLoading(ctx, id) {
			call.unguarded = append(call.unguarded, id)
		} else {
			left = append(left, id)
		}
	}
	deadline := time.Now().Add(g.options.wait)
	left, err := call.fetchAll(ctx, left)
	for err == nil && len(left) > 0 && time.Now().Before(deadline) {
		// By the time the first row is there, most of the others are, too.
		if err = call.waitFor(ctx, left[0], deadline); err == nil {
			left, err = call.fetchAll(ctx, left[1:])
		}
	}
	if err != nil {
		return nil, err
	}
	if call.unguarded = append(call.unguarded, left...); len(call.unguarded) > 0 {
		rows, err := g.unguarded(ctx, call.unguarded, since, load)
		if err != nil {
			return nil, err
		}
		call.add(call.unguarded, rows)
	}
	found := make(map[string]T, len(call.rows))
	for id, row := range call.rows {
		if row != nil {
			found[id] = *row
		}
	}
	return found, nil
}

func (m *many[T]) add(ids []string, rows []*T) {
	for i, id := range ids {
		m.rows[id] = rows[i]
	}
}

// fetchAll fetches rows, and loads those whose leases it gets. It returns the ids of the rows that other callers load.
func (m *many[T]) fetchAll(ctx context.Context, ids []string) (waiting []string, err error) {
	begun := make(map[string]*flight, len(ids))
	for _, id := range ids {
		begun[id] = m.guard.flights.begin(id)
	}
	sorted := &sorted{hasValues: true}
	defer func() {
		m.guard.giveUp(ctx, sorted.leases)
		for _, one := range begun {
			one.end()
		}
	}()
	for start := 0; start < len(ids); start += batch {
		part := ids[start:min(start+batch, len(ids))]
		unreadable, err := m.fetchPart(ctx, part, false, begun, sorted)
		if err == nil && len(unreadable) > 0 {
			_, err = m.fetchPart(ctx, unreadable, true, begun, sorted)
		}
		if err != nil {
			return nil, err
		}
	}
	// Only those with a lease will bring a row: nobody in this process has to wait for the other flights.
	var leased []*flight
	for _, one := range sorted.leases {
		leased = append(leased, begun[one.id])
		delete(begun, one.id)
	}
	for _, one := range begun {
		one.end()
	}
	return sorted.waiting, m.loadLeased(ctx, sorted, leased)
}

// sorted is what a fetch of many rows leaves to do.
type sorted struct {
	leases []lease
	// hasValues says that every row with a lease has an old value that may be served.
	hasValues bool
	// waiting has the rows that other callers load.
	waiting []string
}

// fetchPart fetches some rows together, and sorts them by their answers. It returns the ids whose cached values could not be
// decoded, to be fetched again with replace.
func (m *many[T]) fetchPart(
	ctx context.Context, ids []string, replace bool, begun map[string]*flight, sorted *sorted,
) (unreadable []string, err error) {
	for _, id := range ids {
		begun[id].ask()
	}
	answers, err := m.guard.fetch(ctx, ids, fetching{replace: replace})
	if err != nil {
		return nil, err
	}
	unneeded := leasesIn(ids, answers)
	defer func() { m.guard.giveUp(ctx, unneeded) }() // All of them if the codec panics.
	var known []lease
	for i, one := range answers {
		id := ids[i]
		if one.err != nil {
			m.unguarded = append(m.unguarded, id)
			begun[id].shares.noServer = true
			continue
		}
		if one.word == "wait" {
			sorted.waiting = append(sorted.waiting, id)
			continue
		}
		row, isReadable := m.guard.read(one.fetched, nil)
		switch {
		case isReadable && (replace || one.token == ""):
			// With replace, another caller has replaced the value meanwhile. The new one is not due for a refresh.
			m.rows[id] = row
			begun[id].shares = one.shared()
			known = append(known, leasesIn(ids[i:i+1], answers[i:i+1])...)
		case one.token != "":
			sorted.leases = append(sorted.leases, lease{id, one.token})
			sorted.hasValues = sorted.hasValues && isReadable
		case replace:
			sorted.waiting = append(sorted.waiting, id)
		default:
			unreadable = append(unreadable, id)
		}
	}
	unneeded = known
	return unreadable, nil
}

// waitFor waits for a row that another caller loads, and loads it if that caller does not bring it.
func (m *many[T]) waitFor(ctx context.Context, id string, deadline time.Time) error {
	mine := m.guard.flights.begin(id)
	defer mine.end()
	found, err := m.guard.fetchRow(ctx, mine, deadline)
	switch {
	case err != nil:
		return err
	case found == nil:
		m.unguarded = append(m.unguarded, id)
	case found.lease == nil:
		m.rows[id] = found.row
	default:
		return m.loadLeased(ctx, &sorted{leases: []lease{*found.lease}, hasValues: found.isReadable}, []*flight{mine})
	}
	return nil
}

// loadLeased loads rows under leases and fills them, and ends their flights.
func (m *many[T]) loadLeased(ctx context.Context, sorted *sorted, leased []*flight) error {
	leases := sorted.leases
	if len(leases) == 0 {
		return nil
	}
	// From here on, the guard ends them.
	sorted.leases = nil
	defer endAll(leased)
	rows, err := m.guard.loadLeased(ctx, leases, leased, m.load, m.ttl, sorted.hasValues)
	if err == nil {
		m.add(idsOf(leases), rows)
	}
	return err
}
