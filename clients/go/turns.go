package bloomgate

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

const (
	// mostAlone is how many fetches of one row a guard sends by themselves at a time. Callers beyond them fetch in turns.
	mostAlone = 8
	// mostTogether is how many commands with the rows of turns, and how many with those of GetMany, a guard sends at a time. Those of a burst
	// wait for their turn, not for a connection: in the time limit of a command they would not all get one.
	mostTogether = 8
	// turnRows is the most rows of a turn's command. More gain little, and one reply has to arrive within the time limit.
	turnRows = 64
)

// turns gather what many callers ask for before Go's scheduler runs the goroutine that sends it, together, or while mostTogether commands are
// under way: with many callers, most of the time of a command is that of its system calls and of go-redis.
type turns[T any] struct {
	mutex   sync.Mutex
	waiting []T
	senders int
	// take says how many of those that wait are sent together: at least one.
	take func(waiting []T) int
	send func(part []T)
}

// add adds work to a turn.
func (t *turns[T]) add(tasks *tasks, work ...T) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	isFirst := len(t.waiting) == 0
	t.waiting = append(t.waiting, work...)
	if isFirst {
		t.startSender(tasks)
	}
}

// startSender starts a sender, if there are not enough of them already. A sender ends when the queue is empty.
func (t *turns[T]) startSender(tasks *tasks) {
	if t.senders == mostTogether {
		return
	}
	t.senders++
	tasks.start(func() {
		for part := t.next(tasks); len(part) > 0; part = t.next(tasks) {
			t.send(part)
		}
	})
}

// next returns what is sent next, or nothing if the sender has to end.
func (t *turns[T]) next(tasks *tasks) []T {
	// The callers that are ready to run add their work first.
	runtime.Gosched()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.waiting) == 0 {
		t.senders--
		return nil
	}
	count := t.take(t.waiting)
	part := slices.Clone(t.waiting[:count])
	t.waiting = slices.Delete(t.waiting, 0, count)
	if len(t.waiting) > 0 {
		t.startSender(tasks)
	}
	return part
}

// waitingRow is a row of a turn. answered gets its answer.
type waitingRow struct {
	ctx      context.Context
	id       string
	answered chan answer
}

// fetchInTurn fetches a row together with those that other callers ask for. If ctx is done meanwhile, it returns its error at once,
// and a lease in the answer is given up.
func (g *commands) fetchInTurn(ctx context.Context, id string) (*answer, error) {
	mine := waitingRow{context.WithoutCancel(ctx), id, make(chan answer, 1)}
	g.fetches.add(&g.client.tasks, mine)
	select {
	case found := <-mine.answered:
		return &found, nil
	case <-ctx.Done():
		g.client.tasks.start(func() { g.giveUp(mine.ctx, leasesIn([]string{id}, []answer{<-mine.answered})) })
		return nil, ctx.Err()
	}
}

// fetchPart sends the rows of a turn. The command has the values of its first caller's context.
func (g *commands) fetchPart(part []waitingRow) {
	ids := make([]string, len(part))
	for i, one := range part {
		ids[i] = one.id
	}
	for i, found := range g.find(part[0].ctx, ids, fetching{}) {
		part[i].answered <- found
	}
}

// waitingFill is a BF.FILL of a turn. reply gets its reply.
type waitingFill struct {
	ctx   context.Context
	words []any
	reply *reply
	group *sync.WaitGroup
}

// fillInTurn sends BF.FILLs, of loaded rows or of leases that end, together with those of other callers.
func (g *commands) fillInTurn(ctx context.Context, words ...[]any) []reply {
	replies := make([]reply, len(words))
	work := make([]waitingFill, len(words))
	var group sync.WaitGroup
	group.Add(len(words))
	for i, one := range words {
		work[i] = waitingFill{context.WithoutCancel(ctx), one, &replies[i], &group}
	}
	g.fills.add(&g.client.tasks, work...)
	group.Wait()
	return replies
}

// takeFills says how many fills are sent together: up to a batch of rows, and commandBytes of values.
func takeFills(waiting []waitingFill) int {
	bytes := 0
	for i, one := range waiting[:min(batch, len(waiting))] {
		for _, word := range one.words {
			if value, isValue := word.([]byte); isValue {
				bytes += len(value)
			}
		}
		if i > 0 && bytes > commandBytes {
			return i
		}
	}
	return min(batch, len(waiting))
}

func (g *commands) fillPart(part []waitingFill) {
	words := make([][]any, len(part))
	for i, one := range part {
		words[i] = one.words
	}
	for i, found := range g.send(part[0].ctx, 0, words...) {
		*part[i].reply = found
		part[i].group.Done()
	}
}
