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
	// turnRows is the most rows of a turn's command. More gain little, and one reply has to arrive within the time limit.
	turnRows = 64
)

// turn is the rows that callers ask for before Go's scheduler runs the goroutine that sends them, together: with many callers, most
// of the time of a fetch is that of its system calls and of go-redis, which a row of a BF.MFETCH shares with the others.
type turn struct {
	mutex sync.Mutex
	rows  []waitingRow
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
	g.turn.mutex.Lock()
	g.turn.rows = append(g.turn.rows, mine)
	isFirst := len(g.turn.rows) == 1
	g.turn.mutex.Unlock()
	if isFirst {
		g.client.tasks.start(g.sendTurn)
	}
	select {
	case found := <-mine.answered:
		return &found, nil
	case <-ctx.Done():
		g.client.tasks.start(func() { g.giveUp(mine.ctx, leasesIn([]string{id}, []answer{<-mine.answered})) })
		return nil, ctx.Err()
	}
}

// sendTurn sends the rows of a turn. A command has the values of its first caller's context.
func (g *commands) sendTurn() {
	// The callers that are ready to run add their rows first.
	runtime.Gosched()
	g.turn.mutex.Lock()
	rows := g.turn.rows
	g.turn.rows = nil
	g.turn.mutex.Unlock()
	for part := range slices.Chunk(rows, turnRows) {
		g.client.tasks.start(func() {
			ids := make([]string, len(part))
			for i, one := range part {
				ids[i] = one.id
			}
			for i, found := range g.find(part[0].ctx, ids, fetching{}) {
				part[i].answered <- found
			}
		})
	}
}
